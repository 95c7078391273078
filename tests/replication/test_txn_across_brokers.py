"""Transactions whose partitions, coordinator and group coordinator are on different brokers, which crash meanwhile."""

from __future__ import annotations

import pytest
from tests.replication.replicated_world import BROKERS, TOPIC, ReplicatedWorld
from tests.replication.txn_world import TxnProducer, committed_values, group_offset, is_stable, txn_world

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.end_txn_request import EndTxnRequest
from moldau.protocol.generated.wire.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.testing.network import NetworkFaults


def until_stable(world: ReplicatedWorld, milliseconds: int = 5000) -> None:
    for _ in range(milliseconds // 10):
        if all(is_stable(world, index) for index in range(world.partitions)):
            return
        world.run(10)
    raise AssertionError("a transaction does not end")


def silence(world: ReplicatedWorld, node_id: int) -> None:
    """Nothing that a broker says reaches the other brokers any more."""
    for other in BROKERS:
        if other != node_id:
            world.network.cut(world.brokers[node_id].address, world.brokers[other].address)


def other_partitions(world: ReplicatedWorld, broker_id: int) -> list[int]:
    """Partitions that other brokers lead."""
    return [index for index in range(world.partitions) if world.leader(index).id != broker_id]


@pytest.mark.parametrize("v2", [True, False])
def test_a_transaction_spans_brokers(v2: bool) -> None:
    world = txn_world(1)
    assert {world.leader(index).id for index in range(3)} == set(BROKERS)
    producer = TxnProducer(world, "x", v2=v2)
    producer.init()
    for number in range(6):
        for index in range(3):
            assert producer.write(index, b"%d" % number) is ErrorCode.NONE
        producer.commit_offset("g", 10 * number)
        assert producer.end(commit=number % 3 != 2) is ErrorCode.NONE
    until_stable(world)
    for index in range(3):
        assert committed_values(world, index) == [b"0", b"1", b"3", b"4"]
    assert group_offset(world, producer, "g") == 40


def test_what_was_not_added_is_refused_by_the_coordinator_of_another_broker() -> None:
    world = txn_world(2)
    producer = TxnProducer(world, "x", v2=False)
    producer.init()
    stranger = other_partitions(world, producer.coordinator().id)[0]
    added = (stranger + 1) % 3
    producer.add(added)
    assert producer.produce(stranger, b"a") is ErrorCode.TRANSACTION_ABORTABLE
    assert producer.produce(stranger, b"a", version=10) is ErrorCode.INVALID_TXN_STATE
    assert producer.produce(added, b"b") is ErrorCode.NONE


def test_a_fenced_producer_is_refused_by_the_coordinator_of_another_broker() -> None:
    world = txn_world(3)
    first, second = TxnProducer(world, "x"), TxnProducer(world, "x")
    first.init()
    second.init()
    elsewhere = other_partitions(world, first.coordinator().id)[0]
    assert first.write(elsewhere, b"a") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert second.write(elsewhere, b"b") is ErrorCode.NONE


def test_the_next_coordinator_ends_what_the_last_one_has_decided() -> None:
    world = txn_world(4)
    producer = TxnProducer(world, "x")
    producer.init()
    for index in range(3):
        assert producer.write(index, b"a") is ErrorCode.NONE
    coordinator = producer.coordinator()
    elsewhere = other_partitions(world, coordinator.id)
    # Its followers fetch, so that the decision is committed; its markers get nowhere.
    markers = coordinator.broker.transaction_family().coordinator
    markers.write_marker = lambda place, marker: ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[method-assign]
    assert producer.end(commit=True) is ErrorCode.NONE
    world.run(300)
    assert not any(is_stable(world, index) for index in elsewhere)
    coordinator.crash()
    world.run(3000)
    assert producer.coordinator() is not coordinator
    until_stable(world)
    for index in range(3):
        assert committed_values(world, index) == [b"a"]
    assert producer.write(elsewhere[0], b"b") is ErrorCode.NONE
    assert producer.end(commit=True) is ErrorCode.NONE


def test_an_open_transaction_survives_its_coordinator() -> None:
    world = txn_world(5)
    producer = TxnProducer(world, "x")
    producer.init()
    assert producer.write(0, b"a") is ErrorCode.NONE
    producer.coordinator().crash()
    for index in range(3):
        assert producer.write(index, b"b") is ErrorCode.NONE
    assert producer.end(commit=True) is ErrorCode.NONE
    until_stable(world)
    assert committed_values(world, 0) == [b"a", b"b"]


def test_markers_find_the_next_leader() -> None:
    world = txn_world(6)
    producer = TxnProducer(world, "x")
    producer.init()
    for index in range(3):
        assert producer.write(index, b"a") is ErrorCode.NONE
    index = other_partitions(world, producer.coordinator().id)[0]
    world.leader(index).crash()
    assert producer.end(commit=True) is ErrorCode.NONE
    world.run(3000)
    until_stable(world)
    assert committed_values(world, index) == [b"a"]


def test_nobody_waits_for_a_broker_that_hears_everything_and_answers_nothing() -> None:
    """A frozen leader keeps its connections: only the controller's word tells that it is gone."""
    world = txn_world(7, request_timeout_ms="30000")
    producer = TxnProducer(world, "x")
    producer.init()
    for index in range(3):
        assert producer.write(index, b"a") is ErrorCode.NONE
    index = other_partitions(world, producer.coordinator().id)[0]
    frozen = world.leader(index)
    silence(world, frozen.id)
    frozen.epoch = -1  # its heartbeats mean nothing any more
    assert producer.end(commit=True) is ErrorCode.NONE
    world.run(4000)
    assert world.leader(index) is not frozen
    until_stable(world)
    assert committed_values(world, index) == [b"a"]


def test_a_former_coordinator_cannot_end_a_transaction() -> None:
    world = txn_world(8)
    producer = TxnProducer(world, "x")
    producer.init()

    def marker(coordinator_epoch: int, *, commit: bool) -> ErrorCode:
        topics = [WritableTxnMarkerTopic(TOPIC, [0])]
        asked = WritableTxnMarker(producer.producer_id, producer.epoch, commit, topics, coordinator_epoch)
        answer = world.until(world.leader(0).ask(WriteTxnMarkersRequest(markers=[asked]), 1))
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    assert producer.write(0, b"a") is ErrorCode.NONE
    assert marker(7, commit=False) is ErrorCode.NONE
    assert marker(6, commit=True) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert committed_values(world, 0) == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("v2", [True, False])
def test_transactions_are_whole_whoever_crashes(seed: int, v2: bool) -> None:
    world = txn_world(100 + seed)
    world.network.faults = NetworkFaults(max_delay_ms=4, late=0.01, late_ms=200)
    random = world.random
    producer = TxnProducer(world, "x", v2=v2)
    producer.init()
    expected: list[bytes] = []
    for number in range(12):
        if random.random() < 0.4:
            victim = world.brokers[random.choice(BROKERS)]
            if all(each.alive for each in world.brokers.values()):
                victim.crash()
            else:
                for each in world.brokers.values():
                    if not each.alive:
                        each.start()
                world.run(random.randrange(500, 3000))
        value = b"%d" % number
        codes = {producer.write(index, value) for index in random.sample(range(3), 3)}
        commit = random.random() < 0.7
        if codes == {ErrorCode.NONE}:
            assert producer.end(commit=commit) is ErrorCode.NONE
            expected += [value] if commit else []
        else:
            producer.init()
    for each in world.brokers.values():
        if not each.alive:
            each.start()
    world.run(3000)
    until_stable(world)
    for index in range(3):
        assert committed_values(world, index) == expected


def test_a_coordinator_that_cannot_commit_says_so_and_goes_on_later() -> None:
    world = txn_world(9)
    producer = TxnProducer(world, "x")
    producer.init()
    assert producer.write(0, b"a") is ErrorCode.NONE
    coordinator = producer.coordinator()
    for other in BROKERS:
        if other != coordinator.id:
            world.network.cut(world.brokers[other].address, coordinator.address)
    request = EndTxnRequest(
        transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
    )
    answer = coordinator.ask(request, 5)
    world.run(500)
    assert not answer.done
    assert world.until(answer, 8000).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.network.heal()
    world.run(12_000)
    until_stable(world)
    assert committed_values(world, 0) == [b"a"]


@pytest.mark.parametrize("v2", [True, False])
def test_batches_that_come_close_behind_each_other_stay_in_order(v2: bool) -> None:
    """Only the first has to wait for the coordinator; the next ones must wait with it."""
    world = txn_world(10)
    world.network.faults = NetworkFaults(min_delay_ms=5, max_delay_ms=20)
    producer = TxnProducer(world, "x", v2=v2)
    producer.init()
    index = other_partitions(world, producer.coordinator().id)[0]
    if not v2:
        producer.add(index)
    answers = []
    for sequence in range(30):
        request = producer.batch_request(index, sequence, b"%d" % sequence, version=12 if v2 else 11)
        answers.append(world.leader(index).ask(request, 12 if v2 else 11))
        world.run(3)
    for answer in answers:
        assert world.until(answer).responses[0].partition_responses[0].error_code == 0
    producer.sequences[index] = 30
    assert producer.end(commit=True) is ErrorCode.NONE
    until_stable(world)
    assert committed_values(world, index) == [b"%d" % sequence for sequence in range(30)]
