"""How a record says which schema wrote it: in front of its value, or in a header.

In front of the value: a byte 0 and the schema's id (four bytes, most significant first), or a byte 1 and the schema's
GUID (sixteen bytes). Or the same in the header `__value_schema_id` (`__key_schema_id` for keys), and the value as is.
Protobuf adds which message of the schema's file it is: a path of indexes as zigzag varints after their number, with a
single 0 for the very common path [0].

It decides which rows belong together and which are not framed at all; it never asks a registry.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.spark.values.errors import UNFRAMED, reason

VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
_ID_MAGIC, _GUID_MAGIC = 0, 1
_ID_BYTES, _GUID_BYTES = 5, 17
_MOST_INDEXES = 1000


@dataclass(slots=True, frozen=True)
class SchemaId:
    """Which schema wrote a value: an id or a GUID; and for Protobuf, which message of it."""

    number: int | None = None
    guid: str | None = None
    message: tuple[int, ...] = ()

    def __str__(self) -> str:
        return str(self.guid if self.number is None else self.number)


@dataclass(slots=True)
class Group:
    """Rows whose values one schema wrote: their numbers, and where in the data their values are."""

    schema: SchemaId | None
    rows: Any
    starts: Any
    ends: Any


@dataclass(slots=True)
class Rows:
    """A column of bytes, taken apart."""

    data: Any
    starts: Any
    ends: Any
    present: Any

    @classmethod
    def of(cls, column: Any) -> Rows:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
        count = len(column)
        bitmap, offsets, data = column.buffers()
        if count == 0 or offsets is None:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(np.frombuffer(b"\0", dtype=np.uint8), nothing, nothing, nothing.astype(np.bool_))
        ends = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
        ends = ends[column.offset : column.offset + count + 1].astype(np.int64)
        present = np.ones(count, dtype=np.bool_)
        if bitmap is not None and column.null_count:
            bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")
            present = bits[column.offset : column.offset + count].astype(np.bool_)
        content = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else _NOTHING
        return cls(content, ends[:-1], ends[1:], present)

    def value(self, row: int) -> bytes:
        return bytes(self.data[self.starts[row] : self.ends[row]])


_NOTHING = np.frombuffer(b"\0", dtype=np.uint8)


def unframed(rows: Rows) -> list[Group]:
    """All values, in one group: nobody says which schema wrote them."""
    numbers = np.flatnonzero(rows.present)
    return [Group(None, numbers, rows.starts[numbers], rows.ends[numbers])] if numbers.size else []


def framed(rows: Rows, headers: Any, *, messages: bool) -> tuple[list[Group], dict[int, str]]:
    """Groups of rows by schema, and what is wrong with the rows that are in none.

    `headers` is a column of the header's values, or None. With `messages`, Protobuf's indexes are read as well.
    """
    groups: dict[SchemaId, list[tuple[Any, Any]]] = {}
    bad: dict[int, str] = {}
    in_header = np.zeros(rows.present.size, dtype=np.bool_)
    if headers is not None and headers.null_count < len(headers):
        for row, header in enumerate(headers.to_pylist()):
            if header is not None and rows.present[row]:
                in_header[row] = True
                _read_one(header, row, 0, groups, bad, rows, messages=messages, in_header=True)
    _read_prefixes(rows, rows.present & ~in_header, groups, bad, messages=messages)
    found = []
    for schema, parts in groups.items():
        numbers = np.concatenate([each[0] for each in parts])
        starts = np.concatenate([each[1] for each in parts])
        if len(parts) > 1:
            order = np.argsort(numbers, kind="stable")
            numbers, starts = numbers[order], starts[order]
        found.append(Group(schema, numbers, starts, rows.ends[numbers]))
    return found, bad


def _read_prefixes(rows: Rows, wanted: Any, groups: Any, bad: dict[int, str], *, messages: bool) -> None:
    """The usual rows (a byte 0 and an id) all at once, the others one by one."""
    sizes = rows.ends - rows.starts
    usual = wanted & (sizes >= _ID_BYTES)
    starts = np.where(usual, rows.starts, 0)
    usual &= rows.data[starts] == _ID_MAGIC
    if messages:
        # The message [0], which is written as one byte.
        usual &= sizes > _ID_BYTES
        usual &= rows.data[np.where(usual, starts + _ID_BYTES, 0)] == 0
    numbers = np.flatnonzero(usual)
    starts = rows.starts[numbers]
    ids = np.zeros(numbers.size, dtype=np.int64)
    for byte in range(1, _ID_BYTES):
        ids = (ids << 8) | rows.data[starts + byte]
    after = _ID_BYTES + (1 if messages else 0)
    message = (0,) if messages else ()
    for number in np.unique(ids):
        of = ids == number
        groups.setdefault(SchemaId(int(number), None, message), []).append((numbers[of], starts[of] + after))
    for row in np.flatnonzero(wanted & ~usual):
        prefix = bytes(rows.data[rows.starts[row] : rows.ends[row]])
        _read_one(prefix, int(row), int(rows.starts[row]), groups, bad, rows, messages=messages, in_header=False)


def _read_one(
    prefix: bytes,
    row: int,
    start: int,
    groups: Any,
    bad: dict[int, str],
    rows: Rows,
    *,
    messages: bool,
    in_header: bool,
) -> None:
    try:
        schema, length = read_prefix(prefix, messages=messages)
    except ValueError as error:
        where = "its header with the schema's id" if in_header else "it"
        bad[row] = reason(UNFRAMED, f"{where} {error}")
        return
    begin = int(rows.starts[row]) if in_header else start + length
    groups.setdefault(schema, []).append((np.array([row]), np.array([begin])))


def read_prefix(data: bytes, *, messages: bool) -> tuple[SchemaId, int]:
    """(schema, length of what says so). ValueError says what is wrong."""
    if not data:
        raise ValueError("is empty: no serializer of a schema registry wrote it")
    magic = data[0]
    if magic not in (_ID_MAGIC, _GUID_MAGIC):
        raise ValueError(f"begins with byte {magic}, not with 0 or 1: no serializer of a schema registry wrote it")
    end = _ID_BYTES if magic == _ID_MAGIC else _GUID_BYTES
    if len(data) < end:
        raise ValueError(f"has {len(data)} bytes, too few for a schema's id")
    path: tuple[int, ...] = ()
    if messages:
        path, end = _read_path(data, end)
    if magic == _ID_MAGIC:
        return SchemaId(struct.unpack_from(">I", data, 1)[0], None, path), end
    return SchemaId(None, str(uuid.UUID(bytes=data[1:_GUID_BYTES])), path), end


def write_prefix(schema: SchemaId) -> bytes:
    """What stands in front of a value, or in its header, that this schema wrote."""
    if schema.number is not None:
        begin = struct.pack(">bI", _ID_MAGIC, schema.number)
    else:
        assert schema.guid is not None, "a schema has an id or a GUID"
        begin = bytes([_GUID_MAGIC]) + uuid.UUID(schema.guid).bytes
    if not schema.message:
        return begin
    if schema.message == (0,):
        return begin + b"\0"
    return begin + b"".join(_varint(each) for each in (len(schema.message), *schema.message))


def _read_path(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    count, position = _read_varint(data, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"says that its message is nested {count} times")
    path = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        path.append(index)
    return tuple(path), position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data):
            raise ValueError("ends where it should say which message it is")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("has an index of more than 64 bits")


def _varint(value: int) -> bytes:
    value = value << 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
