"""Real clients in transactions: what is committed is seen, what is aborted is not, and a successor fences."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from kafka import KafkaProducer

from moldau.testing import Cluster

QUIET = {"log_level": 0}


def transactional(cluster: Cluster, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id, "linger.ms": 0, **QUIET}
    )
    producer.init_transactions(30)
    return producer


def committed(cluster: Cluster, topic: str, count: int, *, isolation: str = "read_committed") -> list[bytes]:
    """The first so many records, and a moment more for those that should not come."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            **QUIET,
        }
    )
    consumer.assign([Place(topic, 0, 0)])
    values: list[bytes] = []
    until = time.monotonic() + 10
    try:
        while time.monotonic() < until:
            message = consumer.poll(0.1)
            if message is None:
                if len(values) >= count:
                    break
            elif message.error() is None:
                values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


def test_librdkafka_commits_and_aborts(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = transactional(moldau_cluster, f"rdkafka-{topic}")
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        if number % 2:
            producer.flush(10)
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)
    assert committed(moldau_cluster, topic, 3) == [b"0", b"2", b"4"]
    assert committed(moldau_cluster, topic, 6, isolation="read_uncommitted") == [b"%d" % i for i in range(6)]


def test_librdkafka_is_fenced_by_its_successor(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    zombie = transactional(moldau_cluster, f"fenced-{topic}")
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    zombie.flush(10)
    heir = transactional(moldau_cluster, f"fenced-{topic}")
    heir.begin_transaction()
    heir.produce(topic, b"heir")
    heir.commit_transaction(10)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(10)
    assert refused.value.args[0].fatal()
    assert committed(moldau_cluster, topic, 1) == [b"heir"]


def test_offsets_move_with_the_transaction(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    source, target = new_topic(), new_topic()
    plain = Producer({"bootstrap.servers": moldau_cluster.bootstrap_servers, **QUIET})
    for number in range(10):
        plain.produce(source, b"%d" % number)
    assert plain.flush(10) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": moldau_cluster.bootstrap_servers,
            "group.id": f"g-{source}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    producer = transactional(moldau_cluster, f"copy-{source}")
    consumer.subscribe([source])
    try:
        records = []
        while len(records) < 10:
            records += consumer.consume(10 - len(records), 5)
        for commit in (False, True):
            producer.begin_transaction()
            for record in records:
                producer.produce(target, record.value())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 10)
            if commit:
                producer.commit_transaction(10)
            else:
                producer.flush(10)
                producer.abort_transaction(10)
            (place,) = consumer.committed([Place(source, 0)], 10)
            assert place.offset == (10 if commit else -1001)
    finally:
        consumer.close()
    assert committed(moldau_cluster, target, 10) == [b"%d" % number for number in range(10)]


def test_aiokafka_commits_and_aborts(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic()

    async def run() -> list[bytes]:
        servers = moldau_cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"aio-{topic}") as producer:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % number)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            found = []
            while len(found) < 3:
                found.append((await asyncio.wait_for(consumer.getone(), 10)).value)
            return found
        finally:
            await consumer.stop()

    assert asyncio.run(run()) == [b"0", b"2", b"4"]


def test_aiokafka_is_fenced_by_its_successor(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic()

    async def run() -> None:
        servers = moldau_cluster.bootstrap_servers
        zombie = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"aio-{topic}")
        heir = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"aio-{topic}")
        await zombie.start()
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"zombie")
        await heir.start()
        try:
            async with heir.transaction():
                await heir.send_and_wait(topic, b"heir")
            with pytest.raises((ProducerFenced, KafkaError)):
                await zombie.commit_transaction()
        finally:
            await heir.stop()
            await asyncio.wait_for(zombie.stop(), 10)

    asyncio.run(run())
    assert committed(moldau_cluster, topic, 1) == [b"heir"]


def test_kafka_python_commits_and_aborts(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=moldau_cluster.bootstrap_servers, transactional_id=f"kp-{topic}")
    try:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number).get(10)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close(5)
    assert committed(moldau_cluster, topic, 2) == [b"0", b"2"]
