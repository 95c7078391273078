"""`moldau.testing.Cluster(nodes=3)`: what users do to a cluster in their own tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer

from moldau.node.peers import FAULTS_VARIABLE
from moldau.testing import Cluster

PATIENCE_SECONDS = 90.0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class Writer:
    """An idempotent producer that counts what was acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, servers: str | None = None) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers or cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                # A frozen node answers nothing: how long that is borne is the client's choice.
                "socket.timeout.ms": 3000,
                "request.timeout.ms": 2000,
            }
        )
        self._topic = topic
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []
        self._next = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % self._next
            self._next += 1
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._told)
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def _told(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]
        else:
            self.failed.append(str(error))


def read_all(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"readers-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
    finally:
        consumer.close()
    return values


def test_a_topic_has_three_copies(moldau_cluster_of_three: Cluster) -> None:
    cluster = moldau_cluster_of_three
    cluster.create_topic("copied")
    cluster.wait_until_in_sync("copied")
    assert sorted(cluster.in_sync("copied")) == cluster.node_ids == [1, 2, 3]
    assert cluster.active_controller() in cluster.node_ids


def test_a_killed_leader_loses_nothing(moldau_cluster_of_three: Cluster) -> None:
    cluster = moldau_cluster_of_three
    cluster.create_topic("killed")
    cluster.wait_until_in_sync("killed")
    writer = Writer(cluster, "killed")
    writer.write(50)
    victim = cluster.leader_of("killed")
    cluster.kill(victim)
    writer.write(50)
    assert cluster.leader_of("killed") != victim
    cluster.restart(victim)
    cluster.wait_until_in_sync("killed")
    assert writer.failed == []
    assert read_all(cluster, "killed", 100) == writer.acknowledged


def test_a_frozen_leader_is_replaced(moldau_cluster_of_three: Cluster) -> None:
    cluster = moldau_cluster_of_three
    cluster.create_topic("frozen")
    cluster.wait_until_in_sync("frozen")
    writer = Writer(cluster, "frozen")
    writer.write(10)
    victim = cluster.leader_of("frozen")
    cluster.freeze(victim)
    assert cluster.leader_of("frozen") != victim
    writer.write(10)
    cluster.thaw(victim)
    cluster.wait_until_in_sync("frozen")
    assert read_all(cluster, "frozen", 20) == writer.acknowledged


@pytest.mark.parametrize("one_way", [False, True])
def test_a_leader_that_is_cut_off_is_replaced_and_follows_when_healed(
    moldau_cluster_of_three: Cluster, one_way: bool
) -> None:
    cluster = moldau_cluster_of_three
    topic = f"cut-{one_way}"
    cluster.create_topic(topic)
    cluster.wait_until_in_sync(topic)
    writer = Writer(cluster, topic)
    writer.write(10)
    victim = cluster.leader_of(topic)
    others = [node for node in cluster.node_ids if node != victim]
    cluster.partition(victim, others, one_way=one_way)
    # A client that only knows the old leader would go on asking it, and be told nothing new; so it must not hear of it
    # either, as it might for two seconds after the others have a new leader.
    eventually(lambda: all(_told_by(cluster, node, topic) == (set(others), True) for node in others))
    other_side = Writer(cluster, topic, ",".join(_address(cluster, node) for node in others))
    other_side.write(10)
    cluster.heal()
    cluster.wait_until_in_sync(topic)
    assert writer.failed == other_side.failed == []
    assert read_all(cluster, topic, 20) == writer.acknowledged + other_side.acknowledged


def _address(cluster: Cluster, node: int) -> str:
    host, port = cluster.nodes[node].addresses[0]
    return f"{host}:{port}"


def _told_by(cluster: Cluster, node: int, topic: str) -> tuple[set[int], bool]:
    """The brokers that a node tells a client of, and whether the leader is one of them."""
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": _address(cluster, node)}).list_topics(topic, timeout=10)
    return set(found.brokers), found.topics[topic].partitions[0].leader in found.brokers


def test_slow_links_only_take_longer(moldau_cluster_of_three: Cluster) -> None:
    cluster = moldau_cluster_of_three
    cluster.create_topic("slow")
    cluster.wait_until_in_sync("slow")
    writer = Writer(cluster, "slow")
    writer.write(1)
    cluster.slow(delay_ms=60)
    began = time.monotonic()
    writer.write(1)
    # The follower's fetch is there already: at least its answer and its next fetch are late.
    assert time.monotonic() - began >= 0.06
    cluster.heal()
    cluster.reset_links()
    writer.write(10)
    assert writer.failed == []
    assert read_all(cluster, "slow", 12) == writer.acknowledged


def test_a_node_that_starts_while_its_links_are_cut_finds_them_cut(fresh_moldau_cluster_of_three: Cluster) -> None:
    cluster = fresh_moldau_cluster_of_three
    cluster.create_topic("alone")
    cluster.wait_until_in_sync("alone")
    cluster.kill(3)
    cluster.isolate(3)
    cluster.nodes[3].launch()
    eventually(lambda: cluster.in_sync("alone") and 3 not in cluster.in_sync("alone"))
    with pytest.raises(RuntimeError):
        cluster.nodes[3].wait_until_ready(seconds=2)
    cluster.heal()
    cluster.nodes[3].wait_until_ready(seconds=PATIENCE_SECONDS)
    cluster.wait_until_in_sync("alone")


def test_links_cannot_be_broken_without_the_variable() -> None:
    assert FAULTS_VARIABLE not in os.environ
    with Cluster(in_process=False) as cluster:
        with pytest.raises(AssertionError, match="nodes=3"):
            cluster.partition(1, 2)
        assert "can be broken" not in (cluster.data_dir / "node.log").read_text()
