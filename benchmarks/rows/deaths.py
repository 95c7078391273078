"""Rows on three nodes in which a node is killed with -9: how long its clients hear nothing, and whether all is kept."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from benchmarks.brokers import BrokerFailed, Cluster
from benchmarks.client import Connect, Result, Task, Work
from benchmarks.row import A_SECOND, Metric, Row, Sample
from benchmarks.rows.clients import DeliveryFailed, make_consumer, make_producer
from benchmarks.target import ADMIN_TIMEOUT_SECONDS, Target, wait_for_topic
from benchmarks.wire import GROUP_KEY, TRANSACTION_KEY, Connection

RATE_PER_SECOND = 200
BEFORE_SECONDS, AFTER_SECONDS = 2.0, 3.0
RECOVERY_SECONDS_MAX = 60.0
# The client library would log every attempt to reach the dead node.
QUIET = {"log_level": 0}


def produce_through_a_death(task: Task) -> Work:
    """Numbered records at a steady rate from an idempotent producer, until well after the longest silence."""
    acknowledged: list[float] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise DeliveryFailed(str(error))
        acknowledged.append(time.perf_counter())

    config = {
        **QUIET,
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


def kill_a_node(task: Task) -> Work:
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


# ---- clients that do one thing after the other


def _repeat_through_a_death(step: Callable[[int], None]) -> Result:
    done: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < BEFORE_SECONDS + AFTER_SECONDS:
        step(len(done))
        done.append(time.perf_counter())
    return {"gap_seconds": max(later - earlier for earlier, later in itertools.pairwise(done)), "steps": len(done)}


def _insist(attempt: Callable[[], object]) -> None:
    """Try again while the client library says that this may help."""
    deadline = time.perf_counter() + RECOVERY_SECONDS_MAX
    while True:
        try:
            attempt()
            return
        except KafkaException as problem:
            error = problem.args[0]
            if error.fatal() or error.txn_requires_abort() or time.perf_counter() > deadline:
                raise


def commit_through_a_death(task: Task) -> Work:
    """Commit one offset after the other, each confirmed."""
    topic = task["topic"]
    consumer = make_consumer({**task, "config": {"group.id": task["key"], **QUIET}})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.pause([TopicPartition(topic, 0)])

    def step(number: int) -> None:
        _insist(lambda: consumer.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False))

    step(0)

    def work() -> Result:
        result = _repeat_through_a_death(step)
        (found,) = consumer.committed([TopicPartition(topic, 0)], RECOVERY_SECONDS_MAX)
        if found.offset != result["steps"] - 1:
            raise DeliveryFailed(f"{result['steps'] - 1} was committed, and {found.offset} found")
        return {**result, "records": 0}

    return work


def transact_through_a_death(task: Task) -> Work:
    """One transaction of one record after the other; one that fails is aborted and done again."""
    producer = make_producer({**task, "config": {"transactional.id": task["key"], "linger.ms": 0, **QUIET}})
    producer.init_transactions(RECOVERY_SECONDS_MAX)

    def step(number: int) -> None:
        while True:
            try:
                producer.begin_transaction()
                producer.produce(task["topic"], b"%d" % number, partition=0)
                _insist(lambda: producer.commit_transaction(RECOVERY_SECONDS_MAX))
                return
            except KafkaException as problem:
                if not problem.args[0].txn_requires_abort():
                    raise
                _insist(lambda: producer.abort_transaction(RECOVERY_SECONDS_MAX))

    def work() -> Result:
        result = _repeat_through_a_death(step)
        return {**result, "records": result["steps"]}

    return work


# ---- the rows


class NodeKilled(Row):
    """kill -9 of one node while a client works with it; it comes back, and everything confirmed must be there."""

    metrics = (Metric("gap_seconds", "longest gap between confirmations", "s", A_SECOND),)
    nodes = 3
    warms_up = False
    rounds_max = 2
    internal_topic = ""

    def client(self) -> Connect:
        raise NotImplementedError

    def victim(self, target: Target, topic: str) -> int:
        raise NotImplementedError

    def measure(self, target: Target) -> Sample:
        cluster = target.broker
        assert isinstance(cluster, Cluster)
        topic = target.new_topic(self.data)
        node = cluster.nodes[self.victim(target, topic)]
        task = {"topic": topic, "pid": node.pid, "key": _key(topic)}
        try:
            (result, _), _ = target.run((self.client(), task), (kill_a_node, task), expects_death=True)
        finally:
            node.kill()
            node.start()
        check_history(target, topic, result["records"])
        for name in filter(None, (topic, self.internal_topic)):
            partitions = len(target.admin.list_topics(name, timeout=ADMIN_TIMEOUT_SECONDS).topics[name].partitions)
            wait_for_topic(target.admin, name, partitions, cluster.replicas)
        return {"gap_seconds": result["gap_seconds"]}


def _key(topic: str) -> str:
    return f"{topic}-key"


def _coordinator(target: Target, topic: str, key_type: int) -> int:
    connection = Connection(target.broker.port)
    try:
        return connection.await_coordinator(_key(topic), key_type)
    finally:
        connection.close()


class LeaderKilled(NodeKilled):
    """Under an idempotent producer: nothing lost, nothing twice, in order."""

    name = "leader_killed"
    title = "3 nodes: leader killed with -9, idempotent producer"
    data = "leader-killed"

    def client(self) -> Connect:
        return produce_through_a_death

    def victim(self, target: Target, topic: str) -> int:
        found = target.admin.list_topics(topic, timeout=ADMIN_TIMEOUT_SECONDS).topics[topic].partitions[0]
        return int(found.leader)


class GroupCoordinatorKilled(NodeKilled):
    name = "group_coordinator_killed"
    title = "3 nodes: group coordinator killed with -9, synchronous commits"
    data = "group-coordinator-killed"
    internal_topic = "__consumer_offsets"

    def client(self) -> Connect:
        return commit_through_a_death

    def victim(self, target: Target, topic: str) -> int:
        return _coordinator(target, topic, GROUP_KEY)


class TransactionCoordinatorKilled(NodeKilled):
    name = "transaction_coordinator_killed"
    title = "3 nodes: transaction coordinator killed with -9, transactions"
    data = "transaction-coordinator-killed"
    internal_topic = "__transaction_state"

    def client(self) -> Connect:
        return transact_through_a_death

    def victim(self, target: Target, topic: str) -> int:
        return _coordinator(target, topic, TRANSACTION_KEY)


ROWS = (LeaderKilled(), GroupCoordinatorKilled(), TransactionCoordinatorKilled())
