"""How producing goes in less ordinary cases: acks, idempotence, sizes, timestamps, topics that come and go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from moldau.testing import Cluster
from tests.clients.java_tools import JavaTools
from tests.clients.python_clients import CONSUMERS, PRODUCERS, consume_confluent
from tests.clients.sample import Sample, samples

NewTopic = Callable[..., str]


def deliver(producer: confluent_kafka.Producer, topic: str, records: list[Sample]) -> list[str | None]:
    """Produce to partition 0; the name of the error of every record in their order."""
    results: list[str | None] = [None] * len(records)

    def delivered(position: int) -> Callable[[Any, Any], None]:
        return lambda error, _: results.__setitem__(position, None if error is None else error.name())

    for i, each in enumerate(records):
        producer.produce(topic, each.value, each.key, 0, on_delivery=delivered(i), timestamp=each.timestamp)
    assert producer.flush(20) == 0
    return results


def assigned_consumer(servers: str) -> confluent_kafka.Consumer:
    """A consumer that is told its partitions and never asks for a group."""
    return confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})


# ---- acks and idempotence


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_of_confluent(moldau_cluster: Cluster, new_topic: NewTopic, acks: str) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": acks, "batch.num.messages": 5})
    written = [Sample(b"k", b"%d" % i, (), 1_700_000_000_000 + i) for i in range(50)]
    assert deliver(producer, topic, written) == [None] * 50
    assert consume_confluent(servers, topic, 50) == written


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks_of_kafka_python(moldau_cluster: Cluster, new_topic: NewTopic, acks: int | str) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    producer = kafka.KafkaProducer(bootstrap_servers=servers, acks=acks, enable_idempotence=False)
    for i in range(50):
        producer.send(topic, b"%d" % i)
    producer.flush(20)
    producer.close()
    assert [each.value for each in consume_confluent(servers, topic, 50)] == [b"%d" % i for i in range(50)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks_of_aiokafka(moldau_cluster: Cluster, new_topic: NewTopic, acks: int | str) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks=acks)
        await producer.start()
        for i in range(50):
            await producer.send(topic, b"%d" % i)
        await producer.stop()

    asyncio.run(run())
    assert [each.value for each in consume_confluent(servers, topic, 50)] == [b"%d" % i for i in range(50)]


@pytest.mark.java
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_of_the_java_producer(
    moldau_cluster: Cluster, new_topic: NewTopic, java_tools: JavaTools, acks: str
) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    config = {"acks": acks, "batch.size": "200", "enable.idempotence": str(acks == "all").lower()}
    sent = java_tools.produce(servers, topic, samples(), config)
    # Without an acknowledgement the producer does not learn the offsets.
    assert [each["offset"] for each in sent] == ([-1] * 20 if acks == "0" else list(range(20)))
    assert consume_confluent(servers, topic, 20) == samples()


def test_idempotent_python_producers_write_in_order(moldau_cluster: Cluster, new_topic: NewTopic) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    values = [b"%d" % i for i in range(400)]
    settings = {"bootstrap.servers": servers, "enable.idempotence": True, "batch.num.messages": 7}
    written = [Sample(None, value, (), 1_700_000_000_000) for value in values]
    assert deliver(confluent_kafka.Producer(settings), topic, written) == [None] * 400
    idempotent = kafka.KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, batch_size=300)
    for value in values:
        idempotent.send(topic, value)
    idempotent.flush(20)
    idempotent.close()

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, max_batch_size=300)
        await producer.start()
        for value in values:
            await producer.send(topic, value)
        await producer.stop()

    asyncio.run(run())
    assert [each.value for each in consume_confluent(servers, topic, 1200)] == 3 * values


# ---- sizes


def value_that_fills(batch_bytes: int) -> bytes:
    """The value of a record alone in an uncompressed batch, without key and headers, of exactly this size."""
    # 61 bytes of batch header; attributes, two deltas, null key and header count take one byte each; then the two
    # lengths, of three bytes each for anything between 8 KB and 1 MB.
    value = b"v" * (batch_bytes - 61 - 5 - 2 * 3)
    assert 8192 < len(value) < 1 << 20
    return value


@pytest.mark.parametrize("limit", [20_000, 1_048_588])
def test_the_largest_message_and_one_byte_more(moldau_cluster: Cluster, new_topic: NewTopic, limit: int) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic(config={"max.message.bytes": str(limit)})
    settings = {"bootstrap.servers": servers, "message.max.bytes": 10_000_000, "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)
    fits = Sample(None, value_that_fills(limit), (), 1_700_000_000_000)
    larger = Sample(None, value_that_fills(limit + 1), (), 1_700_000_000_000)
    assert deliver(producer, topic, [fits]) == [None]
    assert deliver(producer, topic, [larger]) == ["MSG_SIZE_TOO_LARGE"]
    assert deliver(producer, topic, [fits]) == [None]
    for name, consume in CONSUMERS.items():
        assert consume(servers, topic, 2) == [fits, fits], name


def test_a_message_of_ten_megabytes(moldau_cluster: Cluster, new_topic: NewTopic) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic(config={"max.message.bytes": "12000000"})
    large = Sample(b"large", bytes(range(256)) * 40_000, (), 1_700_000_000_000)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "message.max.bytes": 20_000_000})
    assert deliver(producer, topic, [large, samples(1)[0]]) == [None, None]
    # More than a fetch asks for (one megabyte a partition): the first batch is given whole all the same.
    for name, consume in CONSUMERS.items():
        assert consume(servers, topic, 2) == [large, samples(1)[0]], name


@pytest.mark.java
def test_the_java_producer_splits_a_batch_that_is_too_large(
    moldau_cluster: Cluster, new_topic: NewTopic, java_tools: JavaTools
) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic(config={"max.message.bytes": "5000"})
    written = [Sample(b"k", b"%d" % i * 200, (), 1_700_000_000_000 + i) for i in range(60)]
    sent = java_tools.produce(servers, topic, written, {"batch.size": "100000", "linger.ms": "200"})
    assert [each.get("offset") for each in sent] == list(range(60))
    assert consume_confluent(servers, topic, 60) == written
    sent = java_tools.produce(servers, topic, [Sample(None, b"v" * 5000, (), 1_700_000_000_000)])
    assert sent == [{"error": "RecordTooLargeException"}]


# ---- timestamps and compression decided by the topic


def test_a_topic_that_stamps_records_itself(moldau_cluster: Cluster, new_topic: NewTopic) -> None:
    servers = moldau_cluster.bootstrap_servers
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    began = time.time_ns() // 1_000_000
    for codec, produce in zip(("none", "zstd", "gzip"), PRODUCERS.values(), strict=True):
        produce(servers, topic, codec, samples())
    ended = time.time_ns() // 1_000_000
    found = {name: consume(servers, topic, 60) for name, consume in CONSUMERS.items()}
    assert found["confluent-kafka"] == found["kafka-python"] == found["aiokafka"]
    stamps = [each.timestamp for each in found["aiokafka"]]
    assert began <= min(stamps) <= max(stamps) <= ended
    assert stamps == sorted(stamps)
    assert [each.value for each in found["aiokafka"]] == 3 * [each.value for each in samples()]
    consumer = assigned_consumer(servers)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 59)])
    assert consumer.poll(10).timestamp() == (confluent_kafka.TIMESTAMP_LOG_APPEND_TIME, stamps[-1])
    consumer.close()


def test_timestamps_out_of_bounds_are_refused(moldau_cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(config={"message.timestamp.before.max.ms": "10000", "message.timestamp.after.max.ms": "10000"})
    now = time.time_ns() // 1_000_000
    producer = confluent_kafka.Producer({"bootstrap.servers": moldau_cluster.bootstrap_servers, "linger.ms": 0})
    for timestamp, error in ((now, None), (now - 60_000, "INVALID_TIMESTAMP"), (now + 60_000, "INVALID_TIMESTAMP")):
        assert deliver(producer, topic, [Sample(None, b"", (), timestamp)]) == [error]


@pytest.mark.parametrize("kept", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_that_compresses_for_its_producers(moldau_cluster: Cluster, new_topic: NewTopic, kept: str) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic(config={"compression.type": kept})
    for codec in ("none", "lz4"):
        PRODUCERS["confluent-kafka"](servers, topic, codec, samples())
    for name, consume in CONSUMERS.items():
        assert consume(servers, topic, 40) == 2 * samples(), name
    used = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[kept]
    segment = moldau_cluster.data_dir / "data" / f"{topic}-0" / f"{0:020d}.log"
    assert segment.read_bytes()[22] & 7 == used


# ---- looking up offsets


def test_offsets_by_timestamp(moldau_cluster: Cluster, new_topic: NewTopic) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    written = [Sample(None, b"v", (), 1_700_000_000_000 + 100 * i) for i in range(30)]
    for i in range(0, 30, 10):
        PRODUCERS["confluent-kafka"](servers, topic, "gzip", written[i : i + 10])
    asked = [1_600_000_000_000, 1_700_000_000_000, 1_700_000_000_901, 1_700_000_002_900, 1_700_000_002_901]
    expected = [0, 0, 10, 29, None]

    consumer = assigned_consumer(servers)
    found = [
        consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, at)], timeout=10)[0].offset for at in asked
    ]
    assert found == [0, 0, 10, 29, confluent_kafka.OFFSET_END]
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=10) == (0, 30)
    consumer.close()

    partition = kafka.TopicPartition(topic, 0)
    other = kafka.KafkaConsumer(bootstrap_servers=servers, group_id=None)
    hits = [other.offsets_for_times({partition: at})[partition] for at in asked]
    assert [None if hit is None else hit.offset for hit in hits] == expected
    assert other.beginning_offsets([partition]) == {partition: 0}
    assert other.end_offsets([partition]) == {partition: 30}
    other.close()

    async def run() -> None:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, group_id=None)
        await consumer.start()
        hits = [(await consumer.offsets_for_times({partition: at}))[partition] for at in asked]
        assert [None if hit is None else (hit.offset, hit.timestamp) for hit in hits] == [
            None if at is None else (at, written[at].timestamp) for at in expected
        ]
        assert await consumer.end_offsets([partition]) == {partition: 30}
        await consumer.stop()

    asyncio.run(run())


@pytest.mark.java
def test_offsets_by_timestamp_in_java(moldau_cluster: Cluster, new_topic: NewTopic, java_tools: JavaTools) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    PRODUCERS["aiokafka"](servers, topic, "lz4", samples())
    begin = samples()[0].timestamp
    found = java_tools.offsets(servers, topic, [begin - 5, begin + 7, begin + 19, begin + 20])
    assert found == {
        "beginning": 0,
        "end": 20,
        "at": [[0, begin], [7, begin + 7], [19, begin + 19], None],
    }


# ---- topics that come and go


def test_topics_are_created_when_first_used() -> None:
    with Cluster({"num.partitions": "3"}) as cluster:
        servers = cluster.bootstrap_servers
        for name, produce in PRODUCERS.items():
            produce(servers, f"made-by-{name}", "none", samples(30))
        listed = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics
        assert {name: len(topic.partitions) for name, topic in listed.items()} == {
            f"made-by-{name}": 3 for name in PRODUCERS
        }


def test_topics_are_not_created_where_that_is_off() -> None:
    with Cluster({"auto.create.topics.enable": "false"}) as cluster:
        servers = cluster.bootstrap_servers
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "topic.metadata.propagation.max.ms": 200})
        assert deliver(producer, "nowhere", samples(1)) == ["UNKNOWN_TOPIC_OR_PART"]
        other = kafka.KafkaProducer(bootstrap_servers=servers, max_block_ms=600)
        with pytest.raises(kafka.errors.KafkaError):
            other.send("nowhere", b"").get(timeout=10)
        other.close()
        assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics == {}


def test_a_topic_is_deleted_while_it_is_written_and_read() -> None:
    """Those who use it are told, nothing hangs, and a topic of the same name starts empty."""
    with Cluster({"auto.create.topics.enable": "false"}) as cluster:
        servers, topic = cluster.bootstrap_servers, "short-lived"
        admin = AdminClient({"bootstrap.servers": servers})
        cluster.create_topic(topic)
        impatient = {"message.timeout.ms": 2000, "topic.metadata.propagation.max.ms": 300}
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 1, **impatient})
        consumer = assigned_consumer(servers)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        outcomes: list[str | None] = []
        count = 0
        deadline = time.monotonic() + 10
        while not any(outcomes) and time.monotonic() < deadline:
            try:
                producer.produce(
                    topic, b"%d" % count, on_delivery=lambda error, _: outcomes.append(error and error.name())
                )
            except KafkaException:
                break
            count += 1
            producer.poll(0.001)
            consumer.poll(0)
            if count == 200:
                producer.flush(10)
                admin.delete_topics([topic])[topic].result(10)
        assert producer.flush(10) == 0
        assert len(outcomes) == count > 200
        assert outcomes[:200] == [None] * 200
        told = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_MSG_TIMED_OUT"}
        assert set(outcomes[200:]) <= {None, *told}
        assert any(outcomes)
        consumer.close()
        cluster.create_topic(topic)
        PRODUCERS["kafka-python"](servers, topic, "none", samples())
        assert consume_confluent(servers, topic, 20) == samples()


def test_changed_settings_hold_for_the_next_record(moldau_cluster: Cluster, new_topic: NewTopic) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    admin = AdminClient({"bootstrap.servers": servers})
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
    large = Sample(None, b"v" * 5000, (), 1_700_000_000_000)
    assert deliver(producer, topic, [large]) == [None]
    change = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(10)
    assert deliver(producer, topic, [large]) == ["MSG_SIZE_TOO_LARGE"]
