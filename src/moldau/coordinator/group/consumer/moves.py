"""One step of a member towards what it is to have, with its record and its time limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.reconciliation import Goal, TopicPartitions, reconcile
from moldau.coordinator.group.consumer.records import current_record
from moldau.coordinator.group.consumer.subscriptions import Subscribed
from moldau.coordinator.group.consumer.targets import SubscribedIds, Target

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard


class Moves:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups

    def move(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        target: Target,
        subscribed: Subscribed,
        owned: Sequence[TopicPartitions] | None,
        records: list[CoordinatorRecord],
    ) -> ConsumerMember:
        if not subscribed.resubscribed and member.is_reconciled_to(target.epoch):
            return member
        topics = SubscribedIds(self._shard, subscribed.resolved).of(member)
        goal = Goal(target.epoch, target.assignment, topics, subscribed.resubscribed, group.is_owned)
        moved = reconcile(member, goal, owned)
        if moved is member or moved == member:
            return member
        records.append(current_record(group.group_id, moved))
        if moved.classic is None:
            self._groups.timeouts.watch_revocation(group.group_id, moved)
        return moved
