"""The batches of a read from the log, and which of them aborted transactions wrote.

Opens no record but the marker at the end of a transaction. A marker itself is given to a member like a record: the
client skips it and reports a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from moldau.ports import Buffer
from moldau.records.batch import (
    CONTROL_ABORT,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchError,
)
from moldau.records.record import read_records
from moldau.share.acquiring import Span

_EXTENT = Struct(">qi11xi")  # base offset, length, last offset delta
_WRITER = Struct(">h20xq")  # attributes, producer id
_WRITER_AT = 21
_CONTROL_KEY = Struct(">hh")  # version, type


def spans_of(records: Buffer) -> list[Span]:
    """The offsets of each whole batch."""
    spans: list[Span] = []
    position, end = 0, len(records)
    unpack = _EXTENT.unpack_from
    while end - position >= HEADER_SIZE:
        base, length, last_delta = unpack(records, position)
        spans.append(Span(base, base + last_delta))
        position += length + LENGTH_OVERHEAD
    return spans


def slice_of(records: Buffer, spans: Sequence[Span], first: int, last: int) -> Buffer:
    """The batches that have any of [first, last], and those between them."""
    if len(spans) < 2 or (spans[1].base > first and spans[-1].base <= last):
        return records
    begin = position = 0
    for at, (base, _) in enumerate(spans):
        if base > last:
            break
        if at and base <= first:
            begin = position
        position += LENGTH_OVERHEAD + int.from_bytes(records[position + 8 : position + LENGTH_OVERHEAD], "big")
    return records if begin == 0 and position == len(records) else memoryview(records)[begin:position]


def aborted_spans(records: Buffer, aborted: Sequence[tuple[int, int]]) -> list[Span]:
    """The batches in `records` that were written in the `aborted` transactions: (producer id, first offset) of each."""
    found: list[Span] = []
    waiting = sorted(aborted, key=lambda each: each[1], reverse=True)
    open_now: set[int] = set()
    position, end = 0, len(records)
    while end - position >= HEADER_SIZE:
        base, length, last_delta = _EXTENT.unpack_from(records, position)
        attributes, producer_id = _WRITER.unpack_from(records, position + _WRITER_AT)
        size = length + LENGTH_OVERHEAD
        if producer_id > NO_PRODUCER_ID:
            while waiting and waiting[-1][1] <= base + last_delta:
                open_now.add(waiting.pop()[0])
            if attributes & CONTROL_BIT:
                if _is_abort(memoryview(records)[position : position + size]):
                    open_now.discard(producer_id)
            elif attributes & TRANSACTIONAL_BIT and producer_id in open_now:
                found.append(Span(base, base + last_delta))
        position += size
    return found


def _is_abort(batch: memoryview) -> bool:
    try:
        key = next((record.key for record in read_records(batch)), None)
    except BatchError:
        return False
    return key is not None and len(key) >= _CONTROL_KEY.size and _CONTROL_KEY.unpack_from(key)[1] == CONTROL_ABORT
