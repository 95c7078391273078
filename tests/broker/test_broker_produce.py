"""Produce in every version: what is appended, what is refused, and how the refusal is worded."""

from __future__ import annotations

import pytest
from broker_node import Client, SimulatedNode, batch, fetch_request, produce_request, records_of, values_of

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.generated.wire.produce_response import PartitionProduceResponse
from moldau.protocol.wire import ProtocolError
from moldau.records.record import Record

VERSIONS = range(3, 14)
NOW = 1_700_000_000_000


def produce(
    node: SimulatedNode, topic: str | bytes, records: bytes | None, version: int = 8, acks: int = -1
) -> PartitionProduceResponse:
    answer = node.client.send(produce_request(topic, records, version=version, acks=acks), version)
    result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return result


def read_all(node: SimulatedNode, topic: str) -> list[bytes | None]:
    answer = node.client.send(fetch_request(topic, 0, version=11), 11)
    return values_of(answer.responses[0].partitions[0].records)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_appends_in_every_version(node: SimulatedNode, version: int, acks: int) -> None:
    topic_id = node.create_topic("orders", 2)
    topic = topic_id if version >= 13 else "orders"
    request = produce_request(topic, batch(b"a", b"b"), batch(b"c"), version=version, acks=acks)
    answer = node.client.send(request, version)
    (of_topic,) = answer.responses
    assert of_topic.topic_id == topic_id if version >= 13 else of_topic.name == "orders"
    first, second = of_topic.partition_responses
    assert (first.index, first.error_code, first.base_offset) == (0, 0, 0)
    assert (second.index, second.error_code, second.base_offset) == (1, 0, 0)
    assert first.log_append_time_ms == -1
    assert first.log_start_offset == (0 if version >= 5 else -1)
    again = node.client.send(request, version).responses[0].partition_responses
    assert [each.base_offset for each in again] == [2, 1]
    assert read_all(node, "orders") == [b"a", b"b", b"a", b"b"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [1, 125, 126, 127, 128, 249])
def test_an_answer_about_one_partition_for_names_of_every_length(
    node: SimulatedNode, version: int, length: int
) -> None:
    name = "n" * length
    topic_id = node.create_topic(name)
    topic = topic_id if version >= 13 else name
    for offset in range(2):
        answer = node.client.send(produce_request(topic, batch(b"a"), version=version), version)
        (of_topic,) = answer.responses
        assert of_topic.topic_id == topic_id if version >= 13 else of_topic.name == name
        (result,) = of_topic.partition_responses
        assert (result.index, result.error_code, result.base_offset) == (0, 0, offset)
        assert (result.log_append_time_ms, result.log_start_offset) == (-1, 0 if version >= 5 else -1)
        assert (result.record_errors, result.error_message) == ([], None)
        assert answer.throttle_time_ms == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_one_failure_does_not_hide_the_other_partitions(node: SimulatedNode, version: int) -> None:
    topic_id = node.create_topic("orders")
    topic = topic_id if version >= 13 else "orders"
    answer = node.client.send(produce_request(topic, batch(b"a"), batch(b"b"), version=version), version)
    good, bad = answer.responses[0].partition_responses
    assert (good.error_code, good.base_offset) == (0, 0)
    assert (bad.error_code, bad.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert (bad.error_message is not None) == (version >= 8)


def test_acks_0_is_not_answered_and_appends(node: SimulatedNode) -> None:
    node.create_topic("orders")
    assert node.client.send(produce_request("orders", batch(b"a"), version=9, acks=0), 9) is None
    assert read_all(node, "orders") == [b"a"]


def test_acks_0_that_fails_closes_the_connection(node: SimulatedNode) -> None:
    with pytest.raises(ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        node.client.send(produce_request("nowhere", batch(b"a"), version=9, acks=0), 9)


def test_unknown_ids_and_names(node: SimulatedNode) -> None:
    assert produce(node, "nowhere", batch(b"a")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(node, b"\x07" * 16, batch(b"a"), 13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    topic_id = node.create_topic("orders")
    request = produce_request(topic_id, batch(b"a"), version=13, first=5)
    answer = node.client.send(request, 13).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_impossible_acks(node: SimulatedNode) -> None:
    node.create_topic("orders")
    assert produce(node, "orders", batch(b"a"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert read_all(node, "orders") == []


@pytest.mark.parametrize("records", [None, b""])
def test_no_records(node: SimulatedNode, records: bytes | None) -> None:
    node.create_topic("orders")
    assert produce(node, "orders", records).error_code == ErrorCode.INVALID_RECORD


def test_two_batches_in_one_partition(node: SimulatedNode) -> None:
    node.create_topic("orders")
    assert produce(node, "orders", batch(b"a") + batch(b"b")).error_code == ErrorCode.INVALID_RECORD
    assert read_all(node, "orders") == []


def test_damaged_batch(node: SimulatedNode) -> None:
    node.create_topic("orders")
    damaged = bytearray(batch(b"abc"))
    damaged[-2] ^= 1
    assert produce(node, "orders", bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert read_all(node, "orders") == []


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_comes_back(node: SimulatedNode, codec: int) -> None:
    node.create_topic("orders")
    assert produce(node, "orders", batch(b"a" * 100, (b"k", b"v"), codec=codec)).error_code == 0
    answer = node.client.send(fetch_request("orders", 0, version=11), 11)
    assert records_of(answer.responses[0].partitions[0].records) == [
        Record(0, NOW, None, b"a" * 100),
        Record(1, NOW + 1, b"k", b"v"),
    ]


def test_zstd_is_too_new_for_old_versions(node: SimulatedNode) -> None:
    node.create_topic("orders")
    refused = produce(node, "orders", batch(b"a", codec=4), 6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(node, "orders", batch(b"a", codec=4), 7).error_code == 0


def test_max_message_bytes(node: SimulatedNode) -> None:
    node.create_topic("orders", max_message_bytes="200")
    assert produce(node, "orders", batch(b"x" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(node, "orders", batch(b"x" * 30)).error_code == 0


def test_records_without_key_on_a_compacted_topic_are_named(node: SimulatedNode) -> None:
    node.create_topic("state", cleanup_policy="compact")
    answer = produce(node, "state", batch((b"k", b"1"), (None, b"2"), (None, b"3")))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [1, 2]
    assert all(each.batch_index_error_message for each in answer.record_errors)
    assert answer.error_message
    assert produce(node, "state", batch((b"k", b"1"))).error_code == 0


def test_append_time(node: SimulatedNode) -> None:
    node.create_topic("events", message_timestamp_type="LogAppendTime")
    answer = produce(node, "events", batch(b"a", timestamp=5))
    assert (answer.error_code, answer.log_append_time_ms) == (0, node.clock.now_ms())


def test_internal_topics_are_written_by_the_broker_only(node: SimulatedNode) -> None:
    node.create_topic("__consumer_offsets")
    assert produce(node, "__consumer_offsets", batch((b"k", b"v"))).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    admin = Client(node, client_id="__admin_client")
    answer = admin.send(produce_request("__consumer_offsets", batch((b"k", b"v")), version=8), 8)
    assert answer.responses[0].partition_responses[0].error_code == 0


# ---- idempotent producers


def test_a_repeated_batch_is_answered_with_its_old_offset(node: SimulatedNode) -> None:
    node.create_topic("orders")
    sent = [batch(b"%d" % i, producer_id=9, epoch=0, sequence=i) for i in range(6)]
    for offset, each in enumerate(sent):
        assert produce(node, "orders", each).base_offset == offset
    for offset in range(1, 6):
        again = produce(node, "orders", sent[offset])
        assert (again.error_code, again.base_offset) == (0, offset)
    assert read_all(node, "orders") == [b"%d" % i for i in range(6)]


def test_a_gap_in_the_sequence_is_refused(node: SimulatedNode) -> None:
    node.create_topic("orders")
    produce(node, "orders", batch(b"a", producer_id=9, epoch=0, sequence=0))
    refused = produce(node, "orders", batch(b"c", producer_id=9, epoch=0, sequence=2))
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_old_epoch_is_fenced(node: SimulatedNode) -> None:
    node.create_topic("orders")
    produce(node, "orders", batch(b"a", producer_id=9, epoch=1, sequence=0))
    refused = produce(node, "orders", batch(b"b", producer_id=9, epoch=0, sequence=0))
    assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_are_remembered_over_a_restart(node: SimulatedNode) -> None:
    node.create_topic("orders")
    sent = batch(b"a", producer_id=9, epoch=0, sequence=0)
    produce(node, "orders", sent)
    node.restart()
    again = produce(node, "orders", sent)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert read_all(node, "orders") == [b"a"]


def test_an_unverified_transaction_is_refused(node: SimulatedNode) -> None:
    node.create_topic("orders")
    request = produce_request("orders", batch(b"a", producer_id=9, epoch=0, sequence=0, transactional=True), version=9)
    request.transactional_id = "tx"
    answer = node.client.send(request, 9).responses[0].partition_responses[0]
    # Nobody coordinates transactions yet, so the producer tries again.
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


# ---- waiting for a sync, and not forever


def test_flush_messages_1_answers_only_what_is_on_disk(node: SimulatedNode) -> None:
    node.create_topic("safe", flush_messages="1")
    node.disk.hold_syncs = True
    promise = node.client.post(produce_request("safe", batch(b"a"), version=8), 8)
    assert not promise.done
    node.disk.finish_syncs()
    assert promise.value.responses[0].partition_responses[0].error_code == 0


def test_an_append_that_is_not_committed_in_time_is_said_to_have_timed_out(node: SimulatedNode) -> None:
    node.create_topic("safe", flush_messages="1")
    node.disk.hold_syncs = True
    promise = node.client.post(produce_request("safe", batch(b"a"), version=8, timeout_ms=500), 8)
    node.clock.advance(499)
    assert not promise.done
    node.clock.advance(1)
    answer = promise.value.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    node.disk.finish_syncs()


def test_a_minimum_of_replicas_is_never_more_than_there_are(node: SimulatedNode) -> None:
    node.create_topic("orders", min_insync_replicas="2")
    assert produce(node, "orders", batch(b"a")).error_code == 0
    assert produce(node, "orders", batch(b"a"), acks=1).error_code == 0


def test_a_failed_disk_is_told_and_the_node_goes_on() -> None:
    node = SimulatedNode(directories=2)
    node.create_topic("orders", 8)
    for index in range(8):
        request = produce_request("orders", batch(b"a"), version=8, first=index)
        assert node.client.send(request, 8).responses[0].partition_responses[0].error_code == 0
    broken = node.logs.directory_of("orders", 0)
    assert broken is not None
    in_broken = [index for index in range(8) if node.logs.directory_of("orders", index) is broken]
    assert 0 < len(in_broken) < 8
    node.disk.fail("write", ending=".log")
    request = produce_request("orders", batch(b"b"), version=8)
    assert node.client.send(request, 8).responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for index in range(8):
        request = produce_request("orders", batch(b"c"), version=8, first=index)
        code = node.client.send(request, 8).responses[0].partition_responses[0].error_code
        assert code == (ErrorCode.KAFKA_STORAGE_ERROR if index in in_broken else 0)


# ---- hand-made frames


def test_a_malformed_request_leaves_nothing_in_the_log(node: SimulatedNode) -> None:
    node.create_topic("orders")
    topics = [
        TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch(b"a"))]),
    ]
    from moldau.protocol.frames import encode_request

    frame = encode_request(0, 8, 1, "c", ProduceRequest(acks=1, timeout_ms=1, topic_data=topics))[4:]
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            node.client.raw(frame[:cut])
    assert read_all(node, "orders") == []
    assert isinstance(node.client.raw(frame + b"\0\0\0"), list), "more bytes than a request needs do no harm"
    assert read_all(node, "orders") == [b"a"]


@pytest.mark.parametrize("version", [0, 1, 2, 14])
def test_versions_that_are_not_served_close_the_connection(node: SimulatedNode, version: int) -> None:
    with pytest.raises(ProtocolError, match="is not served"):
        node.client.raw(b"\0\0" + version.to_bytes(2, "big") + b"\0\0\0\1" + b"\xff\xff" + b"\0" * 20)
