"""Share groups with a real client: records are shared out, given back, given up, and survive members and brokers."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from moldau.testing import Cluster

_numbers = itertools.count()
SECONDS = 60.0


class ShareGroup:
    """Consumers of one share group on one thread, and what they got."""

    def __init__(self, bootstrap: str, **settings: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"shared-{next(_numbers)}"
        self.consumers: list[ShareConsumer] = []
        self.values: list[bytes] = []
        self.configure(**{"share_auto_offset_reset": "earliest", **settings})

    def configure(self, **settings: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self.name, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(30)

    def add(self, topic: str, *, explicit: bool = False) -> ShareConsumer:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name,
                "share.acknowledgement.mode": "explicit" if explicit else "implicit",
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        self.consumers.append(consumer)
        return consumer

    def poll(self, consumer: ShareConsumer, kind: AcknowledgeType | None = None) -> list[bytes]:
        got = []
        for message in consumer.poll(0.3):
            if message.error() is None:
                got.append(message.value())
                if kind is not None:
                    consumer.acknowledge(message, kind)
        self.values += got
        return got

    def poll_until(self, wanted: Callable[[], bool], kind: AcknowledgeType | None = None) -> None:
        until = time.monotonic() + SECONDS
        while not wanted():
            assert time.monotonic() < until, f"only {len(self.values)} values came"
            for consumer in self.consumers:
                self.poll(consumer, kind)

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()
        self.consumers.clear()


@pytest.fixture
def new_group(moldau_cluster: Cluster) -> Iterator[Callable[..., ShareGroup]]:
    made: list[ShareGroup] = []

    def create(bootstrap: str = moldau_cluster.bootstrap_servers, **settings: str) -> ShareGroup:
        made.append(ShareGroup(bootstrap, **settings))
        return made[-1]

    yield create
    for group in made:
        group.close()


def produce(bootstrap: str, topic: str, count: int, first: int = 0) -> list[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    values = [b"%d" % number for number in range(first, first + count)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    return values


def test_members_share_the_records(
    moldau_cluster: Cluster, new_topic: Callable[..., str], new_group: Callable[..., ShareGroup]
) -> None:
    topic = new_topic(2)
    values = produce(moldau_cluster.bootstrap_servers, topic, 5000)
    group = new_group()
    counts = []
    for _ in range(3):
        group.add(topic)
    until = time.monotonic() + SECONDS
    while len(group.values) < len(values) and time.monotonic() < until:
        counts.append([len(group.poll(consumer)) for consumer in group.consumers])
    assert Counter(group.values) == Counter(values), "each record once"


def test_released_records_come_again_and_rejected_ones_do_not(
    moldau_cluster: Cluster, new_topic: Callable[..., str], new_group: Callable[..., ShareGroup]
) -> None:
    topic = new_topic()
    values = produce(moldau_cluster.bootstrap_servers, topic, 10)
    group = new_group()
    group.add(topic, explicit=True)
    group.poll_until(lambda: len(group.values) == 10, AcknowledgeType.RELEASE)
    group.poll_until(lambda: len(group.values) == 20, AcknowledgeType.REJECT)
    assert Counter(group.values) == Counter(values * 2)
    assert group.poll(group.consumers[0]) == []
    more = produce(moldau_cluster.bootstrap_servers, topic, 5, first=10)
    group.poll_until(lambda: len(group.values) == 25, AcknowledgeType.ACCEPT)
    assert group.values[-5:] == more


def test_what_is_released_too_often_is_given_up(
    moldau_cluster: Cluster, new_topic: Callable[..., str], new_group: Callable[..., ShareGroup]
) -> None:
    topic = new_topic()
    produce(moldau_cluster.bootstrap_servers, topic, 3)
    group = new_group(share_delivery_count_limit="2")
    consumer = group.add(topic, explicit=True)
    group.poll_until(lambda: len(group.values) >= 6, AcknowledgeType.RELEASE)
    for _ in range(3):
        group.poll(consumer, AcknowledgeType.RELEASE)
    assert Counter(group.values) == Counter({b"0": 2, b"1": 2, b"2": 2})


def test_records_of_a_killed_member_go_to_others(
    moldau_cluster: Cluster, new_topic: Callable[..., str], new_group: Callable[..., ShareGroup]
) -> None:
    topic = new_topic()
    values = produce(moldau_cluster.bootstrap_servers, topic, 100)
    group = new_group()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\n"
            "from confluent_kafka import ShareConsumer\n"
            f"consumer = ShareConsumer({{'bootstrap.servers': {moldau_cluster.bootstrap_servers!r},"
            f" 'group.id': {group.name!r}, 'log_level': 0}})\n"
            f"consumer.subscribe([{topic!r}])\n"
            "while not [m for m in consumer.poll(1.0) if m.error() is None]: pass\n"
            "print('holding', flush=True)\n"
            "time.sleep(600)\n",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
    finally:
        holder.kill()
        holder.wait()
    group.add(topic)
    group.poll_until(lambda: set(group.values) == set(values))
    assert Counter(group.values) == Counter(values)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_records(
    moldau_cluster: Cluster, new_topic: Callable[..., str], new_group: Callable[..., ShareGroup], isolation: str
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": moldau_cluster.bootstrap_servers, "transactional.id": f"{topic}-id"})
    producer.init_transactions(60)
    for number, outcome in enumerate((b"committed", b"aborted", b"committed")):
        producer.begin_transaction()
        producer.produce(topic, outcome + b"-%d" % number)
        producer.flush(60)
        if outcome == b"committed":
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    group = new_group(share_isolation_level=isolation)
    group.add(topic)
    expected = [b"committed-0", b"committed-2"]
    if isolation == "read_uncommitted":
        expected.insert(1, b"aborted-1")
    group.poll_until(lambda: len(group.values) >= len(expected))
    group.poll(group.consumers[0])
    assert group.values == expected


@pytest.mark.slow
def test_a_leader_dies() -> None:
    """What was acknowledged is not delivered again, what was not is, by whoever leads then."""
    with Cluster(nodes=3) as cluster:
        cluster.create_topic("t", 2)
        cluster.wait_until_in_sync("t")
        values = produce(cluster.bootstrap_servers, "t", 400)
        group = ShareGroup(cluster.bootstrap_servers)
        try:
            consumer = group.add("t", explicit=True)
            group.poll_until(lambda: len(group.values) >= 50, AcknowledgeType.ACCEPT)
            results = consumer.commit_sync(60)
            accepted = Counter(group.values)
            assert not any(results.values()), results
            cluster.kill(cluster.leader_of("t", 0))
            group.poll_until(lambda: set(group.values) == set(values), AcknowledgeType.ACCEPT)
            again = [value for value in accepted if group.values.count(value) > 1]
            assert not again, f"accepted and stored, yet delivered again: {again[:5]}"
        finally:
            group.close()
