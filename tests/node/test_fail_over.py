"""Real nodes killed with -9 under clients that write: none lost, none twice, all in order, and soon going on again.

How long a gap is depends on the machine; the limits here are for one that is busy with other tests. Benchmarks tell
how short it is.
"""

from __future__ import annotations

import time
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.coordinator.hashing import partition_for
from moldau.testing.nodes import NodeCluster

GAP_SECONDS_MAX = 5.0
PARTITIONS = 3
INTERNAL_PARTITIONS = 6
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.min.isr": "2",
}
QUICK = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}


def admin(cluster: NodeCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def create_topic(client: AdminClient) -> None:
    client.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(30)


def leader_of(client: AdminClient, topic: str, index: int) -> int:
    return int(client.list_topics(topic, timeout=10).topics[topic].partitions[index].leader)


def active_controller(cluster: NodeCluster) -> int:
    """The node that last said that its controller is active."""
    said = [
        (line[:12], node.id)
        for node in cluster.nodes.values()
        for line in node.log().splitlines()
        if f"Controller {node.id} is active" in line
    ]
    return max(said)[1]


def longest_gap(times: list[float]) -> float:
    return max(after - before for before, after in pairwise(times))


def read_committed(cluster: NodeCluster, count: int) -> dict[int, list[int]]:
    """The values of each partition in order, at least `count` of them unless they do not come."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "r", "isolation.level": "read_committed", **QUICK}
    )
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    deadline = time.monotonic() + 30
    while any(len(values) < count for values in found.values()) and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found[message.partition()].append(int(message.value()))
    consumer.close()
    return found


def test_producers_hardly_notice_that_the_controller_is_killed() -> None:
    with NodeCluster(controllers=3, brokers=3, config=SETTINGS) as cluster:
        create_topic(admin(cluster))
        times: list[float] = []
        errors: list[KafkaError] = []

        def answered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)
            times.append(time.monotonic())

        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "acks": "all", **QUICK}
        )
        written = 0
        begin = time.monotonic()
        killed = False
        while time.monotonic() < begin + 2.5:
            if not killed and time.monotonic() > begin + 1:
                cluster.nodes[active_controller(cluster)].kill()
                killed = True
            for index in range(PARTITIONS):
                producer.produce("t", b"%d" % written, partition=index, on_delivery=answered)
            written += 1
            producer.poll(0.005)
        assert producer.flush(30) == 0
        assert not errors
        assert longest_gap(times) < GAP_SECONDS_MAX
        assert all(values == list(range(written)) for values in read_committed(cluster, written).values())


def test_transactions_and_offsets_outlive_their_coordinators() -> None:
    """First the transaction coordinator is killed and comes back, then the group coordinator is."""
    with NodeCluster(combined=3, config=SETTINGS) as cluster:
        client = admin(cluster)
        create_topic(client)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x", **QUICK})
        group = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", **QUICK})
        producer.init_transactions(30)
        committed: list[int] = []
        times: list[float] = []
        number = 0

        def write_for(seconds: float) -> None:
            nonlocal number
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                producer.begin_transaction()
                for index in range(PARTITIONS):
                    producer.produce("t", b"%d" % number, partition=index)
                producer.send_offsets_to_transaction(
                    [TopicPartition("t", 0, number)], group.consumer_group_metadata(), 30
                )
                if number % 4 == 3:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)
                    committed.append(number)
                times.append(time.monotonic())
                number += 1

        def kill_leader(topic: str, key: str) -> int:
            victim = leader_of(client, topic, partition_for(key, INTERNAL_PARTITIONS))
            cluster.nodes[victim].kill()
            return victim

        write_for(1)
        victim = kill_leader("__transaction_state", "x")
        write_for(1.5)
        cluster.nodes[victim].start()
        write_for(1.5)
        kill_leader("__consumer_offsets", "g")
        write_for(1.5)
        assert longest_gap(times) < GAP_SECONDS_MAX
        assert all(values == committed for values in read_committed(cluster, len(committed)).values())
        (offset,) = group.committed([TopicPartition("t", 0)], 30)
        assert offset.offset == committed[-1]
        group.close()
