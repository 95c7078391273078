"""All partitions' logs of one node, in all its log directories.

This module decides where a partition's log lives, when it is opened, what is written down about it between two
starts, and what happens when a directory fails: the logs in it go, the node stays. Logs are opened at their first
use, so that a node with ten thousand partitions starts at once; the offsets of those nobody opened yet are carried
over from checkpoint to checkpoint.

It never reads or writes a record, and it never decides which partitions the node should have: whoever follows the
metadata calls `open` and `delete`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import TypeVar

from moldau.log.checkpoints import TopicPartition
from moldau.log.config import LogConfig
from moldau.log.errors import LogDirFailure
from moldau.log.log_directory import DirectoryKind, LogDirectory, OffsetCheckpoint, marked_directory
from moldau.log.manager_settings import LogManagerSettings
from moldau.log.moving import ReplicaMoves
from moldau.log.names import LOG_SUFFIX, PARTITION_METADATA, offset_in_name, partition_directory
from moldau.log.partition_log import PartitionLog
from moldau.log.partition_metadata import read_partition_metadata
from moldau.ports import Background, Clock, Disk, Timer
from moldau.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("moldau.log")

T = TypeVar("T")

# Offsets copied into a checkpoint between two pauses.
_CHECKPOINT_SLICE = 500
# With so many logs of a directory behind, one sync of its file system is cheaper than theirs.
SYNC_TOGETHER_FROM = 64


class LogManager:
    """The logs of one node."""

    __slots__ = (
        "_background",
        "_clock",
        "_configs",
        "_cuts",
        "_directory_failed",
        "_disk",
        "_logs",
        "_moved",
        "_moves",
        "_opening",
        "_preferred",
        "_random",
        "_settings",
        "_timers",
        "_where",
        "cordoned",
        "directories",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        background: Background,
        directories: Mapping[str, bytes],
        settings: LogManagerSettings,
        *,
        configs: Callable[[str], LogConfig | None],
        random: Random,
        directory_failed: Callable[[LogDirectory, list[TopicPartition]], None] | None = None,
        moved: Callable[[PartitionLog], None] | None = None,
    ) -> None:
        """`directories` maps each log directory to its id. `configs` gives a topic's settings, None when there is no
        such topic. `directory_failed` is told of a directory that went offline and the partitions that went with it,
        `moved` of a log that now lives in another directory."""
        self._disk = disk
        self._clock = clock
        self._background = background
        self._settings = settings
        self._configs = configs
        self._random = random
        self._directory_failed = directory_failed
        self._moved = moved
        self.directories = {path: LogDirectory(disk, path, directory_id) for path, directory_id in directories.items()}
        # Directories that take no new partitions (cordoned.log.dirs).
        self.cordoned: frozenset[str] = frozenset()
        # Every partition found or made here, whether its log is open or not; also those in directories that failed.
        self._where: dict[TopicPartition, LogDirectory] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._opening: set[TopicPartition] = set()
        self._moves = ReplicaMoves(self, disk, clock, background, random, settings.move_bytes_per_second)
        self._preferred: dict[TopicPartition, str] = {}
        self._cuts: dict[TopicPartition, int] = {}
        self._timers: dict[str, Timer] = {}

    # ---- starting

    def load(self) -> None:
        """Find out what the directories hold. Nothing is opened yet."""
        for directory in self._online():
            try:
                directory.load()
            except OSError as error:
                self.take_offline(directory, error)
                continue
            for partition in list(directory.current):
                other = self._where.get(partition)
                if other is None or self._keeps_newcomer(partition, other, directory):
                    self._where[partition] = directory

    def _keeps_newcomer(self, partition: TopicPartition, known: LogDirectory, newcomer: LogDirectory) -> bool:
        """A crash between the two renames that end a move leaves a log in two directories: the longer one stays."""
        keep = self._end_on_disk(newcomer, partition) > self._end_on_disk(known, partition)
        loser = known if keep else newcomer
        if not loser.online:
            return keep
        log.warning("%s-%d is in %s and %s; the copy in %s goes", *partition, known.path, newcomer.path, loser.path)
        self._discard(loser, partition, DirectoryKind.DELETED)
        return keep

    def _end_on_disk(self, directory: LogDirectory, partition: TopicPartition) -> tuple[int, int]:
        """How far a log reaches, from its files alone: base offset and size of its last segment."""
        path = directory.partition_path(partition)
        try:
            bases = [name for name in self._disk.list_dir(path) if name.endswith(LOG_SUFFIX)]
            return (offset_in_name(bases[-1]) or 0, self._disk.file_size(f"{path}/{bases[-1]}")) if bases else (-1, 0)
        except OSError as error:
            self.take_offline(directory, error)
            return -1, 0

    def start(self) -> None:
        """Begin the periodic work, go on with interrupted moves and deletions, and recover after a crash."""
        settings = self._settings
        delay = settings.initial_delay_ms
        self._every("retention", settings.retention_check_ms, self._check_retention, delay)
        self._every("recovery", settings.recovery_checkpoint_ms, self._checkpoint_recovery_points, delay)
        self._every("log-start", settings.log_start_checkpoint_ms, self._checkpoint_log_starts, delay)
        self._every("producers", settings.producer_check_ms, self._forget_producers)
        self._every("high-watermark", settings.high_watermark_checkpoint_ms, self._checkpoint_high_watermarks)
        for directory in self._online():
            for name in directory.deleted:
                self._remove_later(directory, name, settings.file_delete_delay_ms)
            directory.deleted.clear()
        self._resume_moves()
        if any(directory.unrecovered for directory in self._online()):
            self._background.run(self._recover_steps())

    def _every(self, name: str, interval_ms: int, steps: Callable[[], Iterator[None]], delay_ms: int = 0) -> None:
        """Run this job again and again, the next round after the last one ended."""

        def again(error: BaseException | None) -> None:
            if error is not None:
                log.error("the periodic job %s failed", name, exc_info=error)
            if name in self._timers:
                self._timers[name] = self._clock.call_later(interval_ms, run)

        def run() -> None:
            self._background.run(steps(), again)

        self._timers[name] = self._clock.call_later(min(delay_ms or interval_ms, interval_ms), run)

    def _recover_steps(self) -> Iterator[None]:
        """After a crash: look at every log, so that each is checked even if nobody asks for it."""
        for directory in self._online():
            for key in sorted(directory.unrecovered & directory.current.keys()):
                if key in directory.unrecovered and directory.online:
                    self._recover(directory, key)
                    yield

    def _recover(self, directory: LogDirectory, key: TopicPartition) -> None:
        try:
            if self._configs(key[0]) is not None:
                self.get(*key)
                return
            # The metadata does not know the topic, or not yet: check the log and leave it closed.
            opened = self._open_in(directory, key, None, LogConfig())
            opened.close()
            directory.note_all(opened)
            del self._logs[key]
        except ApiError as error:
            log.warning("recovering %s-%d failed: %s", *key, error)

    # ---- the logs

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The partition's log, opened if it was not; None when this node has none. Raises when its disk failed."""
        key = (topic, partition)
        found = self._logs.get(key)
        if found is not None:
            return found
        directory = self._where.get(key)
        config = self._configs(topic)
        if directory is None or config is None:
            return None
        return self._open_in(directory, key, None, config)

    def open(
        self,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        *,
        directory_id: bytes | None = None,
        is_new: bool = True,
    ) -> PartitionLog:
        """The partition's log, opened or created.

        A new one goes to the directory that was asked for (`directory_id`, or an earlier `prefer`) or else to the one
        with the fewest partitions. With `is_new` false a log that cannot be found is only created when every
        directory is online: it may be in the one that is not.
        """
        key = (topic, partition)
        found = self._logs.get(key)
        if found is not None:
            return found
        directory = self._where.get(key)
        if directory is not None and directory.online and self._is_another_topics(directory, key, topic_id):
            self.set_aside(topic, partition)
            directory = None
        if directory is None:
            if not is_new:
                self._require_all_online(key)
            directory = self._choose(key, directory_id)
        return self._open_in(directory, key, topic_id, config)

    def _is_another_topics(self, directory: LogDirectory, key: TopicPartition, topic_id: bytes | None) -> bool:
        """Whether the log found here belongs to a topic of the same name that was deleted meanwhile."""
        if topic_id is None:
            return False
        found = self._guarded(directory, lambda: self._read_topic_id(directory, key))
        return found is not None and found != topic_id

    def _read_topic_id(self, directory: LogDirectory, key: TopicPartition) -> bytes | None:
        try:
            return read_partition_metadata(self._disk, f"{directory.partition_path(key)}/{PARTITION_METADATA}")
        except ValueError:
            # A damaged file says nothing; opening the log writes it again only when it is missing.
            return None

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id in the partition's directory; None when it does not say."""
        directory = self._where.get((topic, partition))
        if directory is None or not directory.online:
            return None
        return self._guarded(directory, lambda: self._read_topic_id(directory, (topic, partition)))

    def _open_in(
        self, directory: LogDirectory, key: TopicPartition, topic_id: bytes | None, config: LogConfig
    ) -> PartitionLog:
        self.put_to_use(directory)
        is_new = key not in directory.current
        self._opening.add(key)
        try:
            opened = PartitionLog.open(
                self._disk,
                self._clock,
                directory.partition_path(key),
                *key,
                topic_id,
                config,
                recovery_point=directory.recovery_points.get(key) or 0,
                log_start_offset=directory.log_starts.get(key) or 0,
                clean_shutdown=not is_new and key not in directory.unrecovered,
                random=self._random,
                failed=lambda failure: self._log_failed(key, directory, failure),
            )
        finally:
            self._opening.discard(key)
        high_watermark = directory.high_watermarks.get(key) or 0
        opened.high_watermark = min(max(high_watermark, opened.log_start_offset), opened.log_end_offset)
        directory.current.setdefault(key, partition_directory(*key))
        directory.unrecovered.discard(key)
        self._where[key] = directory
        self._logs[key] = opened
        return opened

    def put_to_use(self, directory: LogDirectory) -> None:
        """Before a log in it is opened; LogDirFailure if it cannot be used."""
        self._guarded(directory, directory.use)

    def _open_quietly(self, key: TopicPartition) -> PartitionLog | None:
        """Open a log for the manager's own purposes: a disk that fails on the way has been dealt with already."""
        try:
            return self.get(*key)
        except ApiError:
            return None

    def _choose(self, key: TopicPartition, directory_id: bytes | None) -> LogDirectory:
        """The directory for a new log."""
        online = self._online()
        preferred = self._preferred.pop(key, None)
        for directory in online:
            if directory.path == preferred or (preferred is None and directory.directory_id == directory_id):
                return directory
        open_to_new = [directory for directory in online if directory.path not in self.cordoned] or online
        if not open_to_new:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        return min(open_to_new, key=lambda directory: len(directory.current) + len(directory.future))

    def _require_all_online(self, key: TopicPartition) -> None:
        offline = [directory.path for directory in self.directories.values() if not directory.online]
        if offline:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {key[0]}-{key[1]} may be in {', '.join(offline)}"
            )

    def opened(self, topic: str, partition: int) -> PartitionLog | None:
        """The partition's log if it is open; never opens it."""
        return self._logs.get((topic, partition))

    def future_of(self, topic: str, partition: int) -> PartitionLog | None:
        """The copy of a log that is being moved to another directory."""
        move = self._moves.get((topic, partition))
        return None if move is None else move.future

    def open_logs(self) -> Iterable[PartitionLog]:
        return self._logs.values()

    def is_current(self, candidate: PartitionLog) -> bool:
        """Whether this log is still the one its partition uses (it was not deleted, moved or taken offline)."""
        return self._logs.get((candidate.topic, candidate.partition)) is candidate

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has a log here."""
        return list(self._where)

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        return self._where.get((topic, partition))

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories.values() if directory.online]

    # ---- removing

    def delete(self, topic: str, partition: int, topic_id: bytes | None = None) -> None:
        """Remove the partition's log: at once from sight, its files a while later. Nothing happens without a log.

        Nor when the log belongs to another topic of the same name: a node that starts hears again of topics that were
        deleted long ago, and finds the log of their successor.
        """
        key = (topic, partition)
        directory = self._where.get(key)
        try:
            if directory is not None and directory.online and self._is_another_topics(directory, key, topic_id):
                return
        except LogDirFailure:
            pass  # its directory is offline by now: only the name is forgotten
        self._remove(topic, partition, DirectoryKind.DELETED)

    def set_aside(self, topic: str, partition: int) -> None:
        """Keep the files of a log that should not be here under a name that marks them as stray."""
        self._remove(topic, partition, DirectoryKind.STRAY)

    def _remove(self, topic: str, partition: int, kind: DirectoryKind) -> None:
        key = (topic, partition)
        self._moves.cancel(key)
        self._preferred.pop(key, None)
        self._cuts.pop(key, None)
        directory = self._where.pop(key, None)
        opened = self._logs.pop(key, None)
        if directory is None or not directory.online:
            return
        if opened is not None:
            opened.close(clean=False)
        delay = self._settings.file_delete_delay_ms if opened is None else opened.config.file_delete_delay_ms
        self._discard(directory, key, kind, delay)

    def _discard(self, directory: LogDirectory, key: TopicPartition, kind: DirectoryKind, delay_ms: int = 0) -> None:
        """Give a partition's directory a name that says it is not in use, and remove it unless it is a stray."""
        name = marked_directory(*key, kind, self._random)
        path = directory.partition_path(key)
        directory.forget(key)
        try:
            self._disk.rename(path, f"{directory.path}/{name}")
        except OSError as error:
            self.take_offline(directory, error)
            return
        if kind is DirectoryKind.DELETED:
            self._remove_later(directory, name, delay_ms)

    def _remove_later(self, directory: LogDirectory, name: str, delay_ms: int) -> None:
        self._clock.call_later(delay_ms, lambda: self._background.run(self._remove_steps(directory, name)))

    def _remove_steps(self, directory: LogDirectory, name: str) -> Iterator[None]:
        """Remove a directory file by file: a large file takes the file system a while."""
        path = f"{directory.path}/{name}"
        if not directory.online:
            return
        try:
            for file in self._disk.list_dir(path):
                self._disk.remove(f"{path}/{file}")
                yield
            self._disk.remove_tree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            self.take_offline(directory, error)

    # ---- moving between directories

    def prefer(self, topic: str, partition: int, path: str) -> None:
        """Remember where a partition that is not here yet shall be created."""
        self._preferred[topic, partition] = self._directory(path).path

    def move(self, topic: str, partition: int, path: str) -> None:
        """Bring the partition's log to another directory, in the background. Raises ApiError when that cannot be."""
        key = (topic, partition)
        target = self._directory(path)
        source = self._where.get(key)
        if source is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"there is no log of {topic}-{partition} here")
        if source.failure is not None:
            raise source.failure
        under_way = self._moves.get(key)
        if under_way is not None:
            if under_way.target is target:
                return
            self._moves.cancel(key)
        if source is not target:
            self._moves.start(key, source, target)

    def cancel_move(self, topic: str, partition: int) -> None:
        """Leave the partition's log where it is."""
        self._moves.cancel((topic, partition))

    def _directory(self, path: str) -> LogDirectory:
        directory = self.directories.get(path)
        if directory is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not a log directory of this node")
        if directory.failure is not None:
            raise directory.failure
        return directory

    def _resume_moves(self) -> None:
        """Go on with the moves that the last stop interrupted; a copy whose original is gone is of no use."""
        all_online = all(directory.online for directory in self.directories.values())
        for target in self._online():
            for key, name in list(target.future.items()):
                source = self._where.get(key)
                if source is not None and source is not target and source.online:
                    self._moves.start(key, source, target, name)
                elif all_online:
                    self.discard_future(target, key, name)

    def discard_future(self, target: LogDirectory, key: TopicPartition, name: str) -> None:
        """Remove a future replica that is not wanted any more."""
        del target.future[key]
        if key not in target.current:
            target.forget(key)
        marked = marked_directory(*key, DirectoryKind.DELETED, self._random)
        try:
            if self._disk.exists(f"{target.path}/{name}"):
                self._disk.rename(f"{target.path}/{name}", f"{target.path}/{marked}")
                self._remove_later(target, marked, 0)
        except OSError as error:
            self.take_offline(target, error)

    def replace(self, current: PartitionLog, future: PartitionLog, target: LogDirectory) -> None:
        """Let a complete copy in another directory take the place of the current log.

        The copy gets its name first: after a crash in between there are two whole logs, never none.
        """
        key = (current.topic, current.partition)
        source = self._where[key]
        name = partition_directory(*key)
        future.rename_directory(f"{target.path}/{name}")
        self._guarded(target, lambda: self._disk.sync_dir(target.path))
        target.current[key] = name
        target.unrecovered.discard(key)
        self._where[key] = target
        self._logs[key] = future
        target.note_all(future)
        cleaned = source.cleaner_offsets.get(key)
        if cleaned is not None:
            target.cleaner_offsets.set(key, cleaned)
        current.close(clean=False)
        if self._moved is not None:
            self._moved(future)
        for checkpoint in target.checkpoints():
            self._guarded(target, partial(checkpoint.write, sync=True))
        self._discard(source, key, DirectoryKind.DELETED, current.config.file_delete_delay_ms)

    # ---- shortening

    def truncate(self, topic: str, partition: int, offset: int) -> bool:
        """Cut the partition's log at `offset`; whether anything was removed.

        Logs are cut through here, because what the checkpoints say of a cut log must not outlive it: a recovery point
        beyond the cut would keep the next recovery from looking at what is appended there.
        """
        return self._cut(topic, partition, offset, lambda found: found.truncate_to(offset))

    def truncate_fully(self, topic: str, partition: int, offset: int, log_start_offset: int | None = None) -> None:
        """Empty the partition's log; its next record gets `offset`."""

        def empty(found: PartitionLog) -> bool:
            found.truncate_fully_and_start_at(offset, log_start_offset)
            return True

        self._cut(topic, partition, offset, empty)

    def times_cut(self, topic: str, partition: int) -> int:
        """How often the partition's log was cut since the start; whoever works on it in steps notices by this."""
        return self._cuts.get((topic, partition), 0)

    def _cut(self, topic: str, partition: int, offset: int, cut: Callable[[PartitionLog], bool]) -> bool:
        key = (topic, partition)
        found = self.get(topic, partition)
        directory = self._where.get(key)
        if found is None or directory is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no log of {topic}-{partition} here")
        if (directory.recovery_points.get(key) or 0) > offset:
            directory.recovery_points.set(key, offset)
            self._guarded(directory, lambda: directory.recovery_points.write(sync=True))
        self._cuts[key] = self._cuts.get(key, 0) + 1
        removed = cut(found)
        if removed and (directory.cleaner_offsets.get(key) or 0) > offset:
            directory.cleaner_offsets.set(key, offset)
            self._guarded(directory, lambda: directory.cleaner_offsets.write(sync=False))
        return removed

    def set_move_rate(self, bytes_per_second: float) -> None:
        """How fast replicas move between directories, from now on."""
        self._moves.throttle.set_rate(bytes_per_second)

    # ---- periodic work

    def _check_retention(self) -> Iterator[None]:
        """Remove what retention does not keep; opens the logs nobody used since the start."""
        for key in list(self._where):
            opened = self._open_quietly(key)
            if opened is None:
                continue
            try:
                opened.delete_old_segments(self._clock.now_ms())
            except LogDirFailure:
                pass
            yield

    def _forget_producers(self) -> Iterator[None]:
        """Forget producers that have been silent for too long; a log that is not open forgets them when it is."""
        for opened in list(self._logs.values()):
            opened.remove_expired_producers(self._clock.now_ms())
            yield

    def _checkpoint_recovery_points(self) -> Iterator[None]:
        yield from self._collect(LogDirectory.note_recovery_point)
        yield from self._write([(each, each.recovery_points) for each in self._online()], sync=True)

    def _checkpoint_log_starts(self) -> Iterator[None]:
        yield from self._collect(LogDirectory.note_log_start)
        yield from self._write([(each, each.log_starts) for each in self._online()], sync=True)

    def _checkpoint_high_watermarks(self) -> Iterator[None]:
        yield from self._collect(LogDirectory.note_high_watermark)
        # Not synced: an old high watermark costs a new leader a moment, a sync every five seconds costs more.
        yield from self._write([(each, each.high_watermarks) for each in self._online()], sync=False)

    def _collect(self, note: Callable[[LogDirectory, PartitionLog], None]) -> Iterator[None]:
        """Copy an offset of every open log into its directory's checkpoint."""
        for number, opened in enumerate(list(self._logs.values()), 1):
            if self.is_current(opened):
                note(self._where[opened.topic, opened.partition], opened)
            if number % _CHECKPOINT_SLICE == 0:
                yield

    def _write(self, checkpoints: list[tuple[LogDirectory, OffsetCheckpoint]], *, sync: bool) -> Iterator[None]:
        for directory, checkpoint in checkpoints:
            try:
                checkpoint.write(sync=sync)
            except OSError as error:
                self.take_offline(directory, error)
            yield

    def checkpoint_cleaner(self, topic: str, partition: int, offset: int | None) -> None:
        """Remember up to where a partition's log was compacted; None forgets it."""
        directory = self._where.get((topic, partition))
        if directory is None or not directory.online:
            return
        if offset is None:
            directory.cleaner_offsets.remove((topic, partition))
        else:
            directory.cleaner_offsets.set((topic, partition), offset)
        try:
            directory.cleaner_offsets.write(sync=False)
        except OSError as error:
            self.take_offline(directory, error)

    # ---- failing

    def take_offline(self, directory: LogDirectory, error: OSError) -> None:
        """The file system under a directory failed: nothing in it is used any more until the next start."""
        if directory.failure is not None:
            return
        log.error("log directory %s failed and goes offline: %s", directory.path, error)
        directory.failure = LogDirFailure(directory.path, error)
        for move in self._moves.under_way():
            if directory in (move.source, move.target):
                self._moves.stop(move.key, clean=False)
        lost = [key for key, where in self._where.items() if where is directory]
        for key in lost:
            opened = self._logs.pop(key, None)
            if opened is not None:
                # Appends through references that others still hold must fail from now on.
                opened.disk_failed(error)
                _close_files(opened)
        if self._directory_failed is not None:
            self._directory_failed(directory, lost)

    def _log_failed(self, key: TopicPartition, directory: LogDirectory, failure: LogDirFailure) -> None:
        """A log could not read or write. A log that is deleted already may: its files are on their way out."""
        opened = self._logs.get(key)
        if key in self._opening or (opened is not None and opened.failure is failure):
            self.take_offline(directory, failure.cause)

    def _guarded(self, directory: LogDirectory, call: Callable[[], T]) -> T:
        if directory.failure is not None:
            raise directory.failure
        try:
            return call()
        except OSError as error:
            self.take_offline(directory, error)
            assert directory.failure is not None, "it was just set"
            raise directory.failure from error

    # ---- stopping

    def flush_all(self, done: Callable[[], None]) -> None:
        """Sync every log that needs it, many at a time; before `close`, which would sync them one by one.

        Many logs in a directory go to the disk together first, so that their own syncs find little to do.
        """
        behind: dict[LogDirectory, list[PartitionLog]] = {}
        for key, opened in self._logs.items():
            if opened.recovery_point < opened.log_end_offset:
                behind.setdefault(self._where[key], []).append(opened)
        left = sum(map(len, behind.values()))

        def synced(_: OSError | None) -> None:
            # A failed sync has taken its directory offline already.
            nonlocal left
            left -= 1
            if left == 0:
                done()

        def flush(directory: LogDirectory, logs: list[PartitionLog], error: OSError | None) -> None:
            if error is not None and directory.failure is None:
                self.take_offline(directory, error)
            for opened in logs:
                opened.flush(synced)

        for directory, logs in behind.items():
            if len(logs) < SYNC_TOGETHER_FROM:
                flush(directory, logs, None)
                continue
            try:
                for opened in logs:
                    opened.epochs.write(sync=False)
            except OSError as error:
                flush(directory, logs, error)
                continue
            self._disk.sync_tree(directory.path, partial(flush, directory, logs))
        if not behind:
            done()

    def close(self, broker_epoch: int = -1) -> None:
        """Close every log and write everything down; the next start needs no recovery.

        A directory in which something was not recovered since the last crash gets no mark of a clean shutdown.
        """
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for move in self._moves.under_way():
            self._moves.stop(move.key, clean=True)
        for key, opened in list(self._logs.items()):
            directory = self._where[key]
            try:
                opened.close()
                directory.note_all(opened)
            except LogDirFailure:
                continue
        self._logs.clear()
        for directory in self._online():
            try:
                for checkpoint in directory.checkpoints():
                    checkpoint.write(sync=True)
                if not directory.unrecovered:
                    directory.mark_clean(broker_epoch)
            except OSError as error:
                self.take_offline(directory, error)


def _close_files(opened: PartitionLog) -> None:
    try:
        opened.close(clean=False)
    except (OSError, ApiError) as error:
        log.warning("closing %s failed: %s", opened.name, error)
