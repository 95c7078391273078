"""Rows about how long one record takes: acknowledged one at a time, and from a producer to a waiting consumer."""

from __future__ import annotations

import statistics
import struct
import time

from confluent_kafka import KafkaError, Message, TopicPartition

from benchmarks.client import Result, Task, Work
from benchmarks.row import Row, Sample, latency_metrics
from benchmarks.rows.clients import IDLE_TIMEOUT_SECONDS, DeliveryFailed, make_consumer, make_producer
from benchmarks.target import Target

SIZE_BYTES = 100
STAMP = struct.Struct(">q")  # perf_counter_ns: one clock for all processes of a Linux machine
CLIENT_WARM_UP = 300
RATE_PER_SECOND = 500


def percentiles(latencies_ns: list[int]) -> Result:
    cuts = statistics.quantiles(latencies_ns, n=100)
    return {"p50_ms": cuts[49] / 1e6, "p99_ms": cuts[98] / 1e6}


def produce_one_at_a_time(task: Task) -> Work:
    """The next record leaves when the last one has been acknowledged."""
    acknowledged: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        acknowledged.append(error)

    config = {"linger.ms": 0, "delivery.report.only.error": False, "on_delivery": on_delivery}
    producer = make_producer({**task, "config": config})
    topic, value = task["topic"], b"v" * SIZE_BYTES

    def send(count: int) -> list[int]:
        latencies = []
        for _ in range(count):
            acknowledged.clear()
            began = time.perf_counter_ns()
            producer.produce(topic, value, partition=0)
            while not acknowledged:
                producer.poll(IDLE_TIMEOUT_SECONDS)
            latencies.append(time.perf_counter_ns() - began)
            if acknowledged[0] is not None:
                raise DeliveryFailed(str(acknowledged[0]))
        return latencies

    send(CLIENT_WARM_UP)
    return lambda: percentiles(send(task["messages"]))


def produce_steadily(task: Task) -> Work:
    """Records that carry the moment they were handed to the client, at a fixed rate."""
    producer = make_producer({**task, "config": {"linger.ms": 0}})
    topic, padding = task["topic"], b"v" * (SIZE_BYTES - STAMP.size)

    def work() -> Result:
        began = time.perf_counter()
        for number in range(task["messages"]):
            wait = began + number / RATE_PER_SECOND - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            producer.produce(topic, STAMP.pack(time.perf_counter_ns()) + padding, partition=0)
            producer.poll(0)
        if producer.flush(IDLE_TIMEOUT_SECONDS):
            raise DeliveryFailed("not everything was acknowledged in time")
        return {}

    return work


def consume_steadily(task: Task) -> Work:
    """Wait for each record and note its age on arrival; the first second is the consumer finding its feet."""
    consumer = make_consumer(task)
    consumer.assign([TopicPartition(task["topic"], 0, 0)])

    def work() -> Result:
        ages: list[int] = []
        while len(ages) < task["messages"]:
            message = consumer.poll(IDLE_TIMEOUT_SECONDS)
            arrived = time.perf_counter_ns()
            if message is None or message.error() is not None:
                raise DeliveryFailed("a record did not arrive")
            ages.append(arrived - STAMP.unpack_from(message.value() or b"")[0])
        return percentiles(ages[task["skip"] :])

    return work


class OneAtATime(Row):
    name = "one_at_a_time"
    title = "one record at a time, acks=all"
    metrics = latency_metrics()
    data = "one-at-a-time"
    messages = 5000

    def measure(self, target: Target) -> Sample:
        messages = target.scaled(self.messages, at_least=1000)
        task = {"topic": target.new_topic(self.data), "messages": messages}
        (result,), cost = target.run((produce_one_at_a_time, task))
        return {**result, "cpu_us_per_message": cost.broker_cpu_seconds / messages * 1e6}


class EndToEnd(Row):
    name = "end_to_end"
    title = f"end to end at {RATE_PER_SECOND} records/s"
    metrics = latency_metrics()
    data = "end-to-end"
    warms_up = False
    messages = 2000

    def measure(self, target: Target) -> Sample:
        messages = target.scaled(self.messages, at_least=1000)
        task = {"topic": target.new_topic(self.data), "messages": messages, "skip": min(RATE_PER_SECOND, messages // 2)}
        (ages, _), cost = target.run((consume_steadily, task), (produce_steadily, task))
        return {**ages, "cpu_us_per_message": cost.broker_cpu_seconds / messages * 1e6}


ROWS = (OneAtATime(), EndToEnd())
