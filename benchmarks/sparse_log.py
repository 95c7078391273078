"""A partition's log of any size that takes almost no disk: every batch is a real header and a hole in a sparse file.

A record whose value is zeros ends in zeros (so does its empty list of headers), and zeros need no blocks. The batches
are whole and their checksums right; timestamps are as if they had been produced one a second. Files are in Kafka's
formats, as a broker that was stopped cleanly leaves them. Written while the broker is down.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from moldau.log import names
from moldau.log.producer_snapshot import encode_snapshot
from moldau.records.batch import HEADER, HEADER_SIZE
from moldau.records.builder import encode_varint

BATCH_BYTES = 256 * 1024
SEGMENT_BATCHES = 400  # segments of 100 MB
SECOND_MS = 1000

_CRC_AT = 17
_CRC_FROM = 21
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class SparseLog:
    """What was written: offsets 0 to `batches` - 1, one record each, a second apart from `first_ms`."""

    batches: int
    segments: int
    first_ms: int

    @property
    def size_bytes(self) -> int:
        return self.batches * BATCH_BYTES


def write_sparse_log(data_directory: Path, topic: str, size_bytes: int) -> SparseLog:
    """Fill partition 0 of a topic that exists and is empty; bring the checkpoints in line with it."""
    batches = max(1, size_bytes // BATCH_BYTES)
    first_ms = int(time.time()) * 1000 - batches * SECOND_MS
    directory = data_directory / names.partition_directory(topic, 0)
    directory.mkdir(exist_ok=True)  # Moldau makes it with the first record
    bases = range(0, batches, SEGMENT_BATCHES)
    for base in bases:
        _write_segment(directory, base, min(SEGMENT_BATCHES, batches - base), first_ms)
    for offset in (*bases[1:], batches):
        # Taken at every roll and at a clean stop; there were no producers with an id.
        (directory / names.file_name(offset, names.SNAPSHOT_SUFFIX)).write_bytes(encode_snapshot([]))
    (directory / names.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n", encoding="ascii")
    for checkpoint in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        (data_directory / checkpoint).write_text(f"0\n1\n{topic} 0 {batches}\n", encoding="ascii")
    return SparseLog(batches, len(bases), first_ms)


def _write_segment(directory: Path, base: int, batches: int, first_ms: int) -> None:
    offsets, times = bytearray(), bytearray()
    log = os.open(directory / names.file_name(base, names.LOG_SUFFIX), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for relative in range(batches):
            timestamp = first_ms + (base + relative) * SECOND_MS
            os.pwrite(log, _batch_head(base + relative, timestamp), relative * BATCH_BYTES)
            if relative:
                offsets += _OFFSET_ENTRY.pack(relative, relative * BATCH_BYTES)
                times += _TIME_ENTRY.pack(timestamp, relative)
        os.ftruncate(log, batches * BATCH_BYTES)
    finally:
        os.close(log)
    (directory / names.file_name(base, names.OFFSET_INDEX_SUFFIX)).write_bytes(offsets)
    (directory / names.file_name(base, names.TIME_INDEX_SUFFIX)).write_bytes(times)


def _batch_head(offset: int, timestamp: int) -> bytes:
    """The bytes of a batch that are not zero; the rest of its BATCH_BYTES are."""
    head = bytearray(HEADER.pack(offset, BATCH_BYTES - 12, 0, 2, 0, 0, 0, timestamp, timestamp, -1, -1, -1, 1))
    head += _RECORD_HEAD
    checksum = crc32c(memoryview(_ZEROS)[: BATCH_BYTES - len(head)], crc32c(memoryview(head)[_CRC_FROM:]))
    struct.pack_into(">I", head, _CRC_AT, checksum)
    return bytes(head)


def _record_head() -> bytes:
    """Length, attributes, deltas, no key, and the value's length, such that the record ends where the batch does."""
    room = BATCH_BYTES - HEADER_SIZE
    value_bytes = room
    while True:
        body = bytes(3) + encode_varint(-1) + encode_varint(value_bytes)
        length = len(body) + value_bytes + 1  # and the count of headers, zero
        head = encode_varint(length) + body
        if len(head) + value_bytes + 1 <= room:
            assert len(head) + value_bytes + 1 == room, "lengths near a varint's edge leave a gap"
            return head
        value_bytes -= 1


_ZEROS = bytes(BATCH_BYTES)
_RECORD_HEAD = _record_head()
