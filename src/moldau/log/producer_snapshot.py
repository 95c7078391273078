"""The producer snapshot file: a partition's producers as of the offset in the file's name, in Kafka's layout.

version int16 (1), CRC-32C of what follows it uint32, count int32, then per producer 46 bytes
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

import crc32c

from moldau.log.errors import CorruptSnapshot
from moldau.log.producer_state import ProducerEntry, restored_entry

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction start
_ENTRY = Struct(">qhiqiqiq")


def encode_snapshot(producers: Iterable[ProducerEntry]) -> bytes:
    packed: list[bytes] = []
    for entry in producers:
        last = entry.batches[-1] if entry.batches else None
        packed.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_offset,
                last.last_offset - last.first_offset if last is not None else 0,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
        )
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(_VERSION, crc32c.crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    try:
        version, crc = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise CorruptSnapshot(f"unknown version {version}")
        body = memoryview(data)[_HEAD.size :]
        if crc32c.crc32c(body) != crc:
            raise CorruptSnapshot("the checksum does not fit")
        (count,) = _COUNT.unpack_from(body)
        if count < 0 or count * _ENTRY.size != len(body) - _COUNT.size:
            raise CorruptSnapshot(f"{count} producers do not fit {len(body)} bytes")
        return [restored_entry(*fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]
    except error as problem:
        raise CorruptSnapshot("too short") from problem
