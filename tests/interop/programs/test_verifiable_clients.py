"""The clients of Kafka's system tests, which say everything they do as a line of JSON."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka as librdkafka
import pytest

from moldau.testing import Cluster
from tests.clients.java_tools import JavaTools
from tests.interop.programs.java_program import JavaProgram

pytestmark = pytest.mark.java

TOOLS = "org.apache.kafka.tools"
RECORDS = 2000
PARTITIONS = 3


@pytest.fixture(scope="module")
def produced(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], str]:
    """What VerifiableProducer says it has written, by partition and offset."""
    cluster.create_topic("verified", PARTITIONS)
    home = tmp_path_factory.mktemp("producer")
    arguments = ("--topic", "verified", "--bootstrap-server", cluster.bootstrap_servers, "--acks", "-1")
    with JavaProgram(
        home, "producer", f"{TOOLS}.VerifiableProducer", *arguments, "--max-messages", RECORDS, "--repeating-keys", 50
    ) as program:
        program.finish()
        events = program.events
    assert [each["name"] for each in events if each["name"] != "producer_send_success"] == [
        "startup_complete",
        "shutdown_complete",
        "tool_data",
    ]
    assert (events[-1]["sent"], events[-1]["acked"]) == (RECORDS, RECORDS)
    written = {
        (each["partition"], each["offset"]): each["value"] for each in events if each["name"] == "producer_send_success"
    }
    assert sorted(map(int, written.values())) == list(range(RECORDS))
    return written


def test_what_is_acknowledged_is_there(cluster: Cluster, produced: dict[tuple[int, int], str]) -> None:
    consumer = librdkafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "look"})
    consumer.assign([librdkafka.TopicPartition("verified", index, 0) for index in range(PARTITIONS)])
    found: dict[tuple[int, int], str] = {}
    while len(found) < RECORDS:
        for message in consumer.consume(500, timeout=30):
            assert message.error() is None
            found[message.partition(), message.offset()] = message.value().decode()
    consumer.close()
    assert found == produced


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_two_consumers_read_everything_once(
    cluster: Cluster, tmp_path: Path, produced: dict[tuple[int, int], str], protocol: str
) -> None:
    group = f"verifiable-{protocol}"
    ends = {index: 1 + max(offset for each, offset in produced if each == index) for index in range(PARTITIONS)}
    arguments = (
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "verified", "--group-id", group),
        *("--group-protocol", protocol, "--reset-policy", "earliest", "--verbose"),
    )
    main = f"{TOOLS}.VerifiableConsumer"
    with JavaProgram(tmp_path, "a", main, *arguments) as first, JavaProgram(tmp_path, "b", main, *arguments) as second:

        def consumed() -> list[tuple[int, int]]:
            return [
                (event["partition"], event["offset"])
                for program in (first, second)
                for event in program.events
                if event["name"] == "record_data"
            ]

        first.wait_until(lambda: len(consumed()) >= RECORDS)
        second.wait_until(lambda: any(event["name"] == "partitions_assigned" for event in second.events))
        # A rebalance may make a consumer read again what was not committed, never skip anything.
        assert set(consumed()) == produced.keys()
        first.wait_until(lambda: committed(cluster, group) == ends)
        commits = [
            event for program in (first, second) for event in program.events if event["name"] == "offsets_committed"
        ]
    assert commits
    assert all(event["success"] for event in commits)


@pytest.mark.parametrize("mode", ["sync", pytest.param("auto", marks=pytest.mark.programs)])
def test_a_share_consumer_acknowledges_everything(
    cluster: Cluster, tmp_path: Path, produced: dict[tuple[int, int], str], mode: str
) -> None:
    arguments = (
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "verified", "--group-id", f"share-{mode}"),
        *("--offset-reset-strategy", "earliest", "--acknowledgement-mode", mode, "--verbose"),
    )
    with JavaProgram(tmp_path, "share", f"{TOOLS}.VerifiableShareConsumer", *arguments) as program:

        def total(event: str, field: str) -> int:
            return sum(int(each[field]) for each in program.events if each["name"] == event)

        program.wait_until(lambda: total("offsets_acknowledged", "count") >= RECORDS)
        events = program.events
    acknowledged = [
        (partition["partition"], offset)
        for event in events
        if event["name"] == "offsets_acknowledged"
        for partition in event["partitions"]
        for offset in partition["offsets"]
    ]
    assert sorted(acknowledged) == sorted(produced), "each record once"
    assert all(event["success"] for event in events if event["name"] == "offsets_acknowledged")


def committed(cluster: Cluster, group: str) -> dict[int, int]:
    wanted = [librdkafka.TopicPartition("verified", index) for index in range(PARTITIONS)]
    tool = librdkafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    offsets = {each.partition: each.offset for each in tool.committed(wanted, timeout=30)}
    tool.close()
    return offsets


def test_a_client_finds_everything_it_may_ask_for(cluster: Cluster, java_tools: JavaTools) -> None:
    cluster.create_topic("compatible", 1)
    supported = (
        "offsets-for-times",
        "cluster-id",
        "create-topics",
        "describe-acls",
        "describe-configs",
        "idempotent-producer",
    )
    printed = java_tools.run(
        f"{TOOLS}.ClientCompatibilityTest",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "compatible", "--num-cluster-nodes", 1),
        *(word for name in supported for word in (f"--{name}-supported", "true")),
        *("--expect-record-too-large-exception", "false"),
    )
    assert printed.rstrip().endswith("SUCCESS.")
