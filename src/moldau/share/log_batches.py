"""The batches of a read from the log, and which of them aborted transactions wrote.

Opens no record but the marker at the end of a transaction. A marker itself is given to a member like a record: the
client skips it and reports a gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
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
_base_of = itemgetter(0)


class BatchMap:
    """Where the batches of a read stand: the offsets of each, and its first byte."""

    __slots__ = ("end", "positions", "spans")

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.positions: list[int] = []
        # The byte after the last of them.
        self.end = 0

    def add(self, records: Buffer, last_wanted: int) -> int:
        """Go on with the batches of another piece, up to the one that has `last_wanted`; gives the bytes they take."""
        new = tuple.__new__
        unpack = _EXTENT.unpack_from
        spans, positions = self.spans, self.positions
        start = self.end
        position, size = 0, len(records)
        while size - position >= HEADER_SIZE:
            base, length, last_delta = unpack(records, position)
            last = base + last_delta
            spans.append(new(Span, (base, last)))
            positions.append(start + position)
            position += length + LENGTH_OVERHEAD
            if last >= last_wanted:
                break
        self.end = start + position
        return position

    def slice_of(self, records: Buffer, first: int, last: int) -> Buffer:
        """The batches that have any of [first, last], and those between them."""
        spans = self.spans
        begin = max(bisect_right(spans, first, key=_base_of) - 1, 0)
        behind = bisect_right(spans, last, key=_base_of)
        start = self.positions[begin]
        end = self.positions[behind] if behind < len(spans) else self.end
        return records if start == 0 and end == len(records) else memoryview(records)[start:end]


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
