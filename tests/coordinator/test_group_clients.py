"""Consumer groups of real clients against an embedded node: sharing, taking over, committing, surviving a crash."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka as librdkafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient

from moldau.testing import Cluster

TOPIC = "orders"
PARTITIONS = 6
WAIT_SECONDS = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        fill(cluster, TOPIC, 600)
        yield cluster


def fill(cluster: Cluster, topic: str, count: int) -> None:
    cluster.create_topic(topic, PARTITIONS)
    producer = librdkafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(WAIT_SECONDS) == 0


def consumer(
    cluster: Cluster,
    group: str,
    topic: str = TOPIC,
    *,
    on_revoke: Callable[..., None] = lambda *_: None,
    **changes: Any,
) -> librdkafka.Consumer:
    made = librdkafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
    )
    made.subscribe([topic], on_revoke=on_revoke)
    return made


def poll(consumers: list[librdkafka.Consumer], until: Callable[[], bool], got: list[bytes] | None = None) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not until():
        assert time.monotonic() < deadline, "it takes too long"
        for each in consumers:
            message = each.poll(0.02)
            if message is not None and message.error() is None and got is not None:
                got.append(message.value())


def owned(consumer: librdkafka.Consumer) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def shared(consumers: list[librdkafka.Consumer]) -> bool:
    """Whether these consumers have all partitions, each exactly one owner, and nobody is without."""
    parts = [owned(each) for each in consumers]
    return all(parts) and sum(map(len, parts)) == PARTITIONS and set().union(*parts) == set(range(PARTITIONS))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_librdkafka_members_share_and_take_over(cluster: Cluster, strategy: str) -> None:
    group = f"sharing-{strategy}"
    consumers = [consumer(cluster, group, partition_assignment_strategy=strategy) for _ in range(3)]
    try:
        poll(consumers, lambda: shared(consumers))
        consumers.pop().close()
        poll(consumers, lambda: shared(consumers))
        consumers.append(consumer(cluster, group, partition_assignment_strategy=strategy))
        poll(consumers, lambda: shared(consumers))
    finally:
        for each in consumers:
            each.close()


def test_librdkafka_goes_on_where_it_committed(cluster: Cluster) -> None:
    got: list[bytes] = []
    first = consumer(cluster, "going-on")
    poll([first], lambda: len(got) >= 250, got)
    first.commit(asynchronous=False)
    first.close()
    second = consumer(cluster, "going-on")
    poll([second], lambda: len(got) >= 600, got)
    second.commit(asynchronous=False)
    second.close()
    assert sorted(int(value) for value in got) == list(range(600)), "everything once"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (listed,) = admin.list_consumer_group_offsets([librdkafka.ConsumerGroupTopicPartitions("going-on")]).values()
    found = {each.partition: each.offset for each in listed.result().topic_partitions}
    assert found == dict.fromkeys(range(PARTITIONS), 100)


def test_librdkafka_static_members_restart_unnoticed(cluster: Cluster) -> None:
    revoked: list[Any] = []

    def make(number: int) -> librdkafka.Consumer:
        return consumer(
            cluster,
            "static",
            on_revoke=lambda *args: revoked.append(args),
            group_instance_id=f"instance-{number}",
            session_timeout_ms=30_000,
        )

    consumers = [make(0), make(1)]
    poll(consumers, lambda: shared(consumers))
    before = owned(consumers[1])
    consumers[1].close()
    revoked.clear()
    consumers[1] = make(1)
    poll(consumers, lambda: shared(consumers))
    assert owned(consumers[1]) == before
    assert revoked == [], "the other member was left in peace"
    for each in consumers:
        each.close()


def test_groups_as_the_admin_client_sees_them(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    member = consumer(cluster, "described")
    poll([member], lambda: shared([member]))
    member.commit(offsets=[librdkafka.TopicPartition(TOPIC, 0, 7, metadata="note")], asynchronous=False)
    described = admin.describe_consumer_groups(["described"])["described"].result()
    assert described.state == librdkafka.ConsumerGroupState.STABLE
    assert len(described.members) == 1
    assert {each.partition for each in described.members[0].assignment.topic_partitions} == set(range(PARTITIONS))
    listed = admin.list_consumer_groups().result()
    assert "described" in {each.group_id for each in listed.valid}
    with pytest.raises(librdkafka.KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups(["described"])["described"].result()
    member.close()
    admin.delete_consumer_groups(["described"])["described"].result()
    assert "described" not in {each.group_id for each in admin.list_consumer_groups().result().valid}


def test_kafka_python_shares_and_commits(cluster: Cluster) -> None:
    def make() -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="kafka-python",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )

    one, two = make(), make()
    deadline = time.monotonic() + WAIT_SECONDS
    while len(one.assignment()) != 3 or len(two.assignment()) != 3:
        assert time.monotonic() < deadline
        for each in (one, two):
            each.poll(timeout_ms=50)
    assert not one.assignment() & two.assignment()
    first = kafka.TopicPartition(TOPIC, 0)
    owner = one if first in one.assignment() else two
    owner.commit({first: kafka.OffsetAndMetadata(5, "", -1)})
    assert one.committed(first) == two.committed(first) == 5
    one.close()
    while len(two.assignment()) != PARTITIONS:
        assert time.monotonic() < deadline
        two.poll(timeout_ms=50)
    two.close()


def test_aiokafka_shares_and_commits(cluster: Cluster) -> None:
    def make() -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )

    async def run() -> list[int]:
        one, two = make(), make()
        await one.start()
        await two.start()
        deadline = time.monotonic() + WAIT_SECONDS
        while len(one.assignment()) != 3 or len(two.assignment()) != 3:
            assert time.monotonic() < deadline
            await asyncio.gather(*(each.getmany(timeout_ms=50) for each in (one, two)))
        await two.stop()
        while len(one.assignment()) != PARTITIONS:
            assert time.monotonic() < deadline
            await one.getmany(timeout_ms=50)
        ends = {aiokafka.TopicPartition(TOPIC, index): 100 for index in range(PARTITIONS)}
        await one.commit(ends)
        committed = [await one.committed(aiokafka.TopicPartition(TOPIC, index)) for index in range(PARTITIONS)]
        await one.stop()
        return [offset or 0 for offset in committed]

    assert asyncio.run(run()) == [100] * PARTITIONS


def test_a_node_that_is_killed_keeps_groups_and_offsets(tmp_path: Any) -> None:
    with Cluster(in_process=False, data_dir=tmp_path) as cluster:
        fill(cluster, "durable", 600)
        got: list[bytes] = []
        member = consumer(cluster, "survivors", "durable", session_timeout_ms=30_000)
        poll([member], lambda: len(got) >= 300, got)
        member.commit(asynchronous=False)
        committed = {each.partition: each.offset for each in member.committed(member.assignment())}
        assert sum(offset for offset in committed.values() if offset > 0) == len(got)
        cluster.kill()
        cluster.start()
        poll([member], lambda: len(got) >= 600, got)
        assert sorted(int(value) for value in got) == list(range(600)), "the same member went on"
        member.commit(asynchronous=False)
        member.close()
