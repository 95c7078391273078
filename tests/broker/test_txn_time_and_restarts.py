"""What happens to transactions when time passes, nodes stop and epochs run out."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import Client, SimulatedNode
from txn_client import (
    FLOWS,
    JAVA_V1,
    JAVA_V2,
    Producer,
    Versions,
    committed_values,
    coordinator_ready,
    group_offset,
    last_stable_offset,
    restart,
    state_of,
)

from moldau.coordinator.transaction.metadata import MAX_EPOCH, TransactionMetadata
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.describe_producers_request import DescribeProducersRequest, TopicRequest
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.list_transactions_request import ListTransactionsRequest
from moldau.protocol.generated.wire.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.generated.wire.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.replication.partition import Partition

SMALL = {
    "transaction_state_log_num_partitions": "2",
    "offsets_topic_num_partitions": "2",
}


@pytest.fixture
def node() -> SimulatedNode:
    node = SimulatedNode(**SMALL)
    coordinator_ready(node.client)
    coordinator_ready(node.client, key_type=0)
    node.create_topic("orders", 2)
    return node


@pytest.fixture(params=FLOWS.values(), ids=FLOWS)
def flow(request: pytest.FixtureRequest) -> Versions:
    versions: Versions = request.param
    return versions


def started(node: SimulatedNode, name: str = "tx", versions: Versions = JAVA_V2, **fields: Any) -> Producer:
    producer = Producer(node, name, versions, **fields)
    producer.begin_anew()
    return producer


# ---- time


def test_a_transaction_that_takes_too_long_is_aborted(node: SimulatedNode, flow: Versions) -> None:
    producer = started(node, versions=flow, timeout_ms=30_000)
    producer.write("orders", 0, b"a")
    node.clock.advance(25_000)
    assert state_of(node.client, "tx").transaction_state == "Ongoing"
    node.clock.advance(20_000)
    assert state_of(node.client, "tx").transaction_state == "CompleteAbort"
    assert last_stable_offset(node.client, "orders") == 2
    fenced = ErrorCode.PRODUCER_FENCED if flow.end >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    if not flow.bumps:
        assert producer.commit() is fenced
        assert ErrorCode(producer.send_batch("orders", 0, b"b").error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    else:
        # To such a client the transaction was aborted, which it learns when it wants to commit.
        assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    producer.begin_anew()
    assert producer.write("orders", 0, b"c") is ErrorCode.NONE
    producer.commit()
    assert committed_values(node.client, "orders") == [b"c"]


def test_an_idle_producer_does_not_time_out(node: SimulatedNode) -> None:
    producer = started(node, timeout_ms=1000)
    node.clock.advance(3_600_000)
    assert producer.write("orders", 0, b"a") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE


def test_unused_ids_are_forgotten() -> None:
    node = SimulatedNode(
        transactional_id_expiration_ms="5000",
        transaction_remove_expired_transaction_cleanup_interval_ms="1000",
        transaction_state_log_num_partitions="2",
    )
    coordinator_ready(node.client)
    node.create_topic("orders", 2)
    idle, open_ = started(node, "idle"), started(node, "open")
    open_.write("orders", 0, b"a")
    node.clock.advance(4000)
    assert state_of(node.client, "idle").transaction_state == "Empty"
    node.clock.advance(3000)
    assert state_of(node.client, "idle").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert state_of(node.client, "open").transaction_state == "Ongoing"
    assert idle.init(keep=True) is ErrorCode.NONE
    node.clock.advance(3000)
    restart(node)
    assert state_of(node.client, "idle").transaction_state == "Empty"
    node.clock.advance(10_000)
    restart(node)
    assert state_of(node.client, "idle").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# ---- restarts


def test_an_open_transaction_goes_on_after_a_restart(node: SimulatedNode, flow: Versions) -> None:
    producer = started(node, versions=flow)
    producer.write("orders", 0, b"a")
    producer.commit_offsets("g", "orders", {0: 3})
    restart(node)
    producer.client = node.client
    assert state_of(node.client, "tx").transaction_state == "Ongoing"
    assert last_stable_offset(node.client, "orders") == 0
    assert producer.write("orders", 0, b"b") is ErrorCode.NONE
    assert producer.write("orders", 1, b"c") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert committed_values(node.client, "orders") == [b"a", b"b"]
    assert committed_values(node.client, "orders", 1) == [b"c"]
    assert group_offset(node.client, "g", "orders", stable=True) == (0, 3)


def test_an_open_transaction_times_out_after_a_restart(node: SimulatedNode) -> None:
    producer = started(node, timeout_ms=30_000)
    producer.write("orders", 0, b"a")
    restart(node)
    node.clock.advance(45_000)
    assert state_of(node.client, "tx").transaction_state == "CompleteAbort"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("fail_after", [0, 1, 2, 3])
def test_a_decided_transaction_is_finished_whenever_the_node_stops(
    node: SimulatedNode, flow: Versions, commit: bool, fail_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node writes the decision and so many markers more, and then nothing: after a restart all are there."""
    producer = started(node, versions=flow)
    producer.write("orders", 0, b"a")
    producer.write("orders", 1, b"b")
    producer.commit_offsets("g", "orders", {0: 3})
    epoch, producer_id = producer.epoch, producer.producer_id
    honest = Partition.append_own
    left = fail_after

    def failing(self: Partition, *args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if not left:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        left -= 1
        return honest(self, *args, **kwargs)

    monkeypatch.setattr(Partition, "append_own", failing)
    assert producer.end(commit=commit) is ErrorCode.NONE
    wanted = "PrepareCommit" if commit else "PrepareAbort"
    complete = "CompleteCommit" if commit else "CompleteAbort"
    if fail_after < 3:
        assert state_of(node.client, "tx").transaction_state == wanted
        again = Producer(node, "tx", flow)
        assert again.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    monkeypatch.setattr(Partition, "append_own", honest)
    restart(node)
    node.clock.advance(200)
    assert state_of(node.client, "tx").transaction_state == complete
    assert committed_values(node.client, "orders", 0) == ([b"a"] if commit else [])
    assert committed_values(node.client, "orders", 1) == ([b"b"] if commit else [])
    assert group_offset(node.client, "g", "orders", stable=True) == (0, 3 if commit else -1)
    retried = Producer(node, "tx", flow)
    retried.producer_id, retried.epoch = producer_id, epoch
    assert retried.end(commit=commit, epoch=epoch) is ErrorCode.NONE


def test_markers_that_fail_are_tried_again_without_a_restart(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = started(node)
    producer.write("orders", 0, b"a")
    honest = Partition.append_own

    def failing(self: Partition, *args: Any, **kwargs: Any) -> Any:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(Partition, "append_own", failing)
    assert producer.commit() is ErrorCode.NONE

    def code(answer: Pending[Any]) -> ErrorCode:
        return ErrorCode(answer.value.responses[0].partition_responses[0].error_code)

    batch = producer.batch_request("orders", 1, b"b")
    waiting = Client(node).post(batch, producer.versions.produce)
    node.clock.advance(5)
    assert not waiting.done
    monkeypatch.setattr(Partition, "append_own", honest)
    node.clock.advance(100)
    assert code(waiting) is ErrorCode.NONE, "the next transaction begins when the last one has ended"
    assert state_of(node.client, "tx").transaction_state == "Ongoing"
    monkeypatch.setattr(Partition, "append_own", failing)
    assert producer.commit() is ErrorCode.NONE
    in_vain = Client(node).post(producer.batch_request("orders", 1, b"c"), producer.versions.produce)
    node.clock.advance(1000)
    assert code(in_vain) is ErrorCode.CONCURRENT_TRANSACTIONS
    monkeypatch.setattr(Partition, "append_own", honest)
    node.clock.advance(200)
    assert state_of(node.client, "tx").transaction_state == "CompleteCommit"
    assert producer.write("orders", 1, b"b") is ErrorCode.NONE


def test_a_deleted_topic_does_not_hold_up_the_end(node: SimulatedNode) -> None:
    from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

    node.create_topic("short-lived")
    producer = started(node)
    producer.write("short-lived", 0, b"a")
    producer.write("orders", 0, b"b")
    node.client.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="short-lived")]), 6)
    assert producer.commit() is ErrorCode.NONE
    assert state_of(node.client, "tx").transaction_state == "CompleteCommit"
    assert committed_values(node.client, "orders") == [b"b"]


def test_nothing_is_acknowledged_before_it_is_on_disk() -> None:
    """With every write synced, no answer leaves while the sync of what it rests on is under way."""
    node = SimulatedNode(log_flush_interval_messages="1", **SMALL)
    coordinator_ready(node.client)
    node.create_topic("orders")
    producer = started(node)
    node.disk.hold_syncs = True
    records_sent = producer.client.post(_produce(producer, b"a"), 12)
    assert not records_sent.done
    node.disk.finish_syncs()
    node.disk.finish_syncs()
    assert records_sent.done
    assert records_sent.value.responses[0].partition_responses[0].error_code == 0
    ended = producer.client.post(_end(producer), 5)
    assert not ended.done
    assert last_stable_offset(node.client, "orders") == 0
    node.disk.finish_syncs()
    assert ended.done
    for _ in range(5):
        node.disk.finish_syncs()
    assert committed_values(node.client, "orders") == [b"a"]


def _produce(producer: Producer, value: bytes) -> Any:
    from broker_node import batch, produce_request

    records = batch(value, producer_id=producer.producer_id, epoch=producer.epoch, sequence=0, transactional=True)
    request = produce_request("orders", records, version=12)
    request.transactional_id = producer.transactional_id
    return request


def _end(producer: Producer) -> Any:
    from moldau.protocol.generated.wire.end_txn_request import EndTxnRequest

    return EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )


# ---- epochs that run out


def age(node: SimulatedNode, name: str, epoch: int) -> TransactionMetadata:
    """As if the producer had been through very many epochs."""
    family = node.broker.transaction_family()
    shard = family.coordinator.runtime.host_of(name).shard
    shard.ids[name] = aged = shard.ids[name]._replace(epoch=epoch)
    return aged


def test_a_new_producer_id_when_epochs_are_used_up(node: SimulatedNode) -> None:
    producer = started(node)
    first_id = producer.producer_id
    age(node, "tx", MAX_EPOCH - 1)
    producer.begin_anew()
    assert producer.producer_id != first_id
    assert producer.epoch == 0


def test_transactions_v2_goes_on_with_a_new_producer_id(node: SimulatedNode) -> None:
    producer = started(node)
    old_id = producer.producer_id
    age(node, "tx", MAX_EPOCH - 1)
    producer.epoch = MAX_EPOCH - 1
    assert producer.write("orders", 0, b"a") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert producer.producer_id != old_id
    assert producer.epoch == 0
    new_id = producer.producer_id
    assert producer.end(commit=True, producer_id=old_id, epoch=MAX_EPOCH - 1) is ErrorCode.NONE, "a repetition"
    assert producer.end(commit=False, producer_id=old_id, epoch=MAX_EPOCH - 1) is ErrorCode.INVALID_TXN_STATE
    assert producer.write("orders", 0, b"b") is ErrorCode.NONE
    assert producer.end(commit=True, producer_id=old_id, epoch=MAX_EPOCH - 1) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    restart(node)
    producer.client = node.client
    assert state_of(node.client, "tx").producer_id == new_id
    assert producer.commit() is ErrorCode.NONE
    assert committed_values(node.client, "orders") == [b"a", b"b"]


def test_a_successor_comes_at_the_last_epoch(node: SimulatedNode, flow: Versions) -> None:
    producer = started(node, versions=flow)
    age(node, "tx", MAX_EPOCH - 1)
    producer.epoch = MAX_EPOCH - 1
    assert producer.write("orders", 0, b"a") is ErrorCode.NONE
    heir = started(node, versions=flow)
    assert heir.write("orders", 0, b"b") is ErrorCode.NONE
    assert heir.commit() is ErrorCode.NONE
    assert committed_values(node.client, "orders") == [b"b"]


# ---- the cluster's transaction version


@pytest.mark.parametrize("level", [0, 1])
def test_older_transaction_versions_of_the_cluster(node: SimulatedNode, level: int) -> None:
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=2)
    answer = node.client.post(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert answer.done
    assert answer.value.error_code == 0, answer.value
    producer = started(node, versions=JAVA_V1)
    producer.write("orders", 0, b"a")
    assert producer.commit() is ErrorCode.NONE
    producer.write("orders", 0, b"b")
    heir = started(node, versions=JAVA_V1)
    assert heir.epoch == producer.epoch + 2
    restart(node)
    heir.client = node.client
    heir.write("orders", 0, b"c")
    assert heir.commit() is ErrorCode.NONE
    assert committed_values(node.client, "orders") == [b"a", b"c"]


# ---- tools


def test_transactions_are_listed_with_filters(node: SimulatedNode) -> None:
    started(node, "idle")
    busy = started(node, "busy")
    busy.write("orders", 1, b"a")
    node.clock.advance(2000)

    def listed(version: int = 2, **filters: Any) -> list[str]:
        answer = node.client.send(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert listed(0) == ["busy", "idle"]
    assert listed(0, state_filters=["Ongoing"]) == ["busy"]
    assert listed(0, producer_id_filters=[busy.producer_id]) == ["busy"]
    assert listed(1, duration_filter=1000, state_filters=["Ongoing"]) == ["busy"]
    assert listed(1, duration_filter=3000, state_filters=["Ongoing"]) == []
    assert listed(2, transactional_id_pattern="i.*") == ["idle"]
    unknown = node.client.send(ListTransactionsRequest(state_filters=["Odd"]), 2)
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Odd"], [])
    bad = node.client.send(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    described = state_of(node.client, "busy")
    assert (described.transaction_state, described.producer_id) == ("Ongoing", busy.producer_id)
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("orders", [1])]
    assert described.transaction_start_time_ms == node.clock.now_ms() - 2000


@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_ends_a_hanging_transaction(node: SimulatedNode, version: int) -> None:
    producer = started(node)
    producer.write("orders", 0, b"a")
    request = DescribeProducersRequest(topics=[TopicRequest("orders", [0])])
    (active,) = node.client.send(request, 0).topics[0].partitions[0].active_producers
    assert active.current_txn_start_offset == 0
    marker = WritableTxnMarker(
        producer_id=active.producer_id,
        producer_epoch=active.producer_epoch,
        transaction_result=False,
        coordinator_epoch=max(active.coordinator_epoch, 0),
        topics=[WritableTxnMarkerTopic("orders", [0, 7]), WritableTxnMarkerTopic("nowhere", [0])],
    )
    answer = node.client.send(WriteTxnMarkersRequest(markers=[marker]), version)
    codes = [each.error_code for topic in answer.markers[0].topics for each in topic.partitions]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.NONE, unknown, unknown]
    assert last_stable_offset(node.client, "orders") == 2
    assert committed_values(node.client, "orders") == []


def test_a_marker_of_an_old_epoch_is_refused(node: SimulatedNode) -> None:
    old = started(node)
    producer = started(node)
    producer.write("orders", 0, b"a")
    marker = WritableTxnMarker(
        producer_id=old.producer_id,
        producer_epoch=old.epoch,
        topics=[WritableTxnMarkerTopic("orders", [0])],
    )
    answer = node.client.send(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.commit() is ErrorCode.NONE
    assert committed_values(node.client, "orders") == [b"a"]


def test_the_coordinator_topic_is_made_with_its_own_settings(node: SimulatedNode) -> None:
    topic = node.services.image.topic("__transaction_state")
    assert topic is not None
    assert len(topic.partitions) == 2
    overrides = node.services.image.topic_config_overrides("__transaction_state")
    assert overrides["cleanup.policy"] == "compact"
    found = node.client.send(FindCoordinatorRequest(key_type=1, key="tx"), 1)
    assert found.node_id == 1
