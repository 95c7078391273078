"""Rows as text on their way through state, and back.

State that is kept by key holds each row as one JSON text, written and read by Spark itself. So the Python functions
that keep it neither know nor convert types, and the columns of a topic may grow without making a checkpoint unreadable.
It decides how a row is written down so that it reads back the same: timestamps to the microsecond, nulls spelled out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructField, StructType

_FORMATS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_WRITING = {**_FORMATS, "ignoreNullFields": "false"}


def schema_of(frame: Any, columns: Sequence[str]) -> Any:
    """The schema of some columns, in their order. Every field may be null: outer joins make nulls."""
    return StructType([StructField(name, frame.schema[name].dataType, True) for name in columns])


def packed(columns: Sequence[str]) -> Any:
    """Columns as one text."""
    if not columns:
        return F.lit("{}")
    return F.to_json(F.struct(*[F.col(quoted(name)).alias(name) for name in columns]), _WRITING)


def packed_key(columns: Sequence[str], types: Sequence[Any]) -> Any:
    """Columns as a text that is the same for the same values whatever the columns are called; null if one is null."""
    if not columns:
        return F.lit("{}")
    fields = [
        F.col(quoted(name)).cast(kind).alias(f"k{index}")
        for index, (name, kind) in enumerate(zip(columns, types, strict=True))
    ]
    present = F.lit(True)
    for name in columns:
        present = present & F.col(quoted(name)).isNotNull()
    return F.when(present, F.to_json(F.struct(*fields), _WRITING))


def key_schema(types: Sequence[Any]) -> Any:
    return StructType([StructField(f"k{index}", kind, True) for index, kind in enumerate(types)])


def unpacked(column: Any, schema: Any) -> Any:
    """The struct that a text was made of."""
    return F.from_json(column, schema, _FORMATS)


def quoted(name: str) -> str:
    """A column's name as Spark takes it, whatever characters are in it."""
    return f"`{name.replace('`', '``')}`"


def time_of(column: str) -> Any:
    """A timestamp in microseconds since the epoch."""
    return F.unix_micros(F.col(quoted(column)))
