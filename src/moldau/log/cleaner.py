"""Compaction: picks the log with the largest share of dirty bytes and rewrites its old segments, in the background.

This module decides which log is compacted, from where to where, how its segments are grouped, and in which order
files change: a new segment is written under `.cleaned`, synced, and only then put in the place of the old ones. It
never touches the active segment nor anything a transaction or the high watermark still holds back, and it holds up
nobody: one log at a time, in steps of about a millisecond, within the configured rate. `compaction.py` decides about
each batch.

Between two steps anything may happen to the log. Whatever changes the segments that are being compacted (truncation,
retention, deletion, a move) ends the compaction; what it wrote so far is thrown away.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from moldau.config.node_config import NodeConfig
from moldau.log.compaction import (
    BatchCompactor,
    CompactionStats,
    LastOfProducer,
    LatestOffsets,
    TransactionTracker,
)
from moldau.log.config import LogConfig
from moldau.log.errors import LogDirFailure
from moldau.log.manager import LogManager
from moldau.log.names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from moldau.log.offset_index import MAX_RELATIVE_OFFSET
from moldau.log.pacing import PacedWork, Pause, Throttle, run_paced, sync_elsewhere
from moldau.log.partition_log import PartitionLog
from moldau.log.segment import Segment
from moldau.log.transaction_index import AbortedTransaction
from moldau.ports import Background, Buffer, Clock, Disk, Timer
from moldau.records.batch import BatchHeader
from moldau.records.compression import CorruptRecords
from moldau.records.record import scan_keys, unpack_body

log = logging.getLogger("moldau.log")

_base_offset_of = attrgetter("base_offset")
# Work between two pauses, about a millisecond of it. A batch costs as much as a few records, so do bytes.
_STEP_RECORDS = 500
_RECORDS_PER_BATCH = 8
_BYTES_LIKE_A_RECORD = 1024
_WRITE_BYTES = 256 * 1024
# Logs looked at between two pauses when the dirtiest is searched.
_LOGS_PER_STEP = 100


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The node's settings for compaction; the defaults are Kafka's."""

    enabled: bool = True
    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000

    @classmethod
    def of(cls, config: NodeConfig) -> CleanerSettings:
        return cls(
            enabled=config.flag("log.cleaner.enable"),
            dedupe_buffer_bytes=config.integer("log.cleaner.dedupe.buffer.size"),
            load_factor=config.decimal("log.cleaner.io.buffer.load.factor"),
            bytes_per_second=config.decimal("log.cleaner.io.max.bytes.per.second"),
            backoff_ms=config.integer("log.cleaner.backoff.ms"),
        )


class Candidate(NamedTuple):
    """A log that could be compacted: where its dirty part begins, the segments before which it ends, its bytes."""

    log: PartitionLog
    # How often the log had been cut when it was looked at: once more, and what was found out does not hold.
    times_cut: int
    first_dirty: int
    # Segments from this base offset on stay as they are.
    end: int
    clean_bytes: int
    dirty_bytes: int
    # How long ago max.compaction.lag.ms passed for the oldest dirty record; 0 when it did not.
    overdue_ms: int

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    @property
    def is_due(self) -> bool:
        return self.dirty_bytes > 0 and (
            self.overdue_ms > 0 or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio
        )


class _LogChanged(Exception):
    """The log is not what it was when its compaction began."""


class LogCleaner:
    """Compacts the logs of a node, one after the other."""

    __slots__ = (
        "_background",
        "_clock",
        "_disk",
        "_logs",
        "_running",
        "_settings",
        "_timer",
        "_work",
        "dirtiest_ratio",
        "last_stats",
        "rounds",
        "throttle",
        "uncleanable",
    )

    def __init__(
        self, logs: LogManager, disk: Disk, clock: Clock, background: Background, settings: CleanerSettings
    ) -> None:
        self._logs = logs
        self._disk = disk
        self._clock = clock
        self._background = background
        self._settings = settings
        self._timer: Timer | None = None
        self._running = False
        # Work done since the last pause.
        self._work = 0
        self.throttle = Throttle(clock, settings.bytes_per_second)
        # Logs that could not be compacted because of what is in them; left alone until the next start.
        self.uncleanable: set[PartitionLog] = set()
        self.dirtiest_ratio = 0.0
        self.last_stats: CompactionStats | None = None
        # How many compactions ended since the start.
        self.rounds = 0

    def start(self) -> None:
        if self._settings.enabled:
            self._running = True
            self._timer = self._clock.call_later(self._settings.backoff_ms, self._run)

    def stop(self) -> None:
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reconfigure(self, settings: CleanerSettings) -> None:
        """Take over changed settings; they hold from the next compaction on, the rate at once."""
        self._settings = settings
        self.throttle.set_rate(settings.bytes_per_second)

    # ---- rounds

    def _run(self) -> None:
        if self._running:
            run_paced(self._background, self._round(), self._round_failed)

    def _round_failed(self, error: BaseException | None) -> None:
        if error is not None:
            log.error("looking for a log to compact failed", exc_info=error)
        self._next(self._settings.backoff_ms)

    def _next(self, delay_ms: int) -> None:
        if self._running:
            self._timer = self._clock.call_later(delay_ms, self._run)

    def _round(self) -> PacedWork:
        """Compact until nothing is due any more."""
        while self._running:
            chosen = yield from self._dirtiest()
            if chosen is None:
                return
            yield from self.clean(chosen)

    def clean(self, chosen: Candidate) -> PacedWork:
        """Compact one log; whatever goes wrong with it ends only this compaction."""
        stats = CompactionStats()
        try:
            end = yield from self._compact(chosen, stats)
        except _LogChanged:
            return
        except LogDirFailure:
            return
        except OSError as error:
            chosen.log.disk_failed(error)
            return
        except Exception as error:
            self.uncleanable.add(chosen.log)
            log.error("%s cannot be compacted and is left as it is", chosen.log.name, exc_info=error)
            return
        self._logs.checkpoint_cleaner(chosen.log.topic, chosen.log.partition, end)
        self.last_stats = stats
        self.rounds += 1
        log.info(
            "compacted %s up to offset %d: %d of %d bytes and %d of %d records kept",
            chosen.log.name,
            end,
            stats.bytes_written,
            stats.bytes_read,
            stats.records_kept,
            stats.records_read,
        )

    # ---- choosing

    def _dirtiest(self) -> Generator[Pause | None, None, Candidate | None]:
        now = self._clock.now_ms()
        chosen: Candidate | None = None
        dirtiest = 0.0
        for number, opened in enumerate(list(self._logs.open_logs()), 1):
            if number % _LOGS_PER_STEP == 0:
                yield None
            if not opened.config.cleanup_compact or opened in self.uncleanable or not self._logs.is_current(opened):
                continue
            try:
                candidate = self.examine(opened, now)
            except (OSError, LogDirFailure):
                continue
            if candidate is None:
                continue
            dirtiest = max(dirtiest, candidate.dirty_ratio)
            if candidate.is_due and (chosen is None or candidate.dirty_ratio > chosen.dirty_ratio):
                chosen = candidate
        self.dirtiest_ratio = dirtiest
        self.uncleanable = {each for each in self.uncleanable if self._logs.is_current(each)}
        return chosen

    def examine(self, opened: PartitionLog, now: int) -> Candidate | None:
        """What could be compacted of a log; None when there is nothing."""
        config = opened.config
        first_dirty = self._first_dirty(opened)
        held_back = min(opened.last_stable_offset, opened.active_segment.base_offset)
        end = opened.log_start_offset
        clean_bytes = 0
        dirty: list[Segment] = []
        # A segment is compacted whole or not at all.
        for segment, following in pairwise(opened.segments):
            if following.base_offset > held_back:
                break
            if following.base_offset <= first_dirty:
                clean_bytes += segment.size
            elif self._too_young(opened, segment, now):
                break
            else:
                dirty.append(segment)
            end = following.base_offset
        dirty_bytes = sum(segment.size for segment in dirty)
        if clean_bytes + dirty_bytes == 0:
            return None
        times_cut = self._logs.times_cut(opened.topic, opened.partition)
        overdue = self._overdue(dirty, config, now)
        return Candidate(opened, times_cut, first_dirty, end, clean_bytes, dirty_bytes, overdue)

    @staticmethod
    def _too_young(opened: PartitionLog, segment: Segment, now: int) -> bool:
        lag = opened.config.min_compaction_lag_ms
        return lag > 0 and opened.largest_timestamp(segment) > now - lag

    def _first_dirty(self, opened: PartitionLog) -> int:
        directory = self._logs.directory_of(opened.topic, opened.partition)
        offset = directory.cleaner_offsets.get((opened.topic, opened.partition)) if directory is not None else None
        if offset is None or not opened.log_start_offset <= offset <= opened.log_end_offset:
            return opened.log_start_offset
        return offset

    @staticmethod
    def _overdue(dirty: list[Segment], config: LogConfig, now: int) -> int:
        firsts = [segment.resolve_first_timestamp() for segment in dirty]
        earliest = min((first for first in firsts if first is not None and first > 0), default=None)
        if earliest is None:
            return 0
        return max(now - config.max_compaction_lag_ms - earliest, 0)

    # ---- compacting

    def _compact(self, chosen: Candidate, stats: CompactionStats) -> Generator[Pause | None, None, int]:
        """Rewrite the log's segments; gives the offset up to which it is clean then."""
        opened = chosen.log
        latest = LatestOffsets(int(self._settings.dedupe_buffer_bytes * self._settings.load_factor))
        yield from self._index(chosen, latest)
        stats.keys, stats.map_utilization = len(latest), latest.utilization
        end = latest.latest_offset + 1
        transactions = TransactionTracker()
        segments = [segment for segment in opened.segments if segment.base_offset < min(end, chosen.end)]
        for group in self._groups(opened, segments, chosen.end):
            compactor = BatchCompactor(
                latest,
                transactions,
                _last_of_producers(opened),
                stats,
                now_ms=self._clock.now_ms(),
                delete_retention_ms=opened.config.delete_retention_ms,
                upper_bound=chosen.end,
            )
            yield from self._compact_group(chosen, group, compactor, transactions, stats)
        return end

    def _index(self, chosen: Candidate, latest: LatestOffsets) -> PacedWork:
        """Find the latest offset of every key in the dirty part, for as long as there is room for more keys."""
        opened = chosen.log
        transactions = TransactionTracker()
        transactions.add_aborted(_aborted(opened, chosen.first_dirty, chosen.end))
        dirty = [
            (segment, following.base_offset)
            for segment, following in pairwise(opened.segments)
            if following.base_offset > chosen.first_dirty and segment.base_offset < chosen.end
        ]
        for segment, next_base in dirty:
            start: int | None = 0
            if segment.base_offset < chosen.first_dirty:
                opened.ensure_indexes(segment)
                start = segment.locate(chosen.first_dirty)
            for header, batch in _all_batches(segment, segment.size if start is None else start, next_base):
                if header.is_control:
                    transactions.end_transaction(header, batch)
                elif not transactions.is_aborted(header):
                    fits = yield from self._index_batch(header, batch, chosen.first_dirty, latest)
                    if not fits:
                        return
                latest.latest_offset = max(latest.latest_offset, header.last_offset)
                yield from self._account(chosen, [segment], len(batch), 0)
            latest.latest_offset = next_base - 1

    def _index_batch(
        self, header: BatchHeader, batch: memoryview, first_dirty: int, latest: LatestOffsets
    ) -> Generator[Pause | None, None, bool]:
        if not header.checksum_matches(batch):
            # A damaged key would make another key's latest value look old.
            raise CorruptRecords(f"the checksum of the batch at offset {header.base_offset} does not fit")
        body = unpack_body(batch, header)
        left = header.record_count
        position = 0
        while left:
            part = scan_keys(body, min(left, _STEP_RECORDS), position, to_end=left <= _STEP_RECORDS)
            if not latest.add(header.base_offset, part, first_dirty):
                return False
            position = part[-1][4]
            left -= len(part)
            self._work += len(part)
            if left:
                yield None
        return True

    def _account(self, chosen: Candidate, segments: list[Segment], size: int, records: int) -> PacedWork:
        """Note work that was done; when enough of it was, let others run and see whether the log is still the same."""
        self._work += _RECORDS_PER_BATCH + records + size // _BYTES_LIKE_A_RECORD
        pause = self.throttle.charge(size)
        if pause is not None or self._work >= _STEP_RECORDS:
            self._work = 0
            yield pause
            self._require_unchanged(chosen, segments)

    def _require_unchanged(self, chosen: Candidate, segments: list[Segment]) -> None:
        opened = chosen.log
        if not self._running or not self._logs.is_current(opened) or opened.failure is not None:
            raise _LogChanged
        first = bisect_left(opened.segments, segments[0].base_offset, key=_base_offset_of)
        if opened.segments[first : first + len(segments)] != segments or opened.active_segment is segments[-1]:
            raise _LogChanged
        if self._logs.times_cut(opened.topic, opened.partition) != chosen.times_cut:
            raise _LogChanged

    def _groups(self, opened: PartitionLog, segments: list[Segment], end: int) -> list[list[Segment]]:
        """Neighbours that together are no larger than one segment may be become one segment."""
        config = opened.config
        groups: list[list[Segment]] = []
        size = index_size = 0
        for i, segment in enumerate(segments):
            following = segments[i + 1].base_offset if i + 1 < len(segments) else end
            own_index = self._index_size(segment)
            fits = (
                groups
                and size + segment.size <= config.segment_bytes
                and index_size + own_index <= config.segment_index_bytes
                and following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
            )
            if fits:
                groups[-1].append(segment)
                size += segment.size
                index_size += own_index
            else:
                groups.append([segment])
                size, index_size = segment.size, own_index
        return groups

    def _index_size(self, segment: Segment) -> int:
        """Bytes of the larger of the two indexes."""
        sizes = [0]
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            try:
                sizes.append(self._disk.file_size(segment.path(suffix)))
            except FileNotFoundError:
                continue
        return max(sizes)

    def _compact_group(
        self,
        chosen: Candidate,
        group: list[Segment],
        compactor: BatchCompactor,
        transactions: TransactionTracker,
        stats: CompactionStats,
    ) -> PacedWork:
        opened = chosen.log
        cleaned = Segment(
            self._disk,
            opened.directory,
            group[0].base_offset,
            0,
            fresh=True,
            suffix=CLEANED_SUFFIX,
            created_ms=self._clock.now_ms(),
        )
        self._require_unchanged(chosen, group)
        cleaned.remove()
        self._disk.open(cleaned.path(LOG_SUFFIX)).close()
        try:
            for segment in group:
                following = opened.segment_after(segment)
                assert following is not None, "the active segment is never compacted"
                transactions.add_aborted(_aborted(opened, segment.base_offset, following.base_offset))
                yield from self._copy_segment(chosen, group, segment, cleaned, compactor, stats)
            yield from self._make_durable(cleaned)
            self._require_unchanged(chosen, group)
            self._disk.set_modified_ms(cleaned.path(LOG_SUFFIX), self._disk.modified_ms(group[-1].path(LOG_SUFFIX)))
        except Exception:
            # Where the log is gone, so is the directory the new segment was written to.
            if self._logs.is_current(opened):
                cleaned.remove()
            raise
        opened.replace_segments([cleaned], group)
        for segment in group[1:]:
            if segment.base_offset in opened.snapshots.offsets:
                opened.snapshots.remove(segment.base_offset)

    def _copy_segment(
        self,
        chosen: Candidate,
        group: list[Segment],
        segment: Segment,
        cleaned: Segment,
        compactor: BatchCompactor,
        stats: CompactionStats,
    ) -> PacedWork:
        """Append what stays of one segment to the new one."""
        interval = chosen.log.config.index_interval_bytes
        following = chosen.log.segment_after(segment)
        assert following is not None, "the active segment is never compacted"
        waiting: list[Buffer] = []
        waiting_bytes = 0
        for header, batch in _all_batches(segment, 0, following.base_offset):
            kept = yield from compactor.compact(batch)
            stats.bytes_read += len(batch)
            size = len(batch)
            if kept is not None:
                cleaned.index_batch(kept, cleaned.size, interval)
                cleaned.size += len(kept)
                stats.bytes_written += len(kept)
                size += len(kept)
                waiting.append(kept)
                waiting_bytes += len(kept)
                if waiting_bytes >= _WRITE_BYTES:
                    cleaned.file.append(waiting)
                    waiting, waiting_bytes = [], 0
            for aborted in compactor.take_aborted():
                cleaned.transactions.append(aborted)
            yield from self._account(chosen, group, size, header.record_count)
        if waiting:
            cleaned.file.append(waiting)

    def _make_durable(self, cleaned: Segment) -> PacedWork:
        """Sync every file of the new segment: once it is swapped in, there is no other copy."""
        cleaned.write_indexes()
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            if suffix != TRANSACTION_INDEX_SUFFIX or cleaned.transactions.exists:
                file = self._disk.open(cleaned.path(suffix), create=False)
                try:
                    yield from sync_elsewhere(file)
                finally:
                    file.close()
        cleaned.retire()


def _all_batches(segment: Segment, start: int, next_base: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a segment from a position on; raises CorruptRecords where one is damaged, instead of losing it
    and what comes after it."""
    position = start
    expected = segment.base_offset
    for at, batch in segment.scan(start):
        header = BatchHeader(batch)
        if not expected <= header.base_offset <= header.last_offset < next_base:
            raise CorruptRecords(f"{segment} has offset {header.base_offset} at position {at}")
        expected = header.next_offset
        position = at + len(batch)
        yield header, batch
    if position != segment.size:
        raise CorruptRecords(f"{segment} has a damaged batch at position {position}")


def _aborted(opened: PartitionLog, start: int, upto: int) -> list[AbortedTransaction]:
    """The aborted transactions with records in [start, upto); their markers stand in the same or later segments."""
    found: list[AbortedTransaction] = []
    first = opened.segments.index(opened.segment_of(start))
    for segment in opened.segments[first:]:
        aborted, complete = segment.transactions.collect(start, upto)
        found += aborted
        if complete:
            break
    return found


def _last_of_producers(opened: PartitionLog) -> dict[int, LastOfProducer]:
    return {
        entry.producer_id: LastOfProducer(entry.last_offset if entry.batches else None, entry.epoch)
        for entry in opened.active_producers()
    }
