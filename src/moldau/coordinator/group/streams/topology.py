"""What an application does, as its members describe it: subtopologies, the topics they read, and those they need.

The group keeps the topology that its first member came with. How many partitions everything has is not said here; that
depends on the cluster (`configured_topology.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.group.streams_group_topology_value import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from moldau.protocol.generated.wire import streams_group_heartbeat_request as heartbeat


class Topology:
    __slots__ = ("epoch", "readers", "required_topics", "subtopologies", "value")

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        self.value = value
        self.epoch = value.epoch
        self.subtopologies: Mapping[str, Subtopology] = {each.subtopology_id: each for each in value.subtopologies}
        if len(self.subtopologies) != len(value.subtopologies):
            raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, "Two subtopologies have the same id.")
        # By topic: the subtopology whose tasks read it.
        self.readers: Mapping[str, str] = {
            topic: each.subtopology_id for each in value.subtopologies for topic in read_topics(each)
        }
        self.required_topics = frozenset(
            topic
            for each in value.subtopologies
            for topic in (*read_topics(each), *(info.name for info in each.state_changelog_topics))
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    __hash__ = None  # type: ignore[assignment]


def read_topics(subtopology: Subtopology) -> Iterator[str]:
    """Everything that the tasks of a subtopology read."""
    yield from subtopology.source_topics
    for info in subtopology.repartition_source_topics:
        yield info.name


def topology_of(said: heartbeat.Topology) -> Topology:
    """As a member says it in its first heartbeat."""
    return Topology(
        StreamsGroupTopologyValue(
            said.epoch,
            [
                Subtopology(
                    subtopology_id=each.subtopology_id,
                    source_topics=each.source_topics,
                    source_topic_regex=each.source_topic_regex,
                    state_changelog_topics=_infos(each.state_changelog_topics),
                    repartition_sink_topics=each.repartition_sink_topics,
                    repartition_source_topics=_infos(each.repartition_source_topics),
                    copartition_groups=[
                        CopartitionGroup(group.source_topics, group.source_topic_regex, group.repartition_source_topics)
                        for group in each.copartition_groups
                    ],
                )
                for each in said.subtopologies
            ],
        )
    )


def _infos(infos: Iterable[heartbeat.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=info.name,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
            topic_configs=[TopicConfig(each.key, each.value) for each in info.topic_configs],
        )
        for info in infos
    ]
