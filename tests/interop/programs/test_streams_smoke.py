"""Kafka's smoke test of Streams: windows, joins and counts, over repartition topics and changelogs.

A short one in every run of the tests; the long ones (`make programs`) are Kafka's own, with an application and a
broker that are killed while records are written, and an application that comes late.
"""

from __future__ import annotations

import io
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from moldau.cli.kafka import streams_groups
from moldau.testing import Cluster
from tests.interop.programs.java_program import JavaProgram, properties_file

pytestmark = pytest.mark.java

SMOKE_TEST = "org.apache.kafka.streams.tests.StreamsSmokeTest"
# As Kafka's system tests have them.
TOPICS = (
    *("data", "echo", "fk", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "cnt", "avg", "tagg"),
    *("sws-raw", "sws-suppressed"),
)
PARTITIONS = 5
LONG_SECONDS_MAX = 600
LONG_STEP_SECONDS = 20.0


def create_topics(cluster: Cluster) -> None:
    known = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=30).topics
    for name in TOPICS:
        if name not in known:
            cluster.create_topic(name, PARTITIONS)


def settings(cluster: Cluster, application: str, protocol: str, guarantee: str, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "application.id": application,
        "group.protocol": protocol,
        "processing.guarantee": guarantee,
        "auto.offset.reset": "earliest",
        "commit.interval.ms": "100",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def run_tool(cluster: Cluster, *arguments: str) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert streams_groups.main(["--bootstrap-server", cluster.bootstrap_servers, *arguments]) == 0
    return printed.getvalue()


def test_streams_in_little(cluster: Cluster, tmp_path: Path) -> None:
    create_topics(cluster)
    file = properties_file(
        tmp_path, "short", settings(cluster, "short", "streams", "exactly_once_v2", num_stream_threads="1")
    )
    with JavaProgram(tmp_path, "smoke", "SmokeRun", file, 5, 100, 2) as program:
        program.wait_until(lambda: program.output.count("SMOKE-TEST-CLIENT-STARTED") == 2)
        described = run_tool(cluster, "--describe", "--group", "short", "--members")
        printed = program.finish()
    assert "ALL-RECORDS-DELIVERED" in printed
    titles, *members = (line.split() for line in described.splitlines() if line)
    assert titles == ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
    assert sorted(member[3].split("-StreamThread")[0] for member in members) == ["SmokeTest-first", "SmokeTest-second"]
    assert run_tool(cluster, "--list").split() == ["short"]
    state = run_tool(cluster, "--describe", "--group", "short", "--state")
    assert state.splitlines()[-1].split()[-2:] == ["Empty", "0"]
    internal = [name for name in topics(cluster) if name.startswith("short-")]
    assert any(name.endswith("-changelog") for name in internal)
    assert any(name.endswith("-repartition") for name in internal)
    assert "successful" in run_tool(cluster, "--delete", "--group", "short", "--delete-all-internal-topics")
    assert run_tool(cluster, "--list") == ""
    deadline = time.monotonic() + 30
    while [name for name in topics(cluster) if name.startswith("short-")]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def topics(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=30).topics
    return found


@pytest.mark.programs
@pytest.mark.timeout(2 * LONG_SECONDS_MAX)
@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_streams_at_length(tmp_path: Path, protocol: str) -> None:
    """Kafka's own driver and applications; one of these is killed, the broker is killed, another application comes."""
    with Cluster({"transaction.state.log.num.partitions": "10"}, in_process=False) as cluster:
        create_topics(cluster)
        file = properties_file(
            tmp_path, "long", settings(cluster, "long", protocol, "exactly_once_v2", num_stream_threads="3")
        )
        applications = [JavaProgram(tmp_path, f"application-{each}", SMOKE_TEST, file, "process") for each in range(3)]
        with JavaProgram(tmp_path, "driver", SMOKE_TEST, file, "run") as driver:
            try:
                for application in applications[:2]:
                    application.start()
                driver.wait_until(lambda: "records produced" in driver.output)
                time.sleep(LONG_STEP_SECONDS)
                applications[0].kill()
                time.sleep(LONG_STEP_SECONDS)
                cluster.kill()
                cluster.start()
                applications[2].start()
                printed = driver.finish(LONG_SECONDS_MAX)
            finally:
                for application in applications:
                    application.kill()
        assert "ALL-RECORDS-DELIVERED" in printed
        assert "\nSUCCESS" in printed
