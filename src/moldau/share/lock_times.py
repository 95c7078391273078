"""When the records that members hold are taken from them again: one timer for a whole share partition.

A deadline is written on the runs themselves; here stands only which batch to look at when. What was acknowledged in
time costs nothing more than an entry that is skipped. Decides when to look, not what happens then.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from moldau.ports import Clock, Timer
from moldau.share.in_flight import NEVER, InFlightBatch

# So many skipped entries are tolerated before they are cleared out.
_SLACK = 64


class LockTimes:
    __slots__ = ("_clock", "_due_ms", "_expire", "_heap", "_sequence", "_timer")

    def __init__(self, clock: Clock, expire: Callable[[list[InFlightBatch]], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._heap: list[tuple[int, int, InFlightBatch]] = []
        self._sequence = 0
        self._timer: Timer | None = None
        self._due_ms = NEVER

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, batch: InFlightBatch, deadline_ms: int, in_flight: int) -> None:
        """Look at `batch` at that time. `in_flight`: how many batches there are, to tell how many entries are stale."""
        heap = self._heap
        if len(heap) > 2 * in_flight + _SLACK:
            self._forget_stale()
            heap = self._heap
        self._sequence += 1
        heappush(heap, (deadline_ms, self._sequence, batch))
        if deadline_ms < self._due_ms:
            self._arm(deadline_ms)

    def settled(self) -> None:
        """Something was acknowledged: drop what nobody needs to look at any more."""
        heap = self._heap
        while heap and not _is_held(heap[0][2], heap[0][0]):
            heappop(heap)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_ms = NEVER
        self._heap.clear()

    def _forget_stale(self) -> None:
        self._heap = [entry for entry in self._heap if _is_held(entry[2], entry[0])]
        heapify(self._heap)

    def _arm(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._clock.call_later(max(due_ms - self._clock.monotonic_ms(), 0), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._due_ms = NEVER
        now = self._clock.monotonic_ms()
        heap = self._heap
        due: list[InFlightBatch] = []
        while heap and heap[0][0] <= now:
            batch = heappop(heap)[2]
            if _is_held(batch, now):
                due.append(batch)
        if due:
            self._expire(due)
        self.settled()
        if self._heap and self._due_ms == NEVER:
            self._arm(self._heap[0][0])


def _is_held(batch: InFlightBatch, until_ms: int) -> bool:
    """Whether anything in the batch runs out until then; what was renewed has another entry."""
    return any(run.deadline_ms <= until_ms for run in batch.runs)
