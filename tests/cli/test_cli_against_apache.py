"""Our commands and Apache Kafka's own, given the same arguments on the same cluster or files, print the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cli.kafka import dump_log, storage
from tests.cli import segment_zoo as zoo
from tests.cli.conftest import Done
from tests.clients.java_tools import DUMP_LOG, STORAGE, JavaTools

pytestmark = pytest.mark.java

TOPICS = "org.apache.kafka.tools.TopicCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CONFIGS = "kafka.admin.ConfigCommand"

Kafka = Callable[..., Done]
Call = Callable[..., Done]


@pytest.fixture
def two(kafka: Kafka, topic: str) -> tuple[str, str]:
    """Two topics that differ in everything a description shows."""
    kafka("topics", "--create", "--topic", f"{topic}-a", "--partitions", 3, "--config", "retention.ms=1000")
    kafka("topics", "--create", "--topic", f"{topic}-b", "--config", "cleanup.policy=compact")
    return f"{topic}-a", f"{topic}-b"


@pytest.fixture
def apache(java_tools: JavaTools, bootstrap: str) -> Callable[..., Done]:
    def run(tool: str, *argv: object) -> Done:
        done = java_tools.attempt(tool, "--bootstrap-server", bootstrap, *argv)
        return Done(done.exit, done.out, done.err)

    return run


def test_topics(kafka: Kafka, apache: Kafka, two: tuple[str, str]) -> None:
    first, second = two
    for argv in (
        ("--describe", "--topic", first),
        ("--describe", "--topic", second, "--topics-with-overrides"),
        ("--describe", "--topic", first, "--at-min-isr-partitions"),
        ("--describe", "--topic", first, "--under-replicated-partitions"),
        ("--list", "--topic", f"{first}|{second}"),
        ("--create", "--topic", first),
        ("--create", "--topic", first, "--if-not-exists"),
        ("--create", "--topic", first + ".x_y", "--partitions", "0"),
        ("--alter", "--topic", first, "--partitions", "2"),
        ("--delete", "--topic", "cli-no-such"),
        ("--describe", "--topic", "cli-no-such"),
    ):
        ours, theirs = kafka("topics", *argv), apache(TOPICS, *argv)
        assert (ours.code, ours.out) == (theirs.code, theirs.out), argv


def test_configs(kafka: Kafka, apache: Kafka, two: tuple[str, str]) -> None:
    first, second = two
    for argv in (
        ("--describe", "--topic", first),
        ("--describe", "--topic", second, "--all"),
        ("--describe", "--entity-type", "brokers"),
        ("--describe", "--broker", "1", "--all"),
        ("--describe", "--topic", "cli-no-such"),
        ("--alter", "--topic", first, "--add-config", "segment.ms=5,cleanup.policy=[compact,delete]"),
        ("--alter", "--topic", first, "--delete-config", "segment.ms"),
        ("--describe", "--entity-type", "topics", "--entity-name", first),
        ("--describe", "--topic", first, "--alter"),
    ):
        ours, theirs = kafka("configs", *argv), apache(CONFIGS, *argv)
        assert (ours.code, ours.out) == (theirs.code, theirs.out), argv


def test_offsets_and_log_directories(kafka: Kafka, apache: Kafka, two: tuple[str, str], tmp_path: Path) -> None:
    first, _ = two
    for argv in (
        ("--topic", first),
        ("--topic-partitions", f"{first}:1-"),
        ("--topic", first, "--time", "-3"),
        ("--topic", "cli-no-such"),
        ("--topic", first, "--time", "x"),
    ):
        ours, theirs = kafka("get_offsets", *argv), apache(OFFSETS, *argv)
        assert (ours.code, ours.out, ours.err) == (theirs.code, theirs.out, theirs.err), argv
    ours, theirs = kafka("log_dirs", "--describe"), apache(LOG_DIRS, "--describe")
    assert ours.lines[:2] == theirs.lines[:2]
    assert _by_partition(ours.lines[2]) == _by_partition(theirs.lines[2])
    file = tmp_path / "o.json"
    file.write_text(json.dumps({"partitions": [{"topic": first, "partition": 0, "offset": 0}], "version": 1}))
    argv = ("--offset-json-file", str(file))
    assert kafka("delete_records", *argv).out == apache(DELETE_RECORDS, *argv).out


def _by_partition(line: str) -> object:
    described = json.loads(line)
    for broker in described["brokers"]:
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda each: each["partition"])
    return described


def test_dumps(call: Call, java_tools: JavaTools, tmp_path: Path) -> None:
    log = zoo.write_data_log(tmp_path / "t-0")
    indexes = [str(log.with_suffix(suffix)) for suffix in (".index", ".timeindex", ".txnindex")]
    snapshot = log.with_name("00000000000000000020.snapshot")
    checkpoint = zoo.write_checkpoint(tmp_path / "m-0")
    metadata = zoo.write_records(tmp_path / "m-1", zoo.metadata_records())
    for argv in (
        ("--files", log),
        ("--files", log, "--deep-iteration"),
        ("--files", log, "--print-data-log"),
        ("--files", log, "--print-data-log", "--skip-record-metadata"),
        ("--files", log, "--max-bytes", 300),
        ("--files", ",".join(indexes)),
        ("--files", indexes[0], "--index-sanity-check"),
        ("--files", snapshot),
        ("--files", checkpoint, "--cluster-metadata-decoder"),
        ("--files", metadata, "--cluster-metadata-decoder"),
    ):
        theirs = java_tools.attempt(DUMP_LOG, *argv)
        ours = call(dump_log.main, *argv)
        assert ours.out == theirs.out, argv
        assert ours.err == theirs.err, argv


@pytest.mark.parametrize(
    ("package", "option"),
    [("group", "offsets"), ("transaction", "transaction-log"), ("share", "share-group-state")],
)
def test_dumps_of_internal_topics(call: Call, java_tools: JavaTools, tmp_path: Path, package: str, option: str) -> None:
    """Every record type in every version, filled and empty."""
    path = zoo.write_records(tmp_path / "i-0", zoo.coordinator_records(package))
    argv = ("--files", path, f"--{option}-decoder")
    theirs = java_tools.attempt(DUMP_LOG, *argv).out.splitlines()
    ours = call(dump_log.main, *argv).lines
    assert ours == theirs


def test_storage(call: Call, java_tools: JavaTools, tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=3\nlisteners=PLAINTEXT://localhost:0,CONTROLLER://localhost:9\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=3@localhost:9\nlog.dirs={data}\n"
    )
    for argv in (
        ("version-mapping",),
        ("version-mapping", "-r", "3.9"),
        ("feature-dependencies", "-f", "eligible.leader.replicas.version=1", "-f", "metadata.version=25"),
        ("feature-dependencies", "-f", "nonsense=1"),
        ("info", "-c", config),
        ("format", "-c", config, "-t", "4L6g3nShT-eMCtK--X86sw", "--feature", "nonsense=1"),
    ):
        theirs = java_tools.attempt(STORAGE, *argv)
        ours = call(storage.main, *argv)
        assert (ours.code, ours.out) == (theirs.exit, theirs.out), argv
    assert call(storage.main, "format", "-c", config, "-t", "4L6g3nShT-eMCtK--X86sw").code == 0
    seen = java_tools.attempt(STORAGE, "info", "-c", config)
    assert (seen.exit, seen.out) == (0, call(storage.main, "info", "-c", config).out)
    refused = java_tools.attempt(STORAGE, "format", "-c", config, "-t", "4L6g3nShT-eMCtK--X86sw")
    assert re.search("is already formatted", refused.err)
