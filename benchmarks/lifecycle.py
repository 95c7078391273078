"""Rows about the process itself: how soon after its start it answers, and the memory it holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from benchmarks.brokers import Broker
from benchmarks.row import AN_EIGHTH_OF_KAFKAS, Metric, Row, Sample

IDLE_SECONDS = 5.0


class Start(Row):
    name = "start"
    title = "process"
    metrics = (Metric("start_seconds", "start to first answer", "s", AN_EIGHTH_OF_KAFKAS),)


class Memory(Row):
    name = "memory"
    title = "process"
    metrics = (
        Metric("idle_mb", "resident memory, idle", "MB", AN_EIGHTH_OF_KAFKAS),
        Metric("worked_mb", "resident memory, after all rows", "MB", AN_EIGHTH_OF_KAFKAS),
    )


class ClusterStart(Start):
    name = "cluster_start"
    title = "3 nodes: processes"
    metrics = (Metric("start_seconds", "start to the last one's first answer", "s", AN_EIGHTH_OF_KAFKAS),)


class ClusterMemory(Memory):
    name = "cluster_memory"
    title = "3 nodes: processes"


class Process(NamedTuple):
    start: Row
    memory: Row


# By the number of nodes.
PROCESS = {1: Process(Start(), Memory()), 3: Process(ClusterStart(), ClusterMemory())}


def measure_starts(brokers: Iterable[Broker], times: int, say: Callable[[str], None]) -> dict[str, list[Sample]]:
    """Start and stop every broker in turn, on a directory it has formatted and used once before."""
    samples: dict[str, list[Sample]] = {broker.name: [] for broker in brokers}
    for attempt in range(times + 1):
        for broker in brokers:
            if attempt == 0:
                broker.format()
            seconds = broker.start()
            broker.stop()
            if attempt:
                samples[broker.name].append({"start_seconds": seconds})
                say(f"start {broker.name}: {seconds:.3f} s")
    return samples


def start_and_rest(brokers: Iterable[Broker]) -> dict[str, float]:
    """Start every broker and, after a while without work, read its resident memory in MB."""
    for broker in brokers:
        if broker.process is None:
            broker.start()
    time.sleep(IDLE_SECONDS)
    return {broker.name: broker.resident_bytes() / 1e6 for broker in brokers}
