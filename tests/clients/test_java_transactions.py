"""Apache's own transactional programs: the copier of Kafka's system tests, and its tool for transactions."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from moldau.testing import Cluster
from tests.clients.java_tools import JavaTools
from tests.clients.test_transactions import committed, transactional

pytestmark = pytest.mark.java

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
RECORDS = 1000


@pytest.mark.parametrize("mode", [(), ("--group-mode",), ("--group-mode", "--enable-random-aborts")])
def test_the_copier_copies_exactly_once(
    moldau_cluster: Cluster, new_topic: Callable[..., str], java_tools: JavaTools, mode: tuple[str, ...]
) -> None:
    source, target = new_topic(), new_topic()
    producer = Producer({"bootstrap.servers": moldau_cluster.bootstrap_servers, "log_level": 0})
    expected = [b"%d" % number for number in range(RECORDS)]
    for value in expected:
        producer.produce(source, value)
    assert producer.flush(20) == 0
    printed = java_tools.run(
        COPIER,
        *("--broker-list", moldau_cluster.bootstrap_servers, "--transactional-id", f"copier-{source}"),
        *("--transaction-size", 100, "--consumer-group", f"g-{source}", "--max-messages", RECORDS),
        *("--input-topic", source, "--input-partition", 0, "--output-topic", target, *mode),
    )
    stages = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert stages[-1]["remaining"] == 0
    assert committed(moldau_cluster, target, RECORDS) == expected


def test_kafkas_tool_sees_and_ends_transactions(
    moldau_cluster: Cluster, new_topic: Callable[..., str], java_tools: JavaTools
) -> None:
    topic = new_topic()
    name = f"open-{topic}"
    producer = transactional(moldau_cluster, name)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    assert producer.flush(10) == 0

    def tool(*arguments: object) -> list[list[str]]:
        printed = java_tools.run(TRANSACTIONS, "--bootstrap-server", moldau_cluster.bootstrap_servers, *arguments)
        return [line.split() for line in printed.splitlines()[1:]]

    ((listed, _, producer_id, state),) = tool("list", "--transactional-id-pattern", name)
    assert (listed, state) == (name, "Ongoing")
    (described,) = tool("describe", "--transactional-id", name)
    assert described[-1] == f"{topic}-0"
    ((found, *_, start),) = tool("describe-producers", "--topic", topic, "--partition", 0)
    assert (found, start) == (producer_id, "0")
    assert tool("find-hanging", "--topic", topic, "--max-transaction-timeout", 0) == []
    tool("abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
    ((*_, start),) = tool("describe-producers", "--topic", topic, "--partition", 0)
    assert start == "None"
    tool("forceTerminateTransaction", "--transactionalId", name)
    ((_, _, _, state),) = tool("list", "--transactional-id-pattern", name)
    assert state == "Empty"
    assert committed(moldau_cluster, topic, 0) == []
