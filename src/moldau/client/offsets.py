"""Where partitions begin and end, which offset stands at a time, and deleting records before an offset.

Requests are grouped by the broker that must answer them, so a thousand partitions cost one request to each broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moldau.client.cluster import TRANSIENT, Cluster, TopicPartition, ask_leaders, by_topic
from moldau.client.errors import MoldauError, failure, unknown_topic
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

# Timestamps that stand for a place in the log.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
NO_OFFSET = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

# The first version of ListOffsets in which a special timestamp means something.
_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@dataclass(slots=True)
class OffsetAt:
    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """The first offset at or after a time (or LATEST, EARLIEST) in each partition; NO_OFFSET when there is none."""
    offsets: dict[TopicPartition, int] = {}
    for (topic, index), found in find_offsets(cluster, times, isolation).items():
        if not isinstance(found, ApiError):
            offsets[topic, index] = found.offset
        elif found.code in TRANSIENT:
            raise MoldauError(f"The offset of {topic}-{index} could not be found out: {found}")
        else:
            raise unknown_topic(topic, found.code)
    return offsets


def find_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, OffsetAt | ApiError]:
    """What stands at a time (milliseconds, or one of the special values above) in each partition, or why that cannot
    be told."""
    from moldau.protocol.generated.wire.list_offsets_request import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    needed = max((_FIRST_VERSION.get(when, 0) for when in times.values()), default=0)
    if needed and cluster.any_connection().choose_version(ApiKey.LIST_OFFSETS) < needed:
        raise failure(ErrorCode.UNSUPPORTED_VERSION, "The cluster does not know this kind of offset")

    def build(partitions: list[TopicPartition]) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=times[name, index]) for index in indexes
                ],
            )
            for name, indexes in by_topic(partitions)
        ]
        timeout_ms = int(cluster.settings.request_timeout * 1000)
        return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=timeout_ms)

    def read(answer: Any) -> dict[TopicPartition, OffsetAt | ApiError]:
        return {
            (topic.name, each.partition_index): failure(each.error_code)
            if each.error_code != ErrorCode.NONE
            else OffsetAt(each.offset, each.timestamp, each.leader_epoch)
            for topic in answer.topics
            for each in topic.partitions
        }

    return ask_leaders(cluster, times, build, read)


def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | ApiError]:
    """Delete records before the given offsets (-1: all); the low watermark of each partition afterwards."""
    from moldau.protocol.generated.wire.delete_records_request import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    def build(partitions: list[TopicPartition]) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=before[name, index]) for index in indexes
                ],
            )
            for name, indexes in by_topic(partitions)
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=int(cluster.settings.request_timeout * 1000))

    def read(answer: Any) -> dict[TopicPartition, int | ApiError]:
        return {
            (topic.name, each.partition_index): failure(each.error_code)
            if each.error_code != ErrorCode.NONE
            else each.low_watermark
            for topic in answer.topics
            for each in topic.partitions
        }

    return ask_leaders(cluster, before, build, read)
