"""Which partitions of a share group have a state at the share coordinators, and which are to get one.

Decides what has to be initialised before it can be assigned, and notes down what came of it. The asking itself is done
by whoever carries out the decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.modern.assignment import NOTHING
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.records import topics_record
from moldau.coordinator.group.share.topics import Partitions, ShareTopics, TopicPartitions

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.group.share.groups import ShareGroups

_NO_NAME = "<UNKNOWN>"


class Initialization:
    def __init__(self, shard: GroupShard, groups: ShareGroups) -> None:
        self._shard = shard
        self._groups = groups

    def assignable(self, group: ShareGroup) -> Partitions:
        if group.topics is None:
            return NOTHING
        return {topic_id: topic.partitions for topic_id, topic in group.topics.initialized.items()}

    def is_unassigned(self, group: ShareGroup) -> bool:
        """Whether a topic that members read has other partitions ready than are assigned."""
        if group.topics is None or not group.topics.initialized or not group.members:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in group.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            group.is_subscribed_to(topic.name) and assigned.get(topic_id, set()) != set(topic.partitions)
            for topic_id, topic in group.topics.initialized.items()
        )

    def needed(self, group: ShareGroup, names: Collection[str], records: list[CoordinatorRecord]) -> Partitions:
        """The partitions of these topics that have no state yet; that it is asked for is noted down."""
        now = self._shard.clock.monotonic_ms()
        oldest = now - self._shard.config().integer("group.share.initialize.retry.interval.ms") + 1
        known: Mapping[bytes, TopicPartitions] = {} if group.topics is None else group.topics.known(oldest)
        missing: dict[bytes, TopicPartitions] = {}
        for name in names:
            topic = self._shard.image.topic(name)
            if topic is None:
                continue
            has = known[topic.id].partitions if topic.id in known else frozenset()
            if len(has) < len(topic.partitions):
                missing[topic.id] = TopicPartitions(name, frozenset(topic.partitions).difference(has), now)
        if not missing:
            return NOTHING
        self.begin(group, missing, records)
        return {topic_id: topic.partitions for topic_id, topic in missing.items()}

    def begin(
        self, group: ShareGroup, topics: Mapping[bytes, TopicPartitions], records: list[CoordinatorRecord]
    ) -> None:
        if topics:
            records.append(self.record(group.group_id, (group.topics or ShareTopics()).begun(topics)))

    def finished(self, group_id: str, partitions: Partitions) -> Decision[None]:
        """The share coordinators have a state for these partitions now."""
        group = self._groups.get(group_id)
        if group is None or not partitions:
            return Decision(None)
        now = self._shard.clock.monotonic_ms()
        topics: dict[bytes, TopicPartitions] = {}
        for topic_id, found in partitions.items():
            topic = self._shard.image.topic_by_id(topic_id)
            topics[topic_id] = TopicPartitions(_NO_NAME if topic is None else topic.name, found, now)
        return Decision(None, (self.record(group_id, (group.topics or ShareTopics()).done(topics)),))

    def failed(self, group_id: str, partitions: Partitions) -> Decision[None]:
        group = self._groups.get(group_id)
        if group is None or group.topics is None or not group.topics.initializing or not partitions:
            return Decision(None)
        return Decision(None, (self.record(group_id, group.topics.failed(partitions)),))

    def record(self, group_id: str, topics: ShareTopics) -> CoordinatorRecord:
        found = (self._shard.image.topic_by_id(topic_id) for topic_id in topics.deleting)
        return topics_record(group_id, topics, {topic.id: topic.name for topic in found if topic is not None})
