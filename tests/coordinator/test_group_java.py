"""Apache's own tools look at our groups: the records they find in the offsets topic, and kafka-consumer-groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka as librdkafka
import pytest
from tests.clients.java_tools import CONSOLE_CONSUMER, JavaTools

from moldau.testing import Cluster

pytestmark = pytest.mark.java

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
FORMATTERS = "org.apache.kafka.tools.consumer"
TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One group that was used and left, with everything committed but the last partition."""
    with Cluster({"offsets.topic.num.partitions": "1"}) as cluster:
        cluster.create_topic(TOPIC, 2)
        servers = cluster.bootstrap_servers
        producer = librdkafka.Producer({"bootstrap.servers": servers})
        for number in range(20):
            producer.produce(TOPIC, b"x", partition=number % 2)
        assert producer.flush(10) == 0
        consumer = librdkafka.Consumer({"bootstrap.servers": servers, "group.id": "readers"})
        consumer.subscribe([TOPIC])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.05)
        consumer.commit(offsets=[librdkafka.TopicPartition(TOPIC, 0, 10)], asynchronous=False)
        consumer.close()
        yield cluster


def records(java: JavaTools, cluster: Cluster, formatter: str, count: int) -> list[Any]:
    printed = java.run(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "__consumer_offsets"),
        *("--partition", "0", "--offset", "earliest", "--max-messages", str(count), "--timeout-ms", "30000"),
        *("--formatter", f"{FORMATTERS}.{formatter}"),
    )
    decoder = json.JSONDecoder()
    found, position = [], 0
    while position < len(printed.rstrip()):
        value, position = decoder.raw_decode(printed, position)
        found.append(value)
    return found


def test_apaches_formatters_read_the_offsets_topic(java_tools: JavaTools, cluster: Cluster) -> None:
    groups = records(java_tools, cluster, "GroupMetadataMessageFormatter", 4)
    described = [(each["key"]["data"]["group"], each["value"]["version"]) for each in groups]
    assert described == [("readers", 3)] * 3
    new, used, left = (each["value"]["data"] for each in groups)
    assert (new["generation"], used["generation"], left["generation"]) == (0, 1, 2)
    assert (used["protocolType"], used["protocol"], len(used["members"])) == ("consumer", "range", 1)
    assert (left["protocol"], left["leader"], left["members"]) == (None, None, [])
    (offset,) = records(java_tools, cluster, "OffsetsMessageFormatter", 4)
    assert offset["key"]["data"] == {"group": "readers", "topic": TOPIC, "partition": 0}
    assert (offset["value"]["version"], offset["value"]["data"]["offset"]) == (4, 10)


def test_kafka_consumer_groups(java_tools: JavaTools, cluster: Cluster) -> None:
    def command(*arguments: str) -> str:
        return java_tools.run(GROUP_COMMAND, "--bootstrap-server", cluster.bootstrap_servers, *arguments)

    assert command("--list").split() == ["readers"]
    assert command("--list", "--state").split()[-1] == "Empty"
    table = [line.split() for line in command("--describe", "--group", "readers").splitlines() if TOPIC in line]
    assert [row[:6] for row in table] == [["readers", TOPIC, "0", "10", "10", "0"]]
    reset = ("--reset-offsets", "--group", "readers", "--topic", TOPIC, "--to-offset", "3")
    command(*reset, "--dry-run")
    command(*reset, "--execute")
    table = [line.split() for line in command("--describe", "--group", "readers").splitlines() if TOPIC in line]
    assert [row[2:6] for row in sorted(table)] == [["0", "3", "10", "7"], ["1", "3", "10", "7"]]
    command("--delete-offsets", "--group", "readers", "--topic", f"{TOPIC}:1")
    table = [line.split() for line in command("--describe", "--group", "readers").splitlines() if TOPIC in line]
    assert [row[2:6] for row in table] == [["0", "3", "10", "7"]]
    assert "successful" in command("--delete", "--group", "readers")
    assert command("--list").split() == []
