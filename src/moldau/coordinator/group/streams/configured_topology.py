"""A topology on the topics of this cluster: how many tasks there are, and which topics are missing.

Computed anew whenever one of the topics changes. A group whose topology is not ready has no tasks; its members are
told why, and the topics that it needs for itself are created for it (by whoever asks for `missing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moldau.coordinator.group.streams.partition_counts import PartitionCounts
from moldau.coordinator.group.streams.statuses import BadTopics, Status
from moldau.coordinator.group.streams.topology import Topology, read_topics
from moldau.metadata.image import ClusterImage
from moldau.protocol.generated.group.streams_group_topology_value import Subtopology, TopicInfo
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreatableTopicConfig

_NAMED = 3
_DEFAULT_REPLICAS = -1


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    tasks: int
    # Everything its tasks read, by name.
    read_topics: tuple[str, ...]
    is_stateful: bool
    # What an internal topic of it is to have, by name.
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    epoch: int
    # Sorted by id; empty when the topics do not even allow to count the tasks.
    subtopologies: Mapping[str, ConfiguredSubtopology]
    # Internal topics that do not exist yet, by name.
    missing: Mapping[str, CreatableTopic] = field(default_factory=dict)
    problem: BadTopics | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


def configure(topology: Topology, image: ClusterImage) -> ConfiguredTopology:
    """Raises ApiError when no cluster could run this topology."""

    def existing(name: str) -> int | None:
        topic = image.topic(name)
        return None if topic is None else len(topic.partitions)

    try:
        _check_sources(topology, image)
        counts = PartitionCounts(topology, existing)
        counts.decide()
        subtopologies = {
            subtopology_id: _configured(topology.subtopologies[subtopology_id], counts)
            for subtopology_id in sorted(topology.subtopologies)
        }
        missing = _missing(topology, counts, image)
    except BadTopics as error:
        return ConfiguredTopology(topology.epoch, {}, problem=error)
    if not missing:
        return ConfiguredTopology(topology.epoch, subtopologies)
    problem = BadTopics(Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_summary(missing)}")
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def _check_sources(topology: Topology, image: ClusterImage) -> None:
    sources = {topic for each in topology.subtopologies.values() for topic in each.source_topics}
    missing = sorted(topic for topic in sources if image.topic(topic) is None)
    if missing:
        raise BadTopics(Status.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")


def _configured(subtopology: Subtopology, counts: PartitionCounts) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        counts.tasks_of(subtopology),
        tuple(dict.fromkeys(read_topics(subtopology))),
        bool(subtopology.state_changelog_topics),
        {info.name: counts.of_internal(info) for info in _internal(subtopology)},
    )


def _internal(subtopology: Subtopology) -> tuple[TopicInfo, ...]:
    return (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)


def _missing(topology: Topology, counts: PartitionCounts, image: ClusterImage) -> dict[str, CreatableTopic]:
    missing: dict[str, CreatableTopic] = {}
    for subtopology in topology.subtopologies.values():
        for info in _internal(subtopology):
            expected = counts.of_internal(info)
            existing = image.topic(info.name)
            if existing is None:
                missing[info.name] = _creatable(info, expected)
            elif len(existing.partitions) != expected:
                raise BadTopics(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {info.name} has different number of partitions: expected {expected}, found "
                    f"{len(existing.partitions)}",
                )
    return missing


def _creatable(info: TopicInfo, partitions: int) -> CreatableTopic:
    return CreatableTopic(
        name=info.name,
        num_partitions=partitions,
        replication_factor=info.replication_factor or _DEFAULT_REPLICAS,
        configs=[CreatableTopicConfig(name=each.key, value=each.value) for each in info.topic_configs],
    )


def _summary(topics: Iterable[str]) -> str:
    names = list(topics)
    more = f" and {len(names) - _NAMED} additional topics" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
