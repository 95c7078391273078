"""Metadata and DescribeTopicPartitions, and the topics that appear because somebody asked for them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from broker_node import CLUSTER_ID, Client, SimulatedNode

from moldau.metadata.image import LOST_DIRECTORY
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import encode_request
from moldau.protocol.generated.wire.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from moldau.protocol.uuids import ZERO_UUID

VERSIONS = range(14)


def ask(*names: str | None, version: int, create: bool = True, **how: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create if version >= 4 else True, **how)


def metadata(node: SimulatedNode, *names: str, version: int = 12, create: bool = False, **how: Any) -> Any:
    return node.client.send(ask(*names, version=version, create=create, **how), version)


def errors(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


# ---- Metadata


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_by_name_in_every_version(node: SimulatedNode, version: int) -> None:
    topic_id = node.create_topic("orders", 2)
    node.create_topic("other")
    answer = metadata(node, "orders", version=version)
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "broker.example", 9092)
    assert broker.rack == ("rack-a" if version >= 1 else None)
    assert answer.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert answer.controller_id == (1 if version >= 1 else -1)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "orders", False)
    assert topic.topic_id == (topic_id if version >= 10 else ZERO_UUID)
    assert [p.partition_index for p in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, 1)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert topic.topic_authorized_operations == -(2**31)
    assert answer.error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics(node: SimulatedNode, version: int) -> None:
    node.create_topic("a")
    node.create_topic("b")
    request = MetadataRequest(topics=[] if version == 0 else None)
    assert {topic.name for topic in node.client.send(request, version).topics} == {"a", "b"}


@pytest.mark.parametrize("version", range(1, 14))
def test_an_empty_list_asks_for_no_topics(node: SimulatedNode, version: int) -> None:
    node.create_topic("a")
    answer = node.client.send(MetadataRequest(topics=[]), version)
    assert answer.topics == []
    assert len(answer.brokers) == 1


def test_a_name_asked_for_twice_is_answered_once(node: SimulatedNode) -> None:
    node.create_topic("a")
    assert len(metadata(node, "a", "b", "a", "b").topics) == 2


@pytest.mark.parametrize("version", [12, 13])
def test_by_id(node: SimulatedNode, version: int) -> None:
    topic_id = node.create_topic("orders")
    unknown = b"\x05" * 16
    topics = [MetadataRequestTopic(topic_id=each, name=None) for each in (topic_id, unknown)]
    answer = node.client.send(MetadataRequest(topics=topics), version)
    assert [(t.name, t.topic_id, t.error_code) for t in answer.topics] == [
        ("orders", topic_id, 0),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_may_not_be_used_yet(node: SimulatedNode, version: int) -> None:
    topic_id = node.create_topic("orders")
    for topic in (MetadataRequestTopic(topic_id=topic_id, name="orders"), MetadataRequestTopic(name=None)):
        answer = node.client.send(MetadataRequest(topics=[topic]), version)
        assert [each.error_code for each in answer.topics] == [ErrorCode.INVALID_REQUEST]


def test_internal_topics_are_marked(node: SimulatedNode) -> None:
    node.create_topic("__consumer_offsets")
    assert metadata(node, "__consumer_offsets").topics[0].is_internal


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations(node: SimulatedNode, version: int) -> None:
    node.create_topic("orders")
    how = {"include_topic_authorized_operations": True}
    if version <= 10:
        how["include_cluster_authorized_operations"] = True
    answer = metadata(node, "orders", version=version, **how)
    topic = answer.topics[0].topic_authorized_operations
    assert {bit for bit in range(32) if topic >> bit & 1} == {3, 4, 5, 6, 7, 8, 10, 11}
    assert (answer.cluster_authorized_operations != -(2**31)) == (version <= 10)


def test_endpoints_are_those_of_the_clients_listener(node: SimulatedNode) -> None:
    node.create_topic("orders")
    other = Client(node, listener="OTHER")
    assert other.send(MetadataRequest(topics=None), 12).brokers[0].port == 9094
    nowhere = Client(node, listener="ELSEWHERE")
    for version, code in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        answer = nowhere.send(ask("orders", version=version), version)
        assert answer.brokers == []
        (partition,) = answer.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (code, -1)
        assert partition.offline_replicas == [1]


def change_partition(node: SimulatedNode, name: str, **changes: Any) -> None:
    """Let the broker see a partition as a larger cluster would have it."""
    image = node.services.image
    topic = image.topics_by_name[name]
    changed = dataclasses.replace(topic, partitions={0: topic.partitions[0]._replace(**changes)})
    by_name = {**image.topics_by_name, name: changed}
    node.services.image = dataclasses.replace(image, topics_by_name=by_name)


def test_a_partition_without_a_leader(node: SimulatedNode) -> None:
    node.create_topic("orders")
    change_partition(node, "orders", leader=-1, leader_epoch=4)
    for version in (5, 6, 12):
        (partition,) = metadata(node, "orders", version=version).topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_replicas_that_are_not_there(node: SimulatedNode) -> None:
    node.create_topic("orders")
    change_partition(node, "orders", replicas=(1, 2), isr=(1, 2), directories=(bytes(16), bytes(16)))
    (newer,) = metadata(node, "orders", version=9).topics[0].partitions
    assert (newer.error_code, newer.replica_nodes, newer.offline_replicas) == (0, [1, 2], [2])
    (oldest,) = metadata(node, "orders", version=0).topics[0].partitions
    assert (oldest.error_code, oldest.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])


def test_a_replica_in_a_lost_directory_is_offline(node: SimulatedNode) -> None:
    node.create_topic("orders")
    change_partition(node, "orders", directories=(LOST_DIRECTORY,))
    (partition,) = metadata(node, "orders").topics[0].partitions
    assert partition.offline_replicas == [1]


def test_bytes_after_the_end_do_no_harm(node: SimulatedNode) -> None:
    """librdkafka's request for all topics has three of them."""
    frame = encode_request(3, 12, 1, "rdkafka", MetadataRequest(topics=None))[4:] + b"\0\0\0"
    assert isinstance(node.client.raw(frame), list)


# ---- topics that appear because somebody asked


@pytest.mark.parametrize("version", VERSIONS)
def test_asking_creates_a_topic(version: int) -> None:
    node = SimulatedNode(num_partitions="3")
    request = ask("new", version=version)
    assert errors(node.client.send(request, version)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    (topic,) = node.client.send(request, version).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 3)


def test_internal_topics_are_created_as_they_must_be() -> None:
    node = SimulatedNode(offsets_topic_num_partitions="4")
    node.client.send(ask("__consumer_offsets", version=12), 12)
    assert len(node.services.image.topics_by_name["__consumer_offsets"].partitions) == 4
    assert node.services.image.topic_config_overrides("__consumer_offsets")["cleanup.policy"] == "compact"


def test_nothing_is_created_unless_both_sides_agree() -> None:
    node = SimulatedNode()
    assert errors(metadata(node, "new", create=False)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors(metadata(node, "new", create=False)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    unwilling = SimulatedNode(auto_create_topics_enable="false")
    assert errors(metadata(unwilling, "new", create=True)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert unwilling.services.image.topic("new") is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "ä"])
@pytest.mark.parametrize("create", [True, False])
def test_invalid_names(node: SimulatedNode, name: str, create: bool) -> None:
    answer = metadata(node, name, "good", create=create)
    assert errors(answer)[name] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert errors(answer)["good"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_under_way_is_not_asked_for_twice(node: SimulatedNode) -> None:
    node.disk.hold_syncs = True
    for _ in range(5):
        assert errors(metadata(node, "new", create=True)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    appended = node.quorum.next_offset
    metadata(node, "new", create=True)
    assert node.quorum.next_offset == appended
    node.disk.hold_syncs = False
    while node.disk.finish_syncs():
        pass
    assert errors(metadata(node, "new", create=True)) == {"new": 0}


def test_a_refusal_by_the_controller_can_be_asked_again(node: SimulatedNode) -> None:
    node.create_topic("a.b")
    assert errors(metadata(node, "a_b", create=True)) == {"a_b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors(metadata(node, "a_b", create=True)) == {"a_b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# ---- DescribeTopicPartitions


def describe(node: SimulatedNode, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return node.client.send(request, 0)


def test_describes_by_name_in_order(node: SimulatedNode) -> None:
    topic_id = node.create_topic("b", 2)
    node.create_topic("a")
    answer = describe(node, "b", "a", "none", "in valid")
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("a", 0),
        ("b", 0),
        ("in valid", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    described = answer.topics[1]
    assert described.topic_id == topic_id
    assert [p.partition_index for p in described.partitions] == [0, 1]
    partition = described.partitions[0]
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
    assert (partition.eligible_leader_replicas, partition.last_known_elr, partition.offline_replicas) == ([], [], [])
    assert {bit for bit in range(32) if described.topic_authorized_operations >> bit & 1} == {3, 4, 5, 6, 7, 8, 10, 11}
    assert answer.next_cursor is None


def test_no_names_means_all_topics(node: SimulatedNode) -> None:
    for name in ("c", "a", "b"):
        node.create_topic(name)
    assert [topic.name for topic in describe(node).topics] == ["a", "b", "c"]


def test_pages_with_a_cursor(node: SimulatedNode) -> None:
    for name, partitions in (("a", 3), ("b", 2), ("c", 1)):
        node.create_topic(name, partitions)
    cursor: tuple[str, int] | None = None
    pages: list[list[tuple[str, list[int]]]] = []
    while True:
        answer = describe(node, limit=2, cursor=cursor)
        pages.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert pages == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1]), ("c", [0])]]


def test_the_brokers_limit_holds() -> None:
    node = SimulatedNode(max_request_partition_size_limit="2")
    node.create_topic("a", 3)
    answer = describe(node, "a")
    assert len(answer.topics[0].partitions) == 2
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("a", 2)
    assert len(describe(node, "a", limit=-5).topics[0].partitions) == 1


def test_bad_cursors(node: SimulatedNode) -> None:
    node.create_topic("a")
    node.create_topic("b")
    assert [t.error_code for t in describe(node, "a", cursor=("b", 0)).topics] == [ErrorCode.INVALID_REQUEST]
    assert [t.error_code for t in describe(node, "a", "b", cursor=("a", -1)).topics] == [ErrorCode.INVALID_REQUEST] * 2
