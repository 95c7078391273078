"""Long work in small steps that can also wait: for a throttle, or for a sync that runs elsewhere.

`ports.Background` runs a generator to its end without a break longer than a turn of the others. Work here may yield a
`Pause` as well: the run ends there, and goes on in a new run once the pause is over, so that waiting costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias

from moldau.ports import Background, Clock, File

# Given what goes on with the work, arranges for it to be called once.
Pause: TypeAlias = Callable[[Callable[[], None]], None]
# Yields None where others may run, and a pause where it must wait.
PacedWork: TypeAlias = Generator[Pause | None, None, None]


def run_paced(background: Background, work: PacedWork, done: Callable[[BaseException | None], None]) -> None:
    """Run `work` to its end, then call `done` with the exception that ended it, if any."""
    pending: list[Pause] = []

    def until_pause() -> Iterator[None]:
        for pause in work:
            if pause is not None:
                pending.append(pause)
                return
            yield

    def ended(error: BaseException | None) -> None:
        if pending:
            pending.pop()(resume)
        else:
            done(error)

    def resume() -> None:
        background.run(until_pause(), ended)

    resume()


def sync_elsewhere(file: File) -> Generator[Pause | None, None, None]:
    """Wait until the file's bytes are durable without holding anybody up; raises OSError when they cannot be."""
    failures: list[OSError] = []

    def pause(resume: Callable[[], None]) -> None:
        def synced(error: OSError | None) -> None:
            if error is not None:
                failures.append(error)
            resume()

        file.sync(synced)

    yield pause
    if failures:
        raise failures[0]


class Throttle:
    """How long to wait so that the bytes spent stay within a rate, with a tenth of a second of credit."""

    __slots__ = ("_bytes_per_second", "_clock", "_free_at_ms")

    _CREDIT_MS = 100
    # The rate may be raised while somebody waits, who must notice it.
    _LOOK_AGAIN_MS = 1000

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._bytes_per_second = max(bytes_per_second, 1.0)
        # When everything spent so far is paid for.
        self._free_at_ms = 0.0

    def set_rate(self, bytes_per_second: float) -> None:
        """What was spent before is paid for at the new rate."""
        after = max(bytes_per_second, 1.0)
        now = self._clock.monotonic_ms()
        if self._free_at_ms > now:
            self._free_at_ms = now + (self._free_at_ms - now) * self._bytes_per_second / after
        self._bytes_per_second = after

    def spend(self, size: int) -> None:
        """Account for bytes read, written or sent."""
        earliest = self._clock.monotonic_ms() - self._CREDIT_MS
        self._free_at_ms = max(self._free_at_ms, earliest) + size * 1000 / self._bytes_per_second

    def wait_ms(self) -> int:
        """How long from now until more may be spent; 0 when it may at once."""
        delay = self._free_at_ms - self._clock.monotonic_ms()
        return 0 if delay < 1 else int(delay)

    def charge(self, size: int) -> Pause | None:
        """Account for bytes read or written; the pause that is due, if one is."""
        self.spend(size)
        return self._pause if self.wait_ms() else None

    def _pause(self, resume: Callable[[], None]) -> None:
        delay = self.wait_ms()
        if delay:
            self._clock.call_later(min(delay, self._LOOK_AGAIN_MS), lambda: self._pause(resume))
        else:
            resume()
