"""Apache's share consumers as people and system tests run them: verifiable, on the console, and the group command."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest

from moldau.testing import Cluster
from tests.clients.java_tools import CONFIGS, CONSOLE_PRODUCER, JavaTools

pytestmark = pytest.mark.java

VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableShareConsumer"
CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
_numbers = itertools.count()


@pytest.fixture
def filled(moldau_cluster: Cluster, new_topic: Callable[..., str], java_tools: JavaTools) -> str:
    topic = new_topic(2)
    java_tools.run(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", moldau_cluster.bootstrap_servers, "--topic", topic),
        text="".join(f"line {number}\n" for number in range(100)),
    )
    return topic


@pytest.fixture
def group(moldau_cluster: Cluster, java_tools: JavaTools) -> str:
    name = f"java-share-{next(_numbers)}"
    java_tools.run(
        CONFIGS,
        *("--bootstrap-server", moldau_cluster.bootstrap_servers, "--alter", "--entity-type", "groups"),
        *("--entity-name", name, "--add-config", "share.auto.offset.reset=earliest"),
    )
    return name


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_the_verifiable_share_consumer(
    moldau_cluster: Cluster, java_tools: JavaTools, filled: str, group: str, mode: str
) -> None:
    printed = java_tools.run(
        VERIFIABLE_CONSUMER,
        *("--bootstrap-server", moldau_cluster.bootstrap_servers, "--topic", filled, "--group-id", group),
        *("--max-messages", "100", "--acknowledgement-mode", mode),
    )
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    consumed = [event for event in events if event["name"] == "records_consumed"]
    assert sum(event["count"] for event in consumed) == 100
    offsets = {
        (part["partition"], offset) for event in consumed for part in event["partitions"] for offset in part["offsets"]
    }
    assert len(offsets) == 100
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged), acknowledged
    assert sum(event["count"] for event in acknowledged) == 100


def test_the_console_share_consumer_and_the_group_command(
    moldau_cluster: Cluster, java_tools: JavaTools, filled: str, group: str
) -> None:
    servers = moldau_cluster.bootstrap_servers
    printed = java_tools.run(
        CONSOLE_SHARE_CONSUMER,
        *("--bootstrap-server", servers, "--topic", filled, "--group", group),
        *("--max-messages", "100", "--timeout-ms", "30000"),
    )
    assert sorted(printed.splitlines()) == sorted(f"line {number}" for number in range(100))
    described = java_tools.run(SHARE_GROUPS, "--bootstrap-server", servers, "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    # A partition from which nothing was delivered has no start offset yet.
    assert {row[4] for row in rows} <= {"0", "-"}, described
    assert "0" in {row[4] for row in rows}, "everything is acknowledged"
