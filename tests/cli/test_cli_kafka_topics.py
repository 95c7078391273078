"""`kafka-topics` on a live cluster: what it does, and the lines it prints."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from moldau.cli.errors import CliError
from moldau.cli.kafka.topics import format_partition, parse_assignment, parse_configs, replication_factor
from moldau.client.admin.topics import PartitionDescription, Reassignment
from tests.cli.conftest import Done

Kafka = Callable[..., Done]


def test_a_topic_from_birth_to_death(kafka: Kafka, topic: str) -> None:
    created = kafka("topics", "--create", "--topic", topic, "--partitions", 2, "--config", "retention.ms=60000")
    assert created.out == f"Created topic {topic}.\n"
    assert topic in kafka("topics", "--list").lines

    described = kafka("topics", "--describe", "--topic", topic)
    head, *partitions = described.lines
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 2\tReplicationFactor: 1\t"
        r"Configs: .*retention\.ms=60000.*",
        head,
    )
    assert [line.split("\t")[1:4:2] for line in partitions] == [[f"Topic: {topic}", "Leader: 1"]] * 2
    assert "\tIsr: 1\tElr: \tLastKnownElr: " in partitions[0]

    assert kafka("topics", "--alter", "--topic", topic, "--partitions", 3) == Done(0, "", "")
    assert len(kafka("topics", "--describe", "--topic", topic).lines) == 4

    assert kafka("topics", "--delete", "--topic", topic) == Done(0, "", "")
    assert kafka("topics", "--list", "--topic", topic).out == "\n"


def test_describing_by_id(kafka: Kafka, topic: str) -> None:
    kafka("topics", "--create", "--topic", topic)
    by_name = kafka("topics", "--describe", "--topic", topic)
    topic_id = by_name.out.partition("TopicId: ")[2].partition("\t")[0]
    by_id = kafka("topics", "--describe", "--topic-id", topic_id)
    assert by_id.lines[0] == by_name.lines[0]
    missing = kafka("topics", "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAABA")
    assert missing.out == (
        "Error while executing topic command : TopicId 'AAAAAAAAAAAAAAAAAAAABA' does not exist as expected\n"
    )


def test_many_partitions_are_described_in_pages(kafka: Kafka, topic: str) -> None:
    kafka("topics", "--create", "--topic", topic, "--partitions", 7)
    described = kafka("topics", "--describe", "--topic", topic, "--partition-size-limit-per-response", 2)
    assert [re.search(r"Partition: (\d+)", line)[1] for line in described.lines[1:]] == list("0123456")  # type: ignore[index]


def test_names_are_regular_expressions_except_for_creating(kafka: Kafka, topic: str) -> None:
    for suffix in ("-a", "-b"):
        kafka("topics", "--create", "--topic", topic + suffix)
    assert kafka("topics", "--list", "--topic", f"{topic}-.*").lines == [f"{topic}-a", f"{topic}-b"]
    assert kafka("topics", "--list", "--topic", f"{topic}-a,{topic}-b").lines == [f"{topic}-a", f"{topic}-b"]
    kafka("topics", "--delete", "--topic", f"{topic}-.*")
    assert kafka("topics", "--list", "--topic", f"{topic}-.*").lines == [""]


def test_what_is_there_already_or_not_there(kafka: Kafka, topic: str) -> None:
    kafka("topics", "--create", "--topic", topic)
    again = kafka("topics", "--create", "--topic", topic)
    assert (again.code, again.out) == (1, f"Error while executing topic command : Topic '{topic}' already exists.\n")
    assert kafka("topics", "--create", "--topic", topic, "--if-not-exists") == Done(0, "", "")
    missing = kafka("topics", "--delete", "--topic", "no-such-topic")
    assert missing.code == 1
    assert missing.out == "Error while executing topic command : Topic 'no-such-topic' does not exist as expected\n"
    for action in ("--delete", "--describe"):
        assert kafka("topics", action, "--topic", "no-such-topic", "--if-exists").code == 0


def test_filters_when_describing(kafka: Kafka, topic: str) -> None:
    kafka("topics", "--create", "--topic", topic, "--config", "cleanup.policy=compact")
    only_heads = kafka("topics", "--describe", "--topic", topic, "--topics-with-overrides")
    assert len(only_heads.lines) == 1
    assert "cleanup.policy=compact" in only_heads.out
    for healthy in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert kafka("topics", "--describe", "--topic", topic, healthy).out == ""
    at_minimum = kafka("topics", "--describe", "--topic", topic, "--at-min-isr-partitions")
    assert [line.split("\t")[2] for line in at_minimum.lines] == ["Partition: 0"]


def test_the_broker_refuses_what_only_it_can_know(kafka: Kafka, topic: str) -> None:
    unknown = kafka("topics", "--create", "--topic", topic, "--config", "no.such=1")
    assert unknown.out == "Error while executing topic command : Unknown topic config name: no.such\n"
    too_many = kafka("topics", "--create", "--topic", topic, "--replication-factor", 9)
    assert (too_many.code, too_many.out.startswith("Error while executing topic command : ")) == (1, True)
    placed = kafka("topics", "--create", "--topic", topic, "--replica-assignment", "1,1,1")
    assert placed.code == 0
    assert "PartitionCount: 3" in kafka("topics", "--describe", "--topic", topic).out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--list", "--describe"), "exactly one action"),
        (("--create",), 'Missing required argument "[topic]"'),
        (("--alter", "--topic", "x"), 'Missing required argument "[partitions]"'),
        (("--list", "--partitions", "1"), 'Option "[partitions]" can\'t be used with option "[list]"'),
        (("--alter", "--topic", "x", "--config", "a=b"), "the kafka-configs tool can be used"),
        (("--create", "--topic", "x", "--replica-assignment", "1", "--partitions", "1"), "can't be used with option"),
        (("--describe", "--if-exists"), "--topic or --topic-id is required"),
    ],
)
def test_options_that_do_not_go_together(kafka: Kafka, argv: tuple[str, ...], message: str) -> None:
    done = kafka("topics", *argv)
    assert done.code == 1
    assert message in done.err


def test_assignments_and_configs_are_checked_before_asking_anybody() -> None:
    assert parse_assignment("1:2, 2:3") == {0: [1, 2], 1: [2, 3]}
    for wrong in ("1:1", "1:2,3", "a"):
        with pytest.raises(CliError):
            parse_assignment(wrong)
    assert parse_configs(["a = b", "c="]) == {"a": "b", "c": ""}
    with pytest.raises(CliError):
        parse_configs(["a"])


def test_a_partition_on_the_move() -> None:
    partition = PartitionDescription(0, -1, 3, [1, 2, 3], [1], None, None, [])
    moving = Reassignment([1, 2, 3], adding=[3], removing=[])
    assert replication_factor(partition, moving) == 2
    assert replication_factor(partition, None) == 3
    assert format_partition("t", partition, moving) == (
        "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: 1\tAdding Replicas: 3\tRemoving Replicas: "
        "\tElr: N/A\tLastKnownElr: N/A"
    )
