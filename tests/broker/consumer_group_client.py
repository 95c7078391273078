"""A member of a consumer group that behaves as a client library does, for tests without sockets."""

from __future__ import annotations

from typing import Any

from broker_node import Client, SimulatedNode

from moldau.protocol.generated.wire.consumer_group_describe_request import ConsumerGroupDescribeRequest
from moldau.protocol.generated.wire.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

REBALANCE_MS = 60_000
Partition = tuple[str, int]


class NextMember:
    """Heartbeats, takes over and gives up what it is told, and remembers what it has."""

    def __init__(
        self,
        node: SimulatedNode,
        name: str,
        *topics: str,
        group: str = "group",
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rack: str | None = None,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.node = node
        self.client = Client(node, client_id=f"client-{name}")
        self.id = name
        self.group = group
        self.topics = list(topics)
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.rack = rack
        self.rebalance_ms = rebalance_ms
        self.epoch = 0
        # By topic id.
        self.owned: dict[bytes, set[int]] = {}
        # Whether it has something else now than it has last said.
        self.has_news = False
        self.interval = 0
        self.answer: Any = None

    # ---- requests

    def request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat that says nothing new, apart from these fields."""
        return ConsumerGroupHeartbeatRequest(
            **{"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch, **fields}
        )

    def full(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        return self.request(
            **{
                "instance_id": self.instance,
                "rack_id": self.rack,
                "rebalance_timeout_ms": self.rebalance_ms,
                "subscribed_topic_names": self.topics,
                "subscribed_topic_regex": self.regex,
                "server_assignor": self.assignor,
                "topic_partitions": self.said(),
                **fields,
            }
        )

    def said(self) -> list[TopicPartitions]:
        return [TopicPartitions(topic, sorted(partitions)) for topic, partitions in self.owned.items()]

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> Any:
        self.answer = self.client.send(request, version)
        return self.answer

    # ---- behaviour

    def join(self) -> Any:
        self.epoch = 0
        self.owned = {}
        return self._take(self.send(self.full()))

    def beat(self, **fields: Any) -> Any:
        """One heartbeat; whatever it brings is taken over at once, and the next one will say so."""
        return self._take(self.send(self.request(**{"instance_id": self.instance, **fields})))

    def acknowledge(self) -> Any:
        self.has_news = False
        return self.beat(topic_partitions=self.said())

    def _take(self, answer: Any) -> Any:
        if answer.error_code:
            return answer
        self.epoch = answer.member_epoch
        self.interval = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            owned = {
                each.topic_id: set(each.partitions) for each in answer.assignment.topic_partitions if each.partitions
            }
            self.has_news |= owned != self.owned
            self.owned = owned
        return answer

    def leave(self, epoch: int = -1) -> Any:
        return self.send(self.request(member_epoch=epoch, instance_id=self.instance))

    def settle(self) -> None:
        """As a client does: hear what is new, act, say so."""
        self.beat()
        if self.has_news:
            self.acknowledge()

    # ---- looking

    @property
    def partitions(self) -> set[Partition]:
        image = self.node.services.image
        names = {topic_id: topic.name for topic_id, topic in image.topics_by_id.items()}
        return {
            (names.get(topic, "?"), partition) for topic, partitions in self.owned.items() for partition in partitions
        }


def settle(node: SimulatedNode, *members: NextMember, rounds: int = 8, step_ms: int = 1000) -> None:
    """Let everybody send heartbeats until all is quiet."""
    for _ in range(rounds):
        for member in members:
            member.settle()
        node.clock.advance(step_ms)


def described(node: SimulatedNode, group: str = "group", **fields: Any) -> Any:
    (found,) = node.client.send(ConsumerGroupDescribeRequest(group_ids=[group], **fields), 1).groups
    return found
