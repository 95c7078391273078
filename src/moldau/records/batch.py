"""The layout of a record batch (message format v2): where each field stands and what the attribute bits mean.

This module decides the byte positions, the header's struct, the checksum and how a buffer is walked batch by batch.
It never opens a record: the batch's body stays opaque here (`record.py` reads it, `compression.py` unpacks it).

    0  base offset        int64   assigned by the leader, outside the checksum
    8  batch length       int32   bytes after this field
    12 leader epoch       int32   assigned by the leader, outside the checksum
    16 magic              int8    2
    17 crc                uint32  CRC-32C of everything from `attributes` to the end
    21 attributes         int16
    23 last offset delta  int32
    27 base timestamp     int64
    35 max timestamp      int64
    43 producer id        int64
    51 producer epoch     int16
    53 base sequence      int32
    57 record count       int32
    61 records
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

import crc32c as _crc32c

from moldau.ports import Buffer

MAGIC: Final = 2

BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORD_COUNT_AT: Final = 57

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
# Offset and length precede what `batch_length` counts.
LENGTH_OVERHEAD: Final = 12
# The smallest value `batch_length` can honestly have: a header and no records.
MIN_BATCH_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD

# The fields a leader assigns; none of them is covered by the checksum.
LEADER_FIELDS: Final = Struct(">qii")
LEADER_FIELDS_SIZE: Final = 16
LENGTH_FIELD: Final = Struct(">i")
MAX_TIMESTAMP: Final = Struct(">q")
CRC: Final = Struct(">I")
ATTRIBUTES: Final = Struct(">h")

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
# The base timestamp of a compacted batch with this bit is the horizon after which its tombstones or markers may go.
DELETE_HORIZON_BIT: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

# Keys of control records, as the int16 after the key's int16 version.
CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1
CONTROL_LEADER_CHANGE: Final = 2
CONTROL_SNAPSHOT_HEADER: Final = 3
CONTROL_SNAPSHOT_FOOTER: Final = 4
CONTROL_KRAFT_VERSION: Final = 5
CONTROL_KRAFT_VOTERS: Final = 6


class BatchError(ValueError):
    """Bytes that cannot be a record batch: a length, magic or checksum that does not fit."""


class BatchHeader:
    """The fields of one batch's header, and where the batch stands in its buffer."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buf: Buffer, position: int = 0) -> None:
        self.position = position
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(buf, position)

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def end(self) -> int:
        """Position just after the batch in its buffer."""
        return self.position + self.size

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer_id(self) -> bool:
        return bool(self.producer_id > NO_PRODUCER_ID)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, which wraps from 2^31-1 to 0; -1 without a sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.base_sequence, self.last_offset_delta)

    def checksum_matches(self, buf: Buffer) -> bool:
        return bool(compute_crc(memoryview(buf)[self.position : self.end]) == self.crc)


def add_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers count from 0 to 2^31-1 and begin again at 0."""
    return (sequence + increment) & 0x7FFFFFFF


def compute_crc(batch: memoryview) -> int:
    """CRC-32C of one whole batch's covered part; `batch` begins at the base offset and ends with the batch."""
    return int(_crc32c.crc32c(batch[ATTRIBUTES_AT:]))


def seal(batch: bytearray | memoryview) -> None:
    """Write the length and the checksum that fit the rest of the batch."""
    LENGTH_FIELD.pack_into(batch, LENGTH_AT, len(batch) - LENGTH_OVERHEAD)
    CRC.pack_into(batch, CRC_AT, compute_crc(memoryview(batch)))


def iter_batches(buf: Buffer, start: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
    """Headers of the whole batches in `buf[start:end]`; a cut last batch ends the walk, a senseless one raises.

    Checksums are not verified: that costs a pass over the bytes, and the caller knows whether it is due.
    """
    if end is None:
        end = len(buf)
    position = start
    while end - position >= HEADER_SIZE:
        header = BatchHeader(buf, position)
        if header.magic != MAGIC:
            raise BatchError(f"batch at position {position} has magic {header.magic}, not {MAGIC}")
        if header.batch_length < MIN_BATCH_LENGTH:
            raise BatchError(f"batch at position {position} says it has {header.batch_length} bytes")
        if header.end > end:
            return
        yield header
        position = header.end
