"""Requests a broker passes on to the controller: the answer comes back, and is true on this broker at once."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode

from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.generated.wire.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from moldau.protocol.generated.wire.metadata_request import MetadataRequest
from moldau.protocol.generated.wire.unregister_broker_request import UnregisterBrokerRequest
from moldau.protocol.generated.wire.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest


def names(node: SimulatedNode) -> set[str]:
    return {topic.name for topic in node.client.send(MetadataRequest(topics=None), 12).topics}


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics(node: SimulatedNode, version: int) -> None:
    topics = [
        CreatableTopic(
            name="orders",
            num_partitions=2,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value="1000")],
        ),
        CreatableTopic(name="assigned", num_partitions=-1, replication_factor=-1),
        CreatableTopic(name="in valid", num_partitions=1, replication_factor=1),
        CreatableTopic(name="wide", num_partitions=1, replication_factor=3),
    ]
    topics[1].assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    answer = node.client.send(CreateTopicsRequest(topics=topics), version)
    results = {topic.name: topic for topic in answer.topics}
    assert results["orders"].error_code == 0
    assert results["assigned"].error_code == 0
    assert results["in valid"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert results["in valid"].error_message
    assert results["wide"].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    if version >= 5:
        assert (results["orders"].num_partitions, results["orders"].replication_factor) == (2, 1)
        described = {config.name: config.value for config in results["orders"].configs}
        assert described["retention.ms"] == "1000"
    if version >= 7:
        assert results["orders"].topic_id == node.services.image.topics_by_name["orders"].id
    assert names(node) == {"orders", "assigned"}
    again = node.client.send(CreateTopicsRequest(topics=topics[:1]), version).topics[0]
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_validate_only_creates_nothing(node: SimulatedNode) -> None:
    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    answer = node.client.send(CreateTopicsRequest(topics=[topic], validate_only=True), 7)
    assert answer.topics[0].error_code == 0
    assert names(node) == set()


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics(node: SimulatedNode, version: int) -> None:
    topic_id = node.create_topic("orders")
    node.create_topic("kept")
    if version >= 6:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=topic_id), DeleteTopicState(name="nowhere")]
        )
    else:
        request = DeleteTopicsRequest(topic_names=["orders", "nowhere"])
    answer = node.client.send(request, version)
    assert {(r.name, r.error_code) for r in answer.responses} == {
        ("orders", 0),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    assert names(node) == {"kept"}
    assert node.services.partitions.find("orders", 0) is None


def test_a_topic_of_the_same_name_starts_empty(node: SimulatedNode) -> None:
    from broker_node import batch, fetch_request, produce_request

    node.create_topic("orders")
    node.client.send(produce_request("orders", batch(b"old"), version=8), 8)
    node.client.send(DeleteTopicsRequest(topic_names=["orders"]), 5)
    node.create_topic("orders")
    partition = node.client.send(fetch_request("orders", 0, version=11), 11).responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark) == (0, 0)


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(node: SimulatedNode, version: int) -> None:
    node.create_topic("orders", 2)
    topics = [
        CreatePartitionsTopic(name="orders", count=4, assignments=None),
        CreatePartitionsTopic(name="nowhere", count=4, assignments=None),
    ]
    answer = node.client.send(CreatePartitionsRequest(topics=topics), version)
    assert {(r.name, r.error_code) for r in answer.results} == {
        ("orders", 0),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    assert len(node.services.image.topics_by_name["orders"].partitions) == 4
    fewer = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=3, assignments=None)])
    refused = node.client.send(fewer, version).results[0]
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert refused.error_message


@pytest.mark.parametrize("version", range(3))
def test_describe_quorum(node: SimulatedNode, version: int) -> None:
    asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    answer = node.client.send(DescribeQuorumRequest(topics=[asked]), version)
    (partition,) = answer.topics[0].partitions
    assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
    assert partition.high_watermark == node.quorum.high_watermark
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, node.quorum.next_offset)
    if version >= 1:
        assert voter.last_caught_up_timestamp == node.clock.now_ms()
    if version >= 2:
        assert voter.replica_directory_id == node.voter.directory_id
        assert [(n.node_id, n.listeners[0].host) for n in answer.nodes] == [(1, "controller.example")]


def test_describe_quorum_of_another_topic(node: SimulatedNode) -> None:
    asked = TopicData(topic_name="orders", partitions=[PartitionData(partition_index=0)])
    answer = node.client.send(DescribeQuorumRequest(topics=[asked]), 2)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
def test_update_features(node: SimulatedNode, version: int) -> None:
    update = FeatureUpdateKey(feature="group.version", max_version_level=0)
    if version == 0:
        update.allow_downgrade = True
    else:
        update.upgrade_type = 2
    answer = node.client.send(UpdateFeaturesRequest(feature_updates=[update]), version)
    assert answer.error_code == 0, answer
    assert node.services.image.feature_level("group.version") == 0
    nonsense = FeatureUpdateKey(feature="no.such.feature", max_version_level=3)
    refused = node.client.send(UpdateFeaturesRequest(feature_updates=[nonsense]), version)
    codes = {refused.error_code, *(result.error_code for result in refused.results)}
    assert codes - {0}


def test_unregister_broker(node: SimulatedNode) -> None:
    assert node.client.send(UnregisterBrokerRequest(broker_id=9), 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


# ---- a controller that is not there, and reading one's own writes


class Unreachable:
    def serves(self, api_key: int) -> bool:
        return True

    def ask(self, request: Any, api_version: int, principal: str, *, host: str = "") -> Pending[Any]:
        return Pending.of(ApiError(ErrorCode.NOT_CONTROLLER))

    def committed_offset(self) -> int:
        return -1

    def leader_id(self) -> int:
        return -1


def test_a_controller_that_cannot_be_reached_is_an_error_per_topic(node: SimulatedNode) -> None:
    node.services.controller = Unreachable()
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b")]
    answer = node.client.send(CreateTopicsRequest(topics=topics), 7)
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("a", ErrorCode.NOT_CONTROLLER),
        ("b", ErrorCode.NOT_CONTROLLER),
    ]


class Ahead(Unreachable):
    """A controller whose answers depend on more than this broker has read."""

    def ask(self, request: Any, api_version: int, principal: str, *, host: str = "") -> Pending[Any]:
        return Pending.of(CreateTopicsResponse(topics=[CreatableTopicResult(name="late")]))

    def committed_offset(self) -> int:
        return 10_000


def test_an_answer_waits_for_this_brokers_image(node: SimulatedNode) -> None:
    waiting: list[tuple[int, Any]] = []
    node.services.when_image_reaches = lambda offset, call: waiting.append((offset, call))
    node.services.controller = Ahead()
    topic = CreatableTopic(name="late", num_partitions=1, replication_factor=1)
    promise = node.client.post(CreateTopicsRequest(topics=[topic]), 7)
    assert not promise.done
    ((offset, call),) = waiting
    assert offset == 10_000
    call()
    assert promise.value.topics[0].error_code == 0
