"""Three real nodes, three replicas: nothing acknowledged is lost when a node is killed, and copies are alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.testing.nodes import NodeCluster

PARTITIONS = 3
GAP_SECONDS_MAX = 6.0  # a test machine is busy; benchmarks tell how short it really is
QUICK = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}


@pytest.fixture
def cluster() -> Iterator[NodeCluster]:
    settings = {
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "200",
    }
    with NodeCluster(combined=3, config=settings) as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        client.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(20)
        yield cluster


class Writer:
    """An idempotent producer that remembers what was acknowledged, and when."""

    def __init__(self, cluster: NodeCluster, **settings: object) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.times: list[float] = []
        self.errors: list[KafkaError] = []
        self._count = 0
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "acks": "all", **QUICK}
            | settings
        )

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        self.acknowledged[message.partition(), message.offset()] = message.value()
        self.times.append(time.monotonic())

    def write_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.write(1)
            self._producer.poll(0.001)

    def write(self, count: int) -> None:
        for _ in range(count):
            value = f"{self._count}".encode()
            self._producer.produce("t", value, partition=self._count % PARTITIONS, on_delivery=self._answered)
            self._count += 1

    def finish(self) -> None:
        assert self._producer.flush(30) == 0

    @property
    def longest_gap(self) -> float:
        return max(after - before for before, after in zip(self.times, self.times[1:], strict=False))


def state(cluster: NodeCluster) -> dict[int, tuple[int, list[int]]]:
    """Leader and in-sync replicas of each partition."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    found = client.list_topics("t", timeout=10).topics["t"].partitions
    return {index: (each.leader, sorted(each.isrs)) for index, each in found.items()}


def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def all_in_sync(cluster: NodeCluster) -> bool:
    return all(isr == [1, 2, 3] for _, isr in state(cluster).values())


def read_all(cluster: NodeCluster, count: int) -> dict[tuple[int, int], bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found[message.partition(), message.offset()] = message.value()
    consumer.close()
    return found


def copies(cluster: NodeCluster, index: int) -> set[bytes]:
    """The different contents that the nodes have of a partition."""
    return {
        b"".join(path.read_bytes() for path in sorted((node.directory / "data" / f"t-{index}").glob("*.log")))
        for node in cluster.nodes.values()
    }


def check(cluster: NodeCluster, writer: Writer) -> None:
    assert not writer.errors
    found = read_all(cluster, len(writer.acknowledged))
    assert found == writer.acknowledged
    for index in range(PARTITIONS):
        values = [int(value) for (partition, _), value in sorted(found.items()) if partition == index]
        assert values == sorted(set(values)), "out of order, or twice"
    until(lambda: all(len(copies(cluster, index)) == 1 for index in range(PARTITIONS)))


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_killed_node_costs_nothing_acknowledged(cluster: NodeCluster, victim: int) -> None:
    """Every node leads a partition, and one of them is the active controller."""
    assert sorted(leader for leader, _ in state(cluster).values()) == [1, 2, 3]
    writer = Writer(cluster)
    writer.write_for(0.7)
    cluster.nodes[victim].kill()
    writer.write_for(1.5)
    writer.finish()
    assert writer.longest_gap < GAP_SECONDS_MAX
    assert all(victim not in isr and leader != victim for leader, isr in state(cluster).values())
    cluster.nodes[victim].start()
    until(lambda: all_in_sync(cluster))
    check(cluster, writer)


def test_too_few_replicas_take_no_record_until_there_are_enough(cluster: NodeCluster) -> None:
    writer = Writer(cluster)
    writer.write(30)
    writer.finish()
    leader = state(cluster)[0][0]
    cluster.nodes[leader].stop()
    writer.write(30)
    writer.finish()
    other = next(node for node in cluster.nodes if node != leader)
    cluster.nodes[other].freeze()
    writer.write_for(0.5)
    taken = len(writer.acknowledged)
    assert taken == 60, "one replica of three is not enough"
    cluster.nodes[other].thaw()
    writer.finish()
    cluster.nodes[leader].start()
    until(lambda: all_in_sync(cluster))
    check(cluster, writer)


def test_all_killed_at_once(cluster: NodeCluster) -> None:
    writer = Writer(cluster)
    writer.write_for(0.5)
    for node in cluster.nodes.values():
        node.kill()
    for node in cluster.nodes.values():
        node.launch()
    for node in cluster.nodes.values():
        node.wait_until_ready()
    writer.write_for(0.5)
    writer.finish()
    until(lambda: all_in_sync(cluster))
    check(cluster, writer)


def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: NodeCluster) -> None:
    writer = Writer(cluster)
    writer.write(300)
    writer.finish()
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "session.timeout.ms": 10_000, **QUICK})
    consumer.subscribe(["t"])
    found: dict[tuple[int, int], bytes] = {}

    def read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            assert (message.partition(), message.offset()) not in found, "what was committed is read again"
            found[message.partition(), message.offset()] = message.value()
        return len(found) == len(writer.acknowledged)

    until(read, 30)
    consumer.commit(asynchronous=False)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    described = client.describe_consumer_groups(["g"])["g"].result(20)
    assert described.state == ConsumerGroupState.STABLE
    cluster.nodes[described.coordinator.id].kill()
    writer.write(300)
    writer.finish()
    until(read, 30)
    consumer.commit(asynchronous=False)
    consumer.close()
    assert found == writer.acknowledged


def test_deleted_records_are_deleted_from_every_replica(cluster: NodeCluster) -> None:
    writer = Writer(cluster)
    writer.write(300)
    writer.finish()
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    deleted = client.delete_records([TopicPartition("t", index, 40) for index in range(PARTITIONS)])
    begin = time.monotonic()
    assert {future.result(20).low_watermark for future in deleted.values()} == {40}
    assert time.monotonic() - begin < GAP_SECONDS_MAX
    cluster.nodes[state(cluster)[0][0]].kill()
    until(lambda: len(state(cluster)[0][1]) == 2)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "log_level": 0})
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=20) == (40, 100)
    consumer.close()


def test_a_leader_that_was_frozen_and_deposed_meanwhile_does_no_harm(cluster: NodeCluster) -> None:
    writer = Writer(cluster, **{"socket.timeout.ms": 1500})
    writer.write_for(0.5)
    leader = state(cluster)[0][0]
    cluster.nodes[leader].freeze()
    writer.write_for(5.0)
    assert len(writer.times) > 100, "nothing goes on while one node is frozen"
    assert writer.times[-1] > time.monotonic() - 1.0
    cluster.nodes[leader].thaw()
    writer.write_for(1.0)
    writer.finish()
    until(lambda: all_in_sync(cluster))
    check(cluster, writer)
