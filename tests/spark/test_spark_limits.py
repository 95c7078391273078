"""How far a micro-batch goes, and what a query is told when its topics change. The reader as Spark calls it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StringType, StructField, StructType

from moldau.client.errors import MoldauError
from moldau.spark.errors import DataLossError
from moldau.spark.source import SCHEMA, MoldauDataSource
from moldau.spark.stream_reader import MoldauStreamReader
from moldau.testing import Cluster

SECONDS_MAX = 30.0


class World:
    """A node, its topics, and readers of them."""

    def __init__(self, cluster: Cluster, new_topic: Callable[..., str]) -> None:
        self.servers = cluster.bootstrap_servers
        self.new_topic = new_topic
        self.admin = AdminClient({"bootstrap.servers": self.servers})

    def source(self, **options: str) -> MoldauDataSource:
        given = {"kafka.bootstrap.servers": self.servers, "startingOffsets": "earliest"}
        return MoldauDataSource(given | options)

    def reader(self, topic: str, **options: str) -> MoldauStreamReader:
        made = self.source(subscribe=topic, **options).streamReader(SCHEMA)
        assert isinstance(made, MoldauStreamReader)
        return made

    def produce(self, topic: str, count: int, size: int = 10, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for _ in range(count):
            producer.produce(topic, value=b"x" * size, partition=partition)
        assert producer.flush(60) == 0

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(60)
        deadline = time.monotonic() + SECONDS_MAX
        while topic in self.admin.list_topics(timeout=30).topics:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def world(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> World:
    return World(moldau_cluster, new_topic)


def next_end(reader: MoldauStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def values(reader: MoldauStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    """How many rows a micro-batch gives."""
    return sum(batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part))


def test_a_limit_in_offsets(world: World) -> None:
    topic = world.new_topic()
    world.produce(topic, 50)
    reader = world.reader(topic, maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = reader.initialOffset()
    ends = []
    while (end := next_end(reader, start)) != start:
        ends.append(end[topic]["0"])
        start = end
    assert ends == [20, 40, 50]
    # Spark may ask for everything, whatever the limit.
    assert reader.latestOffset({topic: {"0": 0}}, ReadAllAvailable()) == {topic: {"0": 50}}
    assert reader.reportLatestOffset() == {topic: {"0": 50}}


def test_a_limit_in_bytes(world: World) -> None:
    topic = world.new_topic()
    world.produce(topic, 200, size=1000)
    reader = world.reader(topic, maxBytesPerTrigger="50000")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(50_000)
    start = reader.initialOffset()
    sizes = []
    while (end := next_end(reader, start)) != start:
        sizes.append(end[topic]["0"] - start[topic]["0"])
        assert values(reader, start, end) == sizes[-1]
        start = end
    assert sum(sizes) == 200
    # About fifty records of about a kilobyte; the last one is what is left.
    assert all(40 <= size <= 52 for size in sizes[:-1])
    # A single record above the limit is read all the same.
    assert next_end(world.reader(topic, maxBytesPerTrigger="10"), {topic: {"0": 0}}) == {topic: {"0": 1}}


def test_a_minimum_is_waited_for_but_not_for_ever(world: World) -> None:
    topic = world.new_topic()
    world.produce(topic, 5)
    patient = world.reader(topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    assert patient.getDefaultReadLimit() == ReadMinRows(10)
    start = patient.initialOffset()
    assert next_end(patient, start) == start
    world.produce(topic, 5)
    assert next_end(patient, start) == {topic: {"0": 10}}

    hasty = world.reader(topic, minOffsetsPerTrigger="100", maxTriggerDelay="300ms")
    began = time.monotonic()
    assert next_end(hasty, start) == start
    deadline = began + SECONDS_MAX
    while next_end(hasty, start) == start:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert time.monotonic() - began >= 0.3
    # Nothing at all is no micro-batch, however long it lasts.
    end = {topic: {"0": 10}}
    time.sleep(0.35)
    assert next_end(hasty, end) == end


def test_partitions_that_appear_are_read_from_their_beginning(world: World) -> None:
    topic = world.new_topic()
    world.produce(topic, 3)
    reader = world.reader(topic)
    start = reader.initialOffset()
    first = next_end(reader, start)
    world.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    world.produce(topic, 4, partition=1)
    second = next_end(reader, first)
    assert second == {topic: {"0": 3, "1": 4}}
    assert values(reader, first, second) == 4


def test_a_deleted_topic_is_lost_data_unless_that_is_fine(world: World) -> None:
    topic, other = world.new_topic(), world.new_topic()
    world.produce(topic, 3)
    world.produce(other, 3)
    both = f"{topic},{other}"
    strict, lenient = world.reader(both), world.reader(both, failOnDataLoss="false")
    end = next_end(strict, strict.initialOffset())
    world.delete(topic)
    with pytest.raises(DataLossError, match=rf"{topic}-0 does not exist any more.*failOnDataLoss=false"):
        next_end(strict, end)
    world.produce(other, 2)
    assert next_end(lenient, end) == {topic: {"0": 3}, other: {"0": 5}}
    assert values(lenient, end, {topic: {"0": 3}, other: {"0": 5}}) == 2


def test_a_topic_that_was_deleted_before_it_was_read(world: World) -> None:
    topic = world.new_topic()
    world.produce(topic, 3)
    strict, lenient = world.reader(topic), world.reader(topic, failOnDataLoss="false")
    end = next_end(strict, strict.initialOffset())
    world.delete(topic)
    start = {topic: {"0": 0}}
    with pytest.raises(MoldauError, match=r"failOnDataLoss|There is no topic"):
        values(strict, start, end)
    assert values(lenient, start, end) == 0


def test_a_topic_that_was_made_anew_is_noticed(world: World) -> None:
    topic = world.new_topic()
    world.produce(topic, 9)
    reader = world.reader(topic)
    end = next_end(reader, reader.initialOffset())
    world.delete(topic)
    world.admin.create_topics([_new(topic)])[topic].result(60)
    world.produce(topic, 2)
    with pytest.raises(DataLossError, match="ends at offset 2 but 9 was read already; was it recreated"):
        next_end(reader, end)


def _new(topic: str) -> Any:
    from confluent_kafka.admin import NewTopic

    return NewTopic(topic, 1, 1)


def test_offsets_out_of_range_are_named(world: World) -> None:
    topic = world.new_topic()
    world.produce(topic, 5)
    beyond = f'{{"{topic}": {{"0": 100}}}}'
    batch = world.source(subscribe=topic, startingOffsets=beyond).reader(SCHEMA)
    with pytest.raises(MoldauError, match=r"starting offset 100 is after the ending offset 5; check startingOffsets"):
        batch.partitions()
    stream = world.reader(topic, startingOffsets=beyond)
    with pytest.raises(DataLossError, match=r"ends at offset 5 but 100 was read"):
        next_end(stream, stream.initialOffset())
    ending = world.source(subscribe=topic, endingOffsets=beyond, **{"kafkaConsumer.pollTimeoutMs": "500"})
    reader = ending.reader(SCHEMA)
    with pytest.raises(MoldauError, match=r"endingOffsets|nothing could be read at offset 5|ends before"):
        [batch for part in reader.partitions() for batch in reader.read(part)]


def test_offsets_that_leave_a_partition_out_are_refused(world: World) -> None:
    topic = world.new_topic(2)
    stream = world.reader(topic, startingOffsets=f'{{"{topic}": {{"0": 0}}}}')
    with pytest.raises(MoldauError, match=rf"startingOffsets must name every partition.*misses {topic}-1"):
        stream.initialOffset()


def test_another_schema_is_refused_with_what_to_do(world: World) -> None:
    wrong = StructType([StructField("value", StringType())])
    with pytest.raises(MoldauError, match=r"changed with \.schema\(\.\.\.\); select and cast columns instead"):
        world.source(subscribe="t").reader(wrong)
    with pytest.raises(MoldauError, match="select and cast"):
        world.source(subscribe="t").streamReader(wrong)


def test_credentials_for_a_listener_that_wants_none_are_explained(world: World) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas,
        "kafka.default.api.timeout.ms": "2000",
    }
    with pytest.raises(MoldauError, match=r"kafka\.(sasl|security)"):
        world.source(subscribe="t", **options).reader(SCHEMA).partitions()
