"""Rows that move as much as possible through one partition: produce 100 B, 1 KB and compressed, and read it back."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.floor import receiving_ns_per_byte, sending_ns_per_byte
from benchmarks.row import (
    AT_MOST_KAFKAS,
    OVER_LIMIT,
    TWICE_THE_FLOOR,
    Limit,
    Metric,
    Row,
    Sample,
    throughput_metrics,
    throughput_sample,
)
from benchmarks.rows import clients
from benchmarks.target import Filled, Target

KB = 1024


class Produce(Row):
    """acks=all to one partition, with the client's default batching."""

    messages = 0
    size_bytes = 0
    compression = "none"

    def measure(self, target: Target) -> Sample:
        messages = target.scaled(self.messages)
        topic = target.new_topic(self.data)
        seconds, cpu_seconds = fill(target, topic, messages, self.size_bytes, compression=self.compression)
        target.filled[self.data] = Filled(topic, messages, self.size_bytes)
        return throughput_sample(
            messages=messages, size_bytes=self.size_bytes, seconds=seconds, cpu_seconds=cpu_seconds
        )


class Consume(Row):
    """Read a whole partition from its beginning; what is read is in the page cache."""

    messages = 0
    size_bytes = 0

    def measure(self, target: Target) -> Sample:
        if self.data not in target.filled:
            topic, messages = target.new_topic(self.data), target.scaled(self.messages)
            fill(target, topic, messages, self.size_bytes)
            target.filled[self.data] = Filled(topic, messages, self.size_bytes)
        filled = target.filled[self.data]
        task = {"topic": filled.topic, "messages": filled.messages, "size_bytes": filled.size_bytes}
        (result,), cost = target.run((clients.consume, task))
        return throughput_sample(
            messages=filled.messages,
            size_bytes=filled.size_bytes,
            seconds=result["seconds"],
            cpu_seconds=cost.broker_cpu_seconds,
        )


def fill(
    target: Target,
    topic: str,
    messages: int,
    size_bytes: int,
    *,
    partitions: int = 1,
    compression: str = "none",
    config: Mapping[str, object] | None = None,
) -> tuple[float, float]:
    """Produce into a topic; the seconds it took and the broker's CPU seconds."""
    task = {
        "topic": topic,
        "partitions": partitions,
        "messages": messages,
        "size_bytes": size_bytes,
        "compressible": compression != "none",
        "config": {"compression.type": compression, **(config or {})},
    }
    (result,), cost = target.run((clients.produce, task), written_bytes=messages * size_bytes)
    return result["seconds"], cost.broker_cpu_seconds


class Produce100B(Produce):
    name = "produce_100b"
    title = "produce 1M x 100 B"
    metrics = throughput_metrics(by="message")
    data = "small"
    messages = 1_000_000
    size_bytes = 100


class Consume100B(Consume):
    name = "consume_100b"
    title = "consume 1M x 100 B"
    metrics = throughput_metrics(by="message")
    data = "small"
    messages = 1_000_000
    size_bytes = 100


class Produce1KB(Produce):
    name = "produce_1kb"
    title = "produce 500k x 1 KB"
    metrics = (
        *throughput_metrics(by="byte", cpu=AT_MOST_KAFKAS),
        Metric(OVER_LIMIT, "CPU over recv+crc+write", "x", TWICE_THE_FLOOR),
    )
    data = "large"
    messages = 500_000
    size_bytes = KB

    def limit(self, target: Target) -> Limit:
        payload = target.scaled(self.messages) * self.size_bytes
        target.reservoir.fill(payload)
        target.reservoir.release()
        value = receiving_ns_per_byte(target.directory / "floor", payload)
        return Limit("recv + crc32c + write to the page cache, nothing else", "cpu_ns_per_byte", "ns/B", value)


class Consume1KB(Consume):
    name = "consume_1kb"
    title = "consume 500k x 1 KB"
    metrics = (*throughput_metrics(by="byte"), Metric(OVER_LIMIT, "CPU over sending mapped pages", "x"))
    data = "large"
    messages = 500_000
    size_bytes = KB

    def limit(self, target: Target) -> Limit:
        payload = target.scaled(self.messages) * self.size_bytes
        target.reservoir.fill(payload)
        target.reservoir.release()
        value = sending_ns_per_byte(target.directory / "floor", payload)
        return Limit("sending mapped pages of the page cache, nothing else", "cpu_ns_per_byte", "ns/B", value)


class ProduceLz4(Produce):
    name = "produce_lz4"
    title = "produce 300k x 1 KB, lz4"
    metrics = throughput_metrics(by="byte")
    data = "lz4"
    messages = 300_000
    size_bytes = KB
    compression = "lz4"


class ProduceZstd(Produce):
    name = "produce_zstd"
    title = "produce 300k x 1 KB, zstd"
    metrics = throughput_metrics(by="byte")
    data = "zstd"
    messages = 300_000
    size_bytes = KB
    compression = "zstd"


ROWS = (Produce100B(), Consume100B(), Produce1KB(), Consume1KB(), ProduceLz4(), ProduceZstd())
