"""Consumer groups of the new protocol with a real client: members come, go and die; records are read once by each."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from moldau.testing import Cluster

_numbers = itertools.count()
SETTLED_SECONDS = 30.0


class Members:
    """Consumers of one group on one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._bootstrap = cluster.bootstrap_servers
        self.group = f"next-{next(_numbers)}"
        self.consumers: list[Consumer] = []
        self.values: list[bytes] = []
        self.offsets: set[tuple[str | None, int | None, int | None]] = set()

    def add(self, *topics: str, **settings: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": "500",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        consumer.subscribe(list(topics))
        self.consumers.append(consumer)
        return consumer

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        consumer.close()

    def poll(self) -> None:
        for consumer in self.consumers:
            message = consumer.poll(0.02)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART), error
                continue
            place = (message.topic(), message.partition(), message.offset())
            assert place not in self.offsets, f"{place} was read twice"
            self.offsets.add(place)
            self.values.append(message.value() or b"")

    def until(self, reached: Callable[[], bool], seconds: float = SETTLED_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < end, [self.owned(consumer) for consumer in self.consumers]
            self.poll()

    def owned(self, consumer: Consumer) -> list[tuple[str, int]]:
        return sorted((each.topic, each.partition) for each in consumer.assignment())

    def sizes(self) -> list[int]:
        return [len(consumer.assignment()) for consumer in self.consumers]

    def all_owned(self) -> list[tuple[str, int]]:
        return sorted(each for consumer in self.consumers for each in self.owned(consumer))


@pytest.fixture
def members(moldau_cluster: Cluster) -> Iterator[Members]:
    members = Members(moldau_cluster)
    yield members
    for consumer in members.consumers:
        with contextlib.suppress(Exception):
            consumer.close()


def produce(cluster: Cluster, topic: str, count: int, partitions: int) -> list[bytes]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    values = [f"{topic}-{number}".encode() for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(30) == 0
    return values


def test_members_come_and_go(moldau_cluster: Cluster, new_topic: Callable[..., str], members: Members) -> None:
    topic = new_topic(6)
    values = produce(moldau_cluster, topic, 60, 6)
    everything = [(topic, index) for index in range(6)]
    first = members.add(topic)
    members.until(lambda: members.sizes() == [6])
    members.until(lambda: len(members.values) == 60)
    first.commit(asynchronous=False)
    second, third = members.add(topic), members.add(topic)
    members.until(lambda: members.sizes() == [2, 2, 2])
    assert members.all_owned() == everything
    more = produce(moldau_cluster, topic, 30, 6)
    members.until(lambda: len(members.values) == 90)
    assert sorted(members.values) == sorted(values + more)
    members.remove(first)
    members.until(lambda: members.sizes() == [3, 3])
    assert members.all_owned() == everything
    members.remove(second)
    members.until(lambda: members.sizes() == [6])
    assert members.owned(third) == everything


READER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer"})
consumer.subscribe(["orders"])
while True:
    consumer.poll(0.1)
"""


def test_a_member_that_dies() -> None:
    settings = {
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.min.session.timeout.ms": "2000",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "500",
    }
    with Cluster(settings) as cluster:
        cluster.create_topic("orders", 4)
        members = Members(cluster)
        command = [sys.executable, "-c", READER, cluster.bootstrap_servers, members.group]
        with subprocess.Popen(command) as doomed:
            try:
                members.add("orders")
                members.until(lambda: members.sizes() == [2])
            finally:
                doomed.kill()
        members.until(lambda: members.sizes() == [4])
        members.consumers[0].close()


def test_a_static_member_keeps_its_place(
    moldau_cluster: Cluster, new_topic: Callable[..., str], members: Members
) -> None:
    topic = new_topic(4)
    first = members.add(topic, group_instance_id="one")
    members.add(topic, group_instance_id="two")
    members.until(lambda: members.sizes() == [2, 2])
    had = members.owned(first)
    other = members.owned(members.consumers[1])
    members.remove(first)
    again = members.add(topic, group_instance_id="one")
    members.until(lambda: members.sizes() == [2, 2])
    assert members.owned(again) == had
    assert members.owned(members.consumers[0]) == other


def test_a_regular_expression(moldau_cluster: Cluster, new_topic: Callable[..., str], members: Members) -> None:
    topic = new_topic(2)
    name = topic.replace(".", r"\.")
    consumer = members.add(f"^{name}.*")
    members.until(lambda: members.sizes() == [2])
    later = f"{topic}-later"
    moldau_cluster.create_topic(later, 1)
    members.until(lambda: members.sizes() == [3], seconds=60)
    assert members.owned(consumer) == [(topic, 0), (topic, 1), (later, 0)]


def test_partitions_that_are_added(moldau_cluster: Cluster, new_topic: Callable[..., str], members: Members) -> None:
    topic = new_topic(1)
    members.add(topic)
    members.until(lambda: members.sizes() == [1])
    admin = AdminClient({"bootstrap.servers": moldau_cluster.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    members.until(lambda: members.sizes() == [3])


def test_the_group_survives_a_killed_node() -> None:
    cluster = Cluster(in_process=False)
    with cluster:
        cluster.create_topic("orders", 4)
        members = Members(cluster)
        members.add("orders")
        members.add("orders")
        members.until(lambda: members.sizes() == [2, 2])
        before = [members.owned(consumer) for consumer in members.consumers]
        members.consumers[0].commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        cluster.kill()
        cluster.start()
        produce(cluster, "orders", 8, 4)
        members.until(lambda: len(members.values) == 8)
        assert [members.owned(consumer) for consumer in members.consumers] == before
        for consumer in members.consumers:
            consumer.close()


def test_twenty_members_are_balanced_soon(
    moldau_cluster: Cluster, new_topic: Callable[..., str], members: Members
) -> None:
    topic = new_topic(60)
    for _ in range(20):
        members.add(topic)
    # Apache Kafka needs between five and ten seconds; the limit leaves room for slow machines.
    members.until(lambda: members.sizes() == [3] * 20, seconds=20)
    assert members.all_owned() == [(topic, index) for index in range(60)]


def test_a_classic_consumer_in_the_same_group(
    moldau_cluster: Cluster, new_topic: Callable[..., str], members: Members
) -> None:
    topic = new_topic(4)
    classic = {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"}
    old = members.add(topic, heartbeat_interval_ms="500", **classic)
    members.until(lambda: members.sizes() == [4])
    new = members.add(topic)
    members.until(lambda: members.sizes() == [2, 2])
    members.remove(new)
    members.until(lambda: members.sizes() == [4])
    assert len(members.owned(old)) == 4
