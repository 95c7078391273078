"""Where an application can be asked about its state: for each member that has an endpoint, what its tasks read.

Members tell their own clients; the coordinator only collects and spreads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.coordinator.group.streams.configured_topology import ConfiguredSubtopology
from moldau.coordinator.group.streams.group import StreamsGroup
from moldau.coordinator.group.streams.member import StreamsMember, UserEndpoint
from moldau.metadata.image import ClusterImage
from moldau.protocol.generated.wire.streams_group_heartbeat_response import (
    Endpoint,
    EndpointToPartitions,
    TopicPartition,
)


def endpoints_of(group: StreamsGroup, updated: StreamsMember, image: ClusterImage) -> list[EndpointToPartitions]:
    """Of all members, one of which has just changed."""
    subtopologies = {} if group.configured is None else group.configured.subtopologies
    others = (member for member in group.members.values() if member.member_id != updated.member_id)
    return [
        _endpoint(member, member.user_endpoint, subtopologies, image)
        for member in (*others, updated)
        if member.user_endpoint is not None
    ]


def _endpoint(
    member: StreamsMember,
    endpoint: UserEndpoint,
    subtopologies: Mapping[str, ConfiguredSubtopology],
    image: ClusterImage,
) -> EndpointToPartitions:
    return EndpointToPartitions(
        Endpoint(endpoint.host, endpoint.port),
        _read_by(member.assigned.active, subtopologies, image),
        _read_by(member.assigned.standby, subtopologies, image),
    )


def _read_by(
    tasks: Mapping[str, Iterable[int]], subtopologies: Mapping[str, ConfiguredSubtopology], image: ClusterImage
) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for subtopology_id, partitions in tasks.items():
        subtopology = subtopologies.get(subtopology_id)
        if subtopology is None:
            # The topics are not what the tasks were made for any more; there is nothing to be asked.
            continue
        for name in subtopology.read_topics:
            topic = image.topic(name)
            if topic is not None:
                # A topic may have fewer partitions than the subtopology has tasks.
                found.append(TopicPartition(name, sorted(partitions)[: len(topic.partitions)]))
    return found
