"""Rows in which the cost of a request counts, not that of a byte: small batches, and very many partitions."""

from __future__ import annotations

from benchmarks.row import TWICE_KAFKAS, Row, Sample, throughput_metrics, throughput_sample
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

    def created(self, target: Target) -> Filled:
        """The topic, with one record in every partition: a broker may still be creating them when it says it has."""
        topic = target.new_topic(self.data, self.partitions)
        fill(target, topic, self.partitions, SIZE_BYTES, partitions=self.partitions)
        target.filled[self.data] = Filled(topic, self.partitions, SIZE_BYTES)
        return target.filled[self.data]


class ProduceManyPartitions(ManyPartitions):
    name = "produce_1000_partitions"
    title = "produce 500k x 100 B over 1000 partitions"
    metrics = throughput_metrics(by="message")

    def measure(self, target: Target) -> Sample:
        filled = self.created(target)
        messages = target.scaled(self.messages)
        seconds, cpu_seconds = fill(target, filled.topic, messages, SIZE_BYTES, partitions=self.partitions)
        filled.messages += messages
        return throughput_sample(messages=messages, size_bytes=SIZE_BYTES, seconds=seconds, cpu_seconds=cpu_seconds)


class ConsumeManyPartitions(ManyPartitions):
    name = "consume_1000_partitions"
    title = "consume 500k x 100 B over 1000 partitions"
    metrics = throughput_metrics(by="message")

    def measure(self, target: Target) -> Sample:
        if self.data not in target.filled:
            filled = self.created(target)
            filled.messages += target.scaled(self.messages)
            fill(target, filled.topic, target.scaled(self.messages), SIZE_BYTES, partitions=self.partitions)
        filled = target.filled[self.data]
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
