"""What DescribeLogDirs tells: each log directory, the room in it, and the size of every partition there.

Only looks: a log that nobody opened yet is measured by its files and stays closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moldau.log.checkpoints import TopicPartition
from moldau.log.log_directory import LogDirectory
from moldau.log.manager import LogManager
from moldau.log.names import LOG_SUFFIX
from moldau.ports import Disk
from moldau.protocol.errors import ErrorCode


class ReplicaDescription(NamedTuple):
    """One partition in a log directory, as DescribeLogDirs tells it."""

    topic: str
    partition: int
    size: int
    # How far this log is behind: the high watermark (or, of a future replica, the current one's end).
    offset_lag: int
    is_future: bool


class DirectoryDescription(NamedTuple):
    path: str
    directory_id: bytes
    error: ErrorCode
    # -1 where the file system could not be asked.
    total_bytes: int
    usable_bytes: int
    replicas: list[ReplicaDescription]


def describe_log_dirs(
    logs: LogManager, disk: Disk, wanted: Callable[[str, int], bool] | None = None
) -> list[DirectoryDescription]:
    """Every log directory with the partitions in it that are `wanted` (all of them by default)."""
    return [_describe(logs, disk, directory, wanted) for directory in logs.directories.values()]


def _describe(
    logs: LogManager, disk: Disk, directory: LogDirectory, wanted: Callable[[str, int], bool] | None
) -> DirectoryDescription:
    replicas: list[ReplicaDescription] = []
    total = usable = -1
    try:
        if directory.online:
            total, usable = disk.free_bytes(directory.path)
            here = [key for key in directory.current if wanted is None or wanted(*key)]
            coming = [key for key in directory.future if wanted is None or wanted(*key)]
            replicas = [_describe_current(logs, disk, directory, key) for key in here]
            replicas += [_describe_future(logs, disk, directory, key) for key in coming]
    except OSError as error:
        logs.take_offline(directory, error)
    if directory.failure is not None:
        return DirectoryDescription(directory.path, directory.directory_id, directory.failure.code, -1, -1, [])
    return DirectoryDescription(directory.path, directory.directory_id, ErrorCode.NONE, total, usable, replicas)


def _describe_current(logs: LogManager, disk: Disk, directory: LogDirectory, key: TopicPartition) -> ReplicaDescription:
    opened = logs.opened(*key)
    if opened is None:
        return ReplicaDescription(*key, _size_on_disk(disk, directory.partition_path(key)), 0, False)
    return ReplicaDescription(*key, opened.size, max(opened.high_watermark - opened.log_end_offset, 0), False)


def _describe_future(logs: LogManager, disk: Disk, directory: LogDirectory, key: TopicPartition) -> ReplicaDescription:
    current, future = logs.opened(*key), logs.future_of(*key)
    end = 0 if current is None else current.log_end_offset
    if future is None:
        return ReplicaDescription(*key, _size_on_disk(disk, f"{directory.path}/{directory.future[key]}"), end, True)
    return ReplicaDescription(*key, future.size, max(end - future.log_end_offset, 0), True)


def _size_on_disk(disk: Disk, path: str) -> int:
    try:
        names = disk.list_dir(path)
    except FileNotFoundError:
        return 0
    return sum(disk.file_size(f"{path}/{name}") for name in names if name.endswith(LOG_SUFFIX))
