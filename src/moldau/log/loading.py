"""Opening a partition's directory: what is there, what a crash left behind, and where the log ends.

After a clean shutdown this reads the directory, the last segment's size and the batches after its last index entry,
nothing else, so that ten thousand logs open in seconds. After any other it checks every batch that may not have been
synced and cuts the log before the first damaged one. It never removes a whole batch unless an earlier one is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from moldau.log.checkpoints import CheckpointError
from moldau.log.config import LogConfig
from moldau.log.errors import CorruptIndex
from moldau.log.leader_epochs import LeaderEpochs
from moldau.log.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    offset_in_name,
)
from moldau.log.offset_index import MAX_RELATIVE_OFFSET
from moldau.log.partition_metadata import read_partition_metadata, write_partition_metadata
from moldau.log.producer_state import ProducerState
from moldau.log.segment import Segment
from moldau.log.snapshots import ProducerSnapshots, replay_and_index, replay_segment
from moldau.ports import Clock, Disk
from moldau.records.batch import HEADER_SIZE, MAGIC, BatchHeader


@dataclass(slots=True)
class LoadedLog:
    """What `PartitionLog` begins with. There is always at least one segment."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    snapshots: ProducerSnapshots
    producers: ProducerState | None


def load_log(
    disk: Disk,
    clock: Clock,
    directory: str,
    name: str,
    topic_id: bytes | None,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean_shutdown: bool,
) -> LoadedLog:
    try:
        names = disk.list_dir(directory)
    except FileNotFoundError:
        disk.make_dirs(directory)
        names = []
    if any(entry.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for entry in names):
        names = _clear_leftovers(disk, directory, names)
    if topic_id is not None and (PARTITION_METADATA not in names or not clean_shutdown):
        _write_topic_id(disk, f"{directory}/{PARTITION_METADATA}", topic_id)
    loader = _Loader(disk, clock, directory, name, config, set(names))
    return loader.load(recovery_point, log_start_offset, clean_shutdown)


def _write_topic_id(disk: Disk, path: str, topic_id: bytes) -> None:
    """Say which topic the directory belongs to, unless it does. Not synced: nothing else in a new directory is."""
    try:
        if read_partition_metadata(disk, path) is not None:
            return
    except CheckpointError:
        # Cut by a crash right after the directory was made.
        pass
    write_partition_metadata(disk, path, topic_id, sync=False)


class _Loader:
    __slots__ = (
        "_checked_to",
        "_claimed_epochs",
        "clock",
        "config",
        "directory",
        "disk",
        "epochs",
        "name",
        "names",
        "now",
        "segments",
        "snapshots",
    )

    def __init__(self, disk: Disk, clock: Clock, directory: str, name: str, config: LogConfig, names: set[str]) -> None:
        self.disk = disk
        self.clock = clock
        self.directory = directory
        self.name = name
        self.config = config
        self.names = names
        self.now = clock.now_ms()
        bases: list[int] = []
        snapshot_offsets: list[int] = []
        for entry in names:
            offset = offset_in_name(entry)
            if offset is None:
                continue
            if entry.endswith(LOG_SUFFIX):
                bases.append(offset)
            elif entry.endswith(SNAPSHOT_SUFFIX):
                snapshot_offsets.append(offset)
        bases.sort()
        self.snapshots = ProducerSnapshots(disk, directory, snapshot_offsets)
        self.segments = [self._segment(base) for base in bases]
        self.epochs = LeaderEpochs(
            disk,
            f"{directory}/{LEADER_EPOCH_CHECKPOINT}",
            exists=LEADER_EPOCH_CHECKPOINT in names,
            from_batches=partial(_epochs_of, self.segments),
        )

    def _segment(self, base: int) -> Segment:
        path = f"{self.directory}/{file_name(base, LOG_SUFFIX)}"
        return Segment(
            self.disk,
            self.directory,
            base,
            self.disk.file_size(path),
            fresh=False,
            has_transactions=file_name(base, TRANSACTION_INDEX_SUFFIX) in self.names,
            created_ms=self.now,
        )

    def load(self, recovery_point: int, log_start_offset: int, clean_shutdown: bool) -> LoadedLog:
        self._remove_orphans()
        producers: ProducerState | None = None
        if self.segments:
            if clean_shutdown:
                end_offset = self._end_of_last_segment()
                if not self.snapshots.offsets:
                    # A clean close writes a snapshot as soon as there is a producer to remember.
                    producers = ProducerState(self.name)
            else:
                end_offset, producers = self._recover(recovery_point, log_start_offset)
            if end_offset < log_start_offset:
                # Files were removed behind our back: everything left is older than what may be read.
                self._drop_all()
                end_offset, producers = log_start_offset, ProducerState(self.name)
        else:
            end_offset = log_start_offset
            producers = ProducerState(self.name)
        if not self.segments:
            self.segments.append(self._create(end_offset))
        start_offset = max(log_start_offset, self.segments[0].base_offset)
        if not clean_shutdown:
            self.epochs.truncate_from_end(end_offset)
            self.epochs.truncate_from_start(start_offset)
        return LoadedLog(
            self.segments,
            start_offset,
            end_offset,
            end_offset if clean_shutdown else min(recovery_point, end_offset),
            self.epochs,
            self.snapshots,
            producers,
        )

    def _create(self, base_offset: int) -> Segment:
        config = self.config
        return Segment.create(
            self.disk,
            self.directory,
            base_offset,
            now_ms=self.now,
            preallocate=config.segment_bytes if config.preallocate else 0,
        )

    def _remove_orphans(self) -> None:
        """Index files without a segment, and snapshots at offsets where no segment begins (but the latest)."""
        bases = {segment.base_offset for segment in self.segments}
        last_base = max(bases, default=-1)
        for entry in self.names:
            offset = offset_in_name(entry)
            if offset is not None and offset not in bases and entry.endswith(INDEX_SUFFIXES):
                self.disk.remove(f"{self.directory}/{entry}")
        strays = [offset for offset in self.snapshots.offsets if offset not in bases]
        if strays and strays[-1] > last_base:
            strays.pop()
        for offset in strays:
            self.snapshots.remove(offset)

    def _drop_all(self) -> None:
        for segment in self.segments:
            segment.remove()
        self.segments.clear()
        self.epochs.clear()
        for offset in list(self.snapshots.offsets):
            self.snapshots.remove(offset)

    # ---- after a clean shutdown

    def _end_of_last_segment(self) -> int:
        """The end of the log, from the batches after the last index entry of the last segment."""
        segment = self.segments[-1]
        if segment.size == 0:
            segment.offset_index.clear()
            segment.time_index.clear()
            return segment.base_offset
        try:
            segment.offset_index.check(segment.size)
        except CorruptIndex:
            segment.rebuild_indexes(self.config.index_interval_bytes)
        last = segment.offset_index.last()
        start = last[1] if last is not None else 0
        end_offset = segment.base_offset
        valid = start
        for position, batch in segment.scan(start):
            header = BatchHeader(batch)
            segment.note_timestamp(header.max_timestamp, header.last_offset)
            if position > start or last is None:
                segment.bytes_since_index += header.size
            end_offset = header.next_offset
            valid = position + header.size
        segment.unmap()
        if valid < segment.size:
            # Preallocated space that nobody cut off, or damage: a batch that is not whole was never promised.
            segment.file.truncate(valid)
            segment.size = valid
        return end_offset

    # ---- after a crash

    def _recover(self, recovery_point: int, log_start_offset: int) -> tuple[int, ProducerState]:
        """Check every segment that may have unsynced batches; the log ends before the first damaged one."""
        first = max((i for i, s in enumerate(self.segments) if s.base_offset <= recovery_point), default=0)
        expected = self.segments[first].base_offset
        producers = self._producers_before(first)
        self.snapshots.remove_after(expected)
        self._claimed_epochs = self.epochs.take_from(expected)
        self._checked_to = expected
        for i in range(first, len(self.segments)):
            segment = self.segments[i]
            trusted = max(expected, recovery_point, log_start_offset)
            if segment.base_offset > trusted and not self.config.cleanup_compact:
                # The end of the segment before was lost and left no trace: what follows does not follow from it.
                self._drop_after(i - 1)
                break
            size = segment.size
            expected = self._recover_segment(segment, max(expected, segment.base_offset), producers)
            if segment.size < size:
                self._drop_after(i)
                break
        return expected, producers

    def _producers_before(self, index: int) -> ProducerState:
        """The producers as of the beginning of a segment."""
        base = self.segments[index].base_offset
        producers, offset = self.snapshots.load(self.name, base, self.now, self.config)
        for segment in self.segments[:index]:
            replay_segment(producers, segment, offset or 0, self.config)
            segment.retire()
        return producers

    def _recover_segment(self, segment: Segment, expected: int, producers: ProducerState) -> int:
        """Check the batches, make the indexes again, cut what is damaged; gives the offset after the last batch."""
        segment.begin_rebuild()
        interval = self.config.index_interval_bytes
        valid = 0
        for position, batch in segment.scan():
            header = BatchHeader(batch)
            if (
                header.base_offset < expected
                or header.last_offset_delta < 0
                or header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
                or not header.checksum_matches(batch)
                or (header.base_offset > expected and _was_moved(segment, header, position, expected))
            ):
                break
            segment.index_batch(batch, position, interval)
            self._note_epoch(header)
            replay_and_index(producers, segment, header, batch)
            expected = header.next_offset
            valid = position + header.size
        if valid < segment.size:
            segment.file.truncate(valid)
            segment.size = valid
        segment.write_indexes()
        segment.retire()
        return expected

    def _note_epoch(self, header: BatchHeader) -> None:
        """Which epoch a batch is of, it says better than the checkpoint. But where batches before it were compacted
        away, only the checkpoint knows at which of them its epoch began, and which epochs came in between."""
        epochs, epoch = self.epochs, header.partition_leader_epoch
        if epoch > epochs.latest:
            for claimed, start in self._claimed_epochs:
                if epochs.latest < claimed <= epoch and self._checked_to <= start <= header.base_offset:
                    epochs.assign(claimed, start)
            epochs.assign(epoch, header.base_offset)
        self._checked_to = header.next_offset

    def _drop_after(self, index: int) -> None:
        """Remove the segments after a damaged one: what is in them does not follow from what is left."""
        for segment in self.segments[index + 1 :]:
            segment.remove()
            if segment.base_offset in self.snapshots.offsets:
                self.snapshots.remove(segment.base_offset)
        del self.segments[index + 1 :]


def _was_moved(segment: Segment, header: BatchHeader, position: int, expected: int) -> bool:
    """Whether a batch that leaves a gap before it has lost its true offset, which no checksum covers: then the next one
    overlaps it, but not what is before it. (Compacted logs have gaps too, and their batches do not overlap.)"""
    data = segment.file.read(position + header.size, HEADER_SIZE)
    if len(data) < HEADER_SIZE:
        return False
    following = BatchHeader(data)
    return following.magic == MAGIC and expected < following.base_offset < header.next_offset


def _epochs_of(segments: list[Segment]) -> Iterator[tuple[int, int]]:
    for segment in segments:
        for _, batch in segment.scan():
            header = BatchHeader(batch)
            yield header.partition_leader_epoch, header.base_offset


def _clear_leftovers(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Finish or undo what a crash interrupted: deletions, and the replacement of segments by compacted ones."""
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    first_cleaned = min((offset_in_name(name) or 0 for name in cleaned), default=None)
    swaps: list[str] = []
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
            disk.remove(f"{directory}/{name}")
        elif name.endswith(SWAP_SUFFIX):
            if first_cleaned is not None and (offset_in_name(name) or 0) >= first_cleaned:
                # Part of a split that was not finished: the original is still there.
                disk.remove(f"{directory}/{name}")
            else:
                swaps.append(name)
    _finish_swaps(disk, directory, names, swaps)
    return disk.list_dir(directory)


def _finish_swaps(disk: Disk, directory: str, names: list[str], swaps: list[str]) -> None:
    """A file marked for swapping is complete: remove the segments it replaces and give it its name."""
    start: int | None = None
    end = 0
    for name in swaps:
        if not name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            continue
        base = offset_in_name(name) or 0
        size = disk.file_size(f"{directory}/{name}")
        segment = Segment(disk, directory, base, size, fresh=False, suffix=SWAP_SUFFIX)
        next_offset = base
        for _, batch in segment.scan():
            next_offset = BatchHeader(batch).next_offset
        segment.close_file()
        start = base if start is None else min(start, base)
        end = max(end, next_offset)
    for name in names:
        offset = offset_in_name(name)
        if (
            start is not None
            and offset is not None
            and start <= offset < end
            and name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES))
        ):
            disk.remove(f"{directory}/{name}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
