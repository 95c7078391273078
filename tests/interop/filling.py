"""What is written to either broker before the other one opens its directories."""

from __future__ import annotations

import random
from collections.abc import Mapping

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.clients.java_tools import CONFIGS, JavaTools
from tests.clients.python_clients import PRODUCERS
from tests.clients.sample import CODECS, Sample, samples

SECONDS_MAX = 20.0
# The smallest segment Kafka allows.
SEGMENT_BYTES = 1 << 20

TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "codecs": (1, {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "2000"}),
    "orders": (3, {"flush.ms": "900000", "max.message.bytes": "500000"}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
    "trimmed": (1, {"cleanup.policy": "compact,delete"}),
    "idempotent": (1, {}),
    "empty": (2, {}),
    "gone": (1, {}),
}


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(name, count, 1, config=dict(config)) for name, (count, config) in TOPICS.items()]
    for future in admin.create_topics(wanted).values():
        future.result(SECONDS_MAX)


def fill(servers: str, java: JavaTools) -> None:
    """Topics of all kinds with records of every codec, settings on three levels, and one topic deleted."""
    create_topics(servers)
    fill_segments(servers, seed=1)
    for codec, produce in zip(("gzip", "lz4", "none"), PRODUCERS.values(), strict=True):
        for topic in ("orders", "stamped", "compacted", "trimmed", "gone"):
            produce(servers, topic, codec, written_to(topic))
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition("trimmed", 0, 33)]).values():
        future.result(SECONDS_MAX)
    change(admin, ResourceType.TOPIC, "orders", "max.message.bytes", "600000")
    change(admin, ResourceType.BROKER, "1", "log.cleaner.threads", "2")
    alter = ("--bootstrap-server", servers, "--alter", "--add-config")
    java.run(CONFIGS, *alter, "message.max.bytes=2000000", "--entity-type", "brokers", "--entity-default")
    java.run(CONFIGS, *alter, "producer_byte_rate=5e8", "--entity-type", "clients", "--entity-name", "ada")
    commit_offsets(servers)
    admin.delete_topics(["gone"])["gone"].result(SECONDS_MAX)


def change(admin: AdminClient, kind: ResourceType, name: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)


def fill_segments(servers: str, seed: int) -> None:
    """Some megabytes that compress only a little, so that there are several segments whatever the codec."""
    noise = random.Random(seed)
    for codec in CODECS:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "compression.type": codec, "batch.size": 200_000, "linger.ms": 50}
        )
        for i in range(12):
            key = f"{seed}-{codec}-{i}".encode()
            producer.produce(
                "codecs", noise.randbytes(60_000) + bytes(10_000), key, 0, timestamp=1_700_000_000_000 + 1000 * seed + i
            )
        assert producer.flush(SECONDS_MAX) == 0


def append_a_little(servers: str) -> None:
    """More records after the other broker took over."""
    for codec, produce in zip(("zstd", "snappy", "gzip"), PRODUCERS.values(), strict=True):
        for topic in ("orders", "stamped", "compacted", "trimmed", "empty"):
            produce(servers, topic, codec, written_to(topic))


def written_to(topic: str) -> list[Sample]:
    """Twenty records; a topic that is compacted takes none without a key."""
    return [each for each in samples(24) if each.key is not None] if "compact" in str(TOPICS[topic]) else samples(20)


def write_transactions(servers: str) -> None:
    """One transaction kept and one taken back, so that readers of committed records have something to leave out."""
    for name, commit in (("kept", True), ("dropped", False), ("kept", True)):
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": name})
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        for i in range(5):
            producer.produce("orders", f"{name} {i}".encode(), partition=0)
        producer.flush(SECONDS_MAX)
        if commit:
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.abort_transaction(SECONDS_MAX)


def commit_offsets(servers: str) -> None:
    """A group that has read some of the orders and says so."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["orders"])
        read = consumer.consume(25, timeout=SECONDS_MAX)
        assert len(read) == 25
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


class SteadyProducer:
    """An idempotent producer that lives through the change of brokers: its sequence numbers must be known to both."""

    def __init__(self, servers: str) -> None:
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        self._producer = confluent_kafka.Producer({**settings, "reconnect.backoff.max.ms": 200})
        self._count = 0

    def write(self) -> None:
        failures: list[object] = []
        for _ in range(10):
            self._producer.produce(
                "idempotent",
                b"%d" % self._count,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            self._count += 1
        assert self._producer.flush(SECONDS_MAX) == 0
        assert failures == []

    @property
    def written(self) -> list[bytes]:
        return [b"%d" % i for i in range(self._count)]
