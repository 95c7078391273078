"""A streaming query whose steps are taken one by one, without Spark."""

from __future__ import annotations

import time

from moldau.client.transactions import Transaction
from moldau.spark import exactly_once as once
from moldau.spark.brokers import shared_cluster
from moldau.spark.exactly_once import CommitSettings, Decision, Plan, TaskWork
from moldau.spark.task_writing import TaskWriter
from tests.spark.world import read_values, rows, settings_for, write_settings

TASKS = 2
ROWS = 10
SHOWN_SECONDS_MAX = 30.0


class Query:
    """A streaming query with two tasks, by hand, so that it can be stopped anywhere."""

    def __init__(self, servers: str, topic: str, name: str = "query") -> None:
        self.client = settings_for(servers)
        self.cluster = shared_cluster(self.client)
        self.topic = topic
        self.name = name
        self.settings = CommitSettings(self.client, f"id-{topic}", 60_000)

    def values(self, batch: int, task: int) -> list[str]:
        return [f"{batch}.{task}.{number}" for number in range(ROWS)]

    def task(self, plan: Plan, batch: int, task: int) -> tuple[TaskWork | None, bool]:
        values = self.values(batch, task)
        writer = TaskWriter(write_settings(self.client, self.topic), task)
        return writer.write_exactly_once(rows(values, values), self.settings, plan, self.name, batch)

    def tasks(self, batch: int) -> tuple[Plan, Decision]:
        """Plan and write a batch, up to where the driver would decide."""
        plan = once.plan(self.settings)
        work = [self.task(plan, batch, task)[0] for task in range(TASKS)]
        return plan, Decision(batch, self.name, tuple(each for each in work if each is not None))

    def run(self, batch: int) -> None:
        plan = once.plan(self.settings)
        done = [self.task(plan, batch, task) for task in range(TASKS)]
        if not any(before for _, before in done):
            work = tuple(each for each, _ in done if each is not None)
            once.commit(self.settings, plan.driver, Decision(batch, self.name, work))

    def decide_only(self, plan: Plan, decision: Decision) -> None:
        once._write_decision(self.cluster, self.settings, plan.driver, decision)

    def transaction(self, work: TaskWork) -> Transaction:
        return Transaction(self.settings.task_id(work.task), work.producer_id, work.epoch)

    def expect(self, batches: int) -> None:
        expected = [value for batch in range(batches) for task in range(TASKS) for value in self.values(batch, task)]
        # A broker says that a transaction is committed before every partition shows it.
        deadline = time.monotonic() + SHOWN_SECONDS_MAX
        found = read_values(self.client, self.topic, 3)
        while found != sorted(expected) and time.monotonic() < deadline:
            time.sleep(0.1)
            found = read_values(self.client, self.topic, 3)
        assert found == sorted(expected)
