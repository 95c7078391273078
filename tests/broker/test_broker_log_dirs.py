"""DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode, batch, fetch_request, produce_request, values_of

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.generated.wire.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest


def produce(node: SimulatedNode, topic: str, value: bytes = b"a", index: int = 0) -> None:
    answer = node.client.send(produce_request(topic, batch(value), version=8, first=index), 8)
    assert answer.responses[0].partition_responses[0].error_code == 0


def describe(node: SimulatedNode, *wanted: tuple[str, int], version: int = 5) -> Any:
    topics = [DescribableLogDirTopic(topic=topic, partitions=[index]) for topic, index in wanted] if wanted else None
    return node.client.send(DescribeLogDirsRequest(topics=topics), version)


def sizes(answer: Any) -> dict[str, dict[tuple[str, int], int]]:
    return {
        result.log_dir: {
            (topic.name, partition.partition_index): partition.partition_size
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in answer.results
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_sizes_in_every_version(node: SimulatedNode, version: int) -> None:
    node.create_topic("orders", 2)
    produce(node, "orders", b"abc")
    answer = describe(node, version=version)
    assert answer.error_code == 0
    size = len(batch(b"abc"))
    assert sizes(answer) == {"/data0": {("orders", 0): size, ("orders", 1): 0}}
    (result,) = answer.results
    assert result.error_code == 0
    partition = result.topics[0].partitions[0]
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes
    assert not result.is_cordoned


def test_only_what_was_asked_for(node: SimulatedNode) -> None:
    node.create_topic("orders", 2)
    node.create_topic("other")
    assert sizes(describe(node, ("orders", 1), ("nowhere", 0))) == {"/data0": {("orders", 1): 0}}
    nothing = node.client.send(DescribeLogDirsRequest(topics=[]), 4)
    assert sizes(nothing) == {"/data0": {}}


def test_several_directories_and_one_that_fails() -> None:
    node = SimulatedNode(directories=2)
    node.create_topic("orders", 4)
    found = sizes(describe(node))
    assert {path: len(partitions) for path, partitions in found.items()} == {"/data0": 2, "/data1": 2}
    index = min(i for _, i in found["/data1"])
    node.disk.fail("write", ending=".log")
    request = produce_request("orders", batch(b"a"), version=8, first=index)
    assert node.client.send(request, 8).responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answer = describe(node)
    codes = {result.log_dir: result.error_code for result in answer.results}
    assert codes == {"/data0": 0, "/data1": ErrorCode.KAFKA_STORAGE_ERROR}
    assert len(sizes(answer)["/data0"]) == 2


# ---- AlterReplicaLogDirs


def move(node: SimulatedNode, path: str, topic: str, *indexes: int, version: int = 2) -> list[int]:
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(indexes))])]
    )
    (answer,) = node.client.send(request, version).results
    assert answer.topic_name == topic
    return [partition.error_code for partition in answer.partitions]


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_with_its_records(version: int) -> None:
    node = SimulatedNode(directories=2)
    node.create_topic("orders")
    for value in (b"a", b"b"):
        produce(node, "orders", value)
    source = node.logs.directory_of("orders", 0)
    assert source is not None
    target = "/data1" if source.path == "/data0" else "/data0"
    assert move(node, target, "orders", 0, version=version) == [0]
    for _ in range(10):
        node.clock.advance(1000)
    moved = node.logs.directory_of("orders", 0)
    assert moved is not None
    assert moved.path == target
    produce(node, "orders", b"c")
    partition = node.client.send(fetch_request("orders", 0, version=11), 11).responses[0].partitions[0]
    assert values_of(partition.records) == [b"a", b"b", b"c"]
    assert list(sizes(describe(node))[target]) == [("orders", 0)]


def test_a_replica_that_was_never_written_to_is_created_where_it_is_wanted() -> None:
    node = SimulatedNode(directories=2)
    node.create_topic("orders", 2)
    assert move(node, "/data1", "orders", 0, 1) == [0, 0]
    produce(node, "orders")
    produce(node, "orders", index=1)
    assert sizes(describe(node))["/data1"].keys() == {("orders", 0), ("orders", 1)}


def test_moves_that_cannot_be() -> None:
    node = SimulatedNode(directories=2)
    node.create_topic("orders")
    produce(node, "orders")
    long = "x" * 240
    node.create_topic(long)
    assert move(node, "/elsewhere", "orders", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert move(node, "/data1", "nowhere", 0) == [ErrorCode.REPLICA_NOT_AVAILABLE]
    assert move(node, "/data1", "orders", 4) == [ErrorCode.REPLICA_NOT_AVAILABLE]
    assert move(node, "/data1", long, 0) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
