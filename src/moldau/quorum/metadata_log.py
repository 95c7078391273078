"""The metadata log on disk: segments in Kafka's format, and the snapshots that stand in for its beginning.

Knows files, never meaning: what is committed and what a record says is decided above. It must never delete a segment
that no snapshot covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from moldau.log.config import LogConfig
from moldau.log.errors import LogDirFailure
from moldau.log.partition_log import PartitionLog
from moldau.ports import Buffer, Clock, Disk
from moldau.protocol.uuids import METADATA_TOPIC_ID
from moldau.quorum.encoding import MAX_BATCH_BYTES
from moldau.quorum.format import METADATA_DIRECTORY
from moldau.quorum.snapshots import (
    BOOTSTRAP_SNAPSHOT_ID,
    PARTIAL_SUFFIX,
    Snapshot,
    SnapshotId,
    read_snapshot,
    snapshot_id_of,
    snapshot_name,
)
from moldau.records.batch import BatchHeader, iter_batches

METADATA_TOPIC: Final = "__cluster_metadata"
READ_CHUNK: Final = 1 << 20
# Room for a full batch and what its header and record framing add.
MAX_BATCH_ON_DISK: Final = MAX_BATCH_BYTES * 2


class MetadataLogSettings(NamedTuple):
    """`metadata.log.segment.*` and `metadata.max.retention.*`, with Kafka's defaults."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000


class MetadataLog:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        metadata_dir: str,
        settings: MetadataLogSettings,
        *,
        failed: Callable[[LogDirFailure], None],
    ) -> None:
        """Open the log in `metadata_dir` (the log directory of `metadata.log.dir`); every whole batch is kept."""
        self._disk = disk
        self._clock = clock
        self._settings = settings
        self.directory = f"{metadata_dir}/{METADATA_DIRECTORY}"
        disk.make_dirs(self.directory)
        config = LogConfig(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            max_message_bytes=MAX_BATCH_ON_DISK,
            cleanup_delete=False,
            retention_ms=-1,
        )
        self._snapshots = self._find_snapshots()
        self._log = PartitionLog.open(
            disk,
            clock,
            self.directory,
            METADATA_TOPIC,
            0,
            METADATA_TOPIC_ID,
            config,
            # The log before the oldest snapshot is only what no segment's deletion has reached yet.
            log_start_offset=self._snapshots[0].offset if self._snapshots else 0,
            failed=failed,
        )
        self._latest: Snapshot | None = None
        if self._snapshots:
            latest = self._snapshots[-1]
            self._latest = read_snapshot(disk.read_bytes(self._path(latest)))
            self._begin_at_snapshot(latest)

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self.directory}/{snapshot_name(snapshot_id)}"

    def _find_snapshots(self) -> list[SnapshotId]:
        found = []
        for name in self._disk.list_dir(self.directory):
            if name.endswith(PARTIAL_SUFFIX):
                self._disk.remove(f"{self.directory}/{name}")
            snapshot_id = snapshot_id_of(name)
            if snapshot_id is not None:
                found.append(snapshot_id)
        return sorted(found)

    def _begin_at_snapshot(self, snapshot_id: SnapshotId) -> None:
        """A snapshot that says more than the log takes its place: it came from a leader, or the log lost its end."""
        says_more = (snapshot_id.epoch, snapshot_id.offset) > (self._log.epochs.latest, self._log.log_end_offset)
        if snapshot_id != BOOTSTRAP_SNAPSHOT_ID and says_more:
            self._log.truncate_fully_and_start_at(snapshot_id.offset)

    def guarded(self, call: Callable[[], None]) -> None:
        """Do something else in the log's directory; when the disk fails, it is the log that has failed."""
        self._log.guarded(call)

    # ---- the log

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def durable_offset(self) -> int:
        """Everything before this offset survives a power cut, as a snapshot if not in the log."""
        return max(self._log.recovery_point, self.latest_snapshot_id.offset)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, be it in the log or only in a snapshot."""
        newest = self._snapshots[-1].epoch if self._snapshots else 0
        return max(self._log.epochs.latest, newest)

    def append(self, batch: bytes) -> None:
        """Append a batch whose offsets and epoch are set already."""
        appended = self._log.append_as_follower(batch)
        assert appended is not None, "a leader appends whole batches"

    def append_replicated(self, records: memoryview, epoch: int) -> bool:
        """Append the whole batches among what a leader of this epoch sent; whether there was one."""
        return self._log.append_as_follower(records, epoch) is not None

    def truncate(self, offset: int) -> None:
        """Remove everything at or after an offset."""
        self._log.truncate_to(offset)

    def end_offset_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch not above this one that the log has, where that epoch ends)."""
        last_epoch = self.last_epoch
        if epoch >= last_epoch:
            return last_epoch, self.end_offset
        found, end = self._log.epochs.end_offset(epoch, self.end_offset)
        if end < 0:
            # Nothing is left of the log but a snapshot of a later epoch.
            return epoch, self.start_offset
        return found, end

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """Whole batches from an offset on, committed or not; the first one however large it is."""
        return self._log.read(offset, max_bytes).records

    def sync(self, done: Callable[[], None]) -> None:
        """Call `done` when everything appended so far is durable. A disk that fails calls `failed` instead."""
        self._log.flush(lambda error: None if error is not None else done())

    def batches(self, start: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches from the one with offset `start` on, before offset `end`."""
        while start < end:
            data = self._log.read(start, READ_CHUNK, max_offset=end).records
            if not data:
                return
            view = memoryview(data)
            for header in iter_batches(view):
                if header.last_offset >= start:
                    yield header, view[header.position : header.end]
                start = header.next_offset

    # ---- snapshots

    @property
    def latest_snapshot_id(self) -> SnapshotId:
        """The newest snapshot; (0, 0) when there is none."""
        return self._snapshots[-1] if self._snapshots else BOOTSTRAP_SNAPSHOT_ID

    def take_latest_snapshot(self) -> tuple[SnapshotId, Snapshot | None]:
        """The newest snapshot's content as of opening the log; it is not kept in memory after that."""
        snapshot, self._latest = self._latest, None
        return self.latest_snapshot_id, snapshot

    @property
    def latest_snapshot(self) -> Snapshot | None:
        """The same without letting go of it."""
        return self._latest

    def snapshot_written(self, snapshot_id: SnapshotId, high_watermark: int) -> None:
        """A new snapshot is on disk: what lies before older ones, and is not to be retained, can go."""
        if snapshot_id.offset < self.start_offset:
            # A newer one came from the leader while this one was written.
            self._disk.remove(self._path(snapshot_id))
            return
        self._snapshots.append(snapshot_id)
        self._snapshots.sort()
        self.clean(high_watermark)

    @property
    def oldest_snapshot_id(self) -> SnapshotId | None:
        return self._snapshots[0] if self._snapshots else None

    def has_snapshot(self, snapshot_id: SnapshotId) -> bool:
        return snapshot_id in self._snapshots

    def snapshot_size(self, snapshot_id: SnapshotId) -> int:
        return self._disk.file_size(self._path(snapshot_id))

    def read_snapshot_part(self, snapshot_id: SnapshotId, position: int, length: int) -> bytes:
        file = self._disk.open(self._path(snapshot_id), create=False)
        try:
            return file.read(position, length)
        finally:
            file.close()

    def install_snapshot(self, snapshot_id: SnapshotId) -> Snapshot:
        """A snapshot that a leader gave is on disk, whole: the log begins at its end."""
        snapshot = read_snapshot(self._disk.read_bytes(self._path(snapshot_id)))
        older, self._snapshots = self._snapshots, [snapshot_id]
        self._latest = None
        self._log.truncate_fully_and_start_at(snapshot_id.offset)
        for each in older:
            if each != snapshot_id:
                self._disk.remove(self._path(each))
        return snapshot

    def clean(self, high_watermark: int) -> None:
        """Delete the oldest snapshot, and the log before the one after it, while there is more than is retained."""
        while len(self._snapshots) > 1 and self._retains_too_much():
            oldest, following = self._snapshots[0], self._snapshots[1]
            self._log.high_watermark = high_watermark
            self._log.delete_records(following.offset)
            self._log.delete_old_segments(self._clock.now_ms())
            self._disk.remove(self._path(oldest))
            del self._snapshots[0]

    def _retains_too_much(self) -> bool:
        settings = self._settings
        if settings.retention_bytes >= 0:
            snapshots = sum(self._disk.file_size(self._path(snapshot_id)) for snapshot_id in self._snapshots)
            if self._log.size + snapshots > settings.retention_bytes:
                return True
        age = self._clock.now_ms() - self._disk.modified_ms(self._path(self._snapshots[0]))
        return settings.retention_ms >= 0 and age > settings.retention_ms

    def close(self) -> None:
        self._log.close()
