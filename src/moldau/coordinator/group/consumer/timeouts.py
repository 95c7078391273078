"""How long members may take: to be heard of again, to give partitions up, to join and sync in the classic way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.coordinator.decision import Decision
from moldau.coordinator.group.consumer.member import ConsumerMember, MemberState
from moldau.coordinator.group.modern.sessions import MemberSessions

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")

_REVOKE: Final = "revocation"
_JOIN: Final = "classic join"
_SYNC: Final = "classic sync"


class Timeouts:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups
        host = shard.host
        self._sessions = MemberSessions(shard.clock, host.timers, host.perform, self._session_over)

    # ---- sessions

    def alive(self, group_id: str, member: ConsumerMember) -> None:
        if member.classic is not None:
            timeout = member.classic.session_timeout_ms
        else:
            timeout = self._groups.settings(group_id).consumer_session_timeout_ms
        self._sessions.alive(group_id, member.member_id, timeout)

    def _session_over(self, group_id: str, member_id: str) -> Decision[None]:
        return self._fence(group_id, member_id, "was not heard of in time")

    # ---- steps of a rebalance

    def watch_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """A member that must give partitions up has its rebalance timeout for it; others have nothing to do."""
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._shard.host.timers.cancel((_REVOKE, group_id, member.member_id))
            return
        epoch = member.epoch

        def over() -> Decision[None]:
            group = self._groups.get(group_id)
            now = None if group is None else group.members.get(member.member_id)
            if now is None or now.epoch != epoch or now.state is not MemberState.UNREVOKED_PARTITIONS:
                return Decision(None)
            return self._fence(group_id, member.member_id, "did not give up its partitions in time")

        self._schedule(_REVOKE, group_id, member, over)

    def expect_join(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member was told to join again; the time runs from the first time it was told."""
        if not self._shard.host.timers.is_scheduled((_JOIN, group_id, member.member_id)):
            self._schedule(_JOIN, group_id, member, lambda: self._late(group_id, member, "did not join in time"))

    def joined(self, group_id: str, member_id: str) -> None:
        self._shard.host.timers.cancel((_JOIN, group_id, member_id))

    def expect_sync(self, group_id: str, member: ConsumerMember) -> None:
        self._schedule(_SYNC, group_id, member, lambda: self._late(group_id, member, "did not sync in time"))

    def synced(self, group_id: str, member_id: str) -> None:
        self._shard.host.timers.cancel((_SYNC, group_id, member_id))

    def _schedule(self, kind: str, group_id: str, member: ConsumerMember, over: Callable[[], Decision[None]]) -> None:
        host = self._shard.host
        host.timers.schedule(
            (kind, group_id, member.member_id), max(member.rebalance_timeout_ms, 0), lambda: host.perform(over)
        )

    def _late(self, group_id: str, member: ConsumerMember, reason: str) -> Decision[None]:
        return self._fence(group_id, member.member_id, reason)

    def _fence(self, group_id: str, member_id: str, reason: str) -> Decision[None]:
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Decision(None)
        log.info("group %s: member %s is out: it %s", group_id, member_id, reason)
        return self._groups.leaves.fence(group, [member], None)

    def forget(self, group_id: str, member_id: str) -> None:
        """The member is gone; nothing is expected of it any more."""
        self._sessions.end(group_id, member_id)
        for kind in (_REVOKE, _JOIN, _SYNC):
            self._shard.host.timers.cancel((kind, group_id, member_id))
