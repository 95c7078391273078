"""Fetch in every version: what is read, how long it waits, and what a session remembers."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import Client, SimulatedNode, batch, fetch_request, produce_request, records_of, values_of

from moldau.broker.fetch_session import EVICTION_IDLE_MS
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.fetch_request import FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from moldau.protocol.generated.wire.metadata_request import MetadataRequest

VERSIONS = range(4, 19)
TOPIC_IDS_SINCE = 13


def produce(node: SimulatedNode, topic: str, *records: bytes, first: int = 0) -> None:
    answer = node.client.send(produce_request(topic, *records, version=8, first=first), 8)
    assert all(each.error_code == 0 for each in answer.responses[0].partition_responses)


def fetch(node: SimulatedNode, topic: str | bytes, *offsets: int, version: int = 11, **how: Any) -> Any:
    return node.client.send(fetch_request(topic, *offsets, version=version, **how), version)


def only(answer: Any) -> Any:
    ((partition,),) = (topic.partitions for topic in answer.responses)
    return partition


# ---- reading


@pytest.mark.parametrize("version", VERSIONS)
def test_reads_in_every_version(node: SimulatedNode, version: int) -> None:
    topic_id = node.create_topic("orders", 2)
    produce(node, "orders", batch(b"a", b"b"), batch(b"c"))
    topic = topic_id if version >= TOPIC_IDS_SINCE else "orders"
    answer = fetch(node, topic, 0, 0, version=version)
    assert answer.error_code == 0
    (of_topic,) = answer.responses
    assert of_topic.topic_id == topic_id if version >= TOPIC_IDS_SINCE else of_topic.topic == "orders"
    first, second = of_topic.partitions
    assert (first.partition_index, first.error_code, first.high_watermark, first.last_stable_offset) == (0, 0, 2, 2)
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert first.aborted_transactions is None
    assert first.preferred_read_replica == -1
    assert values_of(first.records) == [b"a", b"b"]
    assert values_of(second.records) == [b"c"]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_new_is_an_empty_answer(node: SimulatedNode, version: int) -> None:
    topic_id = node.create_topic("orders")
    partition = only(fetch(node, topic_id if version >= TOPIC_IDS_SINCE else "orders", 0, version=version))
    assert (partition.error_code, partition.high_watermark) == (0, 0)
    assert bytes(partition.records) == b""


def test_an_offset_inside_a_batch_gives_the_whole_batch(node: SimulatedNode) -> None:
    node.create_topic("orders")
    produce(node, "orders", batch(b"a", b"b", b"c"))
    produce(node, "orders", batch(b"d"))
    assert [r.offset for r in records_of(only(fetch(node, "orders", 2)).records)] == [0, 1, 2, 3]
    assert [r.offset for r in records_of(only(fetch(node, "orders", 3)).records)] == [3]


def test_read_committed_names_aborted_transactions(node: SimulatedNode) -> None:
    node.create_topic("orders")
    produce(node, "orders", batch(b"a"))
    partition = only(fetch(node, "orders", 0, isolation_level=1))
    assert partition.aborted_transactions == []
    assert values_of(partition.records) == [b"a"]


@pytest.mark.parametrize("offset", [-1, 2, 100])
def test_offsets_out_of_range(node: SimulatedNode, offset: int) -> None:
    node.create_topic("orders")
    produce(node, "orders", batch(b"a"))
    partition = only(fetch(node, "orders", offset, max_wait_ms=10_000))
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset) == (-1, -1, -1)


def test_unknown_topics_partitions_and_ids(node: SimulatedNode) -> None:
    topic_id = node.create_topic("orders")
    assert only(fetch(node, "nowhere", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(fetch(node, "orders", 0, first=3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(fetch(node, b"\x01" * 16, 0, version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    unknown_partition = only(fetch(node, topic_id, 0, first=3, version=13))
    assert unknown_partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_leader_epochs_are_compared(node: SimulatedNode) -> None:
    topic_id = node.create_topic("orders")
    node.services.partitions.get("orders", 0).leader_epoch = 3
    assert only(fetch(node, "orders", 0, leader_epoch=4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert only(fetch(node, "orders", 0, leader_epoch=3)).error_code == 0
    old = fetch(node, topic_id, 0, leader_epoch=2, version=16)
    assert only(old).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (only(old).current_leader.leader_id, only(old).current_leader.leader_epoch) == (1, 3)
    assert [(n.node_id, n.host, n.port, n.rack) for n in old.node_endpoints] == [(1, "broker.example", 9092, "rack-a")]


def test_a_log_that_parted_ways_is_told_where(node: SimulatedNode) -> None:
    node.create_topic("orders")
    produce(node, "orders", batch(b"a"))
    partition = only(fetch(node, "orders", 5, last_fetched_epoch=0, version=12, max_wait_ms=1000))
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (0, 1)
    assert partition.error_code == 0
    assert only(fetch(node, "orders", 0, last_fetched_epoch=9, version=12)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(only(fetch(node, "orders", 0, last_fetched_epoch=0, version=12)).records) == [b"a"]


@pytest.mark.parametrize("version", [11, 14, 15, 18])
def test_a_stranger_that_claims_to_be_a_replica_gets_nothing(node: SimulatedNode, version: int) -> None:
    topic_id = node.create_topic("orders")
    produce(node, "orders", batch(b"a"))
    request = fetch_request(topic_id if version >= TOPIC_IDS_SINCE else "orders", 0, version=version)
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=9, replica_epoch=1)
    else:
        request.replica_id = 9
    assert only(node.client.send(request, version)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---- limits


def test_max_bytes_is_shared_and_the_first_batch_always_comes(node: SimulatedNode) -> None:
    node.create_topic("orders", 3)
    produce(node, "orders", batch(b"x" * 500), batch(b"y" * 500), batch(b"z" * 500))
    answer = fetch(node, "orders", 0, 0, 0, max_bytes=10)
    assert [len(values_of(p.records)) for p in answer.responses[0].partitions] == [1, 0, 0]
    answer = fetch(node, "orders", 0, 0, 0, max_bytes=1300)
    assert [len(values_of(p.records)) for p in answer.responses[0].partitions] == [1, 1, 0]


def test_partition_max_bytes(node: SimulatedNode) -> None:
    node.create_topic("orders")
    for value in (b"a", b"b", b"c"):
        produce(node, "orders", batch(value * 300))
    size = len(batch(b"a" * 300))
    assert len(values_of(only(fetch(node, "orders", 0, partition_max_bytes=2 * size)).records)) == 2
    assert len(values_of(only(fetch(node, "orders", 0, partition_max_bytes=2 * size - 1)).records)) == 1
    assert len(values_of(only(fetch(node, "orders", 0, partition_max_bytes=1)).records)) == 1


def test_the_brokers_own_limit_holds_and_follows_the_configuration() -> None:
    node = SimulatedNode(fetch_max_bytes="1300")
    node.create_topic("orders", 3)
    produce(node, "orders", batch(b"x" * 500), batch(b"y" * 500), batch(b"z" * 500))
    answer = fetch(node, "orders", 0, 0, 0, min_bytes=5000, max_wait_ms=5000)
    assert [len(values_of(p.records)) for p in answer.responses[0].partitions] == [1, 1, 0]


# ---- waiting


def test_a_fetch_waits_for_data_and_is_woken_by_it(node: SimulatedNode) -> None:
    node.create_topic("orders")
    timers = node.clock.waiting
    promise = node.client.post(fetch_request("orders", 0, version=11, max_wait_ms=500), 11)
    assert not promise.done
    Client(node).send(produce_request("orders", batch(b"a"), version=8), 8)
    assert values_of(only(promise.value).records) == [b"a"]
    assert node.clock.waiting == timers, "its own timer is gone"


def test_a_fetch_is_answered_when_its_time_is_up(node: SimulatedNode) -> None:
    node.create_topic("orders")
    promise = node.client.post(fetch_request("orders", 0, version=11, max_wait_ms=500), 11)
    node.clock.advance(499)
    assert not promise.done
    node.clock.advance(1)
    assert only(promise.value).error_code == 0


def test_min_bytes_is_waited_for_over_several_appends(node: SimulatedNode) -> None:
    node.create_topic("orders", 2)
    size = len(batch(b"a" * 100))
    request = fetch_request("orders", 0, 0, version=11, max_wait_ms=500, min_bytes=3 * size)
    promise = node.client.post(request, 11)
    producer = Client(node)
    producer.send(produce_request("orders", batch(b"a" * 100), version=8), 8)
    producer.send(produce_request("orders", batch(b"b" * 100), version=8, first=1), 8)
    assert not promise.done
    producer.send(produce_request("orders", batch(b"c" * 100), version=8), 8)
    first, second = promise.value.responses[0].partitions
    assert values_of(first.records) + values_of(second.records) == [b"a" * 100, b"c" * 100, b"b" * 100]


def test_min_bytes_beyond_max_bytes_does_not_wait_forever(node: SimulatedNode) -> None:
    node.create_topic("orders")
    produce(node, "orders", batch(b"a" * 200))
    assert only(fetch(node, "orders", 0, min_bytes=1 << 30, max_bytes=100, max_wait_ms=1 << 30)).error_code == 0


def test_an_error_does_not_wait(node: SimulatedNode) -> None:
    node.create_topic("orders")
    answer = fetch(node, "orders", 0, 0, max_wait_ms=10_000)
    assert [p.error_code for p in answer.responses[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_waiting_fetch_learns_that_its_topic_is_gone(node: SimulatedNode) -> None:
    from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest

    node.create_topic("orders")
    promise = node.client.post(fetch_request("orders", 0, version=11, max_wait_ms=60_000), 11)
    Client(node).send(DeleteTopicsRequest(topic_names=["orders"]), 5)
    assert only(promise.value).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_sync_that_ends_wakes_a_fetch_although_no_request_does(node: SimulatedNode) -> None:
    node.create_topic("safe", flush_messages="1")
    promise = node.client.post(fetch_request("safe", 0, version=11, max_wait_ms=60_000), 11)
    node.disk.hold_syncs = True
    Client(node).post(produce_request("safe", batch(b"a"), version=8), 8)
    assert not promise.done
    node.disk.finish_syncs()
    node.clock.advance(0)
    assert values_of(only(promise.value).records) == [b"a"]


def test_a_disk_that_fails_is_told_to_those_who_wait(node: SimulatedNode) -> None:
    node.create_topic("orders")
    produce(node, "orders", batch(b"a"))
    promise = node.client.post(fetch_request("orders", 1, version=11, max_wait_ms=60_000), 11)
    node.disk.fail("write", ending=".log")
    Client(node).post(produce_request("orders", batch(b"b"), version=8), 8)
    node.clock.advance(0)
    assert only(promise.value).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_client_that_goes_away_leaves_nothing_behind(node: SimulatedNode) -> None:
    node.create_topic("orders")
    before = node.clock.waiting
    promise = node.client.post(fetch_request("orders", 0, version=11, max_wait_ms=60_000), 11)
    node.client.disconnect()
    assert node.clock.waiting == before
    Client(node).send(produce_request("orders", batch(b"a"), version=8), 8)
    assert not promise.done


def test_answers_keep_the_order_of_appends(node: SimulatedNode) -> None:
    """Several readers of one partition are all woken by one append."""
    node.create_topic("orders")
    readers = [Client(node) for _ in range(5)]
    promises = [r.post(fetch_request("orders", 0, version=11, max_wait_ms=500), 11) for r in readers]
    produce(node, "orders", batch(b"a"))
    assert [values_of(only(promise.value).records) for promise in promises] == [[b"a"]] * 5


# ---- sessions


class Session:
    """A reader that keeps a session, as clients do."""

    def __init__(self, node: SimulatedNode, topic: str | bytes, *offsets: int, version: int = 11) -> None:
        self.node = node
        self.version = version
        answer = node.client.send(fetch_request(topic, *offsets, version=version, session=(0, 0)), version)
        self.first = answer
        self.session_id = answer.session_id
        self.epoch = 1

    def next(self, topic: str | bytes | None = None, *offsets: int, first: int = 0) -> Any:
        if topic is None:
            request = FetchRequest(max_wait_ms=0, min_bytes=0)
            request.session_id, request.session_epoch = self.session_id, self.epoch
        else:
            session = (self.session_id, self.epoch)
            request = fetch_request(topic, *offsets, version=self.version, session=session, min_bytes=0, first=first)
        self.epoch += 1
        return self.node.client.send(request, self.version)


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_a_session_tells_only_what_changed(node: SimulatedNode, version: int) -> None:
    topic_id = node.create_topic("orders", 3)
    topic = topic_id if version >= TOPIC_IDS_SINCE else "orders"
    produce(node, "orders", batch(b"a"))
    session = Session(node, topic, 0, 0, 0, version=version)
    assert session.session_id > 0
    assert len(session.first.responses[0].partitions) == 3, "the first answer mentions everything"
    unchanged = session.next(topic, 1)
    assert unchanged.responses == []
    assert (unchanged.error_code, unchanged.session_id) == (0, session.session_id)
    produce(node, "orders", batch(b"b"), first=1)
    assert only(session.next()).partition_index == 1


def test_offsets_of_a_session_are_updated(node: SimulatedNode) -> None:
    node.create_topic("orders")
    produce(node, "orders", batch(b"a"))
    produce(node, "orders", batch(b"b"))
    session = Session(node, "orders", 0)
    assert values_of(only(session.next()).records) == [b"a", b"b"], "it still asks from 0 on"
    assert values_of(only(session.next("orders", 1)).records) == [b"b"]
    assert session.next("orders", 2).responses == []


def test_partitions_are_added(node: SimulatedNode) -> None:
    node.create_topic("orders", 2)
    produce(node, "orders", batch(b"a"), batch(b"b"))
    session = Session(node, "orders", 1)
    added = session.next("orders", 0, first=1)
    assert (only(added).partition_index, values_of(only(added).records)) == (1, [b"b"])


def test_a_forgotten_partition_is_not_read_any_more(node: SimulatedNode) -> None:
    node.create_topic("orders", 2)
    produce(node, "orders", batch(b"a"), batch(b"b"))
    session = Session(node, "orders", 1, 0)
    request = FetchRequest(max_wait_ms=0, min_bytes=0)
    request.session_id, request.session_epoch = session.session_id, session.epoch
    request.forgotten_topics_data = [ForgottenTopic(topic="orders", partitions=[1])]
    answer = node.client.send(request, 11)
    assert (answer.error_code, answer.responses) == (0, [])
    assert node.broker.fetch.sessions.partition_count == 1


def test_a_session_without_partitions_is_closed(node: SimulatedNode) -> None:
    node.create_topic("orders")
    session = Session(node, "orders", 0)
    request = FetchRequest(max_wait_ms=0, min_bytes=0)
    request.session_id, request.session_epoch = session.session_id, 1
    request.forgotten_topics_data = [ForgottenTopic(topic="orders", partitions=[0])]
    assert node.client.send(request, 11).session_id == 0
    assert len(node.broker.fetch.sessions) == 0


def test_a_partition_with_an_error_is_mentioned_every_time(node: SimulatedNode) -> None:
    node.create_topic("orders")
    session = Session(node, "orders", 0, 0)
    for _ in range(2):
        assert only(session.next()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_that_gave_data_go_to_the_end(node: SimulatedNode) -> None:
    node.create_topic("orders", 3)
    produce(node, "orders", *(batch(b"%d" % i * 400) for i in range(3)))
    client = node.client
    request = fetch_request("orders", 0, 0, 0, version=11, session=(0, 0), max_bytes=10)
    answer = client.send(request, 11)
    served = []
    for epoch in range(1, 4):
        again = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10)
        again.session_id, again.session_epoch = answer.session_id, epoch
        partitions = client.send(again, 11).responses[0].partitions
        served += [p.partition_index for p in partitions if values_of(p.records)]
    assert served == [1, 2, 0], "nobody starves"


def test_session_errors(node: SimulatedNode) -> None:
    topic_id = node.create_topic("orders")
    request = FetchRequest(max_wait_ms=0, min_bytes=0)
    request.session_id, request.session_epoch = 77, 1
    assert node.client.send(request, 11).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = Session(node, "orders", 0)
    request.session_id, request.session_epoch = session.session_id, 5
    answer = node.client.send(request, 11)
    assert (answer.error_code, answer.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    mixed = fetch_request(topic_id, 0, version=13, session=(session.session_id, 1))
    assert node.client.send(mixed, 13).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_final_fetch_closes_the_session(node: SimulatedNode) -> None:
    node.create_topic("orders")
    session = Session(node, "orders", 0)
    closing = FetchRequest(max_wait_ms=0, min_bytes=0)
    closing.session_id, closing.session_epoch = session.session_id, -1
    assert node.client.send(closing, 11).session_id == 0
    assert len(node.broker.fetch.sessions) == 0


def test_a_full_cache_gives_no_session_until_one_is_idle() -> None:
    node = SimulatedNode(max_incremental_fetch_session_cache_slots="2")
    node.create_topic("orders")
    assert Session(node, "orders", 0).session_id
    assert Session(node, "orders", 0).session_id
    assert Session(node, "orders", 0).session_id == 0
    node.clock.advance(EVICTION_IDLE_MS)
    assert Session(node, "orders", 0).session_id
    assert len(node.broker.fetch.sessions) == 2


def test_version_6_has_no_sessions(node: SimulatedNode) -> None:
    node.create_topic("orders")
    fetch(node, "orders", 0, version=6)
    assert len(node.broker.fetch.sessions) == 0


def test_a_fetch_of_nothing_is_answered_at_once(node: SimulatedNode) -> None:
    answer = node.client.send(FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[]), 11)
    assert answer.responses == []
    answer = node.client.send(FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[FetchTopic(topic="t")]), 11)
    assert answer.responses == []


# ---- several readers


def test_readers_that_waited_for_the_same_records_get_what_they_asked_for(node: SimulatedNode) -> None:
    """They are answered one after the other, from one read where that will do."""
    node.create_topic("orders")
    size = len(batch(b"a"))
    readers = [Client(node) for _ in range(4)]
    limits = [1 << 20, size, 1 << 20, 2 * size]
    posted = [
        reader.post(
            fetch_request("orders", 0, version=11, max_wait_ms=1000, min_bytes=2 * size, partition_max_bytes=limit), 11
        )
        for reader, limit in zip(readers, limits, strict=True)
    ]
    assert not any(each.done for each in posted)
    produce(node, "orders", batch(b"a"))
    assert not any(each.done for each in posted)
    produce(node, "orders", batch(b"b"))
    got = [values_of(only(each.value).records) for each in posted]
    assert got == [[b"a", b"b"], [b"a"], [b"a", b"b"], [b"a", b"b"]]
    produce(node, "orders", batch(b"c"))
    assert values_of(only(fetch(node, "orders", 0)).records) == [b"a", b"b", b"c"], "nothing is kept for later"


def test_who_waits_for_each_answer_is_in_conversation(node: SimulatedNode) -> None:
    """Records are sent and read ahead; all else is asked one by one."""
    node.create_topic("orders")
    connection = node.client.connection
    node.client.send(MetadataRequest(topics=None), 12)
    assert connection.in_conversation
    produce(node, "orders", batch(b"a"))
    assert not connection.in_conversation
    node.client.send(MetadataRequest(topics=None), 12)
    fetch(node, "orders", 0)
    assert not connection.in_conversation
