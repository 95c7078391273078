"""Transactions through the broker's front door, in the old flow and in transactions v2."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import Client, SimulatedNode, batch, fetch_request, produce_request, values_of
from txn_client import (
    FLOWS,
    JAVA_V1,
    JAVA_V2,
    LIBRDKAFKA,
    OLDEST,
    Producer,
    Versions,
    committed_values,
    coordinator_ready,
    group_offset,
    last_stable_offset,
    state_of,
    verify,
)

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest


@pytest.fixture(scope="module")
def shared() -> SimulatedNode:
    node = SimulatedNode()
    coordinator_ready(node.client)
    coordinator_ready(node.client, key_type=0)
    return node


@pytest.fixture
def node(shared: SimulatedNode) -> SimulatedNode:
    return shared


@pytest.fixture
def topic(node: SimulatedNode, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid))}"
    node.create_topic(name, 2)
    return name


@pytest.fixture(params=FLOWS.values(), ids=FLOWS)
def flow(request: pytest.FixtureRequest) -> Versions:
    versions: Versions = request.param
    return versions


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"id-{request.node.name}"


def test_commit_makes_all_of_it_visible(node: SimulatedNode, topic: str, flow: Versions, name: str) -> None:
    producer = Producer(node, name, flow)
    producer.begin_anew()
    assert producer.write(topic, 0, b"a", b"b") is ErrorCode.NONE
    assert producer.write(topic, 1, b"c") is ErrorCode.NONE
    assert producer.write(topic, 0, b"d") is ErrorCode.NONE
    assert committed_values(node.client, topic) == []
    assert last_stable_offset(node.client, topic) == 0
    assert state_of(node.client, name).transaction_state == "Ongoing"
    assert producer.commit() is ErrorCode.NONE
    assert state_of(node.client, name).transaction_state == "CompleteCommit"
    assert committed_values(node.client, topic) == [b"a", b"b", b"d"]
    assert committed_values(node.client, topic, 1) == [b"c"]


def test_abort_hides_all_of_it(node: SimulatedNode, topic: str, flow: Versions, name: str) -> None:
    producer = Producer(node, name, flow)
    producer.begin_anew()
    producer.write(topic, 0, b"a")
    assert producer.abort() is ErrorCode.NONE
    assert state_of(node.client, name).transaction_state == "CompleteAbort"
    assert committed_values(node.client, topic) == []
    producer.write(topic, 0, b"b")
    assert producer.commit() is ErrorCode.NONE
    assert committed_values(node.client, topic) == [b"b"]
    everything = node.client.send(fetch_request(topic, 0, version=12), 12).responses[0].partitions[0].records
    assert values_of(everything)[:1] == [b"a"]


def test_many_transactions_in_a_row_without_waiting(node: SimulatedNode, topic: str, flow: Versions, name: str) -> None:
    producer = Producer(node, name, flow)
    producer.begin_anew()
    for number in range(20):
        assert producer.write(topic, number % 2, b"%d" % number) is ErrorCode.NONE
        assert producer.end(commit=number % 3 != 0) is ErrorCode.NONE
    kept = [number for number in range(20) if number % 3]
    assert committed_values(node.client, topic, 0) == [b"%d" % number for number in kept if number % 2 == 0]
    assert committed_values(node.client, topic, 1) == [b"%d" % number for number in kept if number % 2]


def test_transactions_v2_bumps_the_epoch_with_every_end(node: SimulatedNode, topic: str, name: str) -> None:
    producer = Producer(node, name, JAVA_V2)
    producer.begin_anew()
    first = producer.epoch
    producer.write(topic, 0, b"a")
    producer.commit()
    assert producer.epoch == first + 1
    producer.write(topic, 0, b"b")
    producer.abort()
    assert producer.epoch == first + 2
    old = Producer(node, name + "-old", JAVA_V1)
    old.begin_anew()
    old.write(topic, 0, b"c")
    old.commit()
    assert old.epoch == 0 == state_of(node.client, old.transactional_id).producer_epoch


def test_offsets_count_with_the_transaction(node: SimulatedNode, topic: str, flow: Versions, name: str) -> None:
    group = f"group-{name}"
    producer = Producer(node, name, flow)
    producer.begin_anew()
    assert producer.commit_offsets(group, topic, {0: 5}) == [ErrorCode.NONE]
    assert group_offset(node.client, group, topic) == (0, -1)
    assert group_offset(node.client, group, topic, stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert producer.commit() is ErrorCode.NONE
    assert group_offset(node.client, group, topic, stable=True) == (0, 5)
    assert producer.commit_offsets(group, topic, {0: 9}) == [ErrorCode.NONE]
    assert producer.abort() is ErrorCode.NONE
    assert group_offset(node.client, group, topic, stable=True) == (0, 5)


def test_offsets_of_a_former_member_are_refused(node: SimulatedNode, topic: str, flow: Versions, name: str) -> None:
    if flow.offsets < 3:
        pytest.skip("the version cannot say who commits")
    producer = Producer(node, name, flow)
    producer.begin_anew()
    refused = producer.commit_offsets("nobody", topic, {0: 5}, generation=3, member="m")
    assert refused == [ErrorCode.ILLEGAL_GENERATION]


def test_offsets_of_unknown_partitions_are_refused(node: SimulatedNode, topic: str, name: str) -> None:
    producer = Producer(node, name, JAVA_V2)
    producer.begin_anew()
    codes = producer.commit_offsets(f"group-{name}", topic, {0: 5, 7: 1})
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# ---- who may write


def test_a_successor_fences_and_aborts(node: SimulatedNode, topic: str, flow: Versions, name: str) -> None:
    zombie = Producer(node, name, flow)
    zombie.begin_anew()
    zombie.write(topic, 0, b"zombie")
    heir = Producer(node, name, flow)
    assert heir.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert heir.init() is ErrorCode.NONE
    assert heir.producer_id == zombie.producer_id
    assert heir.epoch > zombie.epoch
    fenced = ErrorCode.PRODUCER_FENCED if flow.end >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.commit() is fenced
    assert ErrorCode(zombie.send_batch(topic, 0, b"more").error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert ErrorCode(zombie.send_batch(topic, 1, b"more").error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert heir.write(topic, 0, b"heir") is ErrorCode.NONE
    assert zombie.commit() is fenced
    assert zombie.abort() is fenced
    assert heir.commit() is ErrorCode.NONE
    assert committed_values(node.client, topic) == [b"heir"]


@pytest.mark.parametrize("version", range(6))
def test_init_in_every_version(node: SimulatedNode, version: int, name: str) -> None:
    client = node.client
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
    first = client.send(request, version)
    again = client.send(request, version)
    assert (first.error_code, again.error_code) == (0, 0)
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    if version < 3:
        return
    stale = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=1000,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
    )
    expected = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.send(stale, version).error_code == expected


def test_a_producer_bumps_its_own_epoch_and_may_repeat_the_request(node: SimulatedNode, name: str) -> None:
    producer = Producer(node, name)
    producer.begin_anew()
    remembered = producer.producer_id, producer.epoch
    assert producer.init(keep=True) is ErrorCode.NONE
    assert (producer.producer_id, producer.epoch) == (remembered[0], remembered[1] + 1)
    current = producer.epoch
    producer.epoch = remembered[1]
    assert producer.init(keep=True) is ErrorCode.NONE
    assert producer.epoch == current
    other = Producer(node, name)
    other.begin_anew()
    assert producer.init(keep=True) is ErrorCode.PRODUCER_FENCED


def test_a_zombie_that_bumps_does_not_abort_its_successor(node: SimulatedNode, topic: str, name: str) -> None:
    zombie, heir = Producer(node, name), Producer(node, name)
    zombie.begin_anew()
    heir.begin_anew()
    heir.write(topic, 0, b"a")
    assert zombie.init(keep=True) is ErrorCode.PRODUCER_FENCED
    assert heir.commit() is ErrorCode.NONE
    assert committed_values(node.client, topic) == [b"a"]


def test_another_producer_id_is_not_of_this_transactional_id(node: SimulatedNode, topic: str, name: str) -> None:
    producer = Producer(node, name, JAVA_V1)
    producer.begin_anew()
    producer.producer_id += 1000
    assert producer.add(topic, 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert producer.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    unknown = Producer(node, "never-seen", JAVA_V1)
    assert unknown.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert state_of(node.client, "never-seen").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (OLDEST, ErrorCode.INVALID_TXN_STATE),
        (LIBRDKAFKA, ErrorCode.INVALID_TXN_STATE),
        (JAVA_V1, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_partition_that_was_not_added_is_refused(
    node: SimulatedNode, topic: str, versions: Versions, expected: ErrorCode, name: str
) -> None:
    producer = Producer(node, name, versions)
    producer.begin_anew()
    assert ErrorCode(producer.send_batch(topic, 0, b"a").error_code) is expected
    assert producer.add(topic, 1) == [ErrorCode.NONE]
    assert ErrorCode(producer.send_batch(topic, 0, b"a").error_code) is expected
    assert last_stable_offset(node.client, topic) == 0
    offsets = producer.send_offsets(f"group-{name}", topic, {0: 1})
    assert offsets == [expected]
    producer.abort()


def test_transactional_records_need_a_transactional_id(node: SimulatedNode, topic: str) -> None:
    records = batch(b"a", producer_id=5, epoch=0, sequence=0, transactional=True)
    answer = node.client.send(produce_request(topic, records, version=12), 12)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_two_producers_in_one_request_are_refused(node: SimulatedNode, topic: str, name: str) -> None:
    records = [batch(b"a", producer_id=5 + i, epoch=0, sequence=0, transactional=True) for i in range(2)]
    request = produce_request(topic, *records, version=12)
    request.transactional_id = name
    parts = node.client.send(request, 12).responses[0].partition_responses
    assert [part.error_code for part in parts] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_records_outside_of_the_transaction_are_refused_while_it_is_open(
    node: SimulatedNode, topic: str, name: str
) -> None:
    producer = Producer(node, name)
    producer.begin_anew()
    producer.write(topic, 0, b"a")
    plain = batch(b"b", producer_id=producer.producer_id, epoch=producer.epoch, sequence=1)
    answer = node.client.send(produce_request(topic, plain, version=12), 12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE
    producer.abort()


# ---- ending


def test_nothing_to_commit_is_refused_and_nothing_to_abort_depends(node: SimulatedNode, name: str) -> None:
    old = Producer(node, name, JAVA_V1)
    old.begin_anew()
    assert old.commit() is ErrorCode.INVALID_TXN_STATE
    assert old.abort() is ErrorCode.INVALID_TXN_STATE
    new = Producer(node, name + "-v2", JAVA_V2)
    new.begin_anew()
    assert new.commit() is ErrorCode.INVALID_TXN_STATE
    epoch = new.epoch
    assert new.abort() is ErrorCode.NONE
    assert new.epoch == epoch + 1
    assert new.abort() is ErrorCode.NONE
    assert new.epoch == epoch + 2
    assert new.commit() is ErrorCode.INVALID_TXN_STATE


def test_a_repeated_end_is_answered_like_the_first(node: SimulatedNode, topic: str, flow: Versions, name: str) -> None:
    producer = Producer(node, name, flow)
    producer.begin_anew()
    producer.write(topic, 0, b"a")
    epoch = producer.epoch
    assert producer.commit() is ErrorCode.NONE
    after = producer.epoch
    assert producer.end(commit=True, epoch=epoch) is ErrorCode.NONE
    assert producer.end(commit=False, epoch=epoch) is ErrorCode.INVALID_TXN_STATE
    assert state_of(node.client, name).producer_epoch == after
    assert committed_values(node.client, topic) == [b"a"]


def test_a_delayed_end_does_not_touch_a_later_transaction(node: SimulatedNode, topic: str, name: str) -> None:
    producer = Producer(node, name, JAVA_V2)
    producer.begin_anew()
    producer.write(topic, 0, b"a")
    old_epoch = producer.epoch
    producer.commit()
    producer.write(topic, 0, b"b")
    for commit in (True, False):
        assert producer.end(commit=commit, epoch=old_epoch) is ErrorCode.PRODUCER_FENCED
    assert state_of(node.client, name).transaction_state == "Ongoing"
    assert producer.abort() is ErrorCode.NONE
    assert producer.end(commit=True, epoch=old_epoch) is ErrorCode.PRODUCER_FENCED
    assert committed_values(node.client, topic) == [b"a"]


def test_a_batch_of_an_ended_transaction_is_refused(node: SimulatedNode, topic: str, name: str) -> None:
    producer = Producer(node, name, JAVA_V2)
    producer.begin_anew()
    producer.write(topic, 0, b"a")
    late = Producer(node, name, JAVA_V2)
    late.producer_id, late.epoch = producer.producer_id, producer.epoch
    producer.commit()
    assert ErrorCode(late.send_batch(topic, 0, b"late", sequence=1).error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert ErrorCode(late.send_batch(topic, 1, b"late", sequence=0).error_code) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_another_producer_object_ends_the_transaction_with_a_remembered_id(
    node: SimulatedNode, topic: str, flow: Versions, name: str
) -> None:
    producer = Producer(node, name, flow)
    producer.begin_anew()
    producer.write(topic, 0, b"prepared")
    recovered = Producer(node, name, flow)
    recovered.producer_id, recovered.epoch = producer.producer_id, producer.epoch
    assert recovered.commit() is ErrorCode.NONE
    assert committed_values(node.client, topic) == [b"prepared"]


# ---- AddPartitionsToTxn


def test_adding_is_all_or_nothing(node: SimulatedNode, topic: str, name: str) -> None:
    producer = Producer(node, name, JAVA_V1)
    producer.begin_anew()
    assert producer.add(topic, 0, 9) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert state_of(node.client, name).transaction_state == "Empty"
    assert producer.add("__consumer_offsets", 0) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    nobody = Producer(node, "", JAVA_V1)
    assert nobody.add(topic, 0) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("version", range(4))
def test_adding_by_clients_in_every_version(node: SimulatedNode, topic: str, version: int, name: str) -> None:
    producer = Producer(node, name, Versions(4, version, 4, 11, 3, 3))
    producer.begin_anew()
    assert producer.add(topic, 0, 1) == [ErrorCode.NONE] * 2
    producer.epoch += 1
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.add(topic, 0) == [fenced]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_and_add(node: SimulatedNode, topic: str, version: int, name: str) -> None:
    producer = Producer(node, name, JAVA_V1)
    producer.begin_anew()
    ask: dict[str, Any] = {"version": version}
    assert verify(node.client, producer, topic, 0, **ask) == [ErrorCode.TRANSACTION_ABORTABLE]
    producer.add(topic, 0)
    assert verify(node.client, producer, topic, 0, 1, **ask) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert verify(node.client, producer, topic, 1, verify_only=False, **ask) == [ErrorCode.NONE]
    assert verify(node.client, producer, topic, 0, 1, **ask) == [ErrorCode.NONE] * 2
    producer.epoch += 1
    assert verify(node.client, producer, topic, 0, **ask) == [ErrorCode.PRODUCER_FENCED]


# ---- readers


def test_a_waiting_reader_of_committed_records_is_woken_by_the_marker(
    node: SimulatedNode, topic: str, name: str
) -> None:
    producer = Producer(node, name)
    producer.begin_anew()
    reader = Client(node)
    waiting = reader.post(fetch_request(topic, 0, version=12, isolation_level=1, max_wait_ms=5000), 12)
    assert not waiting.done
    producer.write(topic, 0, b"a")
    assert not waiting.done, "records of an open transaction are nothing to such a reader"
    producer.commit()
    assert waiting.done
    assert values_of(waiting.value.responses[0].partitions[0].records)[0] == b"a"


def test_a_waiting_reader_of_everything_is_woken_by_the_records(node: SimulatedNode, topic: str, name: str) -> None:
    producer = Producer(node, name)
    producer.begin_anew()
    waiting = Client(node).post(fetch_request(topic, 0, version=12, max_wait_ms=5000), 12)
    producer.write(topic, 0, b"a")
    assert waiting.done
    producer.abort()
