"""Markers and questions on their way to other brokers: what travels together; everybody hears something once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker_node import SimulatedNode
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.broker.transaction_markers import Marker
from moldau.broker.transaction_peers import RemoteCoordinators, RemoteMarkers
from moldau.coordinator.transaction.metadata import ProducerIdAndEpoch
from moldau.ports import Address, Pending, Unreachable
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from moldau.protocol.generated.wire.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)


class Wire:
    """`ports.Network` that keeps what was sent until the test answers it."""

    def __init__(self) -> None:
        self.sent: list[tuple[Address, Any, Callable[[Any], None]]] = []

    def send(
        self,
        to: Address,
        request: Any,
        api_version: int,
        reply: Callable[[Any], None],
        *,
        timeout_ms: int,
        lane: str = "",
    ) -> None:
        self.sent.append((to, request, reply))


class World:
    def __init__(self) -> None:
        self.node = SimulatedNode()
        self.wire = Wire()
        services = self.node.services
        own = services.image.brokers[1]
        services.image = replace(services.image, brokers={1: own, 2: replace(own, id=2), 3: replace(own, id=3)})
        self.markers = RemoteMarkers(services, self.wire)
        self.questions = RemoteCoordinators(services, self.wire)

    def turn(self) -> None:
        self.node.clock.advance(1)

    def change(self, broker_id: int, **changed: Any) -> None:
        services = self.node.services
        brokers = dict(services.image.brokers)
        brokers[broker_id] = replace(brokers[broker_id], **changed)
        services.image = replace(services.image, brokers=brokers)
        self.markers.image_published()
        self.questions.image_published()


def marker(producer_id: int = 7) -> Marker:
    return Marker(producer_id, 0, 5, True, 2, b"")


def written(request: Any, code: ErrorCode = ErrorCode.NONE) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                each.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name, [WritableTxnMarkerPartitionResult(index, code) for index in topic.partition_indexes]
                    )
                    for topic in each.topics
                ],
            )
            for each in request.markers
        ]
    )


def told(request: Any, code: ErrorCode = ErrorCode.NONE) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                each.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name, [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


def test_what_comes_up_together_travels_together() -> None:
    world = World()
    outcomes = [
        world.markers.write(2, ("a", 0), marker()),
        world.markers.write(2, ("b", 3), marker()),
        world.markers.write(2, ("a", 0), marker(8)),
    ]
    world.turn()
    ((_, request, reply),) = world.wire.sent
    assert [(each.producer_id, len(each.topics), each.coordinator_epoch) for each in request.markers] == [
        (7, 2, 5),
        (8, 1, 5),
    ]
    late = world.markers.write(2, ("c", 0), marker())
    other = world.markers.write(3, ("c", 0), marker())
    world.turn()
    assert len(world.wire.sent) == 2, "one request at a time to each broker"
    reply(written(request))
    assert all(outcome.value is ErrorCode.NONE for outcome in outcomes)
    assert not late.done
    assert not other.done
    world.turn()
    assert len(world.wire.sent) == 3


def test_what_could_not_be_told_apart_travels_one_after_the_other() -> None:
    world = World()
    producer = ProducerIdAndEpoch(1, 0)
    first = world.questions.ask(2, "x", producer, [("t", 0)], verify_only=True)
    second = world.questions.ask(2, "x", producer, [("t", 1)], verify_only=True)
    world.turn()
    _, request, reply = world.wire.sent[0]
    assert len(request.transactions) == 1
    reply(told(request))
    assert first.value == {("t", 0): ErrorCode.NONE}
    assert not second.done
    world.turn()
    _, request, reply = world.wire.sent[1]
    reply(told(request, ErrorCode.TRANSACTION_ABORTABLE))
    assert second.value == {("t", 1): ErrorCode.TRANSACTION_ABORTABLE}


def test_a_broker_that_cannot_be_reached_is_to_be_looked_for_again() -> None:
    world = World()
    outcome = world.markers.write(2, ("a", 0), marker())
    question = world.questions.ask(2, "x", ProducerIdAndEpoch(1, 0), [("t", 0)], verify_only=False)
    world.turn()
    for _, _, reply in world.wire.sent:
        reply(Unreachable("gone"))
    assert outcome.value is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(question.value, ApiError)
    assert question.value.code is ErrorCode.NETWORK_EXCEPTION


def test_a_partition_that_its_leader_does_not_know_yet_is_asked_about_again() -> None:
    world = World()
    outcome = world.markers.write(2, ("a", 0), marker())
    world.turn()
    _, request, reply = world.wire.sent[0]
    reply(written(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert outcome.value is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_nobody_waits_for_a_broker_that_is_fenced_or_has_begun_a_new_life() -> None:
    world = World()
    for changed in ({"fenced": True}, {"fenced": False, "epoch": 99}):
        under_way = world.markers.write(2, ("a", 0), marker())
        world.turn()
        waiting = world.markers.write(2, ("a", 1), marker())
        world.change(2, **changed)
        assert under_way.value is waiting.value is ErrorCode.NOT_LEADER_OR_FOLLOWER
    _, request, reply = world.wire.sent[0]
    reply(written(request))  # comes too late and is not listened to
    world.change(2, fenced=True)
    unheard = world.markers.write(2, ("a", 0), marker())
    world.turn()
    assert unheard.value is ErrorCode.NOT_LEADER_OR_FOLLOWER


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("wwwartf"), st.integers(2, 3), st.integers(0, 3)), max_size=40))
def test_everybody_hears_something_exactly_once(steps: list[tuple[str, int, int]]) -> None:
    world = World()
    outcomes: list[Pending[ErrorCode]] = []
    answered = 0
    for step, broker, index in steps:
        if step == "w":
            outcomes.append(world.markers.write(broker, ("t", index), marker()))
        elif step == "t":
            world.turn()
        elif step == "f":
            fenced = world.node.services.image.brokers[broker].fenced
            world.change(broker, fenced=not fenced)
        elif answered < len(world.wire.sent):
            _, request, reply = world.wire.sent[answered]
            answered += 1
            reply(written(request) if step == "a" else Unreachable("gone"))
    for broker in (2, 3):
        world.change(broker, fenced=False)
    while True:
        world.turn()
        if answered == len(world.wire.sent):
            break
        _, request, reply = world.wire.sent[answered]
        answered += 1
        reply(written(request))
    assert all(outcome.done for outcome in outcomes)
