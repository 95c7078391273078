"""When a snapshot is due, and writing it without holding up the node.

Follows the committed log behind the loader: after enough bytes, or enough time with something new, the image of the
moment is written out in slices. One snapshot is written at a time. A snapshot that cannot be written is tried again
with the next one; the log is still whole.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from moldau.metadata.image import Provenance
from moldau.metadata.publisher import CommittedBatch, MetadataLoader
from moldau.metadata.records import MetadataRecord
from moldau.ports import Background, Clock, Disk
from moldau.quorum.quorum import Quorum
from moldau.quorum.snapshots import SnapshotId, snapshot_batches, write_snapshot

log = logging.getLogger("moldau.quorum")

NEVER: Final = 0


class SnapshotSettings(NamedTuple):
    """`metadata.log.max.record.bytes.between.snapshots` and `metadata.log.max.snapshot.interval.ms`."""

    max_bytes: int = 20 * 1024 * 1024
    max_interval_ms: int = 60 * 60 * 1000
    """0 switches snapshots by time off."""


class SnapshotEmitter:
    """A listener of the quorum; add it after the loader whose images it writes."""

    __slots__ = ("_background", "_bytes", "_clock", "_disk", "_last_ms", "_loader", "_quorum", "_settings", "_writing")

    def __init__(
        self,
        quorum: Quorum,
        loader: MetadataLoader,
        disk: Disk,
        clock: Clock,
        background: Background,
        settings: SnapshotSettings,
    ) -> None:
        self._quorum = quorum
        self._loader = loader
        self._disk = disk
        self._clock = clock
        self._background = background
        self._settings = settings
        self._bytes = 0
        self._last_ms = clock.monotonic_ms()
        self._writing = False

    def load_snapshot(self, records: Sequence[MetadataRecord], provenance: Provenance) -> None:
        self._bytes = 0

    def load_batches(self, batches: Sequence[CommittedBatch], *, more_follows: bool) -> None:
        self._bytes += sum(batch.size_bytes for batch in batches)
        if not more_follows and self._is_due():
            self.emit()

    def _is_due(self) -> bool:
        if self._bytes >= self._settings.max_bytes:
            return True
        interval = self._settings.max_interval_ms
        return interval != NEVER and self._clock.monotonic_ms() - self._last_ms >= interval

    def emit(self) -> bool:
        """Begin to write a snapshot of what is published, if there is anything new; true when it was begun."""
        image = self._loader.image
        snapshot_id = SnapshotId(image.offset + 1, image.provenance.epoch)
        nothing_new = snapshot_id.offset <= self._quorum.log.latest_snapshot_id.offset
        if self._writing or self._loader.transaction_open or not image.metadata_version or nothing_new:
            return False
        self._writing = True
        self._bytes = 0
        self._last_ms = self._clock.monotonic_ms()
        kraft_version, voters = self._quorum.history.at(snapshot_id.offset)
        batches = snapshot_batches(
            image.records(),
            image.metadata_version,
            epoch=snapshot_id.epoch,
            timestamp_ms=self._clock.now_ms(),
            last_timestamp_ms=image.provenance.timestamp_ms,
            kraft_version=kraft_version,
            voters=voters if kraft_version >= 1 else None,
        )
        steps = write_snapshot(self._disk, self._quorum.log.directory, snapshot_id, batches)
        self._background.run(steps, lambda error: self._written(snapshot_id, error))
        return True

    def _written(self, snapshot_id: SnapshotId, error: BaseException | None) -> None:
        self._writing = False
        if error is not None:
            log.error("The snapshot of the metadata at offset %d was not written: %s", snapshot_id.offset, error)
            return
        if self._quorum.closed:
            return
        log.info("Wrote a snapshot of the metadata up to offset %d", snapshot_id.offset)
        self._quorum.log.snapshot_written(snapshot_id, self._quorum.high_watermark)
        self._quorum.history.forget_before(snapshot_id.offset)
