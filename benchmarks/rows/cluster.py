"""Rows on three nodes: replication factor 3, acks=all, two replicas in sync at least; and the death of a leader."""

from __future__ import annotations

from benchmarks.row import (
    HALF_OF_KAFKAS,
    THREE_TIMES_KAFKAS,
    Metric,
    Row,
    Sample,
    throughput_metrics,
    throughput_sample,
)
from benchmarks.rows import clients
from benchmarks.rows.latency import produce_one_at_a_time
from benchmarks.rows.throughput import fill
from benchmarks.target import Target

SIZE_BYTES = 100
KB = 1024
NODES = 3


class ClusterProduce(Row):
    nodes = NODES
    messages = 0
    size_bytes = 0

    def measure(self, target: Target) -> Sample:
        messages = target.scaled(self.messages)
        seconds, cpu_seconds = fill(target, target.new_topic(self.data), messages, self.size_bytes)
        return throughput_sample(
            messages=messages, size_bytes=self.size_bytes, seconds=seconds, cpu_seconds=cpu_seconds
        )


class ClusterProduce100B(ClusterProduce):
    name = "cluster_produce_100b"
    title = "3 nodes: produce 500k x 100 B"
    metrics = throughput_metrics(by="message")
    data = "cluster-small"
    messages = 500_000
    size_bytes = SIZE_BYTES


class ClusterProduce1KB(ClusterProduce):
    name = "cluster_produce_1kb"
    title = "3 nodes: produce 200k x 1 KB"
    metrics = throughput_metrics(by="byte")
    data = "cluster-large"
    messages = 200_000
    size_bytes = KB


class ClusterSmallBatches(Row):
    """One produce request for every ten records, to partitions whose leaders are on all nodes."""

    name = "cluster_small_batches"
    title = "3 nodes: small batches (10 records), 12 partitions"
    metrics = throughput_metrics(by="message", rate=THREE_TIMES_KAFKAS)
    data = "cluster-batches"
    nodes = NODES
    messages = 60_000
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
            messages=messages, size_bytes=SIZE_BYTES, seconds=result["seconds"], cpu_seconds=cost.broker_cpu_seconds
        )


class ClusterOneAtATime(Row):
    name = "cluster_one_at_a_time"
    title = "3 nodes: one record at a time, acks=all"
    metrics = (
        Metric("messages_per_second", "throughput", "msg/s", THREE_TIMES_KAFKAS),
        Metric("p50_ms", "p50", "ms"),
        Metric("p99_ms", "p99", "ms"),
        Metric("cpu_us_per_message", "broker CPU", "µs/msg", HALF_OF_KAFKAS),
    )
    data = "cluster-one-at-a-time"
    nodes = NODES
    messages = 2000

    def measure(self, target: Target) -> Sample:
        messages = target.scaled(self.messages, at_least=500)
        task = {"topic": target.new_topic(self.data), "messages": messages}
        (result,), cost = target.run((produce_one_at_a_time, task))
        return {
            **result,
            "messages_per_second": messages / cost.seconds,
            "cpu_us_per_message": cost.broker_cpu_seconds / messages * 1e6,
        }


ROWS = (ClusterProduce100B(), ClusterProduce1KB(), ClusterSmallBatches(), ClusterOneAtATime())
