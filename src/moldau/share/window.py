"""The batches in flight, in the order of their offsets.

A sorted list: there are at most as many batches as records may be in flight, and they come at the end and go at the
beginning. Decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from moldau.share.in_flight import InFlightBatch


class Window:
    __slots__ = ("_batches", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: list[InFlightBatch] = []

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    @property
    def first(self) -> InFlightBatch:
        return self._batches[0]

    @property
    def last(self) -> InFlightBatch:
        return self._batches[-1]

    def add(self, batch: InFlightBatch) -> None:
        firsts = self._firsts
        if not firsts or batch.first > firsts[-1]:
            firsts.append(batch.first)
            self._batches.append(batch)
            return
        at = bisect_left(firsts, batch.first)
        assert firsts[at] != batch.first, "two batches begin with the same record"
        firsts.insert(at, batch.first)
        self._batches.insert(at, batch)

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at or before `offset`."""
        at = bisect_right(self._firsts, offset)
        return self._batches[at - 1] if at else None

    def after(self, offset: int) -> InFlightBatch | None:
        """The first batch that begins behind `offset`."""
        at = bisect_right(self._firsts, offset)
        return self._batches[at] if at < len(self._batches) else None

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin in [first, last]."""
        firsts = self._firsts
        return self._batches[bisect_left(firsts, first) : bisect_right(firsts, last)]

    def covering(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin in [first, last], and the one before unless it begins with `first`."""
        firsts = self._firsts
        at = max(bisect_right(firsts, first) - 1, 0)
        return self._batches[at : bisect_right(firsts, last)]

    def clear(self) -> None:
        self._firsts.clear()
        self._batches.clear()

    def drop_before(self, offset: int) -> None:
        """Remove the batches that begin before `offset`."""
        at = bisect_left(self._firsts, offset)
        del self._firsts[:at]
        del self._batches[:at]
