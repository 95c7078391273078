"""Giving records to a member: which of those that were read from the log it gets, and how they are told to it.

Follows Kafka in every limit: how many records may be in flight, how many one fetch may have, how they are cut into
batches, and how records that failed before are given out in ever smaller portions, the last time alone. Whole batches
are given in one step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from moldau.share.in_flight import InFlightBatch, Run
from moldau.share.partition import SharePartition
from moldau.share.states import ACQUIRED, AVAILABLE


class Span(NamedTuple):
    """The offsets of one batch in the log."""

    base: int
    last: int


class Given(NamedTuple):
    """Neighbouring records a member got, and the how many-th time it is for them."""

    first: int
    last: int
    deliveries: int


@dataclass(slots=True)
class Wish:
    """What a fetch asks of one share partition."""

    member: str
    fetch_offset: int
    max_records: int
    batch_size: int
    # Never more than `max_records`, even if that parts a batch of the log.
    record_limit: bool = False


class Acquired(NamedTuple):
    given: list[Given]
    records: int


NOTHING = Acquired([], 0)
_base_of = itemgetter(0)
# Records that failed at most once are not held back.
_FEWEST_BEFORE_THROTTLING = 2
# With so few deliveries nothing is delivered alone.
_FEWEST_FOR_LONE_DELIVERY = 2


def acquire(partition: SharePartition, wish: Wish, batches: Sequence[Span], aborted: Sequence[Span] = ()) -> Acquired:
    """Give the member what it may have of the `batches` that were read from the log; `aborted` are put aside."""
    if not partition.is_active or wish.max_records <= 0 or not batches:
        return NOTHING
    last = batches[-1].last
    if last < partition.start_offset:
        return NOTHING
    acquisition = _Acquisition(partition, wish, batches)
    acquisition.limit(last)
    if acquisition.left <= 0:
        return NOTHING
    acquisition.run()
    if aborted and acquisition.given:
        return _without(partition, acquisition.given, aborted)
    return Acquired(acquisition.given, acquisition.count)


class _Acquisition:
    __slots__ = (
        "_batches",
        "_last",
        "_max_deliveries",
        "_partition",
        "_throttle_from",
        "_wish",
        "count",
        "given",
        "left",
    )

    def __init__(self, partition: SharePartition, wish: Wish, batches: Sequence[Span]) -> None:
        self._partition = partition
        self._wish = wish
        self._batches = batches
        self._max_deliveries = partition.config().share_delivery_count_limit
        self._throttle_from = max(_FEWEST_BEFORE_THROTTLING, -(-self._max_deliveries // 2))
        self._last = -1
        # How many records it may still have.
        self.left = 0
        self.given: list[Given] = []
        self.count = 0

    def limit(self, last: int) -> None:
        """As many as wanted and as may be in flight. What is in flight already may always be given again."""
        partition, wish = self._partition, self._wish
        self._last = last
        self.left = min(
            wish.max_records, partition.config().share_partition_max_record_locks - partition.in_flight_records
        )
        if self.left <= 0 and wish.fetch_offset <= partition.end_offset:
            self.left = min(wish.max_records, partition.end_offset - wish.fetch_offset + 1)
            self._last = min(last, partition.end_offset)

    def run(self) -> None:
        partition = self._partition
        first_base = self._batches[0].base
        self._archive_vanished(first_base)
        base = first_base
        floor = partition.window.floor(base)
        if floor is None:
            base = max(base, partition.start_offset)
        elif floor.last >= base:
            base = floor.first
        known = partition.window.between(min(first_base, base), self._last)
        if known:
            self._among(known, base, first_base)
        else:
            self._new(base, self._last)

    def _archive_vanished(self, base: int) -> None:
        """The log begins later than what was asked for: records in between are compacted away or deleted."""
        partition, asked = self._partition, self._wish.fetch_offset
        if not len(partition.window) or asked >= base:
            return
        floor = partition.window.floor(asked)
        first = floor.first if floor is not None and floor.last >= asked else asked
        vanished = partition.window.between(first, base - 1)
        if vanished and partition.archive(asked, base - 1, vanished, AVAILABLE, count=True):
            partition.search_again()

    # ---- among what is in flight

    def _among(self, known: list[InFlightBatch], base: int, first_base: int) -> None:
        partition, last = self._partition, self._last
        hole = base
        for batch in known:
            if self.left <= 0:
                break
            if partition.has_gaps:
                if hole < batch.first:
                    self._new(hole, batch.first - 1)
                hole = batch.last + 1
                if self.left <= 0:
                    break
            if not self._from_batch(batch, first_base):
                self.left = 0
                break
        behind = known[-1].last + 1
        if self.left > 0 and behind <= last:
            self._new(behind, last)
        if self.given:
            partition.gap_closed_before(self.given[-1].last + 1)

    def _from_batch(self, batch: InFlightBatch, first_base: int) -> bool:
        """Give what is free in one batch; False when nothing else may be given along with it."""
        throttled = self._is_throttled(batch, first_base)
        if throttled and self.count > 0:
            return False
        parted = self._wish.record_limit and batch.size > self.left
        if not batch.is_within(first_base, self._last) or batch.by_offset or parted or throttled:
            if not batch.by_offset:
                if not batch.run.is_free:
                    return True
                batch.by_offset = True
            got = self._part_of(batch, first_base)
            self._took(got)
            return not (throttled and got > 0)
        run = batch.run
        if run.is_free and self._give(batch, run):
            self.given.append(Given(batch.first, batch.last, run.deliveries))
            self._took(batch.size)
        return True

    def _took(self, count: int) -> None:
        self.count += count
        self.left -= count

    def _is_throttled(self, batch: InFlightBatch, first_base: int) -> bool:
        if not batch.by_offset:
            run = batch.run
            return run.is_free and run.deliveries >= self._throttle_from
        return any(
            run.is_free and run.deliveries >= self._throttle_from for run in batch.overlapping(first_base, self._last)
        )

    def _part_of(self, batch: InFlightBatch, first_base: int) -> int:
        """Give single records of a batch, as long as they may go together; gives their number."""
        got = 0
        portion = -1
        given: list[Given] = []
        max_deliveries = self._max_deliveries
        lone_delivery = max_deliveries > _FEWEST_FOR_LONE_DELIVERY
        for run in list(batch.overlapping(first_base, self._last)):
            if not run.is_free:
                continue
            if lone_delivery and run.deliveries == max_deliveries - 1 and got > 0:
                break
            if run.deliveries >= self._throttle_from and portion < 0:
                portion = max(1, batch.size >> (run.deliveries - self._throttle_from + 1))
            alone = lone_delivery and run.deliveries == max_deliveries - 1
            first, last = max(run.first, first_base), min(run.last, self._last)
            most = 1 if alone else last - first + 1
            if self._wish.record_limit:
                most = min(most, self.left - got)
            if got < portion:
                most = min(most, portion - got)
            part = batch.cut(run, first, first + most - 1)
            if not self._give(batch, part):
                continue
            got += most
            _append(given, Given(part.first, part.last, part.deliveries))
            if alone or got == portion or (self._wish.record_limit and got == self.left):
                break
        self.given += given
        return got

    def _give(self, batch: InFlightBatch, run: Run) -> bool:
        if not run.acquire(self._wish.member, 0, self._max_deliveries):
            return False
        run.deadline_ms = self._partition.lock(batch)
        return True

    # ---- what nobody was given before

    def _new(self, first: int, last: int) -> None:
        partition, wish = self._partition, self._wish
        window = partition.window
        if not len(window) and partition.end_offset > first:
            first = partition.end_offset
        if self.left < last - first + 1:
            within = self._end_of_batch(first + self.left - 1)
            last = min(last, within) if partition.has_gaps else within
        if first > last:
            return
        if wish.record_limit and last - first + 1 > self.left:
            told = self._new_in_part(first, last)
        else:
            for piece_first, piece_last in self._pieces(first, last):
                self._new_batch(piece_first, piece_last)
            told = last
        if window.first.first == first:
            partition.start_offset = first
        partition.end_offset = max(partition.end_offset, last)
        partition.gap_closed_before(told + 1)
        self._took(told - first + 1)

    def _new_batch(self, first: int, last: int) -> None:
        partition = self._partition
        batch = InFlightBatch.whole(first, last, ACQUIRED, 1, self._wish.member)
        partition.window.add(batch)
        batch.run.deadline_ms = partition.lock(batch)
        self.given.append(Given(first, last, 1))

    def _new_in_part(self, first: int, last: int) -> int:
        """Give only so many records of a batch of the log; the others are there for whoever comes next."""
        partition = self._partition
        told = first + self.left - 1
        run = Run(first, told, ACQUIRED, 1, self._wish.member)
        batch = InFlightBatch(first, last, [run, Run(told + 1, last, AVAILABLE, 0)], by_offset=True)
        partition.window.add(batch)
        run.deadline_ms = partition.lock(batch)
        partition.search_again()
        self.given.append(Given(first, told, 1))
        return told

    def _pieces(self, first: int, last: int) -> list[tuple[int, int]]:
        """Cut between batches of the log, wherever a piece has reached the size the client likes."""
        size = self._wish.batch_size
        if self._wish.record_limit or last - first + 1 <= size:
            return [(first, last)]
        pieces: list[tuple[int, int]] = []
        for base, _ in self._batches:
            if base > last:
                break
            if base - first >= size and base > first:
                pieces.append((first, base - 1))
                first = base
        pieces.append((first, last))
        return pieces

    def _end_of_batch(self, offset: int) -> int:
        """The last offset of the log's batch that has `offset`; the offset itself where no batch has it."""
        batches = self._batches
        at = bisect_right(batches, offset, key=_base_of)
        return batches[at - 1].last if at and offset <= batches[at - 1].last else offset


def _append(given: list[Given], more: Given) -> None:
    if given and given[-1].last + 1 == more.first and given[-1].deliveries == more.deliveries:
        given[-1] = Given(given[-1].first, more.last, more.deliveries)
    else:
        given.append(more)


def _without(partition: SharePartition, given: list[Given], aborted: Sequence[Span]) -> Acquired:
    """Put aside what aborted transactions wrote; nobody is told of it."""
    for base, last in aborted:
        partition.archive(base, last, partition.window.covering(base, last), ACQUIRED, count=True)
    left: list[Given] = []
    for piece in given:
        first = piece.first
        for base, last in aborted:
            if base > piece.last:
                break
            if last < first:
                continue
            if base > first:
                left.append(Given(first, base - 1, piece.deliveries))
            first = last + 1
        if first <= piece.last:
            left.append(Given(first, piece.last, piece.deliveries))
    return Acquired(left, sum(each.last - each.first + 1 for each in left))
