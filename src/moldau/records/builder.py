"""Writing record batches: from records, control batches, and new batches out of existing ones.

This module decides the bytes of every batch that Moldau makes itself (coordinators, transaction markers, the
metadata log, compaction, a topic's own codec). It must never change what a record says: filtering and recompressing
keep offsets, timestamps, keys, values and headers, and the producer's identity that the batch carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from moldau.ports import Buffer
from moldau.records.batch import (
    CODEC_MASK,
    CONTROL_ABORT,
    CONTROL_BIT,
    CONTROL_COMMIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    seal,
)
from moldau.records.compression import NONE, compress
from moldau.records.record import Header, KeyedSlice, Record, header_of, record_body, unpack_body

_CONTROL_KEY: Final = Struct(">hh")
_CONTROL_KEY_VERSION: Final = 0
_END_TRANSACTION: Final = Struct(">hi")
_END_TRANSACTION_VERSION: Final = 0

_NULL_LENGTH: Final = b"\x01"


def encode_varint(value: int) -> bytes:
    """Zigzag varint of any width; the caller knows whether 32 or 64 bits are meant."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    if raw < 128:
        return _ONE_BYTE[raw]
    encoded = bytearray()
    while raw > 127:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


_ONE_BYTE: Final = tuple(bytes((raw,)) for raw in range(128))
# Lengths and offset deltas are mostly small: their encodings are looked up, not computed.
_SMALL_LIMIT: Final = 1024
_SMALL: Final = tuple(encode_varint(value) for value in range(_SMALL_LIMIT))


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
) -> bytes:
    """One record as it stands in a batch, its length included."""
    parts = [
        b"\x00",
        _SMALL[timestamp_delta] if 0 <= timestamp_delta < _SMALL_LIMIT else encode_varint(timestamp_delta),
        _SMALL[offset_delta] if 0 <= offset_delta < _SMALL_LIMIT else encode_varint(offset_delta),
    ]
    for data in (key, value):
        if data is None:
            parts.append(_NULL_LENGTH)
        else:
            size = len(data)
            parts.append(_SMALL[size] if size < _SMALL_LIMIT else encode_varint(size))
            parts.append(data)
    if headers:
        parts.append(encode_varint(len(headers)))
        for name, data in headers:
            encoded = name.encode()
            parts += (encode_varint(len(encoded)), encoded)
            parts += (_NULL_LENGTH,) if data is None else (encode_varint(len(data)), data)
    else:
        parts.append(b"\x00")
    body = b"".join(parts)
    size = len(body)
    return (_SMALL[size] if size < _SMALL_LIMIT else encode_varint(size)) + body


class BatchBuilder:
    """Collects records and makes one batch of them. Use once: `build` ends it."""

    __slots__ = (
        "_append_time",
        "_attributes",
        "_base_offset",
        "_base_sequence",
        "_base_timestamp",
        "_body",
        "_count",
        "_delete_horizon",
        "_last_offset",
        "_leader_epoch",
        "_level",
        "_max_timestamp",
        "_producer_epoch",
        "_producer_id",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        codec: int = NONE,
        level: int | None = None,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        log_append_time: int | None = None,
        delete_horizon: int | None = None,
    ) -> None:
        """`log_append_time` makes all records carry that time; `delete_horizon` is compaction's (KIP-534)."""
        self._base_offset = base_offset
        self._level = level
        self._leader_epoch = leader_epoch
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._append_time = log_append_time
        self._delete_horizon = delete_horizon
        self._attributes = (
            int(codec)
            | (TRANSACTIONAL_BIT if transactional else 0)
            | (CONTROL_BIT if control else 0)
            | (LOG_APPEND_TIME_BIT if log_append_time is not None else 0)
            | (DELETE_HORIZON_BIT if delete_horizon is not None else 0)
        )
        self._base_timestamp: int | None = delete_horizon
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset = base_offset - 1
        self._count = 0
        # The header's place is kept at the front, so that an uncompressed batch is never moved.
        self._body = bytearray(HEADER_SIZE)

    @property
    def count(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the batch so far, before compression."""
        return len(self._body)

    @property
    def next_offset(self) -> int:
        return self._last_offset + 1

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp: int,
        headers: Sequence[Header] = (),
        offset: int | None = None,
    ) -> int:
        """Add one record and return its offset: the next one, or a later one where compaction left a gap."""
        if offset is None:
            offset = self._last_offset + 1
        assert offset > self._last_offset, f"offset {offset} after {self._last_offset}"
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._body += encode_record(offset - self._base_offset, timestamp - self._base_timestamp, key, value, headers)
        self._last_offset = offset
        self._count += 1
        return offset

    def build(self, *, last_offset: int | None = None) -> bytes:
        """The sealed batch. `last_offset` claims offsets after the last record, as compaction must."""
        if last_offset is None:
            last_offset = self._last_offset
        assert last_offset >= self._last_offset, "a batch cannot end before its last record"
        max_timestamp = self._max_timestamp if self._append_time is None else self._append_time
        base_timestamp = NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp
        batch = self._body
        if self._attributes & CODEC_MASK:
            packed = compress(self._attributes & CODEC_MASK, memoryview(batch)[HEADER_SIZE:], self._level)
            batch = bytearray(HEADER_SIZE)
            batch += packed
        HEADER.pack_into(
            batch,
            0,
            self._base_offset,
            0,
            self._leader_epoch,
            MAGIC,
            0,
            self._attributes,
            last_offset - self._base_offset,
            base_timestamp,
            max_timestamp,
            self._producer_id,
            self._producer_epoch,
            self._base_sequence,
            self._count,
        )
        seal(batch)
        return bytes(batch)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    codec: int = NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    log_append_time: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """One batch of records that know their offsets; it begins at the first record's offset unless told otherwise."""
    listed = list(records)
    if base_offset is None:
        base_offset = listed[0].offset if listed else 0
    builder = BatchBuilder(
        base_offset=base_offset,
        codec=codec,
        level=level,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        log_append_time=log_append_time,
    )
    for offset, timestamp, key, value, headers in listed:
        builder.append(key, value, timestamp=timestamp, headers=headers, offset=offset)
    return builder.build(last_offset=last_offset)


def build_control_batch(
    records: Sequence[tuple[int, Buffer]],
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> bytes:
    """A control batch of (type, encoded value) records."""
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )
    for kind, value in records:
        builder.append(_CONTROL_KEY.pack(_CONTROL_KEY_VERSION, kind), bytes(value), timestamp=timestamp)
    return builder.build()


def build_end_transaction_marker(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The batch of one COMMIT or ABORT marker."""
    value = _END_TRANSACTION.pack(_END_TRANSACTION_VERSION, coordinator_epoch)
    return build_control_batch(
        [(CONTROL_COMMIT if committed else CONTROL_ABORT, value)],
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )


def recompress(batch: Buffer, codec: int, level: int | None = None, *, body: bytes | None = None) -> bytes:
    """The same batch with its body in another codec; `body` is what it unpacks to, where that is known already."""
    header = header_of(batch)
    packed = compress(codec, unpack_body(batch, header) if body is None else body, level)
    attributes = header.attributes & ~CODEC_MASK | int(codec)
    return _rewritten(
        header, packed, attributes, header.base_timestamp, header.max_timestamp, count=header.record_count
    )


def filter_batch(
    header: BatchHeader,
    body: bytes,
    kept: Sequence[KeyedSlice],
    *,
    delete_horizon: int | None = None,
    level: int | None = None,
) -> bytes:
    """The batch of `header` with only the `kept` records of its unpacked `body`.

    It keeps its offsets (also the last one, which a producer's sequence depends on), its codec and its producer. With
    `delete_horizon` the batch is given that horizon as base timestamp, and the records' deltas follow.
    """
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if delete_horizon is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time and len(kept) != header.record_count:
        latest = max((record_body(body, each[3])[0] for each in kept), default=None)
        max_timestamp = NO_TIMESTAMP if latest is None else header.base_timestamp + latest
    shift = header.base_timestamp - base_timestamp
    if shift:
        records = b"".join([_shift_timestamp(body, each[3], each[4], shift) for each in kept])
    else:
        records = b"".join(_merged_slices(body, kept))
    packed = compress(attributes & CODEC_MASK, records, level)
    return _rewritten(header, packed, attributes, base_timestamp, max_timestamp, count=len(kept))


def empty_batch(header: BatchHeader) -> bytes:
    """What compaction leaves of a batch whose records are all gone but whose sequence or epoch must be remembered."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _rewritten(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, count=0)


def _rewritten(
    header: BatchHeader, packed: bytes, attributes: int, base_timestamp: int, max_timestamp: int, *, count: int
) -> bytes:
    """A sealed batch of `packed` records that stands where the batch of `header` stood, from the same producer."""
    batch = bytearray(HEADER_SIZE)
    batch += packed
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        0,
        header.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    seal(batch)
    return bytes(batch)


def _merged_slices(body: bytes, kept: Sequence[KeyedSlice]) -> list[bytes]:
    """The kept records' bytes, neighbours in one piece."""
    pieces = []
    start = end = 0
    for _, _, _, record_start, record_end in kept:
        if record_start != end:
            pieces.append(body[start:end])
            start = record_start
        end = record_end
    pieces.append(body[start:end])
    return pieces


def _shift_timestamp(body: bytes, start: int, end: int, shift: int) -> bytes:
    delta, rest = record_body(body, start)
    timestamp = encode_varint(delta + shift)
    size = 1 + len(timestamp) + end - rest
    return encode_varint(size) + b"\x00" + timestamp + body[rest:end]
