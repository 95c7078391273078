"""Ten thousand groups with a million committed offsets on one node: commit latency, memory, start-up after compaction.

A part of `benchmarks.scale`. Every offset is committed twice, so that compaction has something to remove.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from benchmarks import machine
from benchmarks.brokers import BrokerFailed, MoldauBroker
from benchmarks.target import Target
from benchmarks.wire import Connection

GROUPS, PARTITIONS = 10_000, 100
COMMITS_PER_OFFSET = 2
SAMPLES = 500
# Small segments and an eager cleaner: what takes a day otherwise happens within the run.
PROPERTIES = (
    "offsets.topic.segment.bytes=1048576\n"
    "log.cleaner.min.cleanable.ratio=0.1\n"
    "log.cleaner.backoff.ms=500\n"
    "offsets.retention.minutes=100000\n"
)
COMPACTION_SECONDS_MAX = 120.0
QUIET_SECONDS = 4.0

ANSWER_SECONDS_MAX = 5.0
LOADED_SECONDS_MAX = 60.0
RESIDENT_MB_MAX = 500.0
# A commit costs the same whether there are a thousand offsets or a million.
SAME_COST_RATIO = 1.5


class Findings(Protocol):
    def add(self, title: str, value: float, unit: str, bar: float | None = None) -> None: ...


def many_groups(findings: Findings, directory: Path) -> None:
    broker = MoldauBroker(directory / "groups", PROPERTIES)
    title = "10,000 groups, 1 M offsets"
    try:
        broker.start()
        topic = Target(broker, 1.0, machine.Reservoir()).new_topic("scale", PARTITIONS)
        connection = Connection(broker.port)
        connection.await_group_coordinator("g-0")
        few_ms = _commit_ms(connection, topic, lambda number: f"few-{number % 10}")
        findings.add(f"{title}: one commit, with 10 groups", few_ms, "ms")
        began = time.perf_counter()
        for _ in range(COMMITS_PER_OFFSET):
            _commit_all(connection, topic)
        seconds = time.perf_counter() - began
        findings.add(f"{title}: offsets committed a second", GROUPS * PARTITIONS * COMMITS_PER_OFFSET / seconds, "/s")
        many_ms = _commit_ms(connection, topic, lambda number: f"g-{number * 7919 % GROUPS}")
        findings.add(f"{title}: one commit", many_ms, "ms", few_ms * SAME_COST_RATIO)
        findings.add(f"{title}: resident memory", broker.resident_bytes() / 1e6, "MB", RESIDENT_MB_MAX)
        _wait_for_compaction(broker)
        findings.add(f"{title}: log after compaction", _log_bytes(broker) / 1e6, "MB")
        connection.close()
        _restart(findings, broker, topic, f"{title}: after a clean stop", broker.stop)
        _restart(findings, broker, topic, f"{title}: after kill -9", broker.kill)
        connection = Connection(broker.port)
        again_ms = _commit_ms(connection, topic, lambda number: f"g-{number * 7919 % GROUPS}")
        findings.add(f"{title}: one commit after the restarts", again_ms, "ms", few_ms * SAME_COST_RATIO)
        findings.add(
            f"{title}: resident memory after the restarts", broker.resident_bytes() / 1e6, "MB", RESIDENT_MB_MAX
        )
        connection.close()
    finally:
        broker.remove()


def _commit_ms(connection: Connection, topic: str, group_of: Callable[[int], str]) -> float:
    """Median of single commits of one offset."""
    taken = []
    for number in range(SAMPLES):
        began = time.perf_counter()
        connection.commit(group_of(number), topic, range(1), number)
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


def _commit_all(connection: Connection, topic: str) -> None:
    for number in range(GROUPS):
        connection.commit(f"g-{number}", topic, range(PARTITIONS), number)


def _log_bytes(broker: MoldauBroker) -> int:
    paths = broker.data_directory.glob("__consumer_offsets-*/*.log")
    return sum(path.stat().st_size for path in paths if path.exists())


def _wait_for_compaction(broker: MoldauBroker) -> None:
    """Until the cleaner, which has followed the commits all the time, finds nothing more to remove."""
    deadline = time.monotonic() + COMPACTION_SECONDS_MAX
    size, since = _log_bytes(broker), time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        if time.monotonic() > deadline:
            raise BrokerFailed("the offsets are compacted without end")
        time.sleep(0.2)
        if _log_bytes(broker) != size:
            size, since = _log_bytes(broker), time.monotonic()


def _restart(findings: Findings, broker: MoldauBroker, topic: str, title: str, end: Callable[[], None]) -> None:
    end()
    began = time.perf_counter()
    broker.start()
    findings.add(f"{title}, start to first answer", time.perf_counter() - began, "s", ANSWER_SECONDS_MAX)
    connection = Connection(broker.port)
    # Fifty partitions of offsets are loaded one after the other; these groups are in all of them.
    for number in range(GROUPS):
        connection.await_offset(f"g-{number}", topic, PARTITIONS - 1, number)
    findings.add(f"{title}, start to every offset read", time.perf_counter() - began, "s", LOADED_SECONDS_MAX)
    connection.close()
