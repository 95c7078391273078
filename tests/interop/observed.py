"""Everything a client can see of a small cluster, in a form that two brokers can be compared by."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, OffsetSpec, ResourceType

from tests.clients.java_tools import CONFIGS, JavaTools

DYNAMIC_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    ConfigSource.DYNAMIC_BROKER_CONFIG.value,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value,
}
SECONDS_MAX = 20.0


@dataclass(frozen=True)
class Read:
    """One record as a consumer sees it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Observed:
    cluster_id: str
    # Name -> (topic id, number of partitions, internal)
    topics: dict[str, tuple[str, int, bool]]
    # (kind, name) -> the settings somebody made
    settings: dict[tuple[str, str], dict[str, str]]
    # (topic, partition) -> (earliest, latest, offset of the largest timestamp)
    offsets: dict[tuple[str, int], tuple[int, int, int]]
    quotas: str
    # (topic, partition) -> the offset the group of readers has committed
    positions: dict[tuple[str, int], int]
    records: dict[tuple[str, int], list[Read]]
    committed: dict[tuple[str, int], list[Read]]

    def restricted_to(self, topics: Collection[str]) -> Observed:
        """Only what was seen of these topics."""
        return dataclasses.replace(
            self,
            topics={name: each for name, each in self.topics.items() if name in topics},
            settings={key: each for key, each in self.settings.items() if key[0] != "topic" or key[1] in topics},
            offsets={key: each for key, each in self.offsets.items() if key[0] in topics},
            records={key: each for key, each in self.records.items() if key[0] in topics},
            committed={key: each for key, each in self.committed.items() if key[0] in topics},
        )


def observe(servers: str, java: JavaTools) -> Observed:
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_topics(timeout=SECONDS_MAX)
    described = admin.describe_topics(TopicCollection(sorted(listed.topics)))
    topics = {}
    for name, future in described.items():
        each = future.result(SECONDS_MAX)
        topics[name] = (str(each.topic_id), len(each.partitions), each.is_internal)
    partitions = [TopicPartition(name, i) for name, (_, count, _) in sorted(topics.items()) for i in range(count)]
    offsets = {
        (each.topic, each.partition): tuple(
            _offset(admin, each, spec)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp())
        )
        for each in partitions
    }
    return Observed(
        cluster_id=listed.cluster_id,
        topics=topics,
        settings=_settings(admin, list(topics)),
        offsets=offsets,  # type: ignore[arg-type]
        quotas=java.run(CONFIGS, "--bootstrap-server", servers, "--describe", "--entity-type", "clients").strip(),
        positions=_positions(admin),
        records=_records(servers, offsets, "read_uncommitted"),
        committed=_records(servers, offsets, "read_committed"),
    )


def _patiently(ask: Callable[[], Any]) -> Any:
    """A broker of Apache's that has just started answers before it has taken over its partitions: ask again."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return ask().result(SECONDS_MAX)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _offset(admin: AdminClient, partition: TopicPartition, spec: OffsetSpec) -> int:
    offset: int = _patiently(lambda: admin.list_offsets({partition: spec})[partition]).offset
    return offset


def _positions(admin: AdminClient) -> dict[tuple[str, int], int]:
    asked = ConsumerGroupTopicPartitions("readers")
    answer = _patiently(lambda: admin.list_consumer_group_offsets([asked])["readers"])
    return {(each.topic, each.partition): each.offset for each in answer.topic_partitions}


def _settings(admin: AdminClient, topics: list[str]) -> dict[tuple[str, str], dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    resources.append(ConfigResource(ResourceType.BROKER, "1"))
    found = {}
    for resource, future in admin.describe_configs(resources).items():
        entries = future.result(SECONDS_MAX)
        made = {name: entry.value for name, entry in entries.items() if entry.source in DYNAMIC_SOURCES}
        found[(resource.restype.name.lower(), resource.name)] = dict(sorted(made.items()))
    return found


def _records(servers: str, offsets: dict[tuple[str, int], Any], isolation: str) -> dict[tuple[str, int], list[Read]]:
    """Read every partition to its end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    found: dict[tuple[str, int], list[Read]] = {key: [] for key in offsets}
    consumer.assign([TopicPartition(topic, index, earliest) for (topic, index), (earliest, _, _) in offsets.items()])
    unfinished = set(offsets)
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while unfinished:
            assert time.monotonic() < deadline, f"{unfinished} were not read to their end"
            for message in consumer.consume(500, timeout=0.05):
                key = (message.topic(), message.partition())
                if message.error() is not None:
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                    unfinished.discard(key)
                    continue
                headers = tuple(message.headers() or ())
                read = Read(message.offset(), message.timestamp(), message.key(), message.value(), headers)
                found[key].append(read)
    finally:
        consumer.close()
    return found
