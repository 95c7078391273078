"""Who may do what with transactions, and brokers that were told not to verify."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode
from txn_client import (
    FLOWS,
    JAVA_V1,
    JAVA_V2,
    Producer,
    Versions,
    committed_values,
    coordinator_ready,
    last_stable_offset,
    state_of,
    verify,
)

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.broker import Broker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.list_transactions_request import ListTransactionsRequest
from moldau.protocol.generated.wire.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

OP, K = Operation, ResourceKind
TX, TOPIC, GROUP, CLUSTER = K.TRANSACTIONAL_ID, K.TOPIC, K.GROUP, K.CLUSTER


class Denying:
    """Allows everything but these."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, ResourceKind, str]] = set()

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return (operation, kind, name) not in self.denied


class GuardedNode:
    """A node with an authorizer, a topic, and an open transaction of `tx`."""

    def __init__(self) -> None:
        self.authorizer = Denying()
        self.node = SimulatedNode(transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1")
        self.node.services.authorizer = self.authorizer
        self.node.broker = Broker(self.node.services)
        self.node.client.service = self.node.broker
        self.node.loader.add_publisher(self.node.broker.image_published)
        coordinator_ready(self.node.client)
        coordinator_ready(self.node.client, key_type=0)
        self.node.create_topic("orders", 2)

    def producer(self, versions: Versions = JAVA_V2) -> Producer:
        producer = Producer(self.node, "tx", versions)
        producer.begin_anew()
        assert producer.write("orders", 0, b"a") is ErrorCode.NONE
        return producer

    def deny(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        self.authorizer.denied.add((operation, kind, name))


@pytest.fixture
def guarded() -> GuardedNode:
    return GuardedNode()


def test_the_transactional_id_may_not_be_used(guarded: GuardedNode) -> None:
    producer, old = guarded.producer(), Producer(guarded.node, "tx", JAVA_V1)
    old.producer_id, old.epoch = producer.producer_id, producer.epoch
    guarded.deny(OP.WRITE, TX, "tx")
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producer.init() is refused
    assert ErrorCode(producer.send_batch("orders", 1, b"b").error_code) is refused
    assert ErrorCode(producer.send_batch("orders", 0, b"b").error_code) is refused
    assert old.add("orders", 0, 1) == [refused] * 2
    assert producer.commit_offsets("g", "orders", {0: 1}) == [refused]
    assert producer.commit() is refused


def test_the_topic_may_not_be_written(guarded: GuardedNode) -> None:
    producer = guarded.producer(JAVA_V1)
    guarded.node.create_topic("secret")
    guarded.deny(OP.WRITE, TOPIC, "secret")
    assert producer.add("secret", 0) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    v2 = Producer(guarded.node, "other", JAVA_V2)
    v2.begin_anew()
    assert v2.write("secret", 0, b"a") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert state_of(guarded.node.client, "other").transaction_state == "Empty", "not part of the transaction either"


def test_the_group_may_not_be_read(guarded: GuardedNode) -> None:
    guarded.deny(OP.READ, GROUP, "g")
    assert guarded.producer(JAVA_V2).commit_offsets("g", "orders", {0: 1}) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert guarded.producer(JAVA_V1).commit_offsets("g", "orders", {0: 1}) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]


def test_what_only_brokers_may_ask(guarded: GuardedNode) -> None:
    producer = guarded.producer()
    guarded.deny(OP.CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    client = guarded.node.client
    with pytest.raises(AssertionError):
        verify(client, producer, "orders", 0)
    marker = WritableTxnMarker(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, topics=[WritableTxnMarkerTopic("orders", [0])]
    )

    def code() -> int:
        answer: Any = client.send(WriteTxnMarkersRequest(markers=[marker]), 1)
        result: int = answer.markers[0].topics[0].partitions[0].error_code
        return result

    assert code() == ErrorCode.NONE, "an administrator may"
    guarded.deny(OP.ALTER, CLUSTER, "kafka-cluster")
    assert code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_what_may_not_be_seen_is_not_named(guarded: GuardedNode) -> None:
    producer = guarded.producer()
    producer.write("orders", 1, b"b")
    client = guarded.node.client

    def listed() -> list[str]:
        answer = client.send(ListTransactionsRequest(), 2)
        return [each.transactional_id for each in answer.transaction_states]

    assert listed() == ["tx"]
    guarded.deny(OP.DESCRIBE, TOPIC, "orders")
    assert state_of(client, "tx").topics == []
    guarded.deny(OP.DESCRIBE, TX, "tx")
    assert listed() == []
    assert state_of(client, "tx").error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
def test_without_verification(flow: Versions) -> None:
    node = SimulatedNode(transaction_partition_verification_enable="false", transaction_state_log_num_partitions="1")
    coordinator_ready(node.client)
    node.create_topic("orders")
    producer = Producer(node, "tx", flow)
    producer.begin_anew()
    assert producer.write("orders", 0, b"a") is ErrorCode.NONE
    assert last_stable_offset(node.client, "orders") == 0
    assert producer.commit() is ErrorCode.NONE
    assert committed_values(node.client, "orders") == [b"a"]
