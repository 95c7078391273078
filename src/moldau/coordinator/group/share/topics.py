"""The partitions that have a state at the share coordinator, as far as their group knows.

A partition's state is made before it is assigned to anybody, and removed before the group is. Both are done by the
share coordinators, maybe on other nodes, so each is noted down before it is asked for and after it is done. Only
values: every change gives a new one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]


class TopicPartitions(NamedTuple):
    name: str
    partitions: frozenset[int]
    # When this was noted down, in this node's monotonic time: a wall clock that is set back would hold up a retry.
    since_ms: int


@dataclass(frozen=True, slots=True)
class ShareTopics:
    initializing: Mapping[bytes, TopicPartitions] = field(default_factory=dict)
    initialized: Mapping[bytes, TopicPartitions] = field(default_factory=dict)
    deleting: frozenset[bytes] = frozenset()

    def begun(self, topics: Mapping[bytes, TopicPartitions]) -> ShareTopics:
        """The state of these partitions is about to be initialised."""
        initializing = joined(self.initializing, topics)
        return replace(self, initializing=initializing, deleting=self.deleting - initializing.keys())

    def done(self, topics: Mapping[bytes, TopicPartitions]) -> ShareTopics:
        """The state of these partitions is initialised."""
        partitions = {topic_id: topic.partitions for topic_id, topic in topics.items()}
        return replace(
            self,
            initializing=_without(self.initializing, partitions),
            initialized=joined(self.initialized, topics),
        )

    def failed(self, partitions: Partitions) -> ShareTopics:
        """The state of these partitions could not be initialised; a later heartbeat tries again."""
        return replace(self, initializing=_without(self.initializing, partitions))

    def deletes(self, topic_ids: Iterable[bytes]) -> ShareTopics:
        """What is known of these topics is about to be deleted."""
        gone = frozenset(topic_ids)
        initialized = {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in gone}
        return replace(self, initialized=initialized, deleting=self.deleting | gone)

    def deleted(self, topic_ids: Iterable[bytes]) -> ShareTopics:
        return replace(self, deleting=self.deleting.difference(topic_ids))

    def forgets(self, topic_ids: Container[bytes]) -> ShareTopics:
        """These topics do not exist any more."""
        return ShareTopics(
            {topic_id: topic for topic_id, topic in self.initializing.items() if topic_id not in topic_ids},
            {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in topic_ids},
            frozenset(topic_id for topic_id in self.deleting if topic_id not in topic_ids),
        )

    def known(self, oldest_ms: int) -> Mapping[bytes, TopicPartitions]:
        """Partitions that need no initialisation: done, or asked for at `oldest_ms` or later."""
        recent = {topic_id: topic for topic_id, topic in self.initializing.items() if topic.since_ms >= oldest_ms}
        return joined(self.initialized, recent)


def joined(
    first: Mapping[bytes, TopicPartitions], second: Mapping[bytes, TopicPartitions]
) -> dict[bytes, TopicPartitions]:
    """The partitions of both; name and time are those of the second."""
    result = dict(first)
    for topic_id, topic in second.items():
        known = result.get(topic_id)
        result[topic_id] = topic if known is None else topic._replace(partitions=known.partitions | topic.partitions)
    return result


def _without(topics: Mapping[bytes, TopicPartitions], partitions: Partitions) -> dict[bytes, TopicPartitions]:
    result: dict[bytes, TopicPartitions] = {}
    for topic_id, topic in topics.items():
        left = topic.partitions - partitions.get(topic_id, frozenset())
        if left:
            result[topic_id] = topic._replace(partitions=left)
    return result
