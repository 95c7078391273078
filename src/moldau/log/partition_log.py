"""One partition's log: appending, reading, and everything that must stay true between the two.

Decides offsets, when a segment is full, what may be read and what is durable. Segments and indexes below do the
finding; `loading.py` opens a directory, `retention.py` shortens the front, `truncation.py` the end. It never decides
what is committed: whoever replicates sets `high_watermark`.

`append_as_leader` and `read` run once per request and partition and are written for speed: one header unpack, one
checksum, one write; one read. Everything unusual is tested in bulk and explained elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from random import Random
from typing import NamedTuple, TypeVar

from crc32c import crc32c

from moldau.log import append_checks
from moldau.log.config import LONG_MAX, LogConfig
from moldau.log.errors import CorruptIndex, LogDirFailure
from moldau.log.flushing import Flusher
from moldau.log.loading import LoadedLog, load_log
from moldau.log.offset_index import MAX_RELATIVE_OFFSET
from moldau.log.producer_state import AppendedBatch, Origin, ProducerState, VerificationGuard
from moldau.log.segment import Segment, walk_to
from moldau.ports import Buffer, Clock, Disk
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LEADER_FIELDS,
    LEADER_FIELDS_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
)

T = TypeVar("T")

_unpack_header = HEADER.unpack_from
_pack_leader_fields = LEADER_FIELDS.pack
_base_offset_of = attrgetter("base_offset")

NO_TIMESTAMP = -1
_FORBIDDEN_BITS = CONTROL_BIT | LOG_APPEND_TIME_BIT
# Positions of so many recently read offsets are remembered for readers that go on where they stopped.
_REMEMBERED_POSITIONS = 64


class AppendInfo(NamedTuple):
    """Where a batch went. For a repeated batch: where it went the first time."""

    first_offset: int
    last_offset: int
    records: int
    # Set when the topic stamps records with the append time (or the batch is a repetition), -1 otherwise.
    log_append_time: int
    log_start_offset: int
    duplicate: bool


class FetchData(NamedTuple):
    """Whole batches as they stand in the log. The first may begin before the offset that was asked for."""

    records: Buffer
    segment_base_offset: int
    position: int


EMPTY_READ = FetchData(b"", -1, -1)


class PartitionLog:
    """The log of one partition in one log directory."""

    __slots__ = (
        "_active",
        "_append_position",
        "_appended_at",
        "_config_special",
        "_disk",
        "_epoch",
        "_failed",
        "_flush_at",
        "_flusher",
        "_max_message_bytes",
        "_max_timestamp_ahead",
        "_positions",
        "_producers",
        "_random",
        "_roll_offset",
        "_roll_size",
        "_roll_timestamp",
        "clock",
        "config",
        "directory",
        "epochs",
        "failure",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "name",
        "partition",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        random: Random | None = None,
        failed: Callable[[LogDirFailure], None] | None = None,
    ) -> None:
        """Use `PartitionLog.open`."""
        self._disk = disk
        self.clock = clock
        self._random = random
        self._failed = failed
        self.failure: LogDirFailure | None = None
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.name = f"{topic}-{partition}"
        self.segments = loaded.segments
        self._active = loaded.segments[-1]
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        # How far records are committed; set by whoever replicates this partition.
        self.high_watermark = loaded.log_start_offset
        self.epochs = loaded.epochs
        self._epoch = -2
        self.snapshots = loaded.snapshots
        # Loaded when a producer first matters.
        self._producers: ProducerState | None = loaded.producers
        self._flusher = Flusher(self, loaded.recovery_point)
        # Where the latest append began, for readers that wait at the end of the log.
        self._appended_at = -1
        self._append_position = 0
        self._positions: dict[int, tuple[Segment, int]] = {}
        # Beyond any of these the active segment must be looked at before the next append; the first one always.
        self._roll_size = -1
        self._roll_timestamp = -1
        self._roll_offset = -1
        self.reconfigure(config)

    @classmethod
    def open(
        cls,
        disk: Disk,
        clock: Clock,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        random: Random | None = None,
        failed: Callable[[LogDirFailure], None] | None = None,
    ) -> PartitionLog:
        """Open or create the log in `directory`.

        After a clean shutdown only the end of the last segment is read. After any other, every batch from the segment
        of `recovery_point` on is checked, and the log ends before the first one that is damaged.
        """
        try:
            loaded = load_log(
                disk,
                clock,
                directory,
                f"{topic}-{partition}",
                topic_id,
                config,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                clean_shutdown=clean_shutdown,
            )
        except OSError as error:
            failure = LogDirFailure(directory, error)
            if failed is not None:
                failed(failure)
            raise failure from error
        return cls(disk, clock, directory, topic, partition, topic_id, config, loaded, random=random, failed=failed)

    def reconfigure(self, config: LogConfig) -> None:
        """Take over changed topic settings; they hold from the next append on."""
        self.config = config
        self._max_message_bytes = config.max_message_bytes
        self._max_timestamp_ahead = config.message_timestamp_after_max_ms
        self._config_special = (
            config.message_timestamp_type == "LogAppendTime"
            or config.compression_type != "producer"
            or config.cleanup_compact
            or config.message_timestamp_before_max_ms < LONG_MAX
            or config.deep_validation
        )
        self._roll_size = -1
        self._flusher.reconfigure(config)
        self._flush_at = self._flusher.next_offset

    # ---- appending

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append the batch of a client's Produce request; raises ApiError with what the client must be told."""
        if len(records) < HEADER_SIZE:
            append_checks.single_batch(records, self.name)
        (
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            offset_delta,
            _,
            timestamp,
            producer_id,
            producer_epoch,
            sequence,
            count,
        ) = _unpack_header(records)
        size = length + LENGTH_OVERHEAD
        if size != len(records) or magic != MAGIC:
            records = append_checks.single_batch(records, self.name)
        if size > self._max_message_bytes:
            append_checks.refuse_size(size, self._max_message_bytes, self.name)
        if crc32c(records[ATTRIBUTES_AT:]) != crc:
            append_checks.refuse_checksum(crc, self.name)
        if (
            count != offset_delta + 1
            or count <= 0
            or base_offset != 0
            or attributes & _FORBIDDEN_BITS
            or attributes & CODEC_MASK > 4
            or (sequence < 0 and producer_id >= 0)
        ):
            append_checks.refuse_header(BatchHeader(records), self.name)
        now = self.clock.now_ms()
        append_time = NO_TIMESTAMP
        if self._config_special:
            records, timestamp, append_time = append_checks.prepare_specially(records, self.config, now, self.name)
            size = len(records)
            length = size - LENGTH_OVERHEAD
        elif timestamp - now > self._max_timestamp_ahead:
            append_checks.refuse_timestamp(timestamp, now, self.config, self.name)
        first_offset = self.log_end_offset
        last_offset = first_offset + offset_delta
        transactional = attributes & TRANSACTIONAL_BIT
        producers = self._producers
        if producer_id >= 0:
            if producers is None:
                producers = self.producers
            entry = producers.producers.get(producer_id)
            if (
                entry is None
                or transactional
                or entry.next_sequence != sequence
                or entry.epoch != producer_epoch
                or entry.transaction_start >= 0
            ):
                repeated = producers.check_data(
                    producer_id,
                    producer_epoch,
                    sequence,
                    (sequence + offset_delta) & 0x7FFFFFFF,
                    origin=Origin.CLIENT,
                    transactional=transactional != 0,
                    guard=guard,
                    verify=self.config.transaction_verification,
                )
                if repeated is not None:
                    return self._repeated(repeated)
        segment = self._active
        position = segment.size
        if position + size > self._roll_size or timestamp > self._roll_timestamp or last_offset > self._roll_offset:
            segment = self._segment_for(size, timestamp, last_offset, now)
            position = segment.size
        if leader_epoch != self._epoch:
            self._begin_epoch(leader_epoch)
        try:
            segment.file.append((_pack_leader_fields(first_offset, length, leader_epoch), records[LEADER_FIELDS_SIZE:]))
        except OSError as error:
            raise self.disk_failed(error) from error
        if timestamp > segment.max_timestamp:
            segment.max_timestamp = timestamp
            segment.max_timestamp_offset = last_offset
        if segment.bytes_since_index > self.config.index_interval_bytes:
            self._index(segment, last_offset, position)
        segment.bytes_since_index += size
        segment.size = position + size
        self._appended_at = first_offset
        self._append_position = position
        self.log_end_offset = last_offset + 1
        if producer_id >= 0:
            assert producers is not None
            producers.append_data(
                producer_id, producer_epoch, sequence, first_offset, last_offset, timestamp, transactional != 0
            )
        if last_offset >= self._flush_at:
            self._flusher.appended()
        return AppendInfo(first_offset, last_offset, count, append_time, self.log_start_offset, False)

    def _repeated(self, batch: AppendedBatch) -> AppendInfo:
        return AppendInfo(
            batch.first_offset,
            batch.last_offset,
            batch.last_offset - batch.first_offset + 1,
            batch.timestamp,
            self.log_start_offset,
            True,
        )

    def _index(self, segment: Segment, last_offset: int, position: int) -> None:
        segment.add_index_entries(last_offset, position)
        if segment.indexes_full(self.config.segment_index_bytes):
            self._roll_size = -1

    def _begin_epoch(self, leader_epoch: int) -> None:
        self.epochs.assign(leader_epoch, self.log_end_offset)
        self._epoch = leader_epoch

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """This replica leads from here on in a new epoch."""
        self._guarded(lambda: self._begin_epoch(leader_epoch))

    # ---- segments

    @property
    def active_segment(self) -> Segment:
        return self._active

    def _segment_for(self, size: int, timestamp: int, last_offset: int, now: int) -> Segment:
        """The segment that takes these bytes: the active one, or a new one when it is full, old or out of numbers."""
        if self.failure is not None:
            raise self.failure
        try:
            segment = self._active
            config = self.config
            if size > config.segment_bytes:
                raise ApiError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"{size} bytes for {self.name}; segment.bytes is {config.segment_bytes}",
                )
            self._readable_indexes(segment)
            segment.resolve_timestamps()
            first = segment.resolve_first_timestamp()
            max_age = config.segment_ms - segment.roll_jitter_ms
            if first is not None and first >= 0:
                expired = segment.size > 0 and timestamp - first > max_age
            else:
                expired = segment.size > 0 and now - segment.created_ms > max_age
            if (
                expired
                or segment.size + size > config.segment_bytes
                or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
                or segment.indexes_full(config.segment_index_bytes)
            ):
                segment = self._roll(self.log_end_offset)
                first = None
            self._roll_size = config.segment_bytes
            self._roll_offset = segment.base_offset + MAX_RELATIVE_OFFSET
            if segment.size == 0:
                # The batch about to be written is the first: age is counted from it.
                segment.first_timestamp = first = timestamp
            self._roll_timestamp = first + max_age if first is not None and first >= 0 else -1
            return segment
        except OSError as error:
            raise self.disk_failed(error) from error

    def roll(self) -> Segment:
        """Begin a new segment at the end of the log, unless the active one is empty."""
        return self._guarded(lambda: self._roll(self.log_end_offset))

    def _roll(self, base_offset: int) -> Segment:
        old = self._active
        if old.size == 0 and old.base_offset == base_offset:
            return old
        self._readable_indexes(old)
        old.write_indexes()
        if self.config.preallocate:
            old.file.truncate(old.size)
        self.snapshots.take(base_offset, self.producers)
        old.retire()
        new = self._create_segment(base_offset)
        self.segments.append(new)
        self._active = new
        self._roll_size = -1
        self._flusher.rolled(base_offset)
        return new

    def _create_segment(self, base_offset: int) -> Segment:
        config = self.config
        return Segment.create(
            self._disk,
            self.directory,
            base_offset,
            now_ms=self.clock.now_ms(),
            preallocate=config.segment_bytes if config.preallocate else 0,
            jitter_ms=config.segment_jitter(self._random),
        )

    def _readable_indexes(self, segment: Segment) -> None:
        """Make sure the segment's index files can be used; they are made again when they cannot."""
        try:
            segment.check_indexes()
        except CorruptIndex:
            segment.rebuild_indexes(self.config.index_interval_bytes)
            if segment is not self._active:
                segment.retire()

    def segment_of(self, offset: int) -> Segment:
        """The segment that has this offset, if any has it."""
        if offset >= self._active.base_offset:
            return self._active
        return self.segments[max(bisect_right(self.segments, offset, key=_base_offset_of) - 1, 0)]

    @property
    def size(self) -> int:
        """Bytes of all segments' batches."""
        return sum(segment.size for segment in self.segments)

    # ---- reading

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one_message: bool = True
    ) -> FetchData:
        """Whole batches from the one that has `offset` on, before `max_offset`, of at most `max_bytes` together.

        With `min_one_message` the first batch is given even when it is larger than `max_bytes`. Raises ApiError
        OFFSET_OUT_OF_RANGE outside of [log start, log end].
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
            return EMPTY_READ
        try:
            return self._read(offset, max_bytes, max_offset, min_one_message)
        except OSError as error:
            raise self.disk_failed(error) from error

    def _read(self, offset: int, max_bytes: int, max_offset: int, min_one_message: bool) -> FetchData:
        if offset == self._appended_at:
            segment, start, exact = self._active, self._append_position, True
        else:
            known = self._positions.get(offset)
            if known is not None:
                segment, start = known
                exact = True
            else:
                segment = self.segment_of(offset)
                start = self._position_before(segment, offset)
                exact = False
        while True:
            end = self._end_position(segment, max_offset)
            data = self._read_segment(segment, offset, start, exact, end, max_bytes, max_offset, min_one_message)
            if data is not None:
                return data
            # Compaction may leave the end of a segment's range without records: go on in the next one.
            i = bisect_right(self.segments, segment.base_offset, key=_base_offset_of)
            if i >= len(self.segments) or self.segments[i].base_offset >= max_offset:
                return EMPTY_READ
            segment, start, exact = self.segments[i], 0, False

    def _read_segment(
        self,
        segment: Segment,
        offset: int,
        start: int,
        exact: bool,
        end: int,
        max_bytes: int,
        max_offset: int,
        min_one_message: bool,
    ) -> FetchData | None:
        if start >= end:
            return None
        want = max_bytes if exact else max_bytes + 2 * self.config.index_interval_bytes
        want = max(want, HEADER_SIZE)
        data: Buffer = segment.file.read(start, min(want, end - start))
        at = 0
        if not exact:
            at, found = walk_to(data, 0, offset)
            if not found:
                if at == 0 or start + at >= end:
                    return None
                return self._read_segment(
                    segment, offset, start + at, False, end, max_bytes, max_offset, min_one_message
                )
        complete = start + len(data) == end
        if complete and len(data) - at <= max_bytes:
            if end == segment.size and segment is self._active:
                self._remember(self.log_end_offset, segment, end)
            elif end < segment.size:
                self._remember(max_offset, segment, end)
            return FetchData(memoryview(data)[at:] if at else data, segment.base_offset, start + at)
        cut, next_offset = segment.cut_before(data, start, at, min(at + max_bytes, len(data)))
        if cut == at:
            if not min_one_message:
                return EMPTY_READ
            return self._read_one(segment, data, start, at)
        self._remember(next_offset, segment, start + cut)
        return FetchData(memoryview(data)[at:cut], segment.base_offset, start + at)

    def _read_one(self, segment: Segment, data: Buffer, start: int, at: int) -> FetchData:
        """The first batch alone: it is larger than what was asked for."""
        if len(data) - at < HEADER_SIZE:
            data, start, at = segment.file.read(start + at, HEADER_SIZE), start + at, 0
        header = BatchHeader(data, at)
        if at + header.size > len(data):
            data, start, at = segment.file.read(start + at, header.size), start + at, 0
        self._remember(header.next_offset, segment, start + at + header.size)
        return FetchData(memoryview(data)[at : at + header.size], segment.base_offset, start + at)

    def _position_before(self, segment: Segment, offset: int) -> int:
        try:
            return segment.offset_index.position_before(offset - segment.base_offset)
        except CorruptIndex:
            segment.rebuild_indexes(self.config.index_interval_bytes)
            return segment.offset_index.position_before(offset - segment.base_offset)

    def _end_position(self, segment: Segment, max_offset: int) -> int:
        """Where records at or after `max_offset` begin in this segment."""
        if max_offset >= self.log_end_offset:
            return segment.size
        if segment is not self._active:
            i = bisect_right(self.segments, segment.base_offset, key=_base_offset_of)
            if i < len(self.segments) and self.segments[i].base_offset <= max_offset:
                return segment.size
        if max_offset == self._appended_at and segment is self._active:
            return self._append_position
        known = self._positions.get(max_offset)
        if known is not None and known[0] is segment:
            return known[1]
        self._position_before(segment, max_offset)
        position = segment.locate(max_offset)
        if position is None:
            return segment.size
        self._remember(max_offset, segment, position)
        return position

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        if offset not in positions and len(positions) >= _REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        positions[offset] = (segment, position)

    def forget_positions(self) -> None:
        """Segments were cut or replaced: nothing remembered about them holds."""
        self._positions.clear()
        self._appended_at = -1

    # ---- producers and transactions

    @property
    def producers(self) -> ProducerState:
        producers = self._producers
        if producers is None:
            producers = self._producers = self.snapshots.restore(
                self.name, self.segments, self.log_end_offset, self.clock.now_ms(), self.config
            )
        return producers

    @property
    def last_stable_offset(self) -> int:
        """How far a reader of committed records may go: before the first transaction that is still open."""
        first = self.producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if first is None else min(first, self.high_watermark)

    # ---- durability

    @property
    def recovery_point(self) -> int:
        """Everything below this offset survives a power cut."""
        return self._flusher.recovery_point

    @property
    def needs_sync_to_commit(self) -> bool:
        """Whether the topic wants every record synced before it counts as written."""
        return self.config.flush_messages <= 1

    def flush(self, done: Callable[[OSError | None], None] | None = None) -> None:
        """Make everything appended so far durable; blocks without `done`. Callers that overlap share a sync."""
        self._flusher.flush(done)

    def flush_point_moved(self, next_offset: int) -> None:
        self._flush_at = next_offset

    def close(self, *, clean: bool = True) -> None:
        """Let go of every file. A clean close leaves nothing to recover; after a disk failure only files are closed."""
        try:
            if clean and self.failure is None:
                self._flusher.flush_for_close()
                if self.snapshots.offsets or (self._producers is not None and self._producers.producers):
                    self.snapshots.take(self.log_end_offset, self.producers)
                self._readable_indexes(self._active)
                self._active.write_indexes()
                if self.config.preallocate:
                    self._active.file.truncate(self._active.size)
        except OSError as error:
            raise self.disk_failed(error) from error
        finally:
            for segment in self.segments:
                segment.close_file()
                segment.unmap()

    # ---- failure

    def disk_failed(self, error: OSError) -> LogDirFailure:
        """Note that the disk failed; no append succeeds from here on. Gives the exception to raise."""
        failure = self.failure
        if failure is None:
            failure = self.failure = LogDirFailure(self.directory, error)
            self._roll_size = -1
            if self._failed is not None:
                self._failed(failure)
        return failure

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except OSError as error:
            raise self.disk_failed(error) from error
