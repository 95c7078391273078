"""A member of a streams group that behaves as Kafka Streams does, for tests without sockets."""

from __future__ import annotations

from typing import Any

from broker_node import Client, SimulatedNode

from moldau.protocol.generated.wire.streams_group_describe_request import StreamsGroupDescribeRequest
from moldau.protocol.generated.wire.streams_group_heartbeat_request import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

REBALANCE_MS = 60_000
Task = tuple[str, int]


def stateless(*sources: str, epoch: int = 0) -> Topology:
    return Topology(epoch, [Subtopology(subtopology_id="0", source_topics=list(sources))])


def stateful(*sources: str, changelog: str = "app-store-changelog", epoch: int = 0) -> Topology:
    store = TopicInfo(name=changelog, topic_configs=[KeyValue("cleanup.policy", "compact")])
    return Topology(
        epoch, [Subtopology(subtopology_id="0", source_topics=list(sources), state_changelog_topics=[store])]
    )


def counting(source: str, *, partitions: int = 0) -> Topology:
    """Read, repartition, count: two subtopologies with a topic between them and a changelog behind."""
    between = TopicInfo(
        name="app-by-word-repartition", partitions=partitions, topic_configs=[KeyValue("cleanup.policy", "delete")]
    )
    store = TopicInfo(
        name="app-counts-changelog", replication_factor=1, topic_configs=[KeyValue("cleanup.policy", "compact")]
    )
    return Topology(
        0,
        [
            Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=[between.name]),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[between],
                state_changelog_topics=[store],
                copartition_groups=[CopartitionGroup(repartition_source_topics=[0])],
            ),
        ],
    )


class StreamsMember:
    """Heartbeats, takes over and gives up what it is told, and remembers what it has."""

    def __init__(
        self,
        node: SimulatedNode,
        name: str,
        topology: Topology,
        *,
        group: str = "app",
        process: str | None = None,
        endpoint: tuple[str, int] | None = None,
        tags: dict[str, str] | None = None,
        rack: str | None = None,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.node = node
        self.client = Client(node, client_id=f"client-{name}")
        self.id = name
        self.topology = topology
        self.group = group
        self.process = process or f"process-{name}"
        self.endpoint = endpoint
        self.tags = tags or {}
        self.rack = rack
        self.rebalance_ms = rebalance_ms
        self.epoch = 0
        self.endpoint_epoch = -1
        self.active: set[Task] = set()
        self.standby: set[Task] = set()
        # Whether it has something else now than it has last said.
        self.has_news = False
        self.endpoints: dict[tuple[str, int], Any] = {}
        self.answer: Any = None

    # ---- requests

    def request(self, **fields: Any) -> StreamsGroupHeartbeatRequest:
        """A heartbeat that says nothing new, apart from these fields."""
        return StreamsGroupHeartbeatRequest(
            **{
                "group_id": self.group,
                "member_id": self.id,
                "member_epoch": self.epoch,
                "endpoint_information_epoch": self.endpoint_epoch,
                **fields,
            }
        )

    def first(self, **fields: Any) -> StreamsGroupHeartbeatRequest:
        return self.request(
            **{
                "member_epoch": 0,
                "rack_id": self.rack,
                "rebalance_timeout_ms": self.rebalance_ms,
                "topology": self.topology,
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
                "process_id": self.process,
                "user_endpoint": None if self.endpoint is None else Endpoint(*self.endpoint),
                "client_tags": [KeyValue(*tag) for tag in self.tags.items()],
                **fields,
            }
        )

    def said(self) -> dict[str, Any]:
        return {"active_tasks": _ids(self.active), "standby_tasks": _ids(self.standby), "warmup_tasks": []}

    def send(self, request: StreamsGroupHeartbeatRequest) -> Any:
        self.answer = self.client.send(request, 0)
        return self.answer

    # ---- behaviour

    def join(self, **fields: Any) -> Any:
        self.epoch, self.active, self.standby = 0, set(), set()
        return self._take(self.send(self.first(**fields)))

    def beat(self, **fields: Any) -> Any:
        """One heartbeat; whatever it brings is taken over at once, and the next one will say so."""
        return self._take(self.send(self.request(**fields)))

    def acknowledge(self) -> Any:
        self.has_news = False
        return self.beat(**self.said())

    def _take(self, answer: Any) -> Any:
        if answer.error_code:
            return answer
        self.epoch = answer.member_epoch
        self.endpoint_epoch = answer.endpoint_information_epoch
        if answer.active_tasks is not None:
            had = (self.active, self.standby)
            self.active, self.standby = _tasks(answer.active_tasks), _tasks(answer.standby_tasks)
            self.has_news |= had != (self.active, self.standby)
        if answer.partitions_by_user_endpoint is not None:
            self.endpoints = {
                (each.user_endpoint.host, each.user_endpoint.port): each for each in answer.partitions_by_user_endpoint
            }
        return answer

    def leave(self, **fields: Any) -> Any:
        return self.send(self.request(member_epoch=-1, **fields))

    def settle(self) -> None:
        """As a client does: hear what is new, act, say so."""
        self.beat()
        if self.has_news:
            self.acknowledge()

    # ---- looking

    @property
    def statuses(self) -> dict[int, str]:
        return {each.status_code: each.status_detail for each in self.answer.status}


def _ids(tasks: set[Task]) -> list[TaskIds]:
    subtopologies = sorted({subtopology for subtopology, _ in tasks})
    return [TaskIds(name, sorted(index for each, index in tasks if each == name)) for name in subtopologies]


def _tasks(listed: list[Any]) -> set[Task]:
    return {(each.subtopology_id, partition) for each in listed for partition in each.partitions}


def settle(node: SimulatedNode, *members: StreamsMember, rounds: int = 8, step_ms: int = 1000) -> None:
    """Let everybody send heartbeats until all is quiet."""
    for _ in range(rounds):
        for member in members:
            member.settle()
        node.clock.advance(step_ms)


def described(node: SimulatedNode, group: str = "app", **fields: Any) -> Any:
    (found,) = node.client.send(StreamsGroupDescribeRequest(group_ids=[group], **fields), 0).groups
    return found
