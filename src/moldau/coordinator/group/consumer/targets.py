"""What each member is to have: computed anew when the group's epoch has grown, but not more often than its settings
allow, so that a crowd of newcomers is served together.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.records import Resolved, target_metadata_record, target_record
from moldau.coordinator.group.modern.assignment import NOTHING, Assignee, Assignment
from moldau.coordinator.group.modern.assignors import CONSUMER_ASSIGNORS, assignor_names
from moldau.coordinator.group.modern.group import NO_TIME
from moldau.coordinator.timers import interval_is_over

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")


class Target(NamedTuple):
    epoch: int
    assignment: Assignment


class Targets:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups

    def update(
        self,
        group: ConsumerGroup,
        epoch: int,
        updated: ConsumerMember,
        resolved: Mapping[str, Resolved],
        records: list[CoordinatorRecord],
    ) -> Target:
        """What this member is to have, in a group that is in this epoch now."""
        if group.assignment_epoch >= epoch or not self._is_due(group):
            return Target(group.assignment_epoch, group.target(updated))
        members = dict(group.members)
        replaced = group.static_member(updated.instance_id)
        inherited = group.target(updated)
        if replaced is not None:
            del members[replaced.member_id]
        members[updated.member_id] = updated
        name = self.preferred_assignor(members.values())
        reads = SubscribedIds(self._shard, resolved)
        assignees = [
            Assignee(
                member.member_id,
                member.instance_id,
                reads.of(member),
                inherited if member is updated else group.targets.get(member.member_id, NOTHING),
            )
            for member in members.values()
        ]
        result = CONSUMER_ASSIGNORS[name](assignees, reads.partitions)
        for member_id, assignment in result.items():
            if group.targets.get(member_id) != assignment:
                records.append(target_record(group.group_id, member_id, assignment))
        now = self._shard.clock.now_ms()
        records.append(target_metadata_record(group.group_id, epoch, now))
        log.info("group %s has a new assignment (%s) for epoch %d", group.group_id, name, epoch)
        return Target(epoch, result[updated.member_id])

    def _is_due(self, group: ConsumerGroup) -> bool:
        if group.assignment_time_ms == NO_TIME or not group.members:
            return True
        interval = self._groups.settings(group.group_id).consumer_assignment_interval_ms
        return interval_is_over(group.assignment_time_ms, interval, self._shard.clock.now_ms())

    def preferred_assignor(self, members: Iterable[ConsumerMember]) -> str:
        """The assignor that most members ask for, of those this node offers."""
        offered = assignor_names(self._shard.config().words("group.consumer.assignors"))
        votes = Counter(member.assignor for member in members if member.assignor in offered)
        return votes.most_common(1)[0][0] or offered[0] if votes else offered[0]


class SubscribedIds:
    """The ids of the topics that members read, as far as they exist."""

    __slots__ = ("_image", "_known", "_resolved", "partitions")

    def __init__(self, shard: GroupShard, resolved: Mapping[str, Resolved]) -> None:
        self._image = shard.image
        self._resolved = resolved
        # Members mostly read the same topics; they share one set then, which is quickly compared.
        self._known: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
        # How many partitions each of these topics has.
        self.partitions: dict[bytes, int] = {}

    def of(self, member: ConsumerMember) -> frozenset[bytes]:
        key = (member.topics, member.regex)
        known = self._known.get(key)
        if known is None:
            names = member.topics
            if member.regex and member.regex in self._resolved:
                names |= self._resolved[member.regex].topics
            topics = [topic for topic in map(self._image.topic, names) if topic is not None]
            self.partitions.update((topic.id, len(topic.partitions)) for topic in topics)
            known = self._known[key] = frozenset(topic.id for topic in topics)
        return known
