"""Rows about the coordinators' promises: transactions, and offsets committed one after the other."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException, TopicPartition

from benchmarks.client import ClientProcess, Result, Task, Work
from benchmarks.instant import instant_server
from benchmarks.row import HALF_OF_KAFKAS, OVER_LIMIT, TWICE_KAFKAS, Limit, Metric, Row, Sample
from benchmarks.rows.clients import IDLE_TIMEOUT_SECONDS, make_consumer, make_producer
from benchmarks.target import Target

SIZE_BYTES = 100
RECORDS_PER_TRANSACTION = 10
CLIENT_WARM_UP = 20
INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 22, 24, 26
OFFSET_COMMIT = 8


def rate_metrics(what: str, unit: str) -> tuple[Metric, ...]:
    return (
        Metric("per_second", what, f"{unit}/s", TWICE_KAFKAS),
        Metric("cpu_us", "broker CPU", f"µs/{unit}", HALF_OF_KAFKAS),
    )


def rate_sample(count: int, seconds: float, cpu_seconds: float) -> Sample:
    return {"per_second": count / seconds, "cpu_us": cpu_seconds / count * 1e6}


def transact(task: Task) -> Work:
    """Begin, send a few records, commit, and only then the next."""
    config = {"transactional.id": f"{task['topic']}-id", "linger.ms": 0}
    producer = make_producer({**task, "config": config})
    topic, value = task["topic"], b"v" * SIZE_BYTES
    producer.init_transactions(IDLE_TIMEOUT_SECONDS)

    def transactions(count: int) -> None:
        for _ in range(count):
            producer.begin_transaction()
            for _ in range(RECORDS_PER_TRANSACTION):
                producer.produce(topic, value, partition=0)
            producer.commit_transaction(IDLE_TIMEOUT_SECONDS)

    transactions(CLIENT_WARM_UP)

    def work() -> Result:
        began = time.perf_counter()
        transactions(task["transactions"])
        return {"seconds": time.perf_counter() - began}

    return work


def commit_offsets(task: Task) -> Work:
    """Commit one offset, wait for the answer, commit the next."""
    consumer = make_consumer({**task, "config": {"group.id": f"{task['topic']}-group"}})
    consumer.assign([TopicPartition(task["topic"], 0, 0)])
    consumer.pause([TopicPartition(task["topic"], 0)])

    def commits(first: int, count: int) -> None:
        for offset in range(first, first + count):
            (committed,) = consumer.commit(offsets=[TopicPartition(task["topic"], 0, offset)], asynchronous=False)
            if committed.error is not None:
                raise KafkaException(committed.error)

    commits(0, CLIENT_WARM_UP)

    def work() -> Result:
        began = time.perf_counter()
        commits(CLIENT_WARM_UP, task["commits"])
        return {"seconds": time.perf_counter() - began}

    return work


class Transactions(Row):
    """One producer, ten records a transaction, to one partition."""

    name = "transactions"
    title = f"transactions of {RECORDS_PER_TRANSACTION} records, one producer"
    metrics = rate_metrics("transactions", "txn")
    data = "transactions"
    needs = frozenset({INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN})
    transactions = 800

    def measure(self, target: Target) -> Sample:
        count = target.scaled(self.transactions, at_least=100)
        task = {"topic": target.new_topic(self.data), "transactions": count}
        (result,), cost = target.run((transact, task))
        return rate_sample(count, result["seconds"], cost.broker_cpu_seconds)


class Commits(Row):
    """One consumer that commits after every record, as careful programs do."""

    name = "sync_commits"
    title = "synchronous commits, one consumer"
    metrics = (*rate_metrics("commits", "commit"), Metric(OVER_LIMIT, "share of what the client can do", "x"))
    data = "commits"
    needs = frozenset({OFFSET_COMMIT})
    commits = 6000

    def measure(self, target: Target) -> Sample:
        count = target.scaled(self.commits, at_least=500)
        task = {"topic": target.new_topic(self.data), "commits": count}
        (result,), cost = target.run((commit_offsets, task))
        return rate_sample(count, result["seconds"], cost.broker_cpu_seconds)

    def limit(self, target: Target) -> Limit:
        count = target.scaled(self.commits, at_least=500)
        with instant_server(self.data) as address:
            client = ClientProcess(commit_offsets, {"bootstrap": address, "topic": self.data, "commits": count})
            try:
                client.wait_until_ready()
                client.go()
                value = count / client.result()["seconds"]
            finally:
                client.stop()
        return Limit(
            "the same client against a server that never sleeps and answers at once", "per_second", "commit/s", value
        )


ROWS = (Transactions(), Commits())
