"""What is kept by key for streams where Spark has no operator of its own: sliding windows, and duplicates within a time
that is not the watermark's. Functions that Spark calls in its workers, a key at a time.

They only assign and drop records; what a window's records add up to is Spark's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from moldau.streams.state_tables import LONG, TEXT, moment, struct

_KEPT = struct(millis=LONG, value=TEXT)
Span = tuple[int, int]


def spans(times: set[int], size: int) -> set[Span]:
    """The sliding windows that records at these times make, first and last millisecond: as Kafka Streams defines them,
    one that ends with each record, and one that begins right after it if there is a record in it."""
    ordered = sorted(times)
    found = {(time - size, time) for time in ordered}
    for at, time in enumerate(ordered[:-1]):
        if ordered[at + 1] <= time + 1 + size:
            found.add((time + 1, time + 1 + size))
    return found


def memberships(known: list[tuple[int, str]], fresh: list[tuple[int, str]], size: int) -> Iterator[tuple[Span, str]]:
    """Which records are in which windows, as far as `fresh` ones made it so: windows only ever gain records."""
    before = spans({time for time, _ in known}, size)
    everything = known + fresh
    for span in sorted(spans({time for time, _ in everything}, size)):
        first, last = span
        for index, (time, value) in enumerate(everything):
            if first <= time <= last and (index >= len(known) or span not in before):
                yield span, value


class Slide(StatefulProcessor):
    """Assigns records to sliding windows. Reads the key, the packed record and its time in milliseconds; gives the
    packed record once for each window it is in, with the window's first and last millisecond as timestamps.

    A record is kept as long as one that is not late could be in a window with it.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._records = handle.getListState("records", _KEPT)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        horizon = timerValues.getCurrentWatermarkInMs() - self._size - 1
        stored = [(time, value) for time, value in self._records.get()] if self._records.exists() else []
        known = [each for each in stored if each[0] >= horizon]
        fresh = sorted((row[2], row[1]) for row in rows)
        for (first, last), value in memberships(known, fresh, self._size):
            yield Row(value=value, window_start=moment(first * 1000), window_end=moment(last * 1000))
        kept = sorted(known + fresh)
        self._records.put(kept)
        if not stored:
            self._handle.registerTimer(self._end_of(kept))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        horizon = timerValues.getCurrentWatermarkInMs() - self._size - 1
        kept = [(time, value) for time, value in self._records.get() if time >= horizon]
        if kept:
            self._records.put(kept)
            self._handle.registerTimer(self._end_of(kept))
        else:
            self._records.clear()
        return iter(())

    def _end_of(self, kept: list[tuple[int, str]]) -> int:
        """When the first of some records can be forgotten."""
        return min(time for time, _ in kept) + self._size + 2


class Deduplicate(StatefulProcessor):
    """Lets the first record of a key through, and none that is less than `within` milliseconds after it. Reads the key,
    the packed record, its time in milliseconds and its event time; gives the record and the event time."""

    def __init__(self, within: int, time_name: str) -> None:
        self._within = within
        self._time_name = time_name

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._until = handle.getValueState("until", struct(millis=LONG))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        found = self._until.get()
        until = None if found is None else int(found[0])
        for row in sorted(rows, key=lambda each: (each[2], each[1])):
            if until is None or row[2] >= until:
                until = row[2] + self._within
                self._handle.registerTimer(until)
                yield Row(value=row[1], **{self._time_name: row[3]})
        assert until is not None, "a key comes with a record"
        self._until.update((until,))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        found = self._until.get()
        if found is not None and found[0] <= expiredTimerInfo.getExpiryTimeInMs():
            self._until.clear()
        return iter(())
