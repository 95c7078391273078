"""Members that go, of their own accord or because they were not heard of; the last of its kind may take the group back
to the classic protocol.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.heartbeats import check_static
from moldau.coordinator.group.consumer.member import AWAY, ConsumerMember
from moldau.coordinator.group.consumer.records import current_record, epoch_record, regex_tombstone, removal
from moldau.protocol.errors import ApiError
from moldau.protocol.generated.wire.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")

R = TypeVar("R")


class Leaves:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups

    def leave(
        self, group_id: str, member_id: str, instance_id: str | None, epoch: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        group = self._groups.find(group_id)
        response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = check_static(group.static_member(instance_id), instance_id, member_id)
            if epoch == AWAY:
                log.info("group %s: static member %s is away", group_id, member_id)
                return Decision(response, [current_record(group_id, member.away())])
        log.info("group %s: member %s leaves", group_id, member_id)
        return self.fence(group, [member], response)

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: R) -> Decision[R]:
        """These members are in the group no longer."""
        if not members:
            return Decision(response)
        groups = self._groups
        if groups.migration.must_downgrade_without(group, members):
            return groups.migration.downgrade(group, members, response)
        group_id = group.group_id
        records: list[CoordinatorRecord] = []
        for member in members:
            records += removal(group_id, member.member_id)
        resolved = dict(group.regexes)
        for regex, count in Counter(member.regex for member in members if member.regex).items():
            if group.regex_counts[regex] == count:
                records.append(regex_tombstone(group_id, regex))
                resolved.pop(regex, None)
        topics = group.topics_after(members, (), resolved.values())
        metadata_hash = groups.subscriptions.hashes.of_group(topics, self._shard.image)
        records.append(epoch_record(group_id, group.epoch + 1, metadata_hash))
        groups.changed(group_id)
        for member in members:
            groups.timeouts.forget(group_id, member.member_id)

        def written(error: ApiError | None) -> None:
            if error is not None:
                # They are members still, and must not stay for ever.
                for member in members:
                    groups.timeouts.alive(group_id, member)

        return Decision(response, records, done=written)
