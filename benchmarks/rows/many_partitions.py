"""Rows in which the cost of a request counts, not that of a byte: small batches, and very many partitions."""

from __future__ import annotations

import time

from benchmarks.row import TWICE_KAFKAS, Metric, Row, Sample, throughput_metrics, throughput_sample
from benchmarks.rows import clients
from benchmarks.rows.throughput import fill
from benchmarks.target import Filled, Target

SIZE_BYTES = 100


class SmallBatches(Row):
    """Batches of ten records, sent as soon as they are full: one produce request for every ten records."""

    name = "small_batches"
    title = "small batches (10 records), 12 partitions"
    metrics = throughput_metrics(by="message", rate=TWICE_KAFKAS)
    data = "small-batches"
    messages = 300_000
    partitions = 12

    def measure(self, target: Target) -> Sample:
        messages = target.scaled(self.messages)
        task = {
            "topic": target.new_topic(self.data, self.partitions),
            "partitions": self.partitions,
            "messages": messages,
            "size_bytes": SIZE_BYTES,
            "config": {"batch.num.messages": 10, "linger.ms": 0},
        }
        (result,), cost = target.run((clients.produce, task))
        return throughput_sample(
            messages=messages,
            size_bytes=SIZE_BYTES,
            seconds=result["seconds"],
            cpu_seconds=cost.broker_cpu_seconds,
        )


class ManyPartitions(Row):
    """A topic of a thousand partitions, written and read evenly across all of them."""

    data = "many"
    messages = 500_000
    partitions = 1000

    def filled(self, target: Target) -> Filled:
        if self.data not in target.filled:
            target.filled[self.data] = Filled(target.new_topic(self.data, self.partitions), 0, SIZE_BYTES)
        return target.filled[self.data]


class ProduceManyPartitions(ManyPartitions):
    name = "produce_1000_partitions"
    title = "produce 500k x 100 B over 1000 partitions"
    metrics = (
        *throughput_metrics(by="message"),
        Metric("create_seconds", "creating the topic", "s"),
    )

    def measure(self, target: Target) -> Sample:
        began = time.perf_counter()
        filled = self.filled(target)
        create_seconds = time.perf_counter() - began
        messages = target.scaled(self.messages)
        seconds, cpu_seconds = fill(target, filled.topic, messages, SIZE_BYTES, partitions=self.partitions)
        filled.messages += messages
        sample = throughput_sample(messages=messages, size_bytes=SIZE_BYTES, seconds=seconds, cpu_seconds=cpu_seconds)
        return {**sample, "create_seconds": create_seconds}


class ConsumeManyPartitions(ManyPartitions):
    name = "consume_1000_partitions"
    title = "consume 500k x 100 B over 1000 partitions"
    metrics = throughput_metrics(by="message")

    def measure(self, target: Target) -> Sample:
        filled = self.filled(target)
        if not filled.messages:
            filled.messages = target.scaled(self.messages)
            fill(target, filled.topic, filled.messages, SIZE_BYTES, partitions=self.partitions)
        task = {
            "topic": filled.topic,
            "partitions": self.partitions,
            "messages": filled.messages,
            "size_bytes": SIZE_BYTES,
        }
        (result,), cost = target.run((clients.consume, task))
        return throughput_sample(
            messages=filled.messages,
            size_bytes=SIZE_BYTES,
            seconds=result["seconds"],
            cpu_seconds=cost.broker_cpu_seconds,
        )


ROWS = (SmallBatches(), ProduceManyPartitions(), ConsumeManyPartitions())
