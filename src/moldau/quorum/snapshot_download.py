"""A snapshot that comes from the leader, piece by piece, under a name of its own until all of it is durable."""

from __future__ import annotations

from typing import Any

from moldau.ports import Disk
from moldau.quorum.snapshots import PARTIAL_SUFFIX, SNAPSHOT_SUFFIX, SnapshotId, snapshot_name


class SnapshotDownload:
    __slots__ = ("_directory", "_disk", "_file", "_partial", "_path", "_size", "position", "snapshot_id")

    def __init__(self, disk: Disk, directory: str, snapshot_id: SnapshotId) -> None:
        self.snapshot_id = snapshot_id
        self.position = 0
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{snapshot_name(snapshot_id)}"
        self._partial = self._path.removesuffix(SNAPSHOT_SUFFIX) + PARTIAL_SUFFIX
        self._size: int | None = None
        disk.remove(self._partial)
        self._file = disk.open(self._partial)

    def take(self, part: Any) -> bool:
        """Append a piece; whether it was the one that was asked for."""
        found = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
        if found != self.snapshot_id or part.position != self.position or not part.unaligned_records:
            return False
        self._file.append([part.unaligned_records])
        self.position += len(part.unaligned_records)
        self._size = part.size
        return True

    @property
    def is_complete(self) -> bool:
        return self._size is not None and self.position >= self._size

    def finish(self) -> None:
        """Everything is here: make it durable and give it its name."""
        self._file.sync()
        self._file.close()
        self._disk.rename(self._partial, self._path)
        self._disk.sync_dir(self._directory)

    def drop(self) -> None:
        self._file.close()
        self._disk.remove(self._partial)

    def discard(self) -> None:
        """What was finished turned out to be no snapshot."""
        self._disk.remove(self._path)
