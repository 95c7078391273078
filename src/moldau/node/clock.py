"""The real clock and the real background: wall time, the event loop's timers, and slices of long work.

Never used below `moldau.node`: the core sees only the protocols of `moldau.ports`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

from moldau.ports import Timer

# A slice of background work may hold the loop this long before requests get their turn.
SLICE_SECONDS = 0.002


class LoopClock:
    """`ports.Clock` over an event loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: int, run: Callable[[], None]) -> Timer:
        if delay_ms <= 0:
            return self._loop.call_soon(run)
        return self._loop.call_later(delay_ms / 1000, run)


class LoopBackground:
    """`ports.Background`: runs generators in short slices between requests, one job after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._report = report
        self._jobs: deque[tuple[Iterator[None], Callable[[BaseException | None], None] | None]] = deque()
        self._running = False

    def run(self, steps: Iterator[None], done: Callable[[BaseException | None], None] | None = None) -> None:
        self._jobs.append((steps, done))
        if not self._running:
            self._running = True
            self._loop.call_soon(self._slice)

    def _slice(self) -> None:
        until = time.perf_counter() + SLICE_SECONDS
        while self._jobs:
            steps, done = self._jobs[0]
            try:
                while True:
                    next(steps)
                    if time.perf_counter() >= until:
                        # Jobs take turns, so that one long compaction does not starve a small deletion.
                        self._jobs.rotate(-1)
                        self._loop.call_later(SLICE_SECONDS, self._slice)
                        return
            except StopIteration:
                self._jobs.popleft()
                self._finish(done, None)
            except Exception as error:
                self._jobs.popleft()
                self._finish(done, error)
        self._running = False

    def _finish(self, done: Callable[[BaseException | None], None] | None, error: BaseException | None) -> None:
        if done is not None:
            done(error)
        elif error is not None:
            self._report(error)
