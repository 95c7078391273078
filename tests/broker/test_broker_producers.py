"""InitProducerId and DescribeProducers."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode, batch, produce_request

from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.allocate_producer_ids_response import AllocateProducerIdsResponse
from moldau.protocol.generated.wire.describe_producers_request import DescribeProducersRequest, TopicRequest
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest

BLOCK = 1000


def init(node: SimulatedNode, version: int = 5, **fields: Any) -> Any:
    fields.setdefault("transactional_id", None)
    return node.client.send(InitProducerIdRequest(transaction_timeout_ms=1000, **fields), version)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_its_own_id(node: SimulatedNode, version: int) -> None:
    answers = [init(node, version) for _ in range(3)]
    assert [(a.error_code, a.producer_epoch) for a in answers] == [(0, 0)] * 3
    assert [a.producer_id for a in answers] == [0, 1, 2]


def test_blocks_follow_each_other_without_a_pause(node: SimulatedNode) -> None:
    ids = [init(node).producer_id for _ in range(2 * BLOCK + 5)]
    assert ids == list(range(2 * BLOCK + 5))


def test_the_next_block_is_asked_for_before_it_is_needed(node: SimulatedNode) -> None:
    for _ in range(BLOCK * 9 // 10 - 1):
        init(node)
    assert node.services.image.producer_ids.next_id == BLOCK
    init(node)
    assert node.services.image.producer_ids.next_id == 2 * BLOCK


def test_ids_are_never_given_twice_even_after_a_crash(node: SimulatedNode) -> None:
    before = {init(node).producer_id for _ in range(5)}
    node.restart()
    after = {init(node).producer_id for _ in range(5)}
    assert not before & after


def test_an_idempotent_producer_with_an_id_starts_afresh(node: SimulatedNode) -> None:
    answer = init(node, producer_id=77, producer_epoch=3)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 0, 0)


@pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 1}])
def test_half_an_identity_is_refused(node: SimulatedNode, fields: dict[str, int]) -> None:
    answer = init(node, **fields)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", 1000, ErrorCode.INVALID_REQUEST),
        ("tx", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_000, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_transactional_ids_wait_for_a_coordinator(
    node: SimulatedNode, transactional_id: str, timeout_ms: int, code: ErrorCode
) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = node.client.send(request, 5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


class Allocator:
    """A controller that gives ids when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Pending[Any]] = []

    def serves(self, api_key: int) -> bool:
        return True

    def committed_offset(self) -> int:
        return -1

    def leader_id(self) -> int:
        return -1

    def ask(self, request: Any, api_version: int, principal: str, *, host: str = "") -> Pending[Any]:
        self.asked.append(Pending())
        return self.asked[-1]

    def give(self, start: int, length: int) -> None:
        self.asked.pop(0).resolve(AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=length))


def test_requests_wait_for_a_block_and_share_it(node: SimulatedNode) -> None:
    node.services.controller = allocator = Allocator()
    request = InitProducerIdRequest(transactional_id=None)
    promises = [node.client.post(request, 4) for _ in range(5)]
    assert len(allocator.asked) == 1
    allocator.give(100, 3)
    assert [p.value.producer_id for p in promises[:3]] == [100, 101, 102]
    assert not promises[3].done
    allocator.give(200, 1000)
    assert [p.value.producer_id for p in promises[3:]] == [200, 201]


def test_a_controller_without_ids_is_a_reason_to_come_back(node: SimulatedNode) -> None:
    node.services.controller = allocator = Allocator()
    promise = node.client.post(InitProducerIdRequest(transactional_id=None), 4)
    allocator.asked.pop().resolve(ApiError(ErrorCode.NOT_CONTROLLER))
    assert promise.value.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert init(node).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it is not asked again at once"
    assert allocator.asked == []
    node.clock.advance(50)
    promise = node.client.post(InitProducerIdRequest(transactional_id=None), 4)
    allocator.asked.pop().resolve(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert promise.value.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.clock.advance(50)
    promise = node.client.post(InitProducerIdRequest(transactional_id=None), 4)
    allocator.give(0, 10)
    assert promise.value.producer_id == 0


# ---- DescribeProducers


def describe(node: SimulatedNode, topic: str, *indexes: int) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(indexes))])
    (answer,) = node.client.send(request, 0).topics
    assert answer.name == topic
    return answer.partitions


def test_idempotent_producers_are_listed(node: SimulatedNode) -> None:
    node.create_topic("orders", 2)
    for sequence in range(3):
        records = batch(b"a", producer_id=9, epoch=2, sequence=sequence)
        node.client.send(produce_request("orders", records, version=8), 8)
    busy, idle = describe(node, "orders", 0, 1)
    (producer,) = busy.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (9, 2, 2)
    assert producer.last_timestamp == 1_700_000_000_000
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert idle.active_producers == []


def test_partitions_whose_producers_cannot_be_described(node: SimulatedNode) -> None:
    node.create_topic("orders")
    assert describe(node, "nowhere", 0)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(node, "in valid", 0)[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    missing = describe(node, "orders", 5)[0]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.error_message
