"""When a log is synced, and who waits for it.

Syncs of one log never overlap: whoever asks while one is under way waits for the next, which then covers all of them
(group commit). A failed sync is final: the kernel may have dropped what it could not write, so nothing that was not
synced before may ever be acknowledged, and the log directory goes offline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.log.config import LONG_MAX, LogConfig
from moldau.ports import File, Timer

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog
    from moldau.log.segment import Segment

Done = Callable[[OSError | None], None]


class Flusher:
    """The syncs of one partition's log."""

    __slots__ = (
        "_completed",
        "_log",
        "_messages",
        "_ms",
        "_reaching",
        "_running",
        "_timer",
        "_waiting",
        "recovery_point",
    )

    def __init__(self, log: PartitionLog, recovery_point: int) -> None:
        self._log = log
        # Everything below is known to be on the disk.
        self.recovery_point = recovery_point
        # Segments that were rolled and whose indexes may not be on the disk yet.
        self._completed: list[Segment] = []
        self._running = False
        # The recovery point once the sync under way has ended.
        self._reaching = recovery_point
        self._waiting: list[Done] = []
        self._messages = LONG_MAX
        self._ms = LONG_MAX
        self._timer: Timer | None = None

    def reconfigure(self, config: LogConfig) -> None:
        self._messages = config.flush_messages
        self._ms = config.flush_ms

    @property
    def next_offset(self) -> int:
        """The offset from which on an append must tell `appended`."""
        if self._ms < LONG_MAX:
            return -1
        # With one message per flush whoever appends waits for the sync and asks for it itself.
        return self.recovery_point + self._messages - 1 if 1 < self._messages < LONG_MAX else LONG_MAX

    def appended(self) -> None:
        """Something was appended at or after `next_offset`: sync now or soon."""
        log = self._log
        if 1 < self._messages <= log.log_end_offset - self.recovery_point:
            self.flush(_ignore)
        elif self._ms < LONG_MAX and self._timer is None:
            self._timer = log.clock.call_later(self._ms, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._log.failure is None and self.recovery_point < self._log.log_end_offset:
            self.flush(_ignore)

    def flush(self, done: Done | None) -> None:
        log = self._log
        if log.failure is not None:
            if done is None:
                raise log.failure
            done(log.failure.cause)
            return
        if done is None:
            self._flush_now()
            return
        self._waiting.append(done)
        if not self._running:
            self._start()

    def _flush_now(self) -> None:
        log = self._log
        upto = log.log_end_offset
        try:
            self._before_sync()
            for file, passing in self._files():
                file.sync()
                if passing:
                    file.close()
        except OSError as error:
            raise log.disk_failed(error) from error
        self._reached(upto)

    def _files(self) -> list[tuple[File, bool]]:
        """The files that have something not synced yet, and whether to close them afterwards.

        Of the active segment only the batches: its indexes are made again after a crash. Those of a complete segment
        are trusted once the recovery point is beyond it.
        """
        log = self._log
        files: list[tuple[File, bool]] = []
        completed, self._completed = self._completed, []
        for segment in reversed(log.segments):
            files.append((segment.file, False))
            if segment is not log.active_segment and segment not in completed:
                completed.append(segment)
            if segment.base_offset <= self.recovery_point:
                break
        for segment in completed:
            if segment in log.segments:
                files += [(log.disk.open(path), True) for path in segment.index_paths()]
        return files

    def _before_sync(self) -> None:
        self._log.epochs.write()

    def _start(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._reaching = self._log.log_end_offset
        self._running = True
        try:
            self._before_sync()
            files = self._files()
        except OSError as error:
            self._finish(waiting, error)
            return
        left = len(files)
        failure: OSError | None = None

        def synced(error: OSError | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if left == 0:
                self._finish(waiting, failure)

        for file, passing in files:
            file.sync(synced)
            if passing:
                file.close()

    def _finish(self, waiting: list[Done], error: OSError | None) -> None:
        self._running = False
        log = self._log
        if error is not None:
            log.disk_failed(error)
            waiting += self._waiting
            self._waiting = []
        elif log.failure is not None:
            error = log.failure.cause
        else:
            self._reached(self._reaching)
        for done in waiting:
            done(error)
        if self._waiting and not self._running:
            self._start()

    def _reached(self, offset: int) -> None:
        if offset > self.recovery_point:
            self.recovery_point = offset
        self._log.flush_point_moved(self.next_offset)

    def rolled(self, segment: Segment) -> None:
        """A segment is complete: get it to the disk without making anybody wait."""
        self._completed.append(segment)
        self.flush(_ignore)

    def truncated(self, end_offset: int) -> None:
        self.recovery_point = min(self.recovery_point, end_offset)
        # A sync under way covers nothing of what is written after the cut.
        self._reaching = min(self._reaching, end_offset)
        self._log.flush_point_moved(self.next_offset)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def flush_for_close(self) -> None:
        # Ten thousand logs are closed at once, and nobody waits for more than the batches: epochs stand in them too.
        self._log.epochs.write(sync=False)
        if self.recovery_point < self._log.log_end_offset:
            self._flush_now()


def _ignore(error: OSError | None) -> None:
    """Nobody waits: a failure has been told to the log already."""
