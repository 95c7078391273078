"""Moving a partition's log to another log directory of the same node (AlterReplicaLogDirs) while it is in use.

A future replica is filled from the current one in small steps, as a follower would be; when it has everything, the
two change places between two events, so that nobody sees a log that lacks a record. This module decides when the
copy is complete and in which order names change; it never touches the current log before that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from moldau.log.checkpoints import TopicPartition
from moldau.log.errors import LogDirFailure
from moldau.log.log_directory import DirectoryKind, LogDirectory, marked_directory
from moldau.log.pacing import PacedWork, Pause, Throttle, run_paced
from moldau.log.partition_log import PartitionLog
from moldau.ports import Background, Clock, Disk
from moldau.protocol.errors import ApiError
from moldau.records.batch import BatchHeader

if TYPE_CHECKING:
    from moldau.log.manager import LogManager

log = logging.getLogger("moldau.log")

# Copied between two pauses; well under a millisecond.
_COPY_BYTES = 256 * 1024
# How long to wait when there is nothing to copy but the future replica is not as durable yet as the current one.
_SETTLE_MS = 20


class Move:
    """One partition on its way to another directory."""

    __slots__ = ("ended", "future", "key", "name", "source", "target")

    def __init__(self, key: TopicPartition, source: LogDirectory, target: LogDirectory, name: str) -> None:
        self.key = key
        self.source = source
        self.target = target
        # The future replica's directory in the target.
        self.name = name
        self.future: PartitionLog | None = None
        self.ended = False

    @property
    def path(self) -> str:
        return f"{self.target.path}/{self.name}"


class ReplicaMoves:
    """The moves under way on this node, at most one per partition."""

    __slots__ = ("_background", "_clock", "_disk", "_logs", "_moves", "_random", "throttle")

    def __init__(
        self,
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        background: Background,
        random: Random,
        bytes_per_second: float,
    ) -> None:
        self._logs = logs
        self._disk = disk
        self._clock = clock
        self._background = background
        self._random = random
        self._moves: dict[TopicPartition, Move] = {}
        self.throttle = Throttle(clock, bytes_per_second)

    def get(self, key: TopicPartition) -> Move | None:
        return self._moves.get(key)

    def under_way(self) -> list[Move]:
        return list(self._moves.values())

    def start(self, key: TopicPartition, source: LogDirectory, target: LogDirectory, name: str | None = None) -> None:
        """Begin to copy, or go on with the future replica `name` that an earlier run left."""
        if name is None:
            name = marked_directory(*key, DirectoryKind.FUTURE, self._random)
        move = Move(key, source, target, name)
        self._moves[key] = move
        target.future[key] = name
        run_paced(self._background, self._steps(move), lambda error: self._ended(move, error))

    def _ended(self, move: Move, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, LogDirFailure):
            # The current replica is untouched; the copy is worth nothing.
            log.error("moving %s-%d to %s failed", *move.key, move.target.path, exc_info=error)
            self.cancel(move.key)

    # ---- copying

    def _steps(self, move: Move) -> PacedWork:
        while not move.ended:
            current = self._logs.get(*move.key)
            if current is None:
                self.cancel(move.key)
                return
            future = move.future
            if future is None:
                future = move.future = self._open(move, current)
            pause: Pause | None = None
            if _agree(current, future) and future.log_end_offset == current.log_end_offset:
                if future.recovery_point >= current.recovery_point:
                    self._take_over(move, current, future)
                    return
                future.flush(_ignore)
                pause = self._settle
            else:
                pause = self.throttle.charge(_copy(current, future))
            yield pause

    def _settle(self, resume: Callable[[], None]) -> None:
        self._clock.call_later(_SETTLE_MS, resume)

    def _open(self, move: Move, current: PartitionLog) -> PartitionLog:
        target = move.target
        self._logs.put_to_use(target)
        future = PartitionLog.open(
            self._disk,
            self._clock,
            move.path,
            *move.key,
            current.topic_id,
            current.config,
            recovery_point=target.recovery_points.get(move.key) or 0,
            log_start_offset=0,
            clean_shutdown=move.key not in target.unrecovered and target.clean_epoch is not None,
            random=self._random,
            failed=lambda failure: self._future_failed(move, failure),
        )
        target.unrecovered.discard(move.key)
        return future

    def _future_failed(self, move: Move, failure: LogDirFailure) -> None:
        if not move.ended or (move.future is not None and self._logs.is_current(move.future)):
            self._logs.take_offline(move.target, failure.cause)

    def _take_over(self, move: Move, current: PartitionLog, future: PartitionLog) -> None:
        """Let the future replica be the current one."""
        future.reconfigure(current.config)
        future.high_watermark = current.high_watermark
        future.take_epochs_of(current)
        if current.log_start_offset > future.log_start_offset:
            future.delete_records(min(current.log_start_offset, future.high_watermark))
        self._logs.replace(current, future, move.target)
        move.ended = True
        del self._moves[move.key]
        del move.target.future[move.key]
        log.info("%s-%d moved from %s to %s", *move.key, move.source.path, move.target.path)

    # ---- ending early

    def cancel(self, key: TopicPartition) -> None:
        """Give up a move and remove the future replica."""
        move = self._end(key)
        if move is not None and move.target.online:
            self._logs.discard_future(move.target, key, move.name)

    def stop(self, key: TopicPartition, *, clean: bool) -> None:
        """Stop copying but leave the future replica where it is, for the next start to go on with."""
        move = self._end(key, clean=clean)
        if move is not None and move.future is not None and clean:
            move.target.recovery_points.set(key, move.future.recovery_point)

    def _end(self, key: TopicPartition, *, clean: bool = False) -> Move | None:
        move = self._moves.pop(key, None)
        if move is not None:
            move.ended = True
            if move.future is not None:
                try:
                    move.future.close(clean=clean)
                except (OSError, ApiError) as error:
                    log.warning("closing the future replica of %s-%d failed: %s", *key, error)
        return move


def _agree(current: PartitionLog, future: PartitionLog) -> bool:
    """Cut what the future replica has and the current one has not (any more); False when it must begin anew.

    The current log may be a follower that was truncated since the last step, or its front may have been deleted.
    """
    if future.log_end_offset < current.log_start_offset or future.log_start_offset > current.log_end_offset:
        return False
    while future.log_end_offset > future.log_start_offset:
        epoch, end = current.end_offset_for_epoch(future.epochs.latest)
        if epoch < 0:
            end = current.log_end_offset
        if end >= future.log_end_offset:
            break
        future.truncate_to(end)
    return True


def _copy(current: PartitionLog, future: PartitionLog) -> int:
    """Copy the next few batches; gives their size."""
    if not _agree(current, future):
        future.truncate_fully_and_start_at(current.log_start_offset)
    offset = max(future.log_end_offset, current.log_start_offset)
    data = current.read(offset, _COPY_BYTES, max_offset=current.log_end_offset)
    for records in data.buffers:
        first = BatchHeader(records).base_offset
        if first < future.log_end_offset:
            # The log begins within its first batch.
            future.truncate_fully_and_start_at(first, current.log_start_offset)
        future.append_as_follower(records)
    return max(data.size, 1)


def _ignore(error: OSError | None) -> None:
    """A failed sync has been told to the log already."""
