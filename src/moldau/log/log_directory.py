"""One log directory: the partitions it holds, its checkpoint files, and whether it can still be used.

This module decides how partition directories are named, and what is remembered per directory between two starts. It
opens no log; `manager.py` does. A checkpoint keeps the offsets of partitions nobody opened since the start, so that
rewriting it never forgets them.
"""

from __future__ import annotations

import logging
import re
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.log.checkpoints import (
    CheckpointError,
    TopicPartition,
    read_clean_shutdown,
    read_offsets,
    write_clean_shutdown,
)
from moldau.log.errors import LogDirFailure
from moldau.log.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    DELETED_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_DIRECTORY_SUFFIX,
    partition_directory,
)
from moldau.ports import Disk

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog

log = logging.getLogger("moldau.log")

# The metadata log has an owner of its own and may share a directory with the partitions.
METADATA_TOPIC: Final = "__cluster_metadata"

_MAX_NAME_LENGTH: Final = 255
_PARTITION = re.compile(r"([A-Za-z0-9._-]{1,249})-(\d{1,9})")
_MARKED = re.compile(r"(\S+)-(\d{1,9})\.\S+(-delete|-future|-stray)")


class DirectoryKind(Enum):
    """What a partition's directory is for, told by the end of its name."""

    CURRENT = ""
    DELETED = DELETED_DIRECTORY_SUFFIX
    FUTURE = FUTURE_DIRECTORY_SUFFIX
    STRAY = STRAY_DIRECTORY_SUFFIX


class PartitionDirectory(NamedTuple):
    topic: str
    partition: int
    kind: DirectoryKind


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """What a directory's name says; None for a name that is no partition's."""
    found = _PARTITION.fullmatch(name)
    if found is not None:
        return PartitionDirectory(found[1], int(found[2]), DirectoryKind.CURRENT)
    found = _MARKED.fullmatch(name)
    if found is not None:
        return PartitionDirectory(found[1], int(found[2]), DirectoryKind(found[3]))
    return None


def marked_directory(topic: str, partition: int, kind: DirectoryKind, random: Random) -> str:
    """A name for a partition's directory that is on its way in or out; unique, and never too long for the disk."""
    tail = f"-{partition}.{random.getrandbits(128):032x}{kind.value}"
    # Nobody needs the whole topic name of what is about to be removed, but a future replica must find its way back.
    if kind is DirectoryKind.FUTURE:
        return topic + tail
    return topic[: _MAX_NAME_LENGTH - len(tail)] + tail


class OffsetCheckpoint:
    """One offset per partition in a text file, read once and rewritten when something changed.

    The lines are kept ready: with ten thousand partitions rendering them each time would hold up the event loop.
    """

    __slots__ = ("_dirty", "_disk", "_lines", "_offsets", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._offsets: dict[TopicPartition, int] = {}
        self._lines: dict[TopicPartition, str] = {}
        self._dirty = False

    def load(self) -> None:
        """Read the file; a damaged one counts as empty, which costs time (or a fetch), never records."""
        try:
            offsets = read_offsets(self._disk, self.path)
        except CheckpointError as error:
            log.warning("%s is damaged and counts as empty: %s", self.path, error)
            offsets = {}
        for partition, offset in offsets.items():
            self.set(partition, offset)
        self._dirty = False

    def get(self, partition: TopicPartition) -> int | None:
        return self._offsets.get(partition)

    def set(self, partition: TopicPartition, offset: int) -> None:
        if self._offsets.get(partition) != offset:
            self._offsets[partition] = offset
            self._lines[partition] = f"{partition[0]} {partition[1]} {offset}\n"
            self._dirty = True

    def remove(self, partition: TopicPartition) -> None:
        if self._offsets.pop(partition, None) is not None:
            del self._lines[partition]
            self._dirty = True

    def write(self, *, sync: bool) -> None:
        """Rewrite the file if anything changed since it was last read or written."""
        if self._dirty:
            text = f"0\n{len(self._lines)}\n" + "".join(self._lines.values())
            self._disk.write_atomically(self.path, text.encode(), sync=sync)
            self._dirty = False


class LogDirectory:
    """One entry of log.dirs."""

    __slots__ = (
        "_disk",
        "clean_epoch",
        "cleaner_offsets",
        "current",
        "deleted",
        "directory_id",
        "failure",
        "future",
        "has_mark",
        "high_watermarks",
        "log_starts",
        "path",
        "recovery_points",
        "unrecovered",
    )

    def __init__(self, disk: Disk, path: str, directory_id: bytes) -> None:
        self._disk = disk
        self.path = path
        self.directory_id = directory_id
        self.failure: LogDirFailure | None = None
        # Partitions by the name of their directory here: those in use, those being copied in, those to be removed.
        self.current: dict[TopicPartition, str] = {}
        self.future: dict[TopicPartition, str] = {}
        self.deleted: list[str] = []
        # The broker's epoch at the clean shutdown before this start; None when there was no clean shutdown.
        self.clean_epoch: int | None = None
        # Whether the mark of that shutdown is still there: nothing has been opened here since.
        self.has_mark = False
        # After any other end: the partitions whose logs were not looked at yet.
        self.unrecovered: set[TopicPartition] = set()
        self.recovery_points = OffsetCheckpoint(disk, f"{path}/{RECOVERY_POINT_CHECKPOINT}")
        self.log_starts = OffsetCheckpoint(disk, f"{path}/{LOG_START_CHECKPOINT}")
        self.high_watermarks = OffsetCheckpoint(disk, f"{path}/{HIGH_WATERMARK_CHECKPOINT}")
        self.cleaner_offsets = OffsetCheckpoint(disk, f"{path}/{CLEANER_CHECKPOINT}")

    @property
    def online(self) -> bool:
        return self.failure is None

    def checkpoints(self) -> tuple[OffsetCheckpoint, ...]:
        return self.recovery_points, self.log_starts, self.high_watermarks, self.cleaner_offsets

    def load(self) -> None:
        """Find the partitions and read the checkpoints."""
        disk = self._disk
        disk.make_dirs(self.path)
        self.clean_epoch = read_clean_shutdown(disk, self._mark)
        self.has_mark = self.clean_epoch is not None
        for name in disk.list_dir(self.path):
            found = parse_partition_directory(name)
            if found is None or found.topic == METADATA_TOPIC:
                continue
            partition = (found.topic, found.partition)
            if found.kind is DirectoryKind.CURRENT:
                self.current[partition] = name
            elif found.kind is DirectoryKind.FUTURE:
                self.future[partition] = name
            elif found.kind is DirectoryKind.DELETED:
                self.deleted.append(name)
        for checkpoint in self.checkpoints():
            checkpoint.load()
        if self.clean_epoch is None:
            self.unrecovered = {*self.current, *self.future}

    @property
    def _mark(self) -> str:
        return f"{self.path}/{CLEAN_SHUTDOWN}"

    def use(self) -> None:
        """Before a log here is opened. From here on, the next start recovers the directory unless there is another
        clean shutdown. A life that never gets that far, because no cluster lets the broker in, leaves the mark: what
        is here is as whole as it was, and the controller must not take this broker for one that crashed."""
        if self.has_mark:
            self._disk.remove(self._mark)
            self._disk.sync_dir(self.path)
            self.has_mark = False

    def mark_clean(self, broker_epoch: int) -> None:
        """Everything is closed and written down. An epoch that was never given (-1) says less than the mark that is
        still there."""
        if broker_epoch >= 0 or not self.has_mark:
            write_clean_shutdown(self._disk, self._mark, broker_epoch)

    def partition_path(self, partition: TopicPartition) -> str:
        return f"{self.path}/{self.current.get(partition) or partition_directory(*partition)}"

    # ---- what is written down about an open log

    def note_recovery_point(self, opened: PartitionLog) -> None:
        self.recovery_points.set((opened.topic, opened.partition), opened.recovery_point)

    def note_log_start(self, opened: PartitionLog) -> None:
        """Only a log start within the first segment must be remembered: any other follows from the files."""
        if opened.log_start_offset > opened.segments[0].base_offset:
            self.log_starts.set((opened.topic, opened.partition), opened.log_start_offset)
        else:
            self.log_starts.remove((opened.topic, opened.partition))

    def note_high_watermark(self, opened: PartitionLog) -> None:
        self.high_watermarks.set((opened.topic, opened.partition), opened.high_watermark)

    def note_all(self, opened: PartitionLog) -> None:
        self.note_recovery_point(opened)
        self.note_log_start(opened)
        self.note_high_watermark(opened)

    def forget(self, partition: TopicPartition) -> None:
        """The partition is no longer in this directory."""
        self.current.pop(partition, None)
        self.unrecovered.discard(partition)
        for checkpoint in self.checkpoints():
            checkpoint.remove(partition)

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r}, {len(self.current)} partitions{'' if self.online else ', offline'})"
