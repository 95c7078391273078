"""Which topics a group reads, and the group's epoch, which grows whenever that changes or the topics themselves do."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.records import (
    Resolved,
    epoch_record,
    member_record,
    partition_metadata_tombstone,
)
from moldau.coordinator.group.consumer.topic_patterns import MayDescribe
from moldau.coordinator.group.modern.topic_hashes import TopicHashes

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")


class Subscribed(NamedTuple):
    """A group after one of its members has said what it wants."""

    epoch: int
    resolved: Mapping[str, Resolved]
    # Whether that member wants something else than before.
    resubscribed: bool


class Subscriptions:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups
        self.hashes = TopicHashes()

    def update(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        may_describe: MayDescribe,
        records: list[CoordinatorRecord],
    ) -> Subscribed:
        if updated is not member and updated != member:
            records.append(member_record(group.group_id, updated))
        renamed = updated.topics != member.topics
        patterns = self._groups.patterns.update(group, member, updated, may_describe, records)
        epoch = group.epoch
        if renamed or patterns.changes_topics or group.is_stale:
            replaced = group.static_member(updated.instance_id) or group.members.get(updated.member_id)
            before = () if replaced is None else (replaced,)
            topics = group.topics_after(before, (updated,), patterns.resolved.values())
            epoch = self.bump(group, topics, renamed or patterns.changes_topics, records)
        return Subscribed(epoch, patterns.resolved, renamed or patterns.resubscribed)

    def bump(
        self, group: ConsumerGroup, topics: Collection[str], changed: bool, records: list[CoordinatorRecord]
    ) -> int:
        """The epoch of a group that reads these topics; a new one if they are others, or have changed themselves."""
        metadata_hash = self.hashes.of_group(topics, self._shard.image)
        epoch = group.epoch
        if changed or metadata_hash != group.metadata_hash:
            epoch += 1
            records.append(epoch_record(group.group_id, epoch, metadata_hash))
            self._groups.changed(group.group_id)
            log.info("group %s is in epoch %d", group.group_id, epoch)
        group.fresh_since_epoch = epoch
        if group.has_partition_metadata:
            records.append(partition_metadata_tombstone(group.group_id))
        return epoch
