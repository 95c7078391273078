"""A running broker as the rows see it: topics to work on, and clients run against it with the broker's CPU measured.

Topics are removed, files included, between one kind of data and the next: what one row leaves behind (dirty pages,
files to delete) must not become the next row's cost.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import process
from benchmarks.brokers import Broker, ask_api_versions
from benchmarks.client import ClientProcess, Connect, Result, Task
from benchmarks.machine import Reservoir

ADMIN_TIMEOUT_SECONDS = 60.0
REMOVAL_TIMEOUT_SECONDS = 30.0
IDLE_TIMEOUT_SECONDS = 60.0
IDLE_WINDOW_SECONDS = 0.5
IDLE_SHARE = 0.1


@dataclass(slots=True)
class Cost:
    """What happened on the machine during a piece of work."""

    seconds: float = 0.0
    broker_cpu_seconds: float = 0.0
    # CPU of neither this broker nor its clients, as a share of the machine: other programs, the kernel's own threads.
    foreign_share: float = 0.0


@dataclass(slots=True)
class Filled:
    """A topic with records in it."""

    topic: str
    messages: int
    size_bytes: int
    # Kept for the whole run, for what is too costly to make again in every round.
    kept: bool = False


class Target:
    """One broker under test."""

    def __init__(self, broker: Broker, scale: float, reservoir: Reservoir) -> None:
        self.broker = broker
        self.scale = scale
        self.reservoir = reservoir
        self.filled: dict[str, Filled] = {}
        self.foreign_shares: list[float] = []
        self._topics: list[str] = []
        self._numbers = itertools.count(1)
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    @property
    def name(self) -> str:
        return self.broker.name

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def directory(self) -> Path:
        return self.broker.directory

    def scaled(self, count: int, at_least: int = 1) -> int:
        """A row's full size at the scale of this run (smaller when warming up or in a hurry)."""
        return max(at_least, int(count * self.scale))

    def serves(self, needs: frozenset[int]) -> bool:
        return not needs or needs <= (ask_api_versions(self.broker.port) or {}).keys()

    def new_topic(self, label: str, partitions: int = 1) -> str:
        topic = f"{label}-{next(self._numbers)}"
        replicas = self.broker.replicas
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas)
        for created in self.admin.create_topics([new], operation_timeout=ADMIN_TIMEOUT_SECONDS).values():
            created.result(ADMIN_TIMEOUT_SECONDS)
        self._topics.append(topic)
        wait_for_topic(self.admin, topic, partitions, replicas)
        return topic

    def remove_topics(self) -> None:
        """Delete every topic made here, but those to be kept, and wait until its files are gone."""
        self.filled = {data: filled for data, filled in self.filled.items() if filled.kept}
        kept = [filled.topic for filled in self.filled.values()]
        removed = [topic for topic in self._topics if topic not in kept]
        if not removed:
            return
        for deleted in self.admin.delete_topics(removed, operation_timeout=ADMIN_TIMEOUT_SECONDS).values():
            deleted.result(ADMIN_TIMEOUT_SECONDS)
        deadline = time.monotonic() + REMOVAL_TIMEOUT_SECONDS
        while self._files_left(removed) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._topics = kept

    def _files_left(self, topics: list[str]) -> bool:
        prefixes = tuple(f"{topic}-" for topic in topics)
        return any(
            entry.name.startswith(prefixes) or entry.name.endswith("-delete")
            for directory in self.broker.data_directories
            for entry in os.scandir(directory)
        )

    def wait_until_idle(self) -> None:
        """Until the broker has finished what it does behind an answer, such as creating a thousand partitions."""
        deadline = time.monotonic() + IDLE_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            cpu = self.broker.cpu_seconds()
            time.sleep(IDLE_WINDOW_SECONDS)
            if self.broker.cpu_seconds() - cpu < IDLE_WINDOW_SECONDS * IDLE_SHARE:
                return

    def run(
        self, *clients: tuple[Connect, Task], written_bytes: int = 0, expects_death: bool = False
    ) -> tuple[list[Result], Cost]:
        """Run clients at the same time, from the moment all are connected to the last answer."""
        self.reservoir.fill(written_bytes)
        running = [ClientProcess(connect, {"bootstrap": self.bootstrap, **task}) for connect, task in clients]
        try:
            for each in running:
                each.wait_until_ready()
            self.reservoir.release()
            with self.costs(clients_spent=sum(each.cpu_seconds() for each in running)) as cost:
                for each in running:
                    each.go()
                results = [each.result() for each in running]
        finally:
            for each in running:
                each.stop()
        if not expects_death:
            self.broker.check_alive()
        return results, cost

    @contextlib.contextmanager
    def costs(self, clients_spent: float = 0.0) -> Iterator[Cost]:
        """Account for the work done inside the block by clients that end in it.

        `clients_spent` is what they spent before: the kernel reports a child's CPU time only once, when it has ended.
        """
        cost = Cost()
        busy, clients = process.machine_busy_seconds(), _children_cpu_seconds() + clients_spent
        cpu, began = self.broker.cpu_seconds(), time.perf_counter()
        yield cost
        cost.seconds = time.perf_counter() - began
        cost.broker_cpu_seconds = self.broker.cpu_seconds() - cpu
        known = cost.broker_cpu_seconds + _children_cpu_seconds() - clients
        foreign = process.machine_busy_seconds() - busy - known
        cost.foreign_share = max(0.0, foreign / (cost.seconds * (os.cpu_count() or 1)))
        self.foreign_shares.append(cost.foreign_share)


def wait_for_topic(client: Any, topic: str, partitions: int, replicas: int = 1) -> None:
    """Until every partition has a leader and its replicas are in sync: what is timed begins with the first record."""
    deadline = time.monotonic() + ADMIN_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = client.list_topics(topic, timeout=ADMIN_TIMEOUT_SECONDS).topics[topic].partitions
        if len(found) == partitions and all(each.leader >= 0 and len(each.isrs) == replicas for each in found.values()):
            return
        time.sleep(0.01)
    raise TimeoutError(f"topic {topic} is not there")


def _children_cpu_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system
