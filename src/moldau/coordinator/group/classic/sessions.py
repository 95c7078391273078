"""How long a member may stay silent.

A sign of life only moves the end of the session; the timer finds out when it fires and sets itself anew. So a
heartbeat or a commit costs no timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.coordinator.decision import Decision
from moldau.coordinator.group.classic.member import ClassicMember

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard


class Sessions:
    def __init__(self, shard: GroupShard, expired: Callable[[str, str], Decision[None]]) -> None:
        self._shard = shard
        self._expired = expired

    def alive(self, group_id: str, member: ClassicMember, timeout_ms: int | None = None) -> None:
        """A sign of life: the session lasts its timeout (or another one) from now on."""
        now = self._shard.clock.monotonic_ms()
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        member.session_ends_ms = ends = now + timeout_ms
        timers = self._shard.host.timers
        key = ("session", group_id, member.member_id)
        if member.timer_due_ms > ends or not timers.is_scheduled(key):
            member.timer_due_ms = ends
            timers.schedule(key, timeout_ms, lambda: self._due(group_id, member))

    def _due(self, group_id: str, member: ClassicMember) -> None:
        left = member.session_ends_ms - self._shard.clock.monotonic_ms()
        if left > 0:
            member.timer_due_ms = member.session_ends_ms
            key = ("session", group_id, member.member_id)
            self._shard.host.timers.schedule(key, left, lambda: self._due(group_id, member))
        else:
            self._shard.host.perform(lambda: self._expired(group_id, member.member_id))

    def expect(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """A client was given this id and should come back with it."""
        host = self._shard.host
        host.timers.schedule(
            ("session", group_id, member_id),
            timeout_ms,
            lambda: host.perform(lambda: self._expired(group_id, member_id)),
        )

    def end(self, group_id: str, member_id: str) -> None:
        self._shard.host.timers.cancel(("session", group_id, member_id))
