"""A clock that stands still until a test moves it: timers run in the order they are due, never on their own.

Wall time and monotonic time move together but have different origins, so that code which confuses the two fails.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class VirtualTimer:
    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """`ports.Clock` whose time is moved by `advance`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000) -> None:
        self._wall_origin = wall_ms - monotonic_ms
        # The monotonic time, for those who ask often.
        self.monotonic = monotonic_ms
        self._sequence = 0
        # When it is due, in which order it was planned, what to run, and who can take it back, if anybody can.
        self._timers: list[tuple[int, int, Callable[[], None], VirtualTimer | None]] = []

    def now_ms(self) -> int:
        return self._wall_origin + self.monotonic

    def monotonic_ms(self) -> int:
        return self.monotonic

    def set_back(self, milliseconds: int) -> None:
        """Somebody sets the wall clock; time itself goes on as before."""
        self._wall_origin -= milliseconds

    def call_later(self, delay_ms: int, run: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer()
        self.plan(self.monotonic + delay_ms, run, timer)
        return timer

    def plan(self, due_ms: int, run: Callable[[], None], timer: VirtualTimer | None = None) -> None:
        """Run something at that moment, or now if it has passed, unless the timer given with it is cancelled."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._timers, (max(self.monotonic, due_ms), sequence, run, timer))

    def advance(self, milliseconds: int = 0) -> None:
        """Let time pass, and run what becomes due on the way, each at its own moment."""
        until = self.monotonic + milliseconds
        timers = self._timers
        while timers and timers[0][0] <= until:
            due, _, run, timer = heappop(timers)
            if timer is None or not timer.cancelled:
                if due > self.monotonic:
                    self.monotonic = due
                run()
        self.monotonic = until

    def run_next(self) -> bool:
        """Run the one timer that is due next, at its moment; False when there is none."""
        timers = self._timers
        while timers:
            due, _, run, timer = heappop(timers)
            if timer is None or not timer.cancelled:
                if due > self.monotonic:
                    self.monotonic = due
                run()
                return True
        return False

    def forget_timers(self) -> None:
        """What a process that dies takes with it."""
        self._timers.clear()

    @property
    def waiting(self) -> int:
        """How many timers have neither run nor been taken back."""
        return sum(1 for _, _, _, timer in self._timers if timer is None or not timer.cancelled)

    def next_due_ms(self) -> int | None:
        """In how many milliseconds the next timer runs, if there is one."""
        timers = self._timers
        while timers and (timer := timers[0][3]) is not None and timer.cancelled:
            heappop(timers)
        return max(0, timers[0][0] - self.monotonic) if timers else None


class LifeClock:
    """The clock of one life of a node: what it had planned dies with it."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.alive = True

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def call_later(self, delay_ms: int, run: Callable[[], None]) -> VirtualTimer:
        return self._clock.call_later(delay_ms, lambda: run() if self.alive else None)
