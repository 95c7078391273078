"""Buffers that the compiled parser fills, and the Arrow columns made of them without another copy.

It decides how large the buffers must be at most (a record's key cannot be longer than its batch) and which of them need
a validity bitmap. The Arrow types come from Spark's schema: an Arrow batch whose types differ in anything is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.client.errors import MoldauError
from moldau.spark import kernels
from moldau.spark.buffers import POOL

# The order of the columns, as in Spark's own Kafka source.
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"

# A header has at least a byte for each of its two lengths.
_SMALLEST_HEADER_BYTES = 2


class ColumnBuilder:
    """Makes Arrow batches for one partition of one topic."""

    __slots__ = (
        "_constant_rows",
        "_partition",
        "_partition_column",
        "_schema",
        "_topic",
        "_topic_column",
        "_with_headers",
    )

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._schema = schema
        self._with_headers = HEADERS in schema.names
        self._topic = topic
        self._partition = partition
        self._constant_rows = 0
        self._topic_column: Any = None
        self._partition_column: Any = None

    def build(self, data: Any, table: Sequence[Sequence[int]], first_offset: int, end_offset: int) -> pa.RecordBatch:
        """The records of the batches that `table` describes (see `kernels`) with offsets in [first, end)."""
        batches = np.array(table, dtype=np.int64).reshape(len(table), kernels.TABLE_COLUMNS)
        rows = int(batches[:, kernels.RECORD_COUNT].sum())
        size = int((batches[:, kernels.BODY_END] - batches[:, kernels.BODY_START]).sum())
        headers = size // _SMALLEST_HEADER_BYTES + 1 if self._with_headers else 0
        header_bytes = size if self._with_headers else 0

        bytes_ = POOL.take

        def ends(count: int) -> Any:
            return POOL.take_numbers(count + 1, np.int32)

        offsets = POOL.take_numbers(rows, np.int64)
        timestamps = POOL.take_numbers(rows, np.int64)
        timestamp_types = POOL.take_numbers(rows, np.int32)
        key = (ends(rows), bytes_(rows), bytes_(size))
        value = (ends(rows), bytes_(rows), bytes_(size))
        header_ends = ends(rows if self._with_headers else 0)
        header_key = (ends(headers), bytes_(header_bytes))
        header_value = (ends(headers), bytes_(headers), bytes_(header_bytes))
        filled = np.zeros(kernels.FILLED_COLUMNS, dtype=np.int64)
        count = kernels.parse_records(
            np.frombuffer(data, dtype=np.uint8),
            batches,
            first_offset,
            end_offset,
            self._with_headers,
            offsets,
            timestamps,
            timestamp_types,
            *key,
            *value,
            (header_ends, *header_key, *header_value),
            filled,
        )
        if count == kernels.CORRUPT:
            raise MoldauError("its records do not fit their lengths")
        n = int(filled[kernels.ROWS])
        topic, partition = self._constants(n)
        types = {field.name: field.type for field in self._schema}
        columns = [
            _binary(types["key"], n, key, filled[kernels.KEY_BYTES], filled[kernels.NULL_KEYS]),
            _binary(types["value"], n, value, filled[kernels.VALUE_BYTES], filled[kernels.NULL_VALUES]),
            topic,
            partition,
            _plain(types["offset"], n, offsets),
            _plain(types["timestamp"], n, timestamps),
            _plain(types["timestampType"], n, timestamp_types),
        ]
        if self._with_headers:
            columns.append(_headers(types[HEADERS], n, header_ends, header_key, header_value, filled))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _constants(self, rows: int) -> tuple[Any, Any]:
        """The topic and partition columns: slices of ones made for the largest batch so far."""
        if rows > self._constant_rows or self._topic_column is None:
            name = self._topic.encode()
            ends = np.arange(0, (rows + 1) * len(name), len(name), dtype=np.int32)[: rows + 1]
            text = np.tile(np.frombuffer(name, dtype=np.uint8), rows)
            topic_type = self._schema.field("topic").type
            self._topic_column = pa.Array.from_buffers(topic_type, rows, [None, pa.py_buffer(ends), pa.py_buffer(text)])
            numbers = np.full(rows, self._partition, dtype=np.int32)
            self._partition_column = _plain(self._schema.field("partition").type, rows, numbers)
            self._constant_rows = rows
        return self._topic_column[:rows], self._partition_column[:rows]


def _plain(kind: pa.DataType, rows: int, numbers: Any) -> Any:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers[:rows])])


def _binary(kind: pa.DataType, rows: int, buffers: tuple[Any, Any, Any], size: int, nulls: int) -> Any:
    ends, valid, data = buffers
    bitmap = pa.py_buffer(np.packbits(valid[:rows], bitorder="little")) if nulls else None
    return pa.Array.from_buffers(
        kind, rows, [bitmap, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(data[:size])], int(nulls)
    )


def _headers(kind: pa.DataType, rows: int, ends: Any, key: Any, value: Any, filled: Any) -> Any:
    """Headers as a list of (key, value). A record without any has null, as Spark's own source gives it."""
    count = int(filled[kernels.HEADERS])
    entry = kind.value_type
    key_ends, key_data = key
    keys = pa.Array.from_buffers(
        entry.field("key").type,
        count,
        [None, pa.py_buffer(key_ends[: count + 1]), pa.py_buffer(key_data[: filled[kernels.HEADER_KEY_BYTES]])],
    )
    values = _binary(
        entry.field("value").type,
        count,
        value,
        filled[kernels.HEADER_VALUE_BYTES],
        filled[kernels.NULL_HEADER_VALUES],
    )
    entries = pa.StructArray.from_arrays([keys, values], fields=[entry.field("key"), entry.field("value")])
    ends = ends[: rows + 1]
    present = ends[1:] > ends[:-1]
    empty = int(rows - np.count_nonzero(present))
    bitmap = pa.py_buffer(np.packbits(present, bitorder="little")) if empty else None
    return pa.Array.from_buffers(kind, rows, [bitmap, pa.py_buffer(ends)], empty, children=[entries])
