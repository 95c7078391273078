"""Reading a partition's log for a share fetch: about as much as the member can be given, and no more.

A client asks for as many bytes as a fetch may have in all, but for few records; reading all those bytes each time
would cost more with every record that is stored. So a read is cut to what the wanted records should take, and goes on
only where they took more.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.broker.share_partitions import LedSharePartition
from moldau.log.partition_log import PartitionLog
from moldau.ports import Buffer
from moldau.share.acquiring import Acquired, Span, Wish, acquire
from moldau.share.log_batches import BatchMap, aborted_spans

# A read smaller than this saves nothing.
_LEAST_BYTES = 64 << 10
# And while nothing is known of the records, no more than this is tried first.
_MOST_AT_FIRST = 1 << 20
_MARGIN = 1.25


class ShareRead(NamedTuple):
    acquired: Acquired
    records: Buffer


NOTHING_READ = ShareRead(Acquired([], 0), b"")


def visible_end(log: PartitionLog, *, committed_only: bool) -> int:
    return log.last_stable_offset if committed_only else log.high_watermark


def first_offset(led: LedSharePartition, log: PartitionLog) -> int:
    """Where to read from. Records that the log has deleted meanwhile are left behind."""
    offset = led.share.next_fetch_offset()
    if offset < log.log_start_offset:
        led.share.log_start_moved(log.log_start_offset)
        offset = led.share.next_fetch_offset()
    return offset


def read_and_acquire(
    led: LedSharePartition, wish: Wish, max_bytes: int, *, committed_only: bool, min_one_message: bool
) -> ShareRead:
    """Give the member what it may have of the log from the wish's offset on."""
    log = led.partition.log
    upper = visible_end(log, committed_only=committed_only)
    if wish.fetch_offset >= upper or (max_bytes <= 0 and not min_one_message):
        return NOTHING_READ
    records, batches = _read(led, log, wish, max_bytes, upper, min_one_message)
    spans = batches.spans
    if not spans:
        return NOTHING_READ
    aborted: list[Span] = []
    if committed_only:
        ended = log.collect_aborted(wish.fetch_offset, spans[-1].last + 1)
        if ended:
            aborted = aborted_spans(records, ended)
    acquired = acquire(led.share, wish, spans, aborted)
    if not acquired.given:
        return ShareRead(acquired, b"")
    return ShareRead(acquired, batches.slice_of(records, acquired.given[0].first, acquired.given[-1].last))


def _read(
    led: LedSharePartition, log: PartitionLog, wish: Wish, max_bytes: int, upper: int, min_one_message: bool
) -> tuple[Buffer, BatchMap]:
    last_wanted = led.share.reach(wish.fetch_offset, wish.max_records)
    offset = wish.fetch_offset
    pieces: list[Buffer] = []
    batches = BatchMap()
    while True:
        likely = int((last_wanted - offset + 1) * led.bytes_per_record * _MARGIN)
        limit = min(max(likely, _LEAST_BYTES), max_bytes - batches.end)
        if not pieces:
            limit = min(limit, _MOST_AT_FIRST)
        data = log.read(offset, limit, max_offset=upper, min_one_message=min_one_message and not pieces)
        if not data.size:
            break
        used = batches.add(data.records, last_wanted)
        pieces.append(data.records if used == data.size else memoryview(data.records)[:used])
        offset = data.next_offset
        if batches.spans[-1].last >= last_wanted or offset >= upper or batches.end >= max_bytes:
            break
    if not pieces:
        return b"", batches
    read = batches.end / max(batches.spans[-1].last - batches.spans[0].base + 1, 1)
    led.bytes_per_record += (read - led.bytes_per_record) / 4
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), batches


def bytes_available(log: PartitionLog, offset: int, limit: int, *, committed_only: bool) -> int:
    """How many bytes there are to read from `offset` on, up to about `limit`."""
    upper = visible_end(log, committed_only=committed_only)
    if offset >= upper:
        return 0
    data = log.read(offset, limit, max_offset=upper, min_one_message=False)
    return data.size if data.next_offset >= upper else limit
