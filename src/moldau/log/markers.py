"""Reading the one record of a transaction marker: committed or aborted, and by which coordinator's epoch."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from moldau.ports import Buffer
from moldau.records.batch import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    HEADER_SIZE,
    BatchError,
    BatchHeader,
)

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


@dataclass(frozen=True, slots=True)
class EndMarker:
    committed: bool
    coordinator_epoch: int
    timestamp: int


def read_end_marker(header: BatchHeader, batch: Buffer) -> EndMarker | None:
    """The marker in a control batch; None for an empty batch (compaction removed it) or another control record."""
    if header.record_count == 0:
        return None
    body: Buffer = memoryview(batch)[header.position + HEADER_SIZE : header.end]
    if header.codec:
        from moldau.records.compression import decompress

        body = decompress(header.codec, body, 1 << 16)
    try:
        _, at = _varint(body, 0)
        delta, at = _varint(body, at + 1)
        _, at = _varint(body, at)
        key_length, at = _varint(body, at)
        kind = _KEY.unpack_from(body, at)[1]
        if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
            return None
        _, at = _varint(body, at + key_length)
        coordinator_epoch = _VALUE.unpack_from(body, at)[1]
    except Exception as error:
        raise BatchError(f"the transaction marker at offset {header.base_offset} cannot be read") from error
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + delta
    return EndMarker(kind == CONTROL_COMMIT, coordinator_epoch, timestamp)


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    """A zigzag variable-length number and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
