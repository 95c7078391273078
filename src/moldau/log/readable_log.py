"""What can be asked of a partition's log: its batches from an offset, and the offset of a time, an epoch or an abort.

Nothing here changes the log. `PartitionLog` builds on it and owns every write.

A read is one system call in the common case: the place of the latest append and the places where readers stopped are
remembered, so that whoever goes on from there needs no index; otherwise the index gives a place at most one interval
too early and the same read covers it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from moldau.log.config import LogConfig
from moldau.log.errors import CorruptIndex, LogDirFailure
from moldau.log.leader_epochs import LeaderEpochs
from moldau.log.segment import Segment, walk_to
from moldau.ports import Buffer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import HEADER_SIZE, BatchError, BatchHeader
from moldau.records.record import read_records

T = TypeVar("T")

_base_offset_of: Final = attrgetter("base_offset")
# Positions of so many recently read offsets are remembered for readers that go on where they stopped.
_REMEMBERED_POSITIONS: Final = 64
# From this size on it pays to find out first where the last whole batch ends, and only then to read.
CUT_FIRST_BYTES: Final = 256 << 10


class FetchData(NamedTuple):
    """Whole batches as they stand in the log. The first may begin before the offset that was asked for."""

    buffers: list[Buffer]
    size: int
    # The offset after the last batch (of everything before `max_offset` when the read went that far).
    next_offset: int
    segment_base_offset: int
    position: int

    @property
    def records(self) -> Buffer:
        """The batches as one buffer."""
        return self.buffers[0] if self.buffers else b""


class TimestampedOffset(NamedTuple):
    """An offset found by time; timestamp and epoch are -1 where they are unknown or have no meaning."""

    timestamp: int
    offset: int
    leader_epoch: int


class ReadableLog(ABC):
    """Segments, offsets and how to find things in them."""

    __slots__ = (
        "_active",
        "_append_position",
        "_appended_at",
        "_failed",
        "_mapped",
        "_positions",
        "_youngest_until",
        "config",
        "directory",
        "epochs",
        "failure",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "name",
        "segments",
    )

    def __init__(
        self,
        directory: str,
        name: str,
        config: LogConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        failed: Callable[[LogDirFailure], None] | None,
    ) -> None:
        self.directory = directory
        self.name = name
        self.config = config
        self.segments = segments
        self._active = segments[-1]
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        # How far records are committed; set by whoever replicates this partition.
        self.high_watermark = log_start_offset
        self._failed = failed
        self.failure: LogDirFailure | None = None
        # Where the latest append began, for readers that wait at the end of the log.
        self._appended_at = -1
        self._append_position = 0
        self._positions: dict[int, tuple[Segment, int]] = {}
        # The one older segment whose index is mapped: readers of old records stay in one for long.
        self._mapped: Segment | None = None
        # The youngest timestamp in each segment but the active one and all before it; filled at the first search.
        self._youngest_until: list[int] = []

    # ---- failure

    def disk_failed(self, error: OSError) -> LogDirFailure:
        """Note that the disk failed; no append succeeds from here on. Gives the exception to raise."""
        failure = self.failure
        if failure is None:
            failure = self.failure = LogDirFailure(self.directory, error)
            if self._failed is not None:
                self._failed(failure)
        return failure

    def guarded(self, call: Callable[[], T]) -> T:
        """Run something that touches the disk; a failing disk takes the log directory with it."""
        if self.failure is not None:
            raise self.failure
        try:
            return call()
        except OSError as error:
            raise self.disk_failed(error) from error

    # ---- segments

    @property
    def active_segment(self) -> Segment:
        return self._active

    @property
    def size(self) -> int:
        """Bytes of all segments' batches."""
        return sum(segment.size for segment in self.segments)

    def segment_of(self, offset: int) -> Segment:
        """The segment that has this offset, if any has it."""
        if offset >= self._active.base_offset:
            return self._active
        return self.segments[max(bisect_right(self.segments, offset, key=_base_offset_of) - 1, 0)]

    def segment_after(self, segment: Segment) -> Segment | None:
        if segment is self._active:
            return None
        i = bisect_right(self.segments, segment.base_offset, key=_base_offset_of)
        return self.segments[i] if i < len(self.segments) else None

    def ensure_indexes(self, segment: Segment, *, again: bool = False) -> None:
        """Make sure the segment's index files can be used; they are made again when they cannot. `again` when they
        were found to be wrong."""
        if segment is not self._active and segment is not self._mapped:
            if self._mapped is not None:
                self._mapped.unmap()
            self._mapped = segment
        if segment.ensure_indexes(self.config.index_interval_bytes, again=again) and segment is not self._active:
            segment.retire()

    # ---- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_offset: int | None = None,
        min_one_message: bool = True,
        to_send: bool = False,
    ) -> FetchData:
        """Whole batches from the one that has `offset` on, before `max_offset`, of at most `max_bytes` together.

        With `min_one_message` the first batch is given even when it is larger than `max_bytes`. Raises ApiError
        OFFSET_OUT_OF_RANGE outside of [log start, log end]. What is read `to_send` must only be sent, not looked at:
        it may be the file's own pages.
        """
        end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name}, which has {self.log_start_offset} to {end_offset}",
            )
        if max_offset is None or max_offset > end_offset:
            max_offset = end_offset
        if offset >= max_offset:
            return FetchData([], 0, offset, -1, -1)
        try:
            return self._read(offset, max_bytes, max_offset, min_one_message, to_send)
        except OSError as error:
            raise self.disk_failed(error) from error

    def _read(self, offset: int, max_bytes: int, max_offset: int, min_one_message: bool, to_send: bool) -> FetchData:
        known = self._positions.get(offset)
        if known is not None:
            segment, start = known
            exact = True
        elif offset == self._appended_at:
            segment, start, exact = self._active, self._append_position, True
        else:
            segment = self.segment_of(offset)
            start = self._position_before(segment, offset)
            exact = False
        while True:
            data = self._read_segment(segment, offset, start, exact, max_bytes, max_offset, min_one_message, to_send)
            if data is not None:
                return data
            # Compaction may leave the end of a segment's range without records: go on in the next one.
            following = self.segment_after(segment)
            if following is None or following.base_offset >= max_offset:
                return FetchData([], 0, max_offset, segment.base_offset, segment.size)
            segment, start, exact = following, 0, False

    def _read_segment(
        self,
        segment: Segment,
        offset: int,
        start: int,
        exact: bool,
        max_bytes: int,
        max_offset: int,
        min_one_message: bool,
        to_send: bool,
    ) -> FetchData | None:
        """The batches of one segment; None when it has none in the range."""
        end, end_offset = self._end_of(segment, max_offset)
        if to_send and exact and end - start > max_bytes >= CUT_FIRST_BYTES:
            # Pages shall be mapped for what is sent, not for the beginning of a batch that is left out.
            cut, next_offset = segment.end_of_whole_batches(start, start + max_bytes)
            if cut > start and len(data := segment.file.lend(start, cut - start)) == cut - start:
                self._remember(next_offset, segment, cut)
                return FetchData([data], cut - start, next_offset, segment.base_offset, start)
        at = 0
        file = segment.file
        read: Callable[[int, int], Buffer] = file.lend if to_send else file.read
        while True:
            if start >= end:
                return None
            want = max_bytes if exact else max_bytes + 2 * self.config.index_interval_bytes
            data = read(start, min(max(want, HEADER_SIZE), end - start))
            if exact:
                break
            at, exact = walk_to(data, 0, offset)
            if exact:
                break
            if at == 0:
                return None
            start += at
        available = len(data) - at
        if available <= max_bytes and start + len(data) == end:
            self._remember(end_offset, segment, end)
            kept: Buffer = memoryview(data)[at:] if at else data
            return FetchData([kept], available, end_offset, segment.base_offset, start + at)
        limit = start + min(at + max_bytes, len(data))
        cut, next_offset = segment.end_of_whole_batches(start + at, limit, data, start)
        cut -= start
        if cut == at:
            if not min_one_message:
                return FetchData([], 0, offset, segment.base_offset, start + at)
            return self._read_one(segment, data, start, at)
        self._remember(next_offset, segment, start + cut)
        return FetchData([memoryview(data)[at:cut]], cut - at, next_offset, segment.base_offset, start + at)

    def _read_one(self, segment: Segment, data: Buffer, start: int, at: int) -> FetchData:
        """The first batch alone: it is larger than what was asked for."""
        if len(data) - at < HEADER_SIZE:
            data, start, at = segment.file.read(start + at, HEADER_SIZE), start + at, 0
        header = BatchHeader(data, at)
        size = header.size
        if at + size > len(data):
            data, start, at = segment.file.read(start + at, size), start + at, 0
        self._remember(header.next_offset, segment, start + at + size)
        return FetchData([memoryview(data)[at : at + size]], size, header.next_offset, segment.base_offset, start + at)

    def _position_before(self, segment: Segment, offset: int) -> int:
        if segment is not self._active and segment is not self._mapped:
            self.ensure_indexes(segment)
        try:
            return segment.offset_index.position_before(offset - segment.base_offset)
        except CorruptIndex:
            self.ensure_indexes(segment, again=True)
            return segment.offset_index.position_before(offset - segment.base_offset)

    def _end_of(self, segment: Segment, max_offset: int) -> tuple[int, int]:
        """Where to stop in this segment: the position of `max_offset` or the segment's end, and the offset there."""
        if segment is self._active:
            if max_offset >= self.log_end_offset:
                return segment.size, self.log_end_offset
            if max_offset == self._appended_at:
                return self._append_position, max_offset
        else:
            following = self.segment_after(segment)
            if following is not None and following.base_offset <= max_offset:
                return segment.size, following.base_offset
        known = self._positions.get(max_offset)
        if known is not None and known[0] is segment:
            return known[1], max_offset
        self._position_before(segment, max_offset)
        position = segment.locate(max_offset)
        if position is None:
            position = segment.size
        self._remember(max_offset, segment, position)
        return position, max_offset

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        if position >= segment.size and segment is not self._active:
            # The next batch is in the next segment.
            return
        if offset not in positions and len(positions) >= _REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        positions[offset] = (segment, position)

    def forget_positions(self) -> None:
        """Segments were cut or replaced: nothing remembered about them holds."""
        self._positions.clear()
        self._youngest_until.clear()
        self._appended_at = -1
        if self._mapped is not None:
            self._mapped.unmap()
            self._mapped = None

    # ---- offsets by time and epoch

    def earliest_offset(self) -> TimestampedOffset:
        entries = self.epochs.entries()
        epoch = entries[0][0] if entries and entries[0][1] <= self.log_start_offset else -1
        return TimestampedOffset(-1, self.log_start_offset, epoch)

    def latest_offset(self) -> TimestampedOffset:
        return TimestampedOffset(-1, self.log_end_offset, self.epochs.latest)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record at least as young as `timestamp`; None when there is none.

        One index interval of headers is walked, and one batch opened.
        """
        return self.guarded(lambda: self._offset_for_timestamp(timestamp))

    def _offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        first = bisect_left(self._youngest(), timestamp)
        for segment in self.segments[first:]:
            if self.largest_timestamp(segment) >= timestamp:
                return self._search(segment, timestamp)
        return None

    def _youngest(self) -> list[int]:
        until = self._youngest_until
        if len(until) < len(self.segments) - 1:
            so_far = until[-1] if until else -1
            for segment in self.segments[len(until) : -1]:
                so_far = max(so_far, self.largest_timestamp(segment))
                until.append(so_far)
        return until

    def largest_timestamp(self, segment: Segment) -> int:
        try:
            return segment.largest_timestamp()
        except CorruptIndex:
            self.ensure_indexes(segment, again=True)
            return segment.largest_timestamp()

    def _search(self, segment: Segment, timestamp: int) -> TimestampedOffset | None:
        self.ensure_indexes(segment)
        try:
            return self._search_by_index(segment, timestamp)
        except CorruptIndex:
            self.ensure_indexes(segment, again=True)
            return self._search_by_index(segment, timestamp)

    def _search_by_index(self, segment: Segment, timestamp: int) -> TimestampedOffset | None:
        relative = segment.time_index.offset_before(timestamp)
        relative = max(relative, self.log_start_offset - segment.base_offset)
        for _, batch in segment.scan(segment.offset_index.position_before(relative)):
            header = BatchHeader(batch)
            if header.max_timestamp < timestamp or header.last_offset < self.log_start_offset:
                continue
            try:
                for record in read_records(batch, header):
                    if record.timestamp >= timestamp and record.offset >= self.log_start_offset:
                        return TimestampedOffset(record.timestamp, record.offset, header.partition_leader_epoch)
            except BatchError:
                # A producer wrote what nobody can open: whoever begins with it misses nothing that comes later.
                first = max(header.base_offset, self.log_start_offset)
                return TimestampedOffset(header.max_timestamp, first, header.partition_leader_epoch)
        return None

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The youngest record (the first of them); None when no record has a timestamp."""
        return self.guarded(self._max_timestamp_offset)

    def _max_timestamp_offset(self) -> TimestampedOffset | None:
        youngest: Segment | None = None
        for segment in self.segments:
            self.largest_timestamp(segment)
            if segment.max_timestamp >= 0 and (youngest is None or segment.max_timestamp > youngest.max_timestamp):
                youngest = segment
        if youngest is None:
            return None
        start = self._position_before(youngest, youngest.max_timestamp_offset)
        for _, batch in youngest.scan(start):
            header = BatchHeader(batch)
            if header.max_timestamp == youngest.max_timestamp:
                return self._youngest_record(header, batch)
        return None

    def _youngest_record(self, header: BatchHeader, batch: memoryview) -> TimestampedOffset:
        try:
            offset = next(r.offset for r in read_records(batch, header) if r.timestamp == header.max_timestamp)
        except (StopIteration, BatchError):
            # The producer's header claims a maximum that no record has.
            offset = header.last_offset
        return TimestampedOffset(header.max_timestamp, offset, header.partition_leader_epoch)

    def is_latest_epoch(self, epoch: int) -> bool:
        """Whether this epoch is the one that reaches to the end of the log."""
        try:
            return self.epochs.latest == epoch
        except OSError as error:
            raise self.disk_failed(error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch known here that is not above `epoch`, where it ends); (-1, -1) when nothing is known."""
        return self.guarded(lambda: self.epochs.end_offset(epoch, self.log_end_offset))

    # ---- aborted transactions

    @abstractmethod
    def rebuild_transactions(self, segment: Segment) -> None:
        """Make a damaged index of aborted transactions again; only a log that knows its producers can."""

    def collect_aborted(self, start: int, upto: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that have records in [start, upto)."""
        return self.guarded(lambda: self._collect_aborted(start, upto))

    def _collect_aborted(self, start: int, upto: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        first = self.segment_of(start)
        # Markers stand at or after the records they end, so earlier segments cannot matter.
        for segment in self.segments[self.segments.index(first) :]:
            try:
                aborted, complete = segment.transactions.collect(start, upto)
            except CorruptIndex:
                self.rebuild_transactions(segment)
                aborted, complete = segment.transactions.collect(start, upto)
            found += [(each.producer_id, each.first_offset) for each in aborted]
            if complete:
                break
        return found
