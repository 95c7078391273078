"""The classic groups of one shard: the parts that decide about them, and how they come back from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.coordinator.decision import Decision, Transaction
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicState
from moldau.coordinator.group.classic.joins import Joins
from moldau.coordinator.group.classic.leaves import Leaves
from moldau.coordinator.group.classic.member import ClassicMember
from moldau.coordinator.group.classic.rebalances import Rebalances
from moldau.coordinator.group.classic.records import NO_TIME, read_group
from moldau.coordinator.group.classic.sessions import Sessions
from moldau.coordinator.group.classic.syncs import Syncs

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.group import ConsumerGroup
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard


class ClassicGroups:
    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self.rebalances = Rebalances(shard, self)
        self.joins = Joins(shard, self)
        self.syncs = Syncs(self)
        self.leaves = Leaves(self)
        self.sessions = Sessions(shard, self.leaves.session_expired)

    @property
    def consumer(self) -> ConsumerGroups:
        return self._shard.consumer

    def find(self, group_id: str) -> ClassicGroup | None:
        group = self._shard.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def mixed(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is a consumer group, which may have members of the classic protocol."""
        return self._shard.consumer.get(group_id)

    def forget(self, group: ClassicGroup) -> None:
        """Remove a group from memory, with everything that was to happen to it."""
        if self._shard.groups.get(group.group_id) is group:
            del self._shard.groups[group.group_id]
        timers = self._shard.host.timers
        timers.cancel(("join", group.group_id))
        timers.cancel(("sync", group.group_id))
        for member_id in (*group.members, *group.pending_members):
            self.sessions.end(group.group_id, member_id)

    def committed(self, group: ClassicGroup, member_id: str) -> None:
        if group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            member = group.members.get(member_id)
            if member is not None:
                self.sessions.alive(group.group_id, member)

    # ---- from the log

    def replay(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        group_id = key[4:].decode()
        if value is None:
            group = self.find(group_id)
            if group is not None:
                self.forget(group)
            return
        stored = read_group(value)
        since = stored.current_state_timestamp
        group = ClassicGroup(group_id, None if since == NO_TIME else since)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol
        for each in stored.members:
            rebalance_timeout = each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout
            group.add(
                ClassicMember(
                    each.member_id,
                    each.group_instance_id,
                    each.client_id,
                    each.client_host,
                    rebalance_timeout,
                    each.session_timeout,
                    stored.protocol_type,
                    [(stored.protocol or "", each.subscription)],
                    each.assignment,
                )
            )
        group.leader_id = stored.leader
        if group.members:
            group.state = ClassicState.STABLE
        group.subscribed = group.compute_subscribed()
        self._shard.groups[group_id] = group

    def loaded(self) -> None:
        limit = self._shard.config().integer("group.max.size")
        for group in list(self._shard.groups.values()):
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                self.sessions.alive(group.group_id, member)
            if len(group.members) > limit:
                self._begin_shrinking(group, limit)

    def _begin_shrinking(self, group: ClassicGroup, limit: int) -> None:
        """The limit was lowered while nobody coordinated the group: members commit their offsets and join again."""
        reason = f"{len(group.members)} members are more than the {limit} that are allowed now"

        def prepare() -> Decision[None]:
            return self.rebalances.prepare(group, reason)

        self._shard.host.perform(prepare)
