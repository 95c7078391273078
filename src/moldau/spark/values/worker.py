"""The functions that Spark's Python workers run on batches of values.

They are marked as not deterministic, which they are not meant to be: otherwise Spark would read values a second time
for every filter on what came out.
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from moldau.spark.values.batches import ReaderSource, read_batch


class Writer(Protocol):
    def write(self, column: Any) -> Any:
        """A column of bytes."""


class WriterSource(Protocol):
    """What a format brings to the workers for writing."""

    def writer(self) -> Writer: ...


def reading_function(source: ReaderSource, kind: DataType, *, with_header: bool) -> Any:
    result = StructType([StructField("value", kind), StructField("error", StringType())])

    def read(values: pa.Array) -> pa.Array:
        return read_batch(source, values, None)

    def read_with_header(values: pa.Array, headers: pa.Array) -> pa.Array:
        return read_batch(source, values, headers)

    return arrow_udf(read_with_header if with_header else read, result).asNondeterministic()


def writing_function(source: WriterSource) -> Any:
    def write(column: pa.Array) -> pa.Array:
        return _writer(source).write(column)

    return arrow_udf(write, BinaryType()).asNondeterministic()


_writers: dict[WriterSource, Writer] = {}
_MOST_WRITERS = 1000


def _writer(source: WriterSource) -> Writer:
    writer = _writers.get(source)
    if writer is None:
        writer = source.writer()
        if len(_writers) >= _MOST_WRITERS:
            _writers.clear()
        _writers[source] = writer
    return writer
