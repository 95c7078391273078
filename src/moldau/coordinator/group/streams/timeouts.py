"""How long members may take: to be heard of again, and to give tasks up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from moldau.coordinator.decision import Decision
from moldau.coordinator.group.modern.sessions import MemberSessions
from moldau.coordinator.group.streams.member import MemberState, StreamsMember

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.group.streams.groups import StreamsGroups

log = logging.getLogger("moldau.coordinator")

_REVOKE: Final = "task revocation"


class Timeouts:
    def __init__(self, shard: GroupShard, groups: StreamsGroups) -> None:
        self._shard = shard
        self._groups = groups
        host = shard.host
        self._sessions = MemberSessions(shard.clock, host.timers, host.perform, self._session_over)

    def alive(self, group_id: str, member_id: str) -> None:
        self._sessions.alive(group_id, member_id, self._groups.settings(group_id).streams_session_timeout_ms)

    def _session_over(self, group_id: str, member_id: str) -> Decision[None]:
        return self._fence(group_id, member_id, "was not heard of in time")

    def watch_revocation(self, group_id: str, member: StreamsMember) -> None:
        """A member that must give tasks up has its rebalance timeout for it; others have nothing to do."""
        host = self._shard.host
        if member.state is not MemberState.UNREVOKED_TASKS:
            host.timers.cancel((_REVOKE, group_id, member.member_id))
            return
        epoch = member.epoch

        def over() -> Decision[None]:
            group = self._groups.get(group_id)
            now = None if group is None else group.members.get(member.member_id)
            if now is None or now.epoch != epoch or now.state is not MemberState.UNREVOKED_TASKS:
                return Decision(None)
            return self._fence(group_id, member.member_id, "did not give up its tasks in time")

        host.timers.schedule(
            (_REVOKE, group_id, member.member_id),
            max(member.rebalance_timeout_ms, 0),
            lambda: host.perform(over),
        )

    def _fence(self, group_id: str, member_id: str, reason: str) -> Decision[None]:
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Decision(None)
        log.info("group %s: member %s is out: it %s", group_id, member_id, reason)
        return self._groups.leaves.fence(group, member, None)

    def forget(self, group_id: str, member_id: str) -> None:
        """The member is gone; nothing is expected of it any more."""
        self._sessions.end(group_id, member_id)
        self._shard.host.timers.cancel((_REVOKE, group_id, member_id))
