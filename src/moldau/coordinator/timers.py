"""The timers of one shard, by a key of the shard's choosing; all end when the shard is given up. And how long ago
something is that only a record remembers."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from moldau.ports import Clock, Timer


def interval_is_over(since_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether that long has passed since a time of the wall clock, perhaps another node's. A time that is still to come
    was told by a clock that was wrong or has been set back: nobody waits for it."""
    return not since_ms <= now_ms < since_ms + interval_ms


class ShardTimers:
    __slots__ = ("_clock", "_timers")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[Hashable, Timer] = {}

    def schedule(self, key: Hashable, delay_ms: int, run: Callable[[], None]) -> None:
        """Replaces a timer of the same key."""
        self.cancel(key)

        def fire() -> None:
            self._timers.pop(key, None)
            run()

        self._timers[key] = self._clock.call_later(delay_ms, fire)

    def cancel(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def is_scheduled(self, key: Hashable) -> bool:
        return key in self._timers

    def cancel_all(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
