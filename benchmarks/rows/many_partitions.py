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
    """A topic of a thousand partitions, written and read evenly across all of them.

    It is made once, when warming up, and kept: Apache Kafka is busy with its creation for many seconds after it has
    answered, and with its removal too.
    """

    data = "many"
    partitions = 1000
    messages = 0

    def created(self, target: Target) -> Filled:
        if self.data not in target.filled:
            topic = target.new_topic(self.data, self.partitions)
            fill(target, topic, self.partitions, SIZE_BYTES, partitions=self.partitions)
            target.wait_until_idle()
            target.filled[self.data] = Filled(topic, self.partitions, SIZE_BYTES, kept=True)
        return target.filled[self.data]

    def whole_turns(self, target: Target) -> int:
        """How many records to send at the scale of the run, the same number to every partition."""
        return max(1, target.scaled(self.messages) // self.partitions) * self.partitions


class ProduceManyPartitions(ManyPartitions):
    """Records go to the partitions in turn, so batches are small, and every batch is a request."""

    name = "produce_1000_partitions"
    title = "produce 200k x 100 B over 1000 partitions"
    metrics = throughput_metrics(by="message")
    messages = 200_000

    def measure(self, target: Target) -> Sample:
        filled, messages = self.created(target), self.whole_turns(target)
        seconds, cpu_seconds = fill(target, filled.topic, messages, SIZE_BYTES, partitions=self.partitions)
        filled.messages += messages
        return throughput_sample(messages=messages, size_bytes=SIZE_BYTES, seconds=seconds, cpu_seconds=cpu_seconds)


class ConsumeManyPartitions(ManyPartitions):
    """One consumer of all partitions reads half a million records that a patient producer has just left."""

    name = "consume_1000_partitions"
    title = "consume 500k x 100 B over 1000 partitions"
    metrics = throughput_metrics(by="message")
    messages = 500_000

    def measure(self, target: Target) -> Sample:
        filled, messages = self.created(target), self.whole_turns(target)
        before = filled.messages
        patient = {"linger.ms": 200}
        fill(target, filled.topic, messages, SIZE_BYTES, partitions=self.partitions, config=patient)
        filled.messages += messages
        task = {
            "topic": filled.topic,
            "partitions": self.partitions,
            "messages": messages,
            "size_bytes": SIZE_BYTES,
            "offset": before // self.partitions,
        }
        (result,), cost = target.run((clients.consume, task))
        return throughput_sample(
            messages=messages, size_bytes=SIZE_BYTES, seconds=result["seconds"], cpu_seconds=cost.broker_cpu_seconds
        )


ROWS = (SmallBatches(), ProduceManyPartitions(), ConsumeManyPartitions())
