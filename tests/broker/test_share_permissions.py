"""Who may do what with share groups and their state."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode
from share_state_client import StateClient
from test_share_groups import Member, alter, delete_offsets, described
from txn_client import coordinator_ready

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.broker import Broker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import describe_share_group_offsets_request as describing
from moldau.protocol.generated.wire.delete_groups_request import DeleteGroupsRequest

OP, K = Operation, ResourceKind


class Denying:
    """Allows everything but these."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, ResourceKind, str]] = set()

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return (operation, kind, name) not in self.denied


class GuardedNode:
    def __init__(self) -> None:
        self.authorizer = Denying()
        self.node = SimulatedNode(
            **{"share.coordinator.state.topic.num.partitions": "1", "offsets.topic.num.partitions": "1"}
        )
        self.node.services.authorizer = self.authorizer
        self.node.broker = Broker(self.node.services)
        self.node.client.service = self.node.broker
        self.node.loader.add_publisher(self.node.broker.image_published)
        coordinator_ready(self.node.client, key_type=0)
        self.topic_id = self.node.create_topic("orders", 2)

    def deny(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        self.authorizer.denied.add((operation, kind, name))

    def member(self) -> Member:
        member = Member(self.node, "a", "orders")
        member.client.service = self.node.broker
        return member


@pytest.fixture
def guarded() -> GuardedNode:
    return GuardedNode()


def offsets_of(node: SimulatedNode, *topics: str) -> Any:
    named = [describing.DescribeShareGroupOffsetsRequestTopic(topic, [0]) for topic in topics]
    asked = describing.DescribeShareGroupOffsetsRequestGroup("group", named or None)
    return node.client.send(describing.DescribeShareGroupOffsetsRequest([asked]), 1).groups[0]


def test_joining(guarded: GuardedNode) -> None:
    guarded.deny(OP.DESCRIBE, K.TOPIC, "orders")
    assert guarded.member().join().error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    guarded.deny(OP.READ, K.GROUP, "group")
    assert guarded.member().join().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_describing(guarded: GuardedNode) -> None:
    member = guarded.member()
    member.join()
    member.beat()
    assert described(guarded.node).members
    guarded.deny(OP.DESCRIBE, K.TOPIC, "orders")
    hidden = described(guarded.node)
    assert (hidden.error_code, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    guarded.deny(OP.DESCRIBE, K.GROUP, "group")
    assert described(guarded.node).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_describing_offsets(guarded: GuardedNode) -> None:
    assert alter(guarded.node, "orders", {0: 0}).error_code == 0
    guarded.deny(OP.DESCRIBE, K.TOPIC, "orders")
    assert offsets_of(guarded.node).topics == [], "of all topics only those one may know of"
    named = offsets_of(guarded.node, "orders")
    assert named.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    guarded.deny(OP.DESCRIBE, K.GROUP, "group")
    assert offsets_of(guarded.node).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_changing_offsets(guarded: GuardedNode) -> None:
    assert alter(guarded.node, "orders", {0: 0}).error_code == 0
    guarded.deny(OP.READ, K.TOPIC, "orders")
    altered = alter(guarded.node, "orders", {0: 1}).responses[0]
    assert altered.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert delete_offsets(guarded.node, "orders").responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    guarded.deny(OP.READ, K.GROUP, "group")
    assert alter(guarded.node, "orders", {0: 1}).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    guarded.deny(OP.DELETE, K.GROUP, "group")
    assert delete_offsets(guarded.node, "orders").error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    deleted = guarded.node.client.send(DeleteGroupsRequest(["group"]), 2).results[0]
    assert deleted.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_the_state_is_for_brokers_only(guarded: GuardedNode) -> None:
    state = StateClient(guarded.node, guarded.topic_id)
    guarded.deny(OP.CLUSTER_ACTION, K.CLUSTER, "kafka-cluster")
    for answer in (state.initialize(), state.read(), state.write(), state.delete(), state.summary()):
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
