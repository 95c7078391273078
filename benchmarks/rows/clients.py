"""The librdkafka clients that several rows share: produce at full speed, consume at full speed.

Client settings are librdkafka's defaults unless a row's task names others, and are the same for both brokers.
"""

from __future__ import annotations

import random
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from benchmarks.client import Result, Task, Work

CALL_SIZE = 1000  # messages handed to librdkafka in one call
QUEUE_LIMIT = 100_000  # librdkafka's own default of queue.buffering.max.messages
METADATA_TIMEOUT_SECONDS = 30.0
IDLE_TIMEOUT_SECONDS = 30.0
LOG_WARNINGS = 4  # syslog's number, which librdkafka uses
WORDS = ("order", "paid", "user", "click", "error", "temperature", "vltava", "bridge", "true", "null", "2026-11-15")


class DeliveryFailed(RuntimeError):
    """A record was not acknowledged, which a benchmark must not count as work done."""


def make_producer(task: Task) -> Producer:
    config = {
        "bootstrap.servers": task["bootstrap"],
        "log_level": LOG_WARNINGS,
        "acks": "all",
        "queue.buffering.max.messages": QUEUE_LIMIT,
        "delivery.report.only.error": True,  # a callback a message would measure the client
        "on_delivery": _refuse,
        **task.get("config", {}),
    }
    producer = Producer(config)
    producer.list_topics(task["topic"], timeout=METADATA_TIMEOUT_SECONDS)  # connects
    return producer


def make_consumer(task: Task) -> Consumer:
    config = {
        "bootstrap.servers": task["bootstrap"],
        "log_level": LOG_WARNINGS,
        "group.id": "benchmark",  # required by the library; partitions are assigned by hand and nothing is committed
        "enable.auto.commit": False,
        # A full queue makes librdkafka pause for a second; that would be most of the time of a fast broker's row.
        "fetch.queue.backoff.ms": 2,
        **task.get("config", {}),
    }
    consumer = Consumer(config)
    consumer.list_topics(task["topic"], timeout=METADATA_TIMEOUT_SECONDS)  # connects
    return consumer


def payloads(size_bytes: int, *, compressible: bool, count: int = 256) -> list[bytes]:
    """The same values for every broker and run: constant bytes, or text that compresses about as events do."""
    if not compressible:
        return [b"v" * size_bytes]
    rng = random.Random(size_bytes)
    values = []
    for _ in range(count):
        text = ""
        while len(text) < size_bytes:
            text += f'"{rng.choice(WORDS)}":{rng.getrandbits(32):x},'
        values.append(text[:size_bytes].encode())
    return values


def produce(task: Task) -> Work:
    """Send `messages` records of `size_bytes` as fast as they are taken, each to the next of the `partitions`."""
    producer = make_producer(task)
    values = payloads(task["size_bytes"], compressible=task.get("compressible", False))
    send = _send_to_one if task.get("partitions", 1) == 1 else _send_to_each

    def work() -> Result:
        began = time.perf_counter()
        send(producer, task, values)
        if producer.flush(IDLE_TIMEOUT_SECONDS):
            raise DeliveryFailed("not everything was acknowledged in time")
        return {"seconds": time.perf_counter() - began}

    return work


def _send_to_one(producer: Producer, task: Task, values: list[bytes]) -> None:
    """To partition 0, a thousand at a time: the client must not be what is measured."""
    topic, left = task["topic"], task["messages"]
    messages = [{"value": values[i % len(values)]} for i in range(CALL_SIZE)]
    while left > 0:
        while len(producer) > QUEUE_LIMIT - CALL_SIZE:
            producer.poll(0.001)
        call = messages[:left]
        if producer.produce_batch(topic, call, partition=0) != len(call):
            raise DeliveryFailed("the client's queue was full")
        left -= len(call)


def _send_to_each(producer: Producer, task: Task, values: list[bytes]) -> None:
    """To all partitions in turn, one by one: calls with many records take one partition only."""
    topic, partitions, value = task["topic"], task["partitions"], values[0]
    send = producer.produce
    for first in range(0, task["messages"], CALL_SIZE):
        while len(producer) > QUEUE_LIMIT - CALL_SIZE:
            producer.poll(0.001)
        for number in range(first, min(first + CALL_SIZE, task["messages"])):
            send(topic, value, partition=number % partitions)


def consume(task: Task) -> Work:
    """Read `messages` records of all partitions, each from `offset` or from the beginning."""
    consumer = make_consumer(task)
    total, topic, size_bytes = task["messages"], task["topic"], task["size_bytes"]

    def work() -> Result:
        began = time.perf_counter()
        partitions, offset = range(task.get("partitions", 1)), task.get("offset", 0)
        consumer.assign([TopicPartition(topic, number, offset) for number in partitions])
        received = 0
        while received < total:
            messages = consumer.consume(min(CALL_SIZE, total - received), IDLE_TIMEOUT_SECONDS)
            if not messages:
                raise TimeoutError(f"only {received} of {total} records arrived")
            received += len(messages)
            if messages[-1].error() is not None or len(messages[-1].value() or b"") != size_bytes:
                raise DeliveryFailed(f"read something else than was written: {messages[-1].error()}")
        return {"seconds": time.perf_counter() - began}

    return work


def _refuse(error: KafkaError, _message: object) -> None:
    if error is not None:
        raise DeliveryFailed(str(error))
