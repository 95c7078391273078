"""Our tools for operating a cluster and Apache Kafka's own, given the same arguments, say the same about it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cli.kafka import cluster, features, metadata_quorum
from tests.cli.conftest import Done
from tests.clients.java_tools import JavaTools

pytestmark = pytest.mark.java

PACKAGE = "org.apache.kafka.tools."
Call = Callable[..., Done]


@pytest.fixture
def apache(java_tools: JavaTools) -> Call:
    def run(tool: str, *argv: object) -> Done:
        done = java_tools.attempt(PACKAGE + tool, *argv)
        return Done(done.exit, done.out, done.err)

    return run


def without_numbers(text: str) -> str:
    """Offsets and times move on between two questions."""
    return re.sub(r"\d{2,}", "N", text)


def test_quorum_features_and_cluster(call: Call, apache: Call, bootstrap: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    for main, tool, argv in (
        (metadata_quorum.main, "MetadataQuorumCommand", (*server, "describe", "--status")),
        (metadata_quorum.main, "MetadataQuorumCommand", (*server, "describe", "--replication")),
        (features.main, "FeatureCommand", (*server, "describe")),
        (features.main, "FeatureCommand", (*server, "upgrade", "--feature", "group.version=7")),
        (features.main, "FeatureCommand", (*server, "downgrade", "--feature", "group.version=0", "--dry-run")),
        (features.main, "FeatureCommand", (*server, "version-mapping", "--release-version", "4.1")),
        (cluster.main, "ClusterTool", ("cluster-id", *server)),
        (cluster.main, "ClusterTool", ("list-endpoints", *server, "--include-fenced-brokers")),
    ):
        ours, theirs = call(main, *argv), apache(tool, *argv)
        # Kafka's table has blanks behind the last column as well.
        ours_lines = [line.rstrip() for line in without_numbers(ours.out).splitlines()]
        theirs_lines = [line.rstrip() for line in without_numbers(theirs.out).splitlines()]
        assert (ours.code, ours_lines) == (theirs.code, theirs_lines), argv


def test_reassignments_and_elections(kafka: Call, apache: Call, bootstrap: str, topic: str, tmp_path: Path) -> None:
    server = ("--bootstrap-server", bootstrap)
    kafka("topics", "--create", "--topic", topic, "--partitions", 2)
    moves = tmp_path / "moves.json"
    moves.write_text(json.dumps({"partitions": [{"topic": topic, "partition": i, "replicas": [1]} for i in (0, 1)]}))
    far = tmp_path / "far.json"
    far.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [1, 2]}]}))
    elections = tmp_path / "elections.json"
    elections.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    reassign, elect = "reassign.ReassignPartitionsCommand", "LeaderElectionCommand"
    for command, tool, argv in (
        ("reassign_partitions", reassign, ("--list",)),
        ("reassign_partitions", reassign, ("--execute", "--reassignment-json-file", moves)),
        ("reassign_partitions", reassign, ("--execute", "--reassignment-json-file", moves, "--throttle", "1000")),
        ("reassign_partitions", reassign, ("--verify", "--reassignment-json-file", moves, "--preserve-throttles")),
        ("reassign_partitions", reassign, ("--verify", "--reassignment-json-file", far, "--preserve-throttles")),
        ("reassign_partitions", reassign, ("--cancel", "--reassignment-json-file", moves)),
        ("leader_election", elect, ("--election-type", "preferred", "--path-to-json-file", elections)),
        ("leader_election", elect, ("--election-type", "unclean", "--topic", topic, "--partition", "9")),
    ):
        ours, theirs = kafka(command, *argv), apache(tool, *server, *argv)
        # Kafka's tool forgets the end of one line.
        theirs_out = theirs.out.replace("moves are active.Clearing", "moves are active.\nClearing")
        assert (ours.code, ours.out.strip()) == (theirs.code, theirs_out.strip()), argv


def test_broker_api_versions(kafka: Call, apache: Call, bootstrap: str) -> None:
    ours = kafka("broker_api_versions")
    theirs = apache("BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
    assert ours.out.splitlines() == theirs.out.splitlines()
