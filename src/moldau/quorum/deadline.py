"""One moment at which something is done unless it is put off: the timeouts of the roles.

Putting off is what happens most (with every fetch), so it only moves a number; the timer behind it looks again when
it goes off.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.ports import Clock, Timer


class Deadline:
    __slots__ = ("_clock", "_due_ms", "_run", "_timer", "_timer_due_ms")

    def __init__(self, clock: Clock, run: Callable[[], None]) -> None:
        self._clock = clock
        self._run = run
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._due_ms: int | None = None

    def set(self, delay_ms: int) -> None:
        """Run this long from now, and not when it was to run before."""
        self._due_ms = due = self._clock.monotonic_ms() + delay_ms
        if self._timer is not None:
            if self._timer_due_ms <= due:
                return
            self._timer.cancel()
        self._schedule(delay_ms)

    def clear(self) -> None:
        self._due_ms = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_set(self) -> bool:
        return self._due_ms is not None

    def _schedule(self, delay_ms: int) -> None:
        self._timer_due_ms = self._clock.monotonic_ms() + delay_ms
        self._timer = self._clock.call_later(delay_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._due_ms is None:
            return
        left = self._due_ms - self._clock.monotonic_ms()
        if left > 0:
            self._schedule(left)
            return
        self._due_ms = None
        self._run()
