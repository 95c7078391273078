"""One partition's log: every change to it, and everything that must stay true while it changes.

Decides offsets, when a segment is full, which producers may append, what is durable and what is removed. Finding and
reading is `readable_log.py`, opening a directory is `loading.py`. It never decides what is committed: whoever
replicates the partition sets `high_watermark`.

`append_as_leader` runs once per request and partition and is written for speed: one header unpack, one checksum, one
write. Everything unusual is tested in bulk and explained in `append_checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from crc32c import crc32c

from moldau.log import append_checks, retention, truncation
from moldau.log.batch_append import append_own, append_replicated
from moldau.log.config import LONG_MAX, LogConfig
from moldau.log.errors import LogDirFailure
from moldau.log.flushing import Flusher
from moldau.log.loading import LoadedLog, load_log
from moldau.log.names import LEADER_EPOCH_CHECKPOINT
from moldau.log.offset_index import MAX_RELATIVE_OFFSET
from moldau.log.producer_state import (
    AppendedBatch,
    CompletedTransaction,
    Origin,
    ProducerEntry,
    ProducerState,
    VerificationGuard,
)
from moldau.log.readable_log import ReadableLog
from moldau.log.repetitions import remember_more
from moldau.log.segment import Segment
from moldau.log.transaction_index import AbortedTransaction
from moldau.ports import Buffer, Clock, Disk, File
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

_unpack_header: Final = HEADER.unpack_from
_pack_leader_fields: Final = LEADER_FIELDS.pack

NO_TIMESTAMP: Final = -1
_FORBIDDEN_BITS: Final = CONTROL_BIT | LOG_APPEND_TIME_BIT
_NO_EPOCH_LIMIT: Final = 2**31 - 1
_UNKNOWN_EPOCH: Final = -2


class AppendInfo:
    """Where a batch went. For a repeated batch: where it went the first time."""

    __slots__ = ("duplicate", "first_offset", "last_offset", "log_append_time", "log_start_offset", "records")

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        records: int,
        log_append_time: int,
        log_start_offset: int,
        duplicate: bool,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.records = records
        # Set when the topic stamps records with the append time (or the batch is a repetition), -1 otherwise.
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate


class PartitionLog(ReadableLog):
    """The log of one partition in one log directory."""

    __slots__ = (
        "_config_special",
        "_config_special_for_own",
        "_epoch",
        "_file",
        "_flush_at",
        "_flusher",
        "_max_message_bytes",
        "_max_timestamp_ahead",
        "_producers",
        "_random",
        "_roll_offset",
        "_roll_size",
        "_roll_timestamp",
        "clock",
        "disk",
        "leaving",
        "partition",
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
        super().__init__(
            directory,
            f"{topic}-{partition}",
            config,
            loaded.segments,
            loaded.epochs,
            loaded.log_start_offset,
            loaded.log_end_offset,
            failed,
        )
        self.disk = disk
        self.clock = clock
        self._random = random
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.snapshots = loaded.snapshots
        # Loaded when a producer first matters.
        self._producers: ProducerState | None = loaded.producers
        # Segments whose files are marked as deleted and will be removed shortly.
        self.leaving: list[Segment] = []
        # The epoch of the latest append, so that the cache of epochs is asked only when it changes.
        self._epoch = _UNKNOWN_EPOCH
        # The active segment's file; set whenever the limits below are.
        self._file: File = loaded.segments[-1].file
        # Beyond any of these the active segment must be looked at before the next append; the first one always.
        self._roll_size = -1
        self._roll_timestamp = -1
        self._roll_offset = -1
        self._flusher = Flusher(self, loaded.recovery_point)
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
        # What the broker's own records need not be looked at for, and what is done to them as well.
        self._config_special_for_own = (
            config.message_timestamp_type == "LogAppendTime" or config.compression_type != "producer"
        )
        self._config_special = (
            self._config_special_for_own
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
        own: bool = False,
    ) -> AppendInfo:
        """Append the batch of a client's Produce request; raises ApiError with what the client must be told.

        The records of a batch that is this broker's `own` are as they should be.
        Long and flat on purpose: this is the broker's hottest path, and every call in it costs as much as a check.
        """
        if len(records) < HEADER_SIZE:
            append_checks.single_batch(records, self.name)
        base_offset: int
        length: int
        magic: int
        crc: int
        attributes: int
        offset_delta: int
        timestamp: int
        producer_id: int
        producer_epoch: int
        sequence: int
        count: int
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
        if self._config_special and (not own or self._config_special_for_own):
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
                if entry is not None and entry.from_snapshot and entry.next_sequence != sequence:
                    remember_more(self, entry)
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
            segment = self.segment_for(size, timestamp, last_offset, now)
            position = segment.size
        if leader_epoch != self._epoch:
            self._begin_epoch(leader_epoch)
        try:
            self._file.append((_pack_leader_fields(first_offset, length, leader_epoch), records[LEADER_FIELDS_SIZE:]))
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

    def append_own(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = -1,
    ) -> AppendInfo:
        """Append batches this broker made itself, as leader: a coordinator's records, transaction markers.

        Offsets and epoch are assigned here. Producer epochs are checked, sequence numbers are not.
        """
        view = memoryview(records)
        return self.guarded(lambda: append_own(self, view, leader_epoch, guard, transaction_version))

    def append_as_follower(self, records: Buffer, leader_epoch: int = _NO_EPOCH_LIMIT) -> AppendInfo | None:
        """Append what the leader sent, offsets and epochs as they are; None when no whole batch came.

        A batch of a later epoch than `leader_epoch` is left out with what follows it: that leader is not ours yet.
        """
        return self.guarded(lambda: append_replicated(self, memoryview(records), leader_epoch))

    def written(self, segment: Segment, position: int, size: int, header: BatchHeader) -> None:
        """Account for one batch that was written at this place by other means than `append_as_leader`."""
        last_offset = header.last_offset
        segment.note_timestamp(header.max_timestamp, last_offset)
        if segment.bytes_since_index > self.config.index_interval_bytes:
            self._index(segment, last_offset, position)
        segment.bytes_since_index += size
        segment.size = position + size
        self._appended_at = header.base_offset
        self._append_position = position
        self.log_end_offset = last_offset + 1
        if last_offset >= self._flush_at:
            self._flusher.appended()

    def end_transaction(self, completed: CompletedTransaction) -> None:
        """A marker was written: an abort goes to the index, then the transaction is over."""
        if completed.aborted:
            stable = self.producers.last_stable_offset(completed)
            self._active.transactions.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
        self.producers.complete(completed)

    def _index(self, segment: Segment, last_offset: int, position: int) -> None:
        segment.add_index_entries(last_offset, position)
        if segment.indexes_full(self.config.segment_index_bytes):
            self._roll_size = -1

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Batches of a new epoch begin at the end of the log."""
        self.guarded(lambda: self._begin_epoch(leader_epoch))

    def _begin_epoch(self, leader_epoch: int) -> None:
        self.epochs.assign(leader_epoch, self.log_end_offset)
        self._epoch = leader_epoch

    def cut_epochs(self, end_offset: int) -> None:
        """Forget the epochs that began at or after this offset, also one without records yet."""
        self.epochs.truncate_from_end(end_offset)
        self._epoch = _UNKNOWN_EPOCH

    # ---- segments

    def segment_for(self, size: int, timestamp: int, last_offset: int, now: int) -> Segment:
        """The segment that takes these bytes: the active one, or a new one when it is full, old or out of numbers."""
        return self.guarded(lambda: self._segment_for(size, timestamp, last_offset, now))

    def _segment_for(self, size: int, timestamp: int, last_offset: int, now: int) -> Segment:
        segment = self._active
        config = self.config
        if size > config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes for {self.name}; segment.bytes is {config.segment_bytes}",
            )
        self.ensure_indexes(segment)
        segment.resolve_timestamps()
        first = segment.resolve_first_timestamp()
        max_age = config.segment_ms - segment.roll_jitter_ms
        waited = timestamp - first if first is not None and first >= 0 else now - segment.created_ms
        if (
            (segment.size > 0 and waited > max_age)
            or segment.size + size > config.segment_bytes
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or segment.indexes_full(config.segment_index_bytes)
        ):
            segment = self._roll()
        if segment.size == 0:
            # The batch about to be written is the first: age is counted from it.
            segment.first_timestamp = first = timestamp
        self._roll_size = config.segment_bytes
        self._roll_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        # Without timestamps the clock decides, so every append has to ask.
        self._roll_timestamp = first + max_age if first is not None and first >= 0 else -2
        self._file = segment.file
        return segment

    def still_fits(self, end_position: int, timestamp: int, last_offset: int) -> bool:
        """Whether the segment that was just asked for takes another batch up to here."""
        return (
            end_position <= self._roll_size and timestamp <= self._roll_timestamp and last_offset <= self._roll_offset
        )

    def roll(self) -> Segment:
        """Begin a new segment at the end of the log, unless the active one is empty."""
        return self.guarded(self._roll)

    def _roll(self) -> Segment:
        old = self._active
        base_offset = self.log_end_offset
        if old.size == 0 and old.base_offset == base_offset:
            return old
        self.ensure_indexes(old)
        old.write_indexes()
        if self.config.preallocate:
            old.file.truncate(old.size)
        self.snapshots.take(base_offset, self.producers)
        old.retire()
        if old.size == 0:
            # An empty segment cannot stand beside another one: nothing tells where it ends.
            self.segments.remove(old)
            old.remove()
        self.add_active_segment(base_offset)
        self._flusher.rolled(old)
        return self._active

    def add_active_segment(self, base_offset: int) -> None:
        """Create the segment that appends go to from here on."""
        config = self.config
        new = Segment.create(
            self.disk,
            self.directory,
            base_offset,
            now_ms=self.clock.now_ms(),
            preallocate=config.segment_bytes if config.preallocate else 0,
            jitter_ms=config.segment_jitter(self._random),
        )
        self.segments.append(new)
        self.use_active_segment()

    def use_active_segment(self) -> None:
        """The last segment is another one, or shorter than it was: look at it before the next append."""
        self._active = self.segments[-1]
        self._file = self._active.file
        self._roll_size = -1
        self.forget_positions()

    # ---- producers and transactions

    @property
    def producers(self) -> ProducerState:
        producers = self._producers
        if producers is None:
            producers = self._producers = self.guarded(
                lambda: self.snapshots.restore(
                    self.name, self.segments, self.log_end_offset, self.clock.now_ms(), self.config
                )
            )
        return producers

    def forget_producers(self) -> None:
        """The log was cut: what producers wrote must be found out again."""
        self._producers = None

    def rebuild_transactions(self, segment: Segment) -> None:
        self.snapshots.rebuild_transactions(self.name, self.segments, segment, self.clock.now_ms(), self.config)

    def active_producers(self) -> list[ProducerEntry]:
        return list(self.producers.producers.values())

    def remove_expired_producers(self, now: int) -> None:
        if self._producers is not None:
            self._producers.remove_expired(now, self.config.producer_id_expiration_ms)

    @property
    def last_stable_offset(self) -> int:
        """How far a reader of committed records may go: before the first transaction that is still open."""
        producers = self._producers
        if producers is None:
            producers = self.producers
        if not producers.has_unstable:
            return self.high_watermark
        first = producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if first is None else min(first, self.high_watermark)

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool = False
    ) -> VerificationGuard | None:
        """Before a transaction's first batch: the proof to append it with once the coordinator confirmed.

        None when nothing needs to be verified, because the transaction is open here or verification is off.
        """
        if not self.config.transaction_verification:
            return None
        return self.producers.start_verification(
            producer_id, sequence, epoch, self.clock.now_ms(), supports_epoch_bump=supports_epoch_bump
        )

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        return self.producers.has_ongoing_transaction(producer_id, epoch)

    # ---- shortening

    def truncate_to(self, offset: int) -> bool:
        """Remove everything at or after `offset`; whether anything was removed."""
        return self.guarded(lambda: truncation.truncate_to(self, offset))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything; the next record gets `offset`."""
        self.guarded(lambda: truncation.truncate_fully(self, offset, log_start_offset))

    def truncated(self, end_offset: int) -> None:
        """The log ends here now: bring what depends on it in line."""
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.cut_epochs(end_offset)
        self.epochs.write()
        self._flusher.truncated(end_offset)
        self.forget_producers()
        self.use_active_segment()

    def take_epochs_of(self, other: PartitionLog) -> None:
        """Know where epochs began from a replica of the same log, which has had batches that this one never saw."""

        def take() -> None:
            self.epochs.replace(other.epochs.entries())
            self.epochs.write()

        self.guarded(take)

    def delete_records(self, before: int) -> int:
        """Move the log start offset up to `before`; gives the log start offset. Files go with the next retention."""
        return self.guarded(lambda: retention.delete_records(self, before))

    def delete_old_segments(self, now: int) -> int:
        """Remove the segments that retention by time, by size or by log start offset does not keep; how many."""
        return self.guarded(lambda: retention.delete_old_segments(self, now))

    def replace_segments(self, new: list[Segment], old: list[Segment]) -> None:
        """Put compacted segments (named .cleaned, complete and synced) in the place of the ones they come from."""
        self.guarded(lambda: retention.replace_segments(self, new, old))

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

    def checkpoint(self) -> None:
        """Write down what only memory knows of the active segment, so that less is found out again after a crash."""

        def write() -> None:
            self.ensure_indexes(self._active)
            self._active.offset_index.write()
            self._active.time_index.write()
            self.epochs.write()

        self.guarded(write)

    def close(self, *, clean: bool = True) -> None:
        """Let go of every file. A clean close leaves nothing to recover; after a disk failure only files are closed."""
        try:
            if clean and self.failure is None:
                self.guarded(self._write_for_close)
        finally:
            self._flusher.stop()
            for segment in self.segments:
                segment.close_file()
                segment.unmap()

    def _write_for_close(self) -> None:
        active = self._active
        self._flusher.flush_for_close()
        # Without a snapshot the next start takes it that there are no producers: after a cut, look again.
        if self.snapshots.offsets or self.producers.producers:
            self.snapshots.take(self.log_end_offset, self.producers)
        self.ensure_indexes(active)
        active.write_indexes()
        if self.config.preallocate:
            active.file.truncate(active.size)

    def rename_directory(self, directory: str) -> None:
        """Move the whole partition to another name (to be deleted, or to take a current replica's place)."""

        def move() -> None:
            for segment in self.segments + self.leaving:
                segment.close_file()
                segment.unmap()
            self.disk.rename(self.directory, directory)
            self.directory = directory
            for segment in self.segments + self.leaving:
                segment.moved(directory)
            self.snapshots.directory = directory
            self.epochs.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
            self.use_active_segment()

        self.guarded(move)

    def disk_failed(self, error: OSError) -> LogDirFailure:
        self._roll_size = -1
        return super().disk_failed(error)
