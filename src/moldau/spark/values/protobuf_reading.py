"""Arrow columns from Protobuf values: compiled loops read what is usual, Google's library the rest.

For the library, the rows of a batch are one repeated field of a message made for it, which costs a third of parsing
them one by one; only when that fails is each parsed by itself to find out which are bad. What an unset field becomes is
said in `protobuf_schema`. Fields that the wanted schema does not have are skipped, as Protobuf's rules are.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.message import DecodeError

from moldau.spark.values.arrow_types import arrow_type
from moldau.spark.values.errors import MALFORMED, MISMATCH, reason
from moldau.spark.values.protobuf_kernel import decode_rows, length_delimited
from moldau.spark.values.protobuf_schema import (
    DURATION,
    ENUM,
    JSON_TEXT,
    MESSAGE,
    TIMESTAMP,
    WRAPPER,
    ProtoField,
    ProtoMessage,
    message_class,
)
from moldau.spark.values.protobuf_tables import ProtobufTables, tables_for
from moldau.spark.values.vectors import Columns, Vectors

_BATCH_FILE, _BATCH = "moldau/batch.proto", "moldau.internal.Batch"
# A tag and the longest length of a row.
_FRAME_BYTES = 6
_SECONDS_LIMIT = 2**63 // 1_000_000 - 1


class ProtobufReader:
    """Reads values as messages of one type."""

    __slots__ = ("_batch", "_class", "_layout", "_tables", "_tables_arrays")

    def __init__(self, descriptor: Any, layout: ProtoMessage, *, compiled: bool = True) -> None:
        self._layout = layout
        self._class = message_class(descriptor)
        self._batch = _batch_class(descriptor)
        self._tables = tables_for(descriptor, layout) if compiled else None
        self._tables_arrays = None if self._tables is None else self._tables.arrays()

    def read(self, data: Any, starts: Any, ends: Any) -> tuple[Any, dict[int, str]]:
        """(column of the rows that can be read, in order; why the others cannot)."""
        if self._tables is None:
            return self._read_with_library(data, starts, ends)
        column, unusual = self._read_compiled(self._tables, data, starts, ends)
        if not unusual.any():
            return column, {}
        rows = np.flatnonzero(unusual)
        others, wrong_there = self._read_with_library(data, starts[rows], ends[rows])
        wrong = {int(rows[at]): why for at, why in wrong_there.items()}
        # Where each good row is: first those that were usual, then the others.
        place = np.empty(starts.size, dtype=np.int64)
        place[~unusual] = np.arange(len(column))
        place[np.delete(rows, list(wrong_there))] = np.arange(len(column), len(column) + len(others))
        good = np.delete(np.arange(starts.size), list(wrong))
        return pa.concat_arrays([column, others]).take(pa.array(place[good])), wrong

    def _read_compiled(self, tables: ProtobufTables, data: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
        vectors = Vectors(tables.level_of, tables.levels, starts.size)
        unusual = np.zeros(starts.size, dtype=np.bool_)
        row = 0
        while row < starts.size:
            row, full = decode_rows(
                data,
                starts,
                ends,
                row,
                self._tables_arrays,
                vectors.base,
                vectors.room,
                vectors.slots,
                vectors.slots.view(np.float64),
                vectors.counts,
                vectors.level_of,
                vectors.stack,
                vectors.before,
                unusual,
            )
            if full >= 0:
                vectors.grow(full)
        assert tables.root is not None
        constants = np.frombuffer(bytes(tables.constants) or b"\0", dtype=np.uint8)
        return Columns(vectors, data, constants).column(tables.root), unusual

    def _read_with_library(self, data: Any, starts: Any, ends: Any) -> tuple[Any, dict[int, str]]:
        wrong: dict[int, str] = {}
        try:
            messages = self._parse_together(data, starts, ends)
        except (DecodeError, ValueError):
            messages = self._parse_each(data, starts, ends, wrong)
        try:
            return message_column(self._layout, messages, None), wrong
        except (UnicodeDecodeError, UnicodeEncodeError, ValueError, OverflowError):
            return self._columns_of_each(messages, len(starts), wrong)

    def _parse_together(self, data: Any, starts: Any, ends: Any) -> list[Any]:
        framed = np.empty(int((ends - starts).sum()) + _FRAME_BYTES * starts.size, dtype=np.uint8)
        size = length_delimited(data, starts, ends, framed)
        return list(self._batch.FromString(framed[:size].tobytes()).rows)

    def _parse_each(self, data: Any, starts: Any, ends: Any, wrong: dict[int, str]) -> list[Any]:
        messages = []
        for row in range(starts.size):
            try:
                messages.append(self._class.FromString(data[starts[row] : ends[row]].tobytes()))
            except (DecodeError, ValueError):
                name = self._layout.name
                wrong[row] = reason(MALFORMED, f"it is not a message of Protobuf that can be read as {name}")
        return messages

    def _columns_of_each(self, messages: list[Any], rows: int, wrong: dict[int, str]) -> tuple[Any, dict[int, str]]:
        """For what only shows when fields are looked at: text of proto2 that is not UTF-8, a time out of range."""
        numbers = [row for row in range(rows) if row not in wrong]
        pieces = []
        for row, message in zip(numbers, messages, strict=True):
            try:
                pieces.append(message_column(self._layout, [message], None))
            except (UnicodeDecodeError, UnicodeEncodeError, ValueError, OverflowError) as error:
                wrong[row] = reason(MISMATCH, f"a field of it has no value in Spark: {error}")
        return pa.concat_arrays(pieces) if pieces else pa.nulls(0, arrow_type(self._layout.spark)), wrong


def _batch_class(descriptor: Any) -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_BATCH_FILE}.{descriptor.full_name}", package=f"moldau.internal.{descriptor.full_name}"
    )
    file.dependency.append(descriptor.file.name)
    message = file.message_type.add(name="Batch")
    message.field.add(
        name="rows",
        number=1,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{descriptor.full_name}",
    )
    pool = descriptor.file.pool
    try:
        pool.FindFileByName(file.name)
    except KeyError:
        pool.Add(file)
    return message_class(pool.FindMessageTypeByName(f"{file.package}.Batch"))


def message_column(layout: ProtoMessage, messages: list[Any], present: list[bool] | None) -> Any:
    children = [_column(each, messages) for each in layout.fields]
    kind = arrow_type(layout.spark)
    bitmap, nulls = None, 0
    if present is not None and not all(present):
        flags = np.array(present, dtype=np.bool_)
        bitmap, nulls = pa.py_buffer(np.packbits(flags, bitorder="little")), int(flags.size - np.count_nonzero(flags))
    return pa.Array.from_buffers(kind, len(messages), [bitmap], nulls, children=children)


def _column(each: ProtoField, messages: list[Any]) -> Any:
    values = list(map(attrgetter(each.name), messages)) if each.name.isidentifier() else _by_name(each.name, messages)
    if each.key is not None:
        return _map_column(each, values)
    if each.is_list:
        items = _values(each, list(chain.from_iterable(values)), None)
        return _list_array(arrow_type(each.column), [len(value) for value in values], [items])
    present = None
    if each.has_presence:
        name = each.name
        present = [message.HasField(name) for message in messages]
    return _values(each, values, present)


def _by_name(name: str, messages: list[Any]) -> list[Any]:
    return [getattr(message, name) for message in messages]


def _map_column(each: ProtoField, values: list[Any]) -> Any:
    assert each.key is not None
    kind = arrow_type(each.column)
    keys = _values(each.key, list(chain.from_iterable(values)), None)
    items = _values(each, [item for value in values for item in value.values()], None)
    entry = pa.struct([kind.key_field, kind.item_field])
    entries = pa.Array.from_buffers(entry, len(keys), [None], 0, children=[keys, items])
    return _list_array(kind, [len(value) for value in values], [entries])


def _list_array(kind: Any, lengths: list[int], children: list[Any]) -> Any:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(kind, len(lengths), [None, pa.py_buffer(offsets)], 0, children=children)


def _values(each: ProtoField, values: list[Any], present: list[bool] | None) -> Any:
    """A column of single values; where `present` says no, it is null."""
    if each.kind == MESSAGE:
        assert each.message is not None
        return message_column(each.message, values, present)
    if each.kind == ENUM:
        names = each.names
        # A number without a name is kept as a number: a newer writer's symbol.
        values = [names.get(value) or str(value) for value in values]
    elif each.kind == TIMESTAMP or each.kind == DURATION:
        values = [_micros(value) for value in values]
    elif each.kind == WRAPPER:
        values = [value.value for value in values]
    elif each.kind == JSON_TEXT:
        values = [json_format.MessageToJson(value, indent=None) for value in values]
    if present is not None and not all(present):
        values = [value if there else None for value, there in zip(values, present, strict=True)]
    return pa.array(values, arrow_type(each.spark))


def _micros(value: Any) -> int:
    if not -_SECONDS_LIMIT <= value.seconds <= _SECONDS_LIMIT:
        raise OverflowError(f"{value.seconds} seconds are out of range")
    return int(value.seconds) * 1_000_000 + int(value.nanos) // 1000
