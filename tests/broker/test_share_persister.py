"""The way to the share coordinators: what is tried again, for how long, and what whoever asked is told in the end."""

from __future__ import annotations

from typing import Any

from broker_node import SimulatedNode
from share_state_client import with_share_state

from moldau.broker.share_persister import RETRIES, RETRY_MS_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import initialize_share_group_state_request as initializing
from moldau.protocol.generated.wire import read_share_group_state_request as reading


def initialize(node: SimulatedNode, topic_id: bytes, *partitions: int) -> Any:
    data = [initializing.PartitionData(index, 0, 7) for index in partitions]
    topic = initializing.InitializeStateData(topic_id, data)
    return node.broker.share_persister().initialize(
        initializing.InitializeShareGroupStateRequest("group", [topic] if partitions else [])
    )


def codes(answer: Any) -> list[int]:
    return [each.error_code for topic in answer.value.results for each in topic.partitions]


def test_the_topic_comes_with_the_first_request() -> None:
    node = SimulatedNode()
    topic_id = node.create_topic("orders", 5)
    answer = initialize(node, topic_id, *range(5))
    assert codes(answer) == [0] * 5
    assert [each.partition for each in answer.value.results[0].partitions] == [*range(5)]
    read = reading.ReadStateData(topic_id, [reading.PartitionData(index, 0) for index in (4, 1)])
    found = node.broker.share_persister().read(reading.ReadShareGroupStateRequest("group", [read]))
    assert [(each.partition, each.start_offset) for each in found.value.results[0].partitions] == [(4, 7), (1, 7)]


def test_it_gives_up_in_the_end() -> None:
    node = SimulatedNode(**{"share.coordinator.state.topic.replication.factor": "3"})
    topic_id = node.create_topic("orders", 2)
    answer = initialize(node, topic_id, 0, 1)
    assert not answer.done
    node.clock.advance(RETRIES * RETRY_MS_MAX)
    assert codes(answer) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2


def test_a_topic_that_comes_to_be_known_in_time() -> None:
    node = with_share_state()
    topic_id = node.create_topic("orders", 1)
    answer = initialize(node, topic_id, 0, 1)
    assert not answer.done, "the second partition may be on its way"
    from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic

    node.client.send(CreatePartitionsRequest([CreatePartitionsTopic("orders", 2, None)], 1000), 3)
    node.clock.advance(RETRY_MS_MAX)
    assert codes(answer) == [0, 0]


def test_only_one_partition_that_is_not_known_yet() -> None:
    node = with_share_state()
    answer = initialize(node, node.create_topic("orders", 1), 5)
    assert not answer.done
    node.clock.advance(RETRIES * RETRY_MS_MAX)
    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_refusals_are_not_tried_again() -> None:
    node = with_share_state()
    topic_id = node.create_topic("orders", 1)
    read = reading.ReadStateData(topic_id, [reading.PartitionData(0, 0)])
    answer = node.broker.share_persister().read(reading.ReadShareGroupStateRequest("group", [read]))
    assert codes(answer) == [ErrorCode.INVALID_REQUEST]


def test_nothing_asked_nothing_answered() -> None:
    assert initialize(with_share_state(), bytes(16)).value.results == []
