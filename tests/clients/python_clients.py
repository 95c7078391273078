"""Three Python clients of three makers, each writing samples with a codec and reading them back by assignment."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka

from tests.clients.sample import Sample


def produce_confluent(servers: str, topic: str, codec: str, records: list[Sample]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 50})
    failures: list[object] = []
    for r in records:
        producer.produce(
            topic,
            key=r.key,
            value=r.value,
            headers=list(r.headers),
            timestamp=r.timestamp,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    assert not failures


def consume_confluent(servers: str, topic: str, count: int) -> list[Sample]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        messages = []
        deadline = time.monotonic() + 20
        while len(messages) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(messages), timeout=0.5):
                assert message.error() is None, message.error()
                messages.append(message)
        return [Sample(m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1]) for m in messages]
    finally:
        consumer.close()


def produce_kafka_python(servers: str, topic: str, codec: str, records: list[Sample]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, compression_type=None if codec == "none" else codec, linger_ms=50, acks="all"
    )
    try:
        futures = [
            producer.send(topic, key=r.key, value=r.value, headers=list(r.headers), timestamp_ms=r.timestamp)
            for r in records
        ]
        for future in futures:
            future.get(timeout=20)
    finally:
        producer.close()


def consume_kafka_python(servers: str, topic: str, count: int) -> list[Sample]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, group_id=None, consumer_timeout_ms=15000)
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        records = list(itertools.islice(consumer, count))
        return [
            Sample(r.key, r.value, tuple((k, None if v is None else bytes(v)) for k, v in r.headers), r.timestamp)
            for r in records
        ]
    finally:
        consumer.close()


def produce_aiokafka(servers: str, topic: str, codec: str, records: list[Sample]) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, compression_type=None if codec == "none" else codec, linger_ms=50, acks="all"
        )
        await producer.start()
        try:
            sent = [
                await producer.send(topic, key=r.key, value=r.value, headers=list(r.headers), timestamp_ms=r.timestamp)
                for r in records
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    asyncio.run(run())


def consume_aiokafka(servers: str, topic: str, count: int) -> list[Sample]:
    async def run() -> list[Sample]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            found = []
            for _ in range(count):
                record = await asyncio.wait_for(consumer.getone(), 15)
                found.append(Sample(record.key, record.value, tuple(record.headers), record.timestamp))
            return found
        finally:
            await consumer.stop()

    return asyncio.run(run())


PRODUCERS: dict[str, Callable[[str, str, str, list[Sample]], None]] = {
    "confluent-kafka": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
}
CONSUMERS: dict[str, Callable[[str, str, int], list[Sample]]] = {
    "confluent-kafka": consume_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
}
