"""What the clients' administration calls are told: topics, settings, partitions, records, offsets, directories."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import ConfigResource as PyConfigResource
from kafka.admin import ConfigResourceType as PyResourceType
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PyNewTopic

from moldau.testing import Cluster
from tests.clients.admin_tour import check_admin_tour
from tests.clients.java_tools import JavaTools
from tests.clients.python_clients import PRODUCERS
from tests.clients.sample import samples


@pytest.mark.java
def test_apaches_admin_client(moldau_cluster: Cluster, new_topic: Callable[..., str], java_tools: JavaTools) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    java_tools.produce(servers, topic, samples(10))
    seen = json.loads(java_tools.run("AdminTour", servers, topic, f"{topic}-created"))
    check_admin_tour(seen, servers)


def test_confluents_admin_client(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    servers = moldau_cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    topic = f"{new_topic()}-confluent"
    wanted = NewTopic(topic, num_partitions=2, replication_factor=1, config={"retention.ms": "9999"})
    admin.create_topics([wanted])[topic].result(10)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([wanted])[topic].result(10)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    assert sorted(admin.list_topics(topic, timeout=10).topics[topic].partitions) == [0, 1, 2]

    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(10)["retention.ms"].value == "9999"
    change = ConfigEntry("retention.ms", "8888", incremental_operation=AlterConfigOpType.SET)
    altering = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([altering])[altering].result(10)
    assert admin.describe_configs([resource])[resource].result(10)["retention.ms"].value == "8888"

    PRODUCERS["confluent-kafka"](servers, topic, "none", samples(30))
    partitions = [TopicPartition(topic, i) for i in range(3)]
    ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
    counts = {each.partition: future.result(10).offset for each, future in ends.items()}
    assert sum(counts.values()) == 30
    fullest = max(counts, key=counts.__getitem__)
    deleted = admin.delete_records([TopicPartition(topic, fullest, 2)])
    assert [future.result(10).low_watermark for future in deleted.values()] == [2]
    cluster = admin.describe_cluster().result(10)
    assert [(node.id, f"{node.host}:{node.port}") for node in cluster.nodes] == [(1, servers)]
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


def test_kafka_pythons_admin_client(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = f"{new_topic()}-kafka-python"
    admin = KafkaAdminClient(bootstrap_servers=moldau_cluster.bootstrap_servers)
    try:
        admin.create_topics([PyNewTopic(topic, 2, 1, topic_configs={"segment.ms": "60000"})])
        assert topic in admin.list_topics()
        described = admin.describe_topics([topic])
        assert [len(each["partitions"]) for each in described] == [2]
        configs = admin.describe_configs([PyConfigResource(PyResourceType.TOPIC, topic)])
        assert "60000" in str(configs)
        admin.create_partitions({topic: 4})
        assert [len(each["partitions"]) for each in admin.describe_topics([topic])] == [4]
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    finally:
        admin.close()


def test_aiokafkas_admin_client(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = f"{new_topic()}-aiokafka"

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=moldau_cluster.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic(topic, 2, 1, topic_configs={"segment.ms": "60000"})])
            assert topic in await admin.list_topics()
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 2
            configs = await admin.describe_configs([AioConfigResource(AioResourceType.TOPIC, topic)])
            assert "60000" in str(configs)
            await admin.create_partitions({topic: AioNewPartitions(3)})
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 3
            cluster = await admin.describe_cluster()
            assert len(cluster["brokers"]) == 1
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(run())
