"""Rows on three nodes: replication factor 3, acks=all, two replicas in sync at least; and the death of a leader."""

from __future__ import annotations

import itertools
import os
import signal
import time

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from benchmarks.brokers import BrokerFailed, Cluster
from benchmarks.client import Result, Task, Work
from benchmarks.row import (
    A_SECOND,
    HALF_OF_KAFKAS,
    THREE_TIMES_KAFKAS,
    Metric,
    Row,
    Sample,
    throughput_metrics,
    throughput_sample,
)
from benchmarks.rows import clients
from benchmarks.rows.clients import DeliveryFailed, make_consumer, make_producer
from benchmarks.rows.latency import produce_one_at_a_time
from benchmarks.rows.throughput import fill
from benchmarks.target import ADMIN_TIMEOUT_SECONDS, Target, wait_for_topic

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


# ---- the death of a leader

RATE_PER_SECOND = 200
BEFORE_SECONDS, AFTER_SECONDS = 2.0, 3.0
RECOVERY_SECONDS_MAX = 60.0


def produce_through_a_death(task: Task) -> Work:
    """Numbered records at a steady rate from an idempotent producer, until well after the longest silence."""
    acknowledged: list[float] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise DeliveryFailed(str(error))
        acknowledged.append(time.perf_counter())

    config = {
        "enable.idempotence": True,
        "linger.ms": 0,
        "delivery.report.only.error": False,
        "on_delivery": on_delivery,
    }
    producer = make_producer({**task, "config": config})
    topic = task["topic"]

    def work() -> Result:
        number, began = 0, time.perf_counter()
        while not _is_over(acknowledged, began):
            producer.produce(topic, b"%d" % number, partition=0)
            number += 1
            producer.poll(max(0.0, began + number / RATE_PER_SECOND - time.perf_counter()))
            if time.perf_counter() - began > RECOVERY_SECONDS_MAX:
                raise TimeoutError("no acknowledgement after the death of the leader")
        if producer.flush(RECOVERY_SECONDS_MAX):
            raise DeliveryFailed("not everything was acknowledged in time")
        gaps = (later - earlier for earlier, later in itertools.pairwise(acknowledged))
        return {"gap_seconds": max(gaps), "records": number}

    return work


def _is_over(acknowledged: list[float], began: float) -> bool:
    now = time.perf_counter()
    if now - began < BEFORE_SECONDS + AFTER_SECONDS:
        return False
    # It goes on: the last seconds were as busy as the first ones.
    return sum(1 for each in reversed(acknowledged[-RATE_PER_SECOND:]) if now - each < 1.0) > RATE_PER_SECOND // 2


def kill_the_leader(task: Task) -> Work:
    """Not a client: it kills a node while the other one is at work."""

    def work() -> Result:
        time.sleep(BEFORE_SECONDS)
        os.kill(task["pid"], signal.SIGKILL)
        return {}

    return work


def check_history(target: Target, topic: str, records: int) -> None:
    """Every acknowledged record is there once, in order."""
    consumer: Consumer = make_consumer({"bootstrap": target.bootstrap, "topic": topic})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        deadline = time.monotonic() + ADMIN_TIMEOUT_SECONDS
        while len(found) < records and time.monotonic() < deadline:
            messages = consumer.consume(1000, 0.2)
            found += [int(each.value() or b"-1") for each in messages if each.error() is None]
    finally:
        consumer.close()
    if found != list(range(records)):
        raise BrokerFailed(
            f"{target.name} lost or repeated records: {records} acknowledged, {len(found)} found, "
            f"{len(set(found))} distinct"
        )


class LeaderKilled(Row):
    """kill -9 of the leader under an idempotent producer: nothing lost, nothing twice, in order, no long silence."""

    name = "leader_killed"
    title = "3 nodes: leader killed with -9, idempotent producer"
    metrics = (Metric("gap_seconds", "longest gap between acknowledgements", "s", A_SECOND),)
    data = "leader-killed"
    nodes = NODES
    warms_up = False

    def measure(self, target: Target) -> Sample:
        cluster = target.broker
        assert isinstance(cluster, Cluster)
        topic = target.new_topic(self.data)
        leader = target.admin.list_topics(topic, timeout=ADMIN_TIMEOUT_SECONDS).topics[topic].partitions[0].leader
        node = cluster.nodes[leader]
        task = {"topic": topic, "pid": node.pid}
        try:
            (result, _), _ = target.run((produce_through_a_death, task), (kill_the_leader, task), expects_death=True)
        finally:
            node.kill()
            node.start()
        check_history(target, topic, result["records"])
        wait_for_topic(target.admin, topic, 1, cluster.replicas)
        return {"gap_seconds": result["gap_seconds"]}


ROWS = (
    ClusterProduce100B(),
    ClusterProduce1KB(),
    ClusterSmallBatches(),
    ClusterOneAtATime(),
    LeaderKilled(),
)
