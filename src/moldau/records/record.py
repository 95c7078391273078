"""Reading the records inside one batch: every record, or only what compaction or a control reader needs.

This module decides how the bytes of a batch's body become records, and refuses every body that does not parse exactly
to its end with `CorruptRecords`: no other exception leaves it, and no length found in the bytes is trusted before it
is checked. It must never write a batch (`builder.py` does) nor judge whether a record is welcome (`validation.py`).

The body of one record, after its length as a varint:

    attributes      int8     unused
    timestamp delta varlong  against the batch's base timestamp
    offset delta    varint   against the batch's base offset
    key             varint length (-1: none), bytes
    value           varint length (-1: none), bytes
    headers         varint count, then per header: varint length, UTF-8 name, varint length (-1: none), bytes

The loops decode varints of one and two bytes in place: in CPython a call costs more than the decoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from moldau.ports import Buffer
from moldau.records.batch import CODEC_MASK, HEADER_SIZE, MAGIC, MIN_BATCH_LENGTH, BatchHeader
from moldau.records.compression import DEFAULT_MAX_SIZE, CorruptRecords, decompress

Header: TypeAlias = tuple[str, bytes | None]
# What compaction wants to know of a record: (offset delta, key, has a value, start, end), the last two being where it
# stands in the unpacked body. A plain tuple, because a named one doubles the cost of a scan.
KeyedSlice: TypeAlias = tuple[int, bytes | None, bool, int, int]

_NO_HEADERS: Final[tuple[Header, ...]] = ()
_CONTROL_KEY: Final = Struct(">hh")
_VARINT_MAX_BYTES: Final = 5
_VARLONG_MAX_BYTES: Final = 10


class Record(NamedTuple):
    """One record with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = _NO_HEADERS


class ControlRecord(NamedTuple):
    """One record of a control batch: `type` is one of the CONTROL_ constants of `batch.py`, or unknown to us."""

    offset: int
    timestamp: int
    version: int
    type: int
    value: bytes


def header_of(batch: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`; refuses bytes that do not hold one whole v2 batch there."""
    if len(batch) - position < HEADER_SIZE:
        raise CorruptRecords(f"{len(batch) - position} bytes cannot hold a batch")
    header = BatchHeader(batch, position)
    if header.magic != MAGIC:
        raise CorruptRecords(f"batch has magic {header.magic}, not {MAGIC}")
    if header.batch_length < MIN_BATCH_LENGTH or header.end > len(batch):
        raise CorruptRecords(f"batch says it has {header.batch_length} bytes")
    if header.record_count < 0:
        raise CorruptRecords(f"batch says it has {header.record_count} records")
    return header


def unpack_body(batch: Buffer, header: BatchHeader, max_size: int = DEFAULT_MAX_SIZE) -> bytes:
    """The records of a batch as they stand one after the other, decompressed."""
    body = memoryview(batch)[header.position + HEADER_SIZE : header.end]
    return decompress(header.attributes & CODEC_MASK, body, max_size)


def read_records(
    batch: Buffer, header: BatchHeader | None = None, *, max_size: int = DEFAULT_MAX_SIZE
) -> Iterator[Record]:
    """The records of one batch in order. Lazy: corruption is met where it stands, after the records before it."""
    if header is None:
        header = header_of(batch)
    body = unpack_body(batch, header, max_size)
    return iterate_records(body, header)


def iterate_records(body: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records of a body that was already unpacked."""
    new = tuple.__new__
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    body_end = len(body)
    position = 0
    try:
        for _ in range(header.record_count):
            length = body[position]
            position += 1
            if length > 127:
                if body[position] < 128:
                    length = length & 0x7F | body[position] << 7
                    position += 1
                else:
                    length, position = read_varint_rest(body, position, length)
            end = position + ((length >> 1) ^ -(length & 1))
            if end > body_end:
                raise CorruptRecords(f"a record ends {end - body_end} bytes after its batch")
            # One byte of attributes is skipped.
            timestamp = body[position + 1]
            position += 2
            if timestamp > 127:
                if body[position] < 128:
                    timestamp = timestamp & 0x7F | body[position] << 7
                    position += 1
                else:
                    timestamp, position = read_varlong_rest(body, position, timestamp)
            offset = body[position]
            position += 1
            if offset > 127:
                if body[position] < 128:
                    offset = offset & 0x7F | body[position] << 7
                    position += 1
                else:
                    offset, position = read_varint_rest(body, position, offset)
            size = body[position]
            position += 1
            if size > 127:
                if body[position] < 128:
                    size = size & 0x7F | body[position] << 7
                    position += 1
                else:
                    size, position = read_varint_rest(body, position, size)
            if size & 1:
                if size != 1:
                    raise CorruptRecords(f"a key of {(size >> 1) ^ -1} bytes")
                key = None
            else:
                key = body[position : position + (size >> 1)]
                position += size >> 1
            size = body[position]
            position += 1
            if size > 127:
                if body[position] < 128:
                    size = size & 0x7F | body[position] << 7
                    position += 1
                else:
                    size, position = read_varint_rest(body, position, size)
            if size & 1:
                if size != 1:
                    raise CorruptRecords(f"a value of {(size >> 1) ^ -1} bytes")
                value = None
            else:
                value = body[position : position + (size >> 1)]
                position += size >> 1
            headers = _NO_HEADERS
            if body[position]:
                headers, position = _read_headers(body, position, end)
            else:
                position += 1
            if position != end:
                raise CorruptRecords("a record's fields do not fill its length")
            yield new(
                Record,
                (
                    base_offset + ((offset >> 1) ^ -(offset & 1)),
                    base_timestamp + ((timestamp >> 1) ^ -(timestamp & 1)) if append_time is None else append_time,
                    key,
                    value,
                    headers,
                ),
            )
    except IndexError:
        raise CorruptRecords("the batch ends inside a record") from None
    if position != body_end:
        raise CorruptRecords(f"{body_end - position} bytes after the last of {header.record_count} records")


def _read_headers(body: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = _varint(body, position)
    if count < 0 or count > end - position:
        raise CorruptRecords(f"a record with {count} headers in {end - position} bytes")
    headers: list[Header] = []
    for _ in range(count):
        size, position = _varint(body, position)
        if size < 0 or size > end - position:
            raise CorruptRecords(f"a header name of {size} bytes")
        name = body[position : position + size].decode("utf-8", "replace")
        position += size
        size, position = _varint(body, position)
        if size < 0:
            if size != -1:
                raise CorruptRecords(f"a header value of {size} bytes")
            headers.append((name, None))
            continue
        headers.append((name, body[position : position + size]))
        position += size
    return tuple(headers), position


def scan_keys(body: bytes, count: int, position: int = 0, *, to_end: bool = True) -> list[KeyedSlice]:
    """Key, tombstone flag and place of `count` records of an unpacked body; headers are walked only when present.

    A long body can be scanned in parts: each begins at the `position` where the part before ended, and only the last
    one must reach `to_end`.
    """
    found: list[KeyedSlice] = []
    body_end = len(body)
    try:
        for _ in range(count):
            start = position
            length = body[position]
            position += 1
            if length > 127:
                if body[position] < 128:
                    length = length & 0x7F | body[position] << 7
                    position += 1
                else:
                    length, position = read_varint_rest(body, position, length)
            end = position + ((length >> 1) ^ -(length & 1))
            if end > body_end:
                raise CorruptRecords(f"a record ends {end - body_end} bytes after its batch")
            position += 2
            if body[position - 1] > 127:
                position = _skip_varlong(body, position)
            offset = body[position]
            position += 1
            if offset > 127:
                if body[position] < 128:
                    offset = offset & 0x7F | body[position] << 7
                    position += 1
                else:
                    offset, position = read_varint_rest(body, position, offset)
            size = body[position]
            position += 1
            if size > 127:
                if body[position] < 128:
                    size = size & 0x7F | body[position] << 7
                    position += 1
                else:
                    size, position = read_varint_rest(body, position, size)
            if size & 1:
                if size != 1:
                    raise CorruptRecords(f"a key of {(size >> 1) ^ -1} bytes")
                key = None
            else:
                key = body[position : position + (size >> 1)]
                position += size >> 1
            size = body[position]
            position += 1
            if size > 127:
                if body[position] < 128:
                    size = size & 0x7F | body[position] << 7
                    position += 1
                else:
                    size, position = read_varint_rest(body, position, size)
            if size & 1:
                if size != 1:
                    raise CorruptRecords(f"a value of {(size >> 1) ^ -1} bytes")
            else:
                position += size >> 1
            if body[position]:
                position = skip_headers(body, position, end)
            else:
                position += 1
            if position != end:
                raise CorruptRecords("a record's fields do not fill its length")
            found.append(((offset >> 1) ^ -(offset & 1), key, size != 1, start, end))
    except IndexError:
        raise CorruptRecords("the batch ends inside a record") from None
    if to_end and position != body_end:
        raise CorruptRecords(f"{body_end - position} bytes after the last of {count} records")
    return found


def skip_headers(body: bytes, position: int, end: int) -> int:
    """Position after the headers that begin at `position`; refuses counts and lengths that cannot be."""
    count, position = _varint(body, position)
    if count < 0 or count > end - position:
        raise CorruptRecords(f"a record with {count} headers in {end - position} bytes")
    for _ in range(count):
        size, position = _varint(body, position)
        if size < 0:
            raise CorruptRecords(f"a header name of {size} bytes")
        position += size
        size, position = _varint(body, position)
        if size < -1:
            raise CorruptRecords(f"a header value of {size} bytes")
        if size > 0:
            position += size
        if position > end:
            raise CorruptRecords("headers end after their record")
    return position


def record_body(body: bytes, start: int) -> tuple[int, int]:
    """(timestamp delta, position of the offset delta) of the record that begins at `start`."""
    _, position = _varint(body, start)
    first = body[position + 1]
    position += 2
    if first > 127:
        first, position = read_varlong_rest(body, position, first)
    return (first >> 1) ^ -(first & 1), position


def read_control_records(batch: Buffer, header: BatchHeader | None = None) -> list[ControlRecord]:
    """The records of a control batch; their keys are an int16 version and an int16 type."""
    if header is None:
        header = header_of(batch)
    if not header.is_control:
        raise CorruptRecords("not a control batch")
    found = []
    for record in read_records(batch, header):
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            raise CorruptRecords("a control record's key is too short")
        version, kind = _CONTROL_KEY.unpack_from(record.key)
        if version < 0:
            raise CorruptRecords(f"a control record's key has version {version}")
        found.append(ControlRecord(record.offset, record.timestamp, version, kind, record.value or b""))
    return found


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value = body[position]
    position += 1
    if value > 127:
        value, position = read_varint_rest(body, position, value)
    return (value >> 1) ^ -(value & 1), position


def read_varint_rest(body: bytes, position: int, first: int) -> tuple[int, int]:
    """Raw (still zigzag) value of a varint whose first byte said that more follow."""
    second = body[position]
    if second < 128:
        return first & 0x7F | second << 7, position + 1
    value = first & 0x7F | (second & 0x7F) << 7
    shift = 14
    for at in range(position + 1, position + _VARINT_MAX_BYTES - 1):
        byte = body[at]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, at + 1
        shift += 7
    raise CorruptRecords("a varint does not end within 32 bits")


def read_varlong_rest(body: bytes, position: int, first: int) -> tuple[int, int]:
    """Raw (still zigzag) value of a varlong whose first byte said that more follow."""
    second = body[position]
    if second < 128:
        return first & 0x7F | second << 7, position + 1
    value = first & 0x7F | (second & 0x7F) << 7
    shift = 14
    for at in range(position + 1, position + _VARLONG_MAX_BYTES - 1):
        byte = body[at]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFFFFFFFFFF:
                break
            return value, at + 1
        shift += 7
    raise CorruptRecords("a varlong does not end within 64 bits")


def _skip_varlong(body: bytes, position: int) -> int:
    """Position after a varlong whose first byte said that more follow."""
    if body[position] < 128:
        return position + 1
    return read_varlong_rest(body, position, body[position - 1])[1]
