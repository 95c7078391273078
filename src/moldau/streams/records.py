"""Keys and values of records as columns, and columns as keys and values: which encoding is used when none is given, and
what becomes of records that cannot be decoded.

The encodings themselves are `moldau.spark.values`. Without one, a key or value that is read stays bytes; one that is
written is JSON if it is made of several columns, and otherwise the text of its only column.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType, VariantType

from moldau.client.errors import MoldauError
from moldau.spark.values import Json, decode, encode

# What becomes of a record that cannot be decoded: the query fails, it is left out, or it stays with nulls and `_error`.
FAIL, DROP, PERMISSIVE = "fail", "drop", "permissive"
ERROR_MODES = (FAIL, DROP, PERMISSIVE)


def decoded(frame: Any, *, key: Any, value: Any, mode: str) -> Any:
    """A frame whose columns `key` and `value` are what the bytes in them mean. All other columns stay; there is a
    column `_error` unless the mode is to fail."""
    if mode not in ERROR_MODES:
        raise MoldauError(f"errors='{mode}' is not one of {', '.join(ERROR_MODES)}")
    if key is None and value is None:
        return frame if mode == FAIL else frame.withColumn("_error", F.lit(None).cast("string"))
    return decode(frame, key=key, value=value, mode=FAIL if mode == FAIL else PERMISSIVE)


def encoded(frame: Any, *, key: Any, value: Any) -> Any:
    """A frame whose columns `key` and `value` are bytes or texts. All other columns stay."""
    for name, given in (("key", key), ("value", value)):
        kind = frame.schema[name].dataType
        if given is None and not isinstance(kind, _MADE_OF_SEVERAL) and not isinstance(kind, StringType | BinaryType):
            frame = frame.withColumn(name, F.col(name).cast("string"))
    key = Json() if key is None and isinstance(frame.schema["key"].dataType, _MADE_OF_SEVERAL) else key
    value = Json() if value is None and isinstance(frame.schema["value"].dataType, _MADE_OF_SEVERAL) else value
    return encode(frame, key=key, value=value)


_MADE_OF_SEVERAL = (StructType, ArrayType, MapType, VariantType)
