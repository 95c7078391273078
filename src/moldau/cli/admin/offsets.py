"""Offsets of partitions, and deleting records before an offset: requests that go to each partition's leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.cli.admin.client import TRANSIENT, Admin, Deadline
from moldau.cli.admin.connection import Disconnected
from moldau.cli.admin.failures import failure
from moldau.cli.admin.settings import Address
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
UNKNOWN_OFFSET = -1

# The first version of ListOffsets in which a special timestamp means something.
_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_READ_COMMITTED = 1

Partition = tuple[str, int]


@dataclass(slots=True)
class OffsetAt:
    offset: int
    timestamp: int
    leader_epoch: int


def find_leaders(admin: Admin, partitions: Iterable[Partition], deadline: Deadline) -> dict[Partition, int | ApiError]:
    """The leader of each partition, or why it has none."""
    from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic

    wanted = sorted(set(partitions))
    names = sorted({topic for topic, _ in wanted})
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    answer = admin.any_connection(deadline).request(request)
    admin.nodes = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
    found: dict[Partition, int | ApiError] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            has_leader = each.leader_id in admin.nodes
            found[topic.name, each.partition_index] = (
                each.leader_id if has_leader else failure(ErrorCode.LEADER_NOT_AVAILABLE)
            )
    missing = failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {partition: found.get(partition, missing) for partition in wanted}


def list_offsets(
    admin: Admin, times: Mapping[Partition, int], *, read_committed: bool = False
) -> dict[Partition, OffsetAt | ApiError]:
    """The offset at a time (milliseconds, or one of the special values above) in each partition."""
    from moldau.protocol.generated.wire.list_offsets_request import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    needed = max((_FIRST_VERSION.get(when, 0) for when in times.values()), default=0)
    if admin.any_connection(admin.deadline()).choose_version(ApiKey.LIST_OFFSETS) < needed:
        raise failure(ErrorCode.UNSUPPORTED_VERSION, "The cluster does not know this kind of offset")

    def build(partitions: list[Partition]) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=times[name, index]) for index in indexes
                ],
            )
            for name, indexes in by_topic(partitions)
        ]
        isolation = _READ_COMMITTED if read_committed else 0
        timeout_ms = int(admin.settings.request_timeout * 1000)
        return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=timeout_ms)

    def read(answer: Any) -> dict[Partition, OffsetAt | ApiError]:
        return {
            (topic.name, each.partition_index): failure(each.error_code)
            if each.error_code != ErrorCode.NONE
            else OffsetAt(each.offset, each.timestamp, each.leader_epoch)
            for topic in answer.topics
            for each in topic.partitions
        }

    return ask_leaders(admin, list(times), build, read)


def delete_records(admin: Admin, before: Mapping[Partition, int]) -> dict[Partition, int | ApiError]:
    """Delete records before the given offsets (-1: all); the low watermark of each partition afterwards."""
    from moldau.protocol.generated.wire.delete_records_request import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    def build(partitions: list[Partition]) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=before[name, index]) for index in indexes
                ],
            )
            for name, indexes in by_topic(partitions)
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=int(admin.settings.request_timeout * 1000))

    def read(answer: Any) -> dict[Partition, int | ApiError]:
        return {
            (topic.name, each.partition_index): failure(each.error_code)
            if each.error_code != ErrorCode.NONE
            else each.low_watermark
            for topic in answer.topics
            for each in topic.partitions
        }

    return ask_leaders(admin, list(before), build, read)


def by_topic(partitions: list[Partition]) -> list[tuple[str, list[int]]]:
    grouped: dict[str, list[int]] = {}
    for name, index in partitions:
        grouped.setdefault(name, []).append(index)
    return list(grouped.items())


def ask_leaders(
    admin: Admin,
    partitions: list[Partition],
    build: Callable[[list[Partition]], Any],
    read: Callable[[Any], dict[Partition, Any]],
) -> dict[Partition, Any]:
    """Ask each partition's leader; ask again, with fresh metadata, where the leader moved or did not answer."""
    deadline = admin.deadline()
    results: dict[Partition, Any] = {}
    waiting = list(partitions)
    while True:
        by_leader: dict[int, list[Partition]] = {}
        try:
            leaders = find_leaders(admin, waiting, deadline)
        except Disconnected as problem:
            leaders = dict.fromkeys(waiting, failure(ErrorCode.NETWORK_EXCEPTION, str(problem)))
            admin.close()
        for partition, leader in leaders.items():
            if isinstance(leader, ApiError):
                results[partition] = leader
            else:
                by_leader.setdefault(leader, []).append(partition)
        for leader, theirs in by_leader.items():
            try:
                answer = admin.node_connection(leader, deadline).request(build(theirs))
            except Disconnected as problem:
                results.update(dict.fromkeys(theirs, failure(ErrorCode.NETWORK_EXCEPTION, str(problem))))
                admin.close()
            else:
                results.update(read(answer))
        waiting = [
            partition
            for partition in waiting
            if isinstance(results.get(partition), ApiError) and results[partition].code in TRANSIENT
        ]
        if not waiting or deadline.passed():
            return {partition: results[partition] for partition in partitions}
        deadline.pause()
