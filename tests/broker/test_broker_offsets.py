"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode, batch, fetch_request, produce_request, values_of

from moldau.broker.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.generated.wire.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

NOW = 1_700_000_000_000
VERSIONS = range(1, 12)


@pytest.fixture
def filled(node: SimulatedNode) -> SimulatedNode:
    """A topic with records at +0, +1, +2 and +1000, +1001 ms, and then an older one."""
    node.create_topic("orders", 2)
    for records in (batch(b"a", b"b", b"c"), batch(b"d", b"e", timestamp=NOW + 1000), batch(b"f", timestamp=NOW + 5)):
        node.client.send(produce_request("orders", records, version=8), 8)
    return node


def ask(node: SimulatedNode, timestamp: int, version: int = 11, topic: str = "orders", **how: Any) -> Any:
    epoch = how.pop("leader_epoch", -1)
    index = how.pop("index", 0)
    partition = ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
    how.setdefault("replica_id", -1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])], **how)
    return node.client.send(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ends_in_every_version(filled: SimulatedNode, version: int) -> None:
    earliest, latest = ask(filled, EARLIEST, version), ask(filled, LATEST, version)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 0, -1)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 6, -1)
    assert (earliest.leader_epoch, latest.leader_epoch) == ((0, 0) if version >= 4 else (-1, -1))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (0, (0, NOW)),
        (NOW, (0, NOW)),
        (NOW + 1, (1, NOW + 1)),
        (NOW + 3, (3, NOW + 1000)),
        (NOW + 1001, (4, NOW + 1001)),
        (NOW + 1002, (-1, -1)),
    ],
)
def test_by_time(filled: SimulatedNode, version: int, timestamp: int, found: tuple[int, int]) -> None:
    answer = ask(filled, timestamp, version)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, *found)


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11), (-7, 99)],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_special_times_from_their_versions_on(filled: SimulatedNode, timestamp: int, since: int, version: int) -> None:
    code = ask(filled, timestamp, version).error_code
    assert code == (0 if version >= since else ErrorCode.UNSUPPORTED_VERSION)


def test_special_times(filled: SimulatedNode) -> None:
    youngest = ask(filled, MAX_TIMESTAMP)
    assert (youngest.offset, youngest.timestamp, youngest.leader_epoch) == (4, NOW + 1001, 0)
    assert ask(filled, EARLIEST_LOCAL).offset == 0
    assert ask(filled, LATEST_TIERED).offset == -1
    assert ask(filled, EARLIEST_PENDING_UPLOAD).offset == -1


def test_an_empty_partition(filled: SimulatedNode) -> None:
    assert ask(filled, LATEST, index=1).offset == 0
    assert ask(filled, EARLIEST, index=1).offset == 0
    assert (ask(filled, MAX_TIMESTAMP, index=1).offset, ask(filled, NOW, index=1).offset) == (-1, -1)


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_what_is_not_committed_is_not_told(isolation_level: int) -> None:
    node = SimulatedNode()
    node.create_topic("safe", flush_messages="1")
    node.client.send(produce_request("safe", batch(b"a"), version=8), 8)
    node.disk.hold_syncs = True
    node.client.post(produce_request("safe", batch(b"b", timestamp=NOW + 50), version=8), 8)
    assert ask(node, LATEST, topic="safe", isolation_level=isolation_level).offset == 1
    assert ask(node, NOW + 50, topic="safe", isolation_level=isolation_level).offset == -1
    assert ask(node, MAX_TIMESTAMP, topic="safe", isolation_level=isolation_level).offset == -1
    assert ask(node, LATEST, topic="safe", replica_id=-2).offset == 2, "for debugging everything is shown"
    node.disk.finish_syncs()
    assert ask(node, NOW + 50, topic="safe", isolation_level=isolation_level).offset == 1


def test_unknown_partitions_and_wrong_epochs(filled: SimulatedNode) -> None:
    assert ask(filled, LATEST, topic="nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(filled, LATEST, index=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(filled, LATEST, leader_epoch=0).error_code == 0
    assert ask(filled, LATEST, leader_epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    filled.services.partitions.get("orders", 0).leader_epoch = 2
    answer = ask(filled, LATEST, leader_epoch=1)
    assert (answer.error_code, answer.offset) == (ErrorCode.FENCED_LEADER_EPOCH, -1)


def test_a_partition_asked_for_twice(filled: SimulatedNode) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=LATEST) for _ in range(2)]
    once = ListOffsetsPartition(partition_index=1, timestamp=LATEST)
    topics = [ListOffsetsTopic(name="orders", partitions=[*twice, once])]
    answer = filled.client.send(ListOffsetsRequest(replica_id=-1, topics=topics), 11)
    assert [(p.partition_index, p.error_code) for p in answer.topics[0].partitions] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, 0),
    ]


# ---- OffsetForLeaderEpoch


def end_of(node: SimulatedNode, epoch: int, version: int = 4, topic: str = "orders", current: int = -1) -> Any:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])])
    return node.client.send(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch(filled: SimulatedNode, version: int) -> None:
    answer = end_of(filled, 0, version)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 6)
    unknown = end_of(filled, 5, version)
    assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (0, -1, -1)


def test_the_end_of_an_epoch_refused(filled: SimulatedNode) -> None:
    assert end_of(filled, 0, topic="nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert end_of(filled, 0, current=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    answer = end_of(filled, 0, current=0)
    assert (answer.error_code, answer.end_offset) == (0, 6)


# ---- DeleteRecords


def delete(node: SimulatedNode, offset: int, version: int = 2, topic: str = "orders", index: int = 0) -> Any:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)
    return node.client.send(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted(filled: SimulatedNode, version: int) -> None:
    answer = delete(filled, 4, version)
    assert (answer.error_code, answer.low_watermark) == (0, 4)
    assert ask(filled, EARLIEST).offset == 4
    fetched = filled.client.send(fetch_request("orders", 0, version=11), 11).responses[0].partitions[0]
    assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    fetched = filled.client.send(fetch_request("orders", 4, version=11), 11).responses[0].partitions[0]
    assert (fetched.log_start_offset, values_of(fetched.records)) == (4, [b"d", b"e", b"f"])
    assert delete(filled, 2, version).low_watermark == 4, "it never goes back"


def test_minus_one_deletes_all_that_is_committed(filled: SimulatedNode) -> None:
    assert delete(filled, -1).low_watermark == 6
    assert (ask(filled, EARLIEST).offset, ask(filled, LATEST).offset) == (6, 6)


def test_deleted_records_stay_deleted_over_a_clean_stop(filled: SimulatedNode) -> None:
    delete(filled, 4)
    filled.logs.close()
    filled.restart()
    assert ask(filled, EARLIEST).offset == 4


@pytest.mark.parametrize("offset", [7, -2])
def test_offsets_that_cannot_be_deleted_before(filled: SimulatedNode, offset: int) -> None:
    answer = delete(filled, offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_topics_whose_records_may_not_be_deleted(node: SimulatedNode) -> None:
    node.create_topic("state", cleanup_policy="compact")
    node.create_topic("both", cleanup_policy="compact,delete")
    node.create_topic("__consumer_offsets")
    assert delete(node, 0, topic="state").error_code == ErrorCode.POLICY_VIOLATION
    assert delete(node, 0, topic="both").error_code == 0
    assert delete(node, 0, topic="__consumer_offsets").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert delete(node, 0, topic="nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
