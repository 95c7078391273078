"""How long members may stay silent, for groups whose members are values and hold no timers.

A sign of life only moves the end of the session; the timer finds out when it fires and sets itself anew. So a
heartbeat costs no timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moldau.coordinator.decision import Decision
from moldau.coordinator.timers import ShardTimers
from moldau.ports import Clock

_KIND: Final = "member session"


class MemberSessions:
    """The sessions of all members of one kind of group on one shard."""

    __slots__ = ("_clock", "_ends", "_expired", "_perform", "_timers")

    def __init__(
        self,
        clock: Clock,
        timers: ShardTimers,
        perform: Callable[[Callable[[], Decision[Any]]], None],
        expired: Callable[[str, str], Decision[None]],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._perform = perform
        self._expired = expired
        # By group and member: when the session ends, and when its timer fires, which may be earlier.
        self._ends: dict[tuple[str, str], tuple[int, int]] = {}

    def alive(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        key = (group_id, member_id)
        ends = self._clock.monotonic_ms() + timeout_ms
        known = self._ends.get(key)
        if known is not None and known[1] <= ends:
            self._ends[key] = (ends, known[1])
            return
        self._ends[key] = (ends, ends)
        self._timers.schedule((_KIND, *key), timeout_ms, lambda: self._due(key))

    def _due(self, key: tuple[str, str]) -> None:
        known = self._ends.pop(key, None)
        if known is None:
            return
        left = known[0] - self._clock.monotonic_ms()
        if left > 0:
            self._ends[key] = (known[0], known[0])
            self._timers.schedule((_KIND, *key), left, lambda: self._due(key))
        else:
            self._perform(lambda: self._expired(*key))

    def end(self, group_id: str, member_id: str) -> None:
        if self._ends.pop((group_id, member_id), None) is not None:
            self._timers.cancel((_KIND, group_id, member_id))
