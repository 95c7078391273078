"""The timers of one shard, by a key of the shard's choosing; all end when the shard is given up."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from moldau.ports import Clock, Timer


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
