"""Streams groups: their topology, their members and the tasks these run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from moldau.client.admin.client import Admin
from moldau.client.cluster import Coordinator, TopicPartition
from moldau.client.coordinators import ask_coordinators
from moldau.client.errors import failure
from moldau.protocol.errors import ApiError, ErrorCode

# How Kafka Streams names the topics it makes for itself; each begins with the application's id and a dash.
_INTERNAL_NAMES = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)


@dataclass(slots=True)
class Tasks:
    """Tasks by kind, each as subtopology and partitions, in the broker's order."""

    active: list[tuple[str, list[int]]] = field(default_factory=list)
    standby: list[tuple[str, list[int]]] = field(default_factory=list)
    warmup: list[tuple[str, list[int]]] = field(default_factory=list)


@dataclass(slots=True)
class StreamsMember:
    member_id: str
    process_id: str
    client_id: str
    host: str
    epoch: int
    classic: bool
    tasks: Tasks
    target: Tasks


@dataclass(slots=True)
class Subtopology:
    subtopology_id: str
    sources: list[str]
    repartition_sources: list[str]
    changelogs: list[str]


@dataclass(slots=True)
class StreamsGroup:
    group_id: str
    state: str
    coordinator: Coordinator
    epoch: int
    assignment_epoch: int
    topology_epoch: int
    subtopologies: list[Subtopology]
    members: list[StreamsMember]

    def input_topics(self) -> set[str]:
        return {name for each in self.subtopologies for name in each.sources}

    def read_topics(self) -> set[str]:
        """Input topics and the ones the application repartitions through: all it commits offsets for."""
        return self.input_topics() | {name for each in self.subtopologies for name in each.repartition_sources}

    def internal_topics(self) -> list[str]:
        names = (name for each in self.subtopologies for name in (*each.repartition_sources, *each.changelogs))
        inputs = self.input_topics()
        return [name for name in dict.fromkeys(names) if name not in inputs]

    def active_partitions(self) -> list[TopicPartition]:
        """What the members' active tasks read."""
        topics = {each.subtopology_id: (*each.sources, *each.repartition_sources) for each in self.subtopologies}
        return sorted(
            {
                (name, index)
                for member in self.members
                for subtopology, partitions in member.tasks.active
                for name in topics.get(subtopology, ())
                for index in partitions
            }
        )


def is_internal_name(topic: str, group: str) -> bool:
    """Whether a topic is, by its name, one Kafka Streams made for the application."""
    return topic.startswith(f"{group}-") and _INTERNAL_NAMES.fullmatch(topic) is not None


def describe_streams_groups(admin: Admin, groups: Iterable[str]) -> dict[str, StreamsGroup | ApiError]:
    from moldau.protocol.generated.wire.streams_group_describe_request import StreamsGroupDescribeRequest

    def read(answer: Any, coordinator: Coordinator) -> dict[str, StreamsGroup | ApiError]:
        return {each.group_id: _group(each, coordinator) for each in answer.groups}

    return ask_coordinators(admin, groups, lambda some: StreamsGroupDescribeRequest(group_ids=some), read)


def _group(found: Any, coordinator: Coordinator) -> StreamsGroup | ApiError:
    if found.error_code != ErrorCode.NONE:
        return failure(found.error_code, found.error_message)
    topology = found.topology
    subtopologies = [] if topology is None else topology.subtopologies or []
    return StreamsGroup(
        found.group_id,
        found.group_state,
        coordinator,
        found.group_epoch,
        found.assignment_epoch,
        -1 if topology is None else topology.epoch,
        [
            Subtopology(
                each.subtopology_id,
                list(each.source_topics),
                [topic.name for topic in each.repartition_source_topics],
                [topic.name for topic in each.state_changelog_topics],
            )
            for each in subtopologies
        ],
        [
            StreamsMember(
                each.member_id,
                each.process_id,
                each.client_id,
                each.client_host,
                each.member_epoch,
                each.is_classic,
                _tasks(each.assignment),
                _tasks(each.target_assignment),
            )
            for each in found.members
        ],
    )


def _tasks(assignment: Any) -> Tasks:
    def listed(ids: Any) -> list[tuple[str, list[int]]]:
        return [(each.subtopology_id, list(each.partitions)) for each in ids]

    return Tasks(listed(assignment.active_tasks), listed(assignment.standby_tasks), listed(assignment.warmup_tasks))
