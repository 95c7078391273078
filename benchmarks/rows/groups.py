"""Rows about groups: how long twenty members that come at once need until each has its share of the partitions."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

from confluent_kafka import Consumer

from benchmarks.client import Result, Task, Work
from benchmarks.row import AT_MOST_KAFKAS, HALF_OF_KAFKAS, Metric, Row, Sample
from benchmarks.rows.clients import make_consumer
from benchmarks.target import Target

MEMBERS, PARTITIONS = 20, 60
TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.02
JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT = 11, 68


class Balance:
    """What the members have, and the moment when each has the same and nothing is left."""

    def __init__(self, members: int, partitions: int) -> None:
        self._share = partitions // members
        self._owned: list[int] = [0] * members
        self._lock = threading.Lock()
        self.reached = threading.Event()
        self.reached_at = 0.0

    def note(self, member: int, owned: int) -> None:
        with self._lock:
            if self._owned[member] == owned:
                return
            self._owned[member] = owned
            if all(each == self._share for each in self._owned):
                self.reached_at = time.perf_counter()
                self.reached.set()
            else:
                self.reached.clear()  # not for good: somebody came later


def join_at_once(task: Task) -> Work:
    """Twenty connected consumers of one group subscribe together."""
    topic, members = task["topic"], task["members"]
    config = {"group.id": f"{topic}-group", "auto.offset.reset": "earliest", **task["config"]}
    consumers: list[Consumer] = [make_consumer({**task, "config": config}) for _ in range(members)]
    balance = Balance(members, task["partitions"])

    def take_part(number: int, consumer: Consumer) -> None:
        def look(*_: object) -> None:
            balance.note(number, len(consumer.assignment()))

        consumer.subscribe([topic])
        while True:
            consumer.poll(POLL_SECONDS)
            look()

    def work() -> Result:
        began = time.perf_counter()
        for number, consumer in enumerate(consumers):
            threading.Thread(target=take_part, args=(number, consumer), daemon=True).start()
        deadline = began + TIMEOUT_SECONDS
        while time.perf_counter() < deadline:
            # Balanced for a while: an assignment that the next member upsets is not the last one.
            if balance.reached.wait(0.1) and time.perf_counter() - balance.reached_at > 0.3:
                return {"seconds": balance.reached_at - began}
        raise TimeoutError("the group found no balance")

    return work


class Join(Row):
    config: ClassVar[dict[str, str]] = {}

    # New groups in one measurement. Who comes when decides how many rounds a group needs, so the mean counts.
    groups = 1

    def measure(self, target: Target) -> Sample:
        seconds, cpu_seconds = 0.0, 0.0
        for _ in range(self.groups):
            topic = target.new_topic(self.data, PARTITIONS)
            task = {"topic": topic, "members": MEMBERS, "partitions": PARTITIONS, "config": self.config}
            (result,), cost = target.run((join_at_once, task))
            seconds += result["seconds"]
            cpu_seconds += cost.broker_cpu_seconds
        return {"seconds": seconds / self.groups, "cpu_ms": cpu_seconds / self.groups * 1e3}


class ClassicJoin(Join):
    name = "classic_join"
    title = f"{MEMBERS} members to a balanced assignment of {PARTITIONS} partitions, classic"
    metrics = (
        Metric("seconds", "time", "s", AT_MOST_KAFKAS),
        Metric("cpu_ms", "broker CPU", "ms", shown=False),
    )
    data = "classic-join"
    groups = 4
    needs = frozenset({JOIN_GROUP})
    config: ClassVar[dict[str, str]] = {"group.protocol": "classic"}


class ConsumerJoin(Join):
    name = "consumer_join"
    title = f"{MEMBERS} members to a balanced assignment of {PARTITIONS} partitions, KIP-848"
    metrics = (
        Metric("seconds", "time", "s", HALF_OF_KAFKAS),
        Metric("cpu_ms", "broker CPU", "ms", shown=False),
    )
    data = "consumer-join"
    needs = frozenset({CONSUMER_GROUP_HEARTBEAT})
    warms_up = False  # it waits for heartbeats most of the time
    config: ClassVar[dict[str, str]] = {"group.protocol": "consumer"}


ROWS = (ClassicJoin(), ConsumerJoin())
