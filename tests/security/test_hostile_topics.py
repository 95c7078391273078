"""Names that mean something to a file system, and requests that would fill the cluster (attack checklist 11 and 12)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from moldau.testing import Cluster
from tests.security.test_hostile_records import end_offset, good, produce
from tests.security.wire_client import WireClient, answer_seconds, ask, complaints, resident_bytes

MIB = 1 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("hostile") / "deep" / "inside"
    with Cluster(in_process=False, data_dir=directory) as cluster:
        yield cluster
        assert complaints(cluster) == []


def create(node: Cluster, *names: str, partitions: int = 1, **options: Any) -> list[Any]:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, **options) for name in names]
    answers: list[Any] = ask(node.bootstrap_servers, CreateTopicsRequest(topics=topics, timeout_ms=5000), 7).topics
    return answers


def everything_outside(node: Cluster) -> set[Path]:
    root = node.data_dir.parent.parent
    return {path for path in root.rglob("*") if node.data_dir not in path.parents and path != node.data_dir}


ILLEGAL = {
    "a dot": ".",
    "two dots": "..",
    "a way out": "../x",
    "a way far out": "../../../../tmp/moldau-was-here",
    "a slash": "a/b",
    "an absolute path": "/etc/passwd",
    "a backslash": "a\\b",
    "a NUL": "a\0b",
    "a newline": "a\nb",
    "nothing": "",
    "a blank": " ",
    "250 characters": "a" * 250,
    "32,767 characters": "a" * 32767,
    "letters that look alike": "аdmin",  # noqa: RUF001
    "an umlaut": "ä",
    "an emoji": "🐎",
    "right to left": "a\u202eb",
    "a tag": "<script>alert(1)</script>",
    "a wildcard": "*",
    "a home": "~",
    "a colon": "a:b",
    "a percent sign": "%2e%2e",
}


@pytest.mark.parametrize("what", ILLEGAL)
def test_an_illegal_name_is_refused_and_touches_nothing(node: Cluster, what: str) -> None:
    name = ILLEGAL[what]
    before = everything_outside(node)
    (answer,) = create(node, name)
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answer.name == name
    # Asking about it creates it neither.
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    found = ask(node.bootstrap_servers, asked, 12).topics[0]
    assert ErrorCode(found.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert everything_outside(node) == before
    assert not Path("/tmp/moldau-was-here-0").exists()


STRANGE = ["a" * 249, "...", "a..b", "-", "--help", "-rf", "CON", "0", ".hidden", "x-1", "x-0.log"]


def test_strange_but_legal_names_are_topics_like_any_other(node: Cluster) -> None:
    before = everything_outside(node)
    for name in STRANGE:
        (answer,) = create(node, name)
        assert answer.error_code == 0, answer.error_message
        write(node, name)
        assert (node.data_dir / "data" / f"{name}-0").is_dir()
    node.restart()
    assert everything_outside(node) == before
    for name in STRANGE:
        assert end_offset(node, name) == 1
        gone = ask(node.bootstrap_servers, DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6)
        assert gone.responses[0].error_code == 0
        assert not (node.data_dir / "data" / f"{name}-0").exists()


def write(node: Cluster, topic: str) -> None:
    assert produce(node, topic, good()).error_code == 0


def test_the_metadata_log_is_nobodys_topic(node: Cluster) -> None:
    (answer,) = create(node, "__cluster_metadata")
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REQUEST
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="__cluster_metadata")], allow_auto_topic_creation=True)
    assert ask(node.bootstrap_servers, asked, 12).topics[0].error_code != 0
    gone = ask(node.bootstrap_servers, DeleteTopicsRequest(topics=[DeleteTopicState(name="__cluster_metadata")]), 6)
    assert gone.responses[0].error_code != 0
    assert ErrorCode(produce(node, "__cluster_metadata", good()).error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (node.data_dir / "data" / "__cluster_metadata-0").is_dir()


def test_names_that_metrics_cannot_tell_apart(node: Cluster) -> None:
    assert create(node, "clash.ing")[0].error_code == 0
    (answer,) = create(node, "clash_ing")
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "clash.ing" in answer.error_message


def test_the_same_name_twice_in_one_request(node: Cluster) -> None:
    answers = create(node, "twice", "twice")
    assert {ErrorCode(answer.error_code) for answer in answers} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("partitions", [10_001, 1_000_000, 2**31 - 1])
def test_too_many_partitions_in_one_request(node: Cluster, partitions: int) -> None:
    before = resident_bytes(node.pid)
    began = time.monotonic()
    (answer,) = create(node, "huge", partitions=partitions)
    assert ErrorCode(answer.error_code) is ErrorCode.POLICY_VIOLATION
    assert time.monotonic() - began < 2
    assert resident_bytes(node.pid) - before < 10 * MIB
    answer_seconds(node.bootstrap_servers)


def test_too_many_partitions_over_many_topics(node: Cluster) -> None:
    answers = create(node, *(f"many-{number}" for number in range(200)), partitions=100)
    assert {ErrorCode(answer.error_code) for answer in answers} == {ErrorCode.POLICY_VIOLATION}


@pytest.mark.parametrize("partitions", [0, -2, -(2**31)])
def test_impossible_numbers_of_partitions(node: Cluster, partitions: int) -> None:
    (answer,) = create(node, "impossible", partitions=partitions)
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("count", [1_000_000, 2**31 - 1, 0, -1])
def test_too_many_partitions_later_on(node: Cluster, count: int) -> None:
    name = f"grown-{count}"
    create(node, name)
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])
    began = time.monotonic()
    answer = ask(node.bootstrap_servers, request, 3).results[0]
    assert ErrorCode(answer.error_code) in (ErrorCode.INVALID_PARTITIONS, ErrorCode.POLICY_VIOLATION)
    assert time.monotonic() - began < 2
    answer_seconds(node.bootstrap_servers)


def test_replicas_that_cannot_be(node: Cluster) -> None:
    for replicas in ([7], [1, 1], [], [-1]):
        assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)]
        topic = CreatableTopic(name="placed", num_partitions=-1, replication_factor=-1, assignments=assignment)
        answer = ask(node.bootstrap_servers, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics[0]
        assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_settings_that_cannot_be(node: Cluster) -> None:
    for name, value in (
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("segment.bytes", "-1"),
        ("cleanup.policy", "burn"),
        ("retention.ms", None),
        ("retention.ms", "9" * 30000),
    ):
        (answer,) = create(node, "configured", configs=[CreatableTopicConfig(name=name, value=value)])
        assert ErrorCode(answer.error_code) is ErrorCode.INVALID_CONFIG, (name, answer.error_message)


def test_asking_for_very_many_topics_does_not_create_them(node: Cluster) -> None:
    """Automatic creation obeys the limit of one request like everybody else; the node stays of use."""
    topics = [MetadataRequestTopic(name=f"flood-{number}") for number in range(50_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    before = resident_bytes(node.pid)
    began = time.monotonic()
    with WireClient(node.bootstrap_servers, timeout=30) as client:
        answer = client.ask(request, 12)
    seconds = time.monotonic() - began
    print(f"50,000 unknown topics with automatic creation: answered after {seconds:.1f} s")
    assert {ErrorCode(topic.error_code) for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer_seconds(node.bootstrap_servers) < 2
    known = ask(node.bootstrap_servers, MetadataRequest(topics=None), 12).topics
    assert not [topic.name for topic in known if topic.name.startswith("flood")]
    assert resident_bytes(node.pid) - before < 200 * MIB
    log = (node.data_dir / "node.log").read_text()
    assert max(map(len, log.splitlines())) < 2000, "a client made the node write an endless line"
    assert log.count("flood-") < 10, "a client made the node write very many lines"
