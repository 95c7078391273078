"""A streams group as tools see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.coordinator.group.streams.configured_topology import ConfiguredTopology
from moldau.coordinator.group.streams.group import StreamsGroup
from moldau.coordinator.group.streams.member import StreamsMember
from moldau.coordinator.group.streams.tasks import NO_TASKS, OwnedTasks, Tasks
from moldau.coordinator.group.streams.topology import Topology
from moldau.protocol.generated.group.streams_group_topology_value import TopicInfo as StoredTopic
from moldau.protocol.generated.wire import streams_group_describe_response as wire


def describe(group: StreamsGroup) -> wire.DescribedGroup:
    return wire.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if group.topology is None else _topology(group.topology, group.configured),
        # The newest first, as Apache Kafka mostly has them.
        members=[
            _member(member, group.targets.get(member.member_id, NO_TASKS))
            for member in reversed(group.members.values())
        ],
    )


def _topology(topology: Topology, configured: ConfiguredTopology | None) -> wire.Topology:
    """With the numbers of partitions that were decided, once they were."""
    subtopologies: list[wire.Subtopology] = []
    for name in sorted(topology.subtopologies):
        stored = topology.subtopologies[name]
        decided: Mapping[str, int] = {}
        if configured is not None and configured.is_ready:
            decided = configured.subtopologies[name].partitions
        subtopologies.append(
            wire.Subtopology(
                subtopology_id=name,
                source_topics=sorted(stored.source_topics),
                repartition_sink_topics=sorted(stored.repartition_sink_topics),
                state_changelog_topics=_topics(stored.state_changelog_topics, decided),
                repartition_source_topics=_topics(stored.repartition_source_topics, decided),
            )
        )
    return wire.Topology(topology.epoch, subtopologies)


def _topics(stored: Iterable[StoredTopic], decided: Mapping[str, int]) -> list[wire.TopicInfo]:
    return [
        wire.TopicInfo(
            name=each.name,
            partitions=decided.get(each.name, each.partitions),
            replication_factor=each.replication_factor,
            topic_configs=[wire.KeyValue(config.key, config.value) for config in each.topic_configs],
        )
        for each in sorted(stored, key=lambda topic: topic.name)
    ]


def _member(member: StreamsMember, target: Tasks) -> wire.Member:
    endpoint = member.user_endpoint
    return wire.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else wire.Endpoint(endpoint.host, endpoint.port),
        client_tags=[wire.KeyValue(key, value) for key, value in member.client_tags.items()],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: Tasks | OwnedTasks) -> wire.Assignment:
    return wire.Assignment(_ids(tasks.active), _ids(tasks.standby), _ids(tasks.warmup))


def _ids(tasks: Mapping[str, Iterable[int]]) -> list[wire.TaskIds]:
    return [wire.TaskIds(name, sorted(tasks[name])) for name in sorted(tasks)]
