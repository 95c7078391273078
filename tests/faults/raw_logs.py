"""What is really in the files: every segment of a partition, batch by batch, read without any code of the log room.

Only the record batch layout is shared with the broker; offsets, lengths and checksums are judged here anew, so that a
mistake of the log cannot hide itself.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

_PREFIX = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_DELTA = struct.Struct(">i")
_COUNT = struct.Struct(">i")
_PREFIX_SIZE = 12
_HEADER_SIZE = 61
_MAGIC_AT, _CRC_AT, _CRC_FROM, _DELTA_AT, _COUNT_AT = 16, 17, 21, 23, 57


@dataclass(frozen=True)
class RawBatch:
    file: str
    position: int
    base_offset: int
    last_offset: int
    records: int
    data: bytes


class DamagedLog(AssertionError):
    """A file of a stopped node holds something that is not a whole batch in its place."""


def partition_directories(data_dir: Path, topic: str) -> list[Path]:
    """The directories of a topic's partitions, in order, in whichever log directory each one is."""
    found = [path for path in data_dir.rglob(f"{topic}-*") if path.is_dir() and path.name[len(topic) + 1 :].isdigit()]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def segments(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def read_batches(partition: Path, *, compacted: bool = False) -> list[RawBatch]:
    """All batches of a partition; raises DamagedLog at the first one that is not whole or out of order."""
    batches: list[RawBatch] = []
    expected: int | None = None
    for segment in segments(partition):
        data = segment.read_bytes()
        position = 0
        while position < len(data):
            batch = _batch(segment.name, data, position)
            if (
                expected is not None
                and batch.base_offset != expected
                and not (compacted and batch.base_offset > expected)
            ):
                raise DamagedLog(
                    f"{partition.name}/{segment.name}@{position}: {batch.base_offset} after {expected - 1}"
                )
            expected = batch.last_offset + 1
            batches.append(batch)
            position += len(batch.data)
    return batches


def whole_prefix(data: bytes) -> list[RawBatch]:
    """The batches of one segment up to the first that is not whole, undamaged and next in line."""
    found: list[RawBatch] = []
    position = 0
    while position < len(data):
        try:
            batch = _batch("segment", data, position)
        except DamagedLog:
            break
        if found and batch.base_offset != found[-1].last_offset + 1:
            break
        found.append(batch)
        position += len(batch.data)
    return found


def _batch(name: str, data: bytes, position: int) -> RawBatch:
    where = f"{name}@{position} of {len(data)}"
    if len(data) - position < _HEADER_SIZE:
        raise DamagedLog(f"{where}: {len(data) - position} bytes are no batch")
    base_offset, length = _PREFIX.unpack_from(data, position)
    end = position + _PREFIX_SIZE + length
    if length < _HEADER_SIZE - _PREFIX_SIZE or end > len(data):
        raise DamagedLog(f"{where}: a batch of length {length}")
    if data[position + _MAGIC_AT] != 2:
        raise DamagedLog(f"{where}: magic {data[position + _MAGIC_AT]}")
    if crc32c(data[position + _CRC_FROM : end]) != _CRC.unpack_from(data, position + _CRC_AT)[0]:
        raise DamagedLog(f"{where}: the checksum does not fit")
    delta = _DELTA.unpack_from(data, position + _DELTA_AT)[0]
    count = _COUNT.unpack_from(data, position + _COUNT_AT)[0]
    return RawBatch(name, position, base_offset, base_offset + delta, count, data[position:end])
