"""Rows run by Apache Kafka's own performance tools, with the Java client and its defaults.

A tool starts a fresh JVM for each measurement, on both brokers alike; its own figures are what is reported.
"""

from __future__ import annotations

import re
import subprocess

from benchmarks import process
from benchmarks.brokers import java_tool
from benchmarks.row import Row, Sample, throughput_metrics, throughput_sample
from benchmarks.rows.throughput import fill
from benchmarks.target import Cost, Filled, Target
from benchmarks.wire import Connection

SIZE_BYTES = 100
WARM_UP_RECORDS = 200_000  # while the tool's JVM compiles itself; not part of its steady-state summary
TOOL_TIMEOUT_SECONDS = 120.0
JVM_BYTES = 512 << 20
PRODUCED = re.compile(r"(\d+) (steady state )?records sent, ([\d.]+) records/sec")
JOIN_GROUP, SYNC_GROUP, HEARTBEAT = 11, 14, 12
SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79


class ToolFailed(RuntimeError):
    """One of Kafka's tools ended with an error; what it printed is in the message."""


def run_tool(target: Target, class_name: str, *arguments: str) -> tuple[str, Cost]:
    command = [*java_tool(class_name, target.directory / "tools-log4j2.properties"), *arguments]
    target.reservoir.fill(JVM_BYTES)
    target.reservoir.release()
    with target.costs() as cost:
        tool = process.spawn(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output = tool.communicate(timeout=TOOL_TIMEOUT_SECONDS)[0].decode(errors="replace")
        finally:
            process.stop(tool)
    if tool.returncode != 0:
        raise ToolFailed(f"{class_name}\n{output}")
    target.broker.check_alive()
    return output, cost


class ProducerPerformance(Row):
    name = "java_produce"
    title = "ProducerPerformance, 1M x 100 B"
    metrics = throughput_metrics(by="message")
    data = "java"
    warms_up = False
    messages = 1_000_000

    def measure(self, target: Target) -> Sample:
        topic, messages = target.new_topic(self.data), target.scaled(self.messages) + WARM_UP_RECORDS
        output, cost = run_tool(
            target,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", target.bootstrap, "--topic", topic, "--record-size", str(SIZE_BYTES)),
            *("--num-records", str(messages), "--warmup-records", str(WARM_UP_RECORDS), "--throughput", "-1"),
            *("--command-property", "acks=all"),
        )
        target.filled[self.data] = Filled(topic, messages, SIZE_BYTES)
        sample = throughput_sample(
            messages=messages, size_bytes=SIZE_BYTES, seconds=cost.seconds, cpu_seconds=cost.broker_cpu_seconds
        )
        rate = float(PRODUCED.findall(output)[-1][2])
        return {**sample, "messages_per_second": rate, "megabytes_per_second": rate * SIZE_BYTES / 1e6}


class ConsumerPerformance(Row):
    name = "java_consume"
    title = "ConsumerPerformance, 1M x 100 B"
    metrics = throughput_metrics(by="message")
    data = "java"
    warms_up = False
    messages = 1_000_000
    needs = frozenset({JOIN_GROUP, SYNC_GROUP, HEARTBEAT})  # the tool subscribes as a member of a group

    def measure(self, target: Target) -> Sample:
        if self.data not in target.filled:
            topic, messages = target.new_topic(self.data), target.scaled(self.messages)
            fill(target, topic, messages, SIZE_BYTES)
            target.filled[self.data] = Filled(topic, messages, SIZE_BYTES)
        filled = target.filled[self.data]
        output, cost = run_tool(
            target,
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", target.bootstrap, "--topic", filled.topic, "--hide-header"),
            *("--num-records", str(filled.messages)),
        )
        # ... start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
        fields = output.strip().splitlines()[-1].split(", ")
        fetch_seconds = float(fields[7]) / 1e3
        return throughput_sample(
            messages=int(fields[4]),
            size_bytes=SIZE_BYTES,
            seconds=fetch_seconds,
            cpu_seconds=cost.broker_cpu_seconds,
        )


class ShareConsumerPerformance(Row):
    """Two share consumers of one group read and acknowledge a topic of four partitions."""

    name = "java_share"
    title = "ShareConsumerPerformance, 2 consumers, 300k x 100 B"
    metrics = throughput_metrics(by="message")
    data = "share"
    warms_up = False
    messages = 300_000
    partitions = 4
    consumers = 2
    needs = frozenset({SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE})

    def measure(self, target: Target) -> Sample:
        topic, messages = target.new_topic(self.data, self.partitions), target.scaled(self.messages)
        fill(target, topic, messages, SIZE_BYTES, partitions=self.partitions)
        group = f"{topic}-group"
        connection = Connection(target.broker.port)
        connection.await_group_coordinator(group)
        connection.configure_group(group, "share.auto.offset.reset", "earliest")
        connection.close()
        output, cost = run_tool(
            target,
            "org.apache.kafka.tools.ShareConsumerPerformance",
            *("--bootstrap-server", target.bootstrap, "--topic", topic, "--group", group, "--hide-header"),
            *("--num-records", str(messages), "--threads", str(self.consumers), "--timeout", "30000"),
        )
        # start, end, MB, MB/s, records/s, records, ms; joining the group is part of it
        fields = output.strip().splitlines()[-1].split(", ")
        return throughput_sample(
            messages=int(fields[5]),
            size_bytes=SIZE_BYTES,
            seconds=float(fields[6]) / 1e3,
            cpu_seconds=cost.broker_cpu_seconds,
        )


ROWS = (ProducerPerformance(), ConsumerPerformance(), ShareConsumerPerformance())
