"""Work that an active controller does again and again."""

from __future__ import annotations

from collections.abc import Callable

from moldau.ports import Clock, Timer


class Periodic:
    """Calls a function every so many milliseconds between `start` and `stop`; an interval of 0 means never."""

    __slots__ = ("_clock", "_interval_ms", "_run", "_timer")

    def __init__(self, clock: Clock, interval_ms: int, run: Callable[[], None]) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._run = run
        self._timer: Timer | None = None

    def start(self) -> None:
        if self._interval_ms > 0:
            self._timer = self._clock.call_later(self._interval_ms, self._due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self.start()
        self._run()
