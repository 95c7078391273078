"""One copier: reads a topic in a group, writes each record to another topic, offsets and records in one transaction.

A program of its own (`python -m tests.faults.txn_copier <servers> <transactional id>`), so that it can be killed. It
never ends by itself except with 1, when the client library says that this producer cannot go on.
"""

from __future__ import annotations

import random
import sys
import time

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SOURCE, TARGET, GROUP = "copy-in", "copy-out", "copiers"
BATCH = 40
TIMEOUT = 10.0
# librdkafka 2.16 drops its brokers when none of them answers and begins at the bootstrap servers again, but goes on
# sending offsets of transactions to a coordinator that it has dropped, and that call never returns.
KEEP_BROKERS = {"metadata.recovery.strategy": "none"}


def main(servers: str, transactional_id: str) -> int:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **KEEP_BROKERS,
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **KEEP_BROKERS,
        }
    )
    producer.init_transactions(60)
    consumer.subscribe([SOURCE])
    while True:
        messages = consumer.consume(BATCH, 0.2)
        records = [message for message in messages if message.error() is None]
        if not records:
            continue
        try:
            copy(producer, consumer, records)
        except KafkaException as problem:
            error = problem.args[0]
            if error.fatal():
                return 1
            go_back(producer, consumer)


def copy(producer: Producer, consumer: Consumer, records: list[Message]) -> None:
    producer.begin_transaction()
    for record in records:
        producer.produce(TARGET, record.value(), partition=record.partition())
    if random.random() < 0.1:
        producer.flush(TIMEOUT)
        producer.abort_transaction(TIMEOUT)
        rewind(consumer)
        return
    offsets: dict[tuple[str, int], int] = {}
    for record in records:
        offsets[record.topic(), record.partition()] = record.offset() + 1
    positions = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT)
    while True:
        try:
            producer.commit_transaction(TIMEOUT)
            return
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise


def go_back(producer: Producer, consumer: Consumer) -> None:
    """Give the transaction up, and read again what it was about."""
    while True:
        try:
            producer.abort_transaction(TIMEOUT)
            break
        except KafkaException as problem:
            if problem.args[0].fatal():
                raise SystemExit(1) from problem
            time.sleep(0.1)
    rewind(consumer)


def rewind(consumer: Consumer) -> None:
    assigned = consumer.assignment()
    if not assigned:
        return
    while True:
        try:
            committed = consumer.committed(assigned, TIMEOUT)
            break
        except KafkaException:
            time.sleep(0.1)
    for place in committed:
        place.offset = max(place.offset, 0)
        try:
            consumer.seek(place)
        except KafkaException:
            # The partition was taken away meanwhile; its next reader begins at the committed offset by itself.
            continue


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
