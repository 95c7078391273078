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
from moldau.ports import Clock, Disk
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
        self._log = PartitionLog.open(
            disk, clock, self.directory, METADATA_TOPIC, 0, METADATA_TOPIC_ID, config, failed=failed
        )
        self._snapshots = self._find_snapshots()
        self._latest: Snapshot | None = None
        if self._snapshots:
            latest = self._snapshots[-1]
            self._latest = read_snapshot(disk.read_bytes(self._path(latest)))
            if latest.offset > self._log.log_end_offset:
                self._log.truncate_fully_and_start_at(latest.offset)

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

    # ---- the log

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, be it in the log or only in a snapshot."""
        newest = self._snapshots[-1].epoch if self._snapshots else 0
        return max(self._log.epochs.latest, newest)

    def append(self, batch: bytes) -> None:
        """Append a batch whose offsets and epoch are set already."""
        appended = self._log.append_as_follower(batch)
        assert appended is not None, "a leader appends whole batches"

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
        self._snapshots.append(snapshot_id)
        self._snapshots.sort()
        self.clean(high_watermark)

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
