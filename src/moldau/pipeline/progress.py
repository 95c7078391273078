"""How far every query is: what Spark's progress reports say, put together for a terminal, for Prometheus, for a test.

Spark reports each micro-batch; rates are taken over the last seconds, so that they fall to nothing when a query has
nothing to do. A Python source reports no lag of its own: it is the distance between a source's `endOffset` and its
`latestOffset`, which have the shape of Spark's Kafka checkpoints. Nothing here speaks to Spark or a broker.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

RATE_SECONDS = 10.0
# More than Spark keeps of a query (spark.sql.streaming.numRecentProgressUpdates).
SEEN_REPORTS = 200
# A watermark of the epoch means that no event time has been seen.
_NO_WATERMARK = "1970-01-01T00:00:00.000Z"

STARTING, RUNNING, RESTARTING = "starting", "running", "restarting"
FAILED, STOPPED, FINISHED = "failed", "stopped", "finished"

# Under which name a writer counts the rows that leave a query (see `writers`).
OBSERVATION = "moldau"
OBSERVED_ROWS = "rows"


@dataclass(slots=True)
class QueryStatus:
    """One query as it was at its last report. Times are in seconds, `watermark` since the epoch."""

    name: str
    state: str = STARTING
    batch: int | None = None
    rows_in: int = 0
    rows_out: int = 0
    rows_in_per_second: float = 0.0
    rows_out_per_second: float = 0.0
    lag: int | None = None
    batch_seconds: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark: float | None = None
    late_rows: int = 0
    batches: int = 0
    restarts: int = 0
    message: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For `-o json`: names as in Spark's own progress reports."""
        return {
            "query": self.name,
            "state": self.state,
            "batchId": self.batch,
            "inputRows": self.rows_in,
            "outputRows": self.rows_out,
            "inputRowsPerSecond": round(self.rows_in_per_second, 1),
            "outputRowsPerSecond": round(self.rows_out_per_second, 1),
            "lag": self.lag,
            "batchSeconds": self.batch_seconds,
            "stateRows": self.state_rows,
            "stateBytes": self.state_bytes,
            "watermark": None if self.watermark is None else _iso(self.watermark),
            "lateRows": self.late_rows,
            "restarts": self.restarts,
            "message": self.message,
        }


@dataclass(slots=True)
class _Track:
    """A query's status, and what its rates are computed from: when how many rows came and went."""

    status: QueryStatus
    since: float
    recent: deque[tuple[float, int, int]] = field(default_factory=deque)
    # Reports that were taken in: the last ones come twice, from Spark and when the query is seen to have ended.
    seen: deque[tuple[Any, ...]] = field(default_factory=lambda: deque(maxlen=SEEN_REPORTS))


class Board:
    """The status of all queries of a run. Safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tracks: dict[str, _Track] = {}

    def add(self, name: str) -> None:
        with self._lock:
            self._tracks.setdefault(name, _Track(QueryStatus(name), self._clock()))

    def set_state(self, name: str, state: str, message: str | None = None) -> None:
        with self._lock:
            status = self._tracks[name].status
            status.state, status.message = state, message

    def state(self, name: str) -> str:
        with self._lock:
            return self._tracks[name].status.state

    def count_restart(self, name: str) -> None:
        with self._lock:
            self._tracks[name].status.restarts += 1

    def batches(self, name: str) -> int:
        """How many micro-batches the query has completed in this run."""
        with self._lock:
            return self._tracks[name].status.batches

    def report(self, progress: Mapping[str, Any]) -> None:
        """Take in one of Spark's progress reports, as the dictionary of its JSON; the same one again counts once."""
        with self._lock:
            track = self._tracks.get(progress.get("name") or "")
            report = progress.get("runId"), progress.get("batchId"), progress.get("timestamp")
            if track is None or report in track.seen:
                return
            track.seen.append(report)
            if track.status.state in (STARTING, RESTARTING):
                track.status.state, track.status.message = RUNNING, None
            _update(track.status, progress)
            came, left = int(progress.get("numInputRows") or 0), rows_out_of(progress)
            track.recent.append((self._clock(), came, left))

    def snapshot(self) -> list[QueryStatus]:
        """Copies, with rates as of now, in the order in which queries were started."""
        with self._lock:
            now = self._clock()
            return [_with_rates(track, now) for track in self._tracks.values()]


def _with_rates(track: _Track, now: float) -> QueryStatus:
    while track.recent and track.recent[0][0] < now - RATE_SECONDS:
        track.recent.popleft()
    seconds = max(1.0, min(RATE_SECONDS, now - track.since))
    return replace(
        track.status,
        rows_in_per_second=sum(came for _, came, _ in track.recent) / seconds,
        rows_out_per_second=sum(left for _, _, left in track.recent) / seconds,
    )


def _update(status: QueryStatus, progress: Mapping[str, Any]) -> None:
    durations = progress.get("durationMs") or {}
    status.rows_in += int(progress.get("numInputRows") or 0)
    status.rows_out += rows_out_of(progress)
    # A trigger that found nothing to do has no `addBatch`: it says how late it is, not how long batches take.
    if "addBatch" in durations:
        status.batch = progress.get("batchId")
        status.batches += 1
        status.batch_seconds = int(progress.get("batchDuration") or 0) / 1000
    status.lag = lag_of(progress)
    operators = progress.get("stateOperators") or []
    if operators:
        status.state_rows = sum(int(each.get("numRowsTotal") or 0) for each in operators)
        status.state_bytes = sum(_state_bytes(each) for each in operators)
        status.late_rows += sum(int(each.get("numRowsDroppedByWatermark") or 0) for each in operators)
    watermark = (progress.get("eventTime") or {}).get("watermark")
    if watermark and watermark != _NO_WATERMARK:
        status.watermark = datetime.fromisoformat(watermark).timestamp()


def rows_out_of(progress: Mapping[str, Any]) -> int:
    """Rows that a micro-batch handed to its sink: counted by the sink, or else on the way to it."""
    counted = int((progress.get("sink") or {}).get("numOutputRows") or 0)
    if counted >= 0 and "sink" in progress:
        return counted
    observed = (progress.get("observedMetrics") or {}).get(OBSERVATION) or {}
    return int(observed.get(OBSERVED_ROWS) or 0)


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Records that are there but not yet read, over all sources that tell; None when none does.

    >>> lag_of({"sources": [{"endOffset": {"t": {"0": 5, "1": 7}}, "latestOffset": {"t": {"0": 9, "1": 7}}}]})
    4
    """
    lags = [
        _behind(end, latest)
        for source in progress.get("sources") or []
        for end, latest in [(_offsets(source.get("endOffset")), _offsets(source.get("latestOffset")))]
        if end is not None and latest is not None
    ]
    return sum(lags) if lags else None


def _behind(end: Mapping[tuple[str, str], int], latest: Mapping[tuple[str, str], int]) -> int:
    # A partition that has just appeared is not in `end` yet: where it begins is not known, so it counts from zero.
    return sum(max(0, offset - end.get(part, 0)) for part, offset in latest.items())


def _offsets(given: Any) -> dict[tuple[str, str], int] | None:
    """Offsets by topic and partition, from JSON or what JSON has become; None for anything of another shape."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    if not isinstance(given, Mapping):
        return None
    found: dict[tuple[str, str], int] = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, Mapping):
            return None
        for partition, offset in partitions.items():
            if not isinstance(offset, int):
                return None
            found[topic, partition] = offset
    return found


def _state_bytes(operator: Mapping[str, Any]) -> int:
    """What an operator's state takes: in memory, or on disk when RocksDB keeps it there."""
    on_disk = int((operator.get("customMetrics") or {}).get("rocksdbSstFileSize") or 0)
    return max(int(operator.get("memoryUsedBytes") or 0), on_disk)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
