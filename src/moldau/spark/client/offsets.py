"""Where partitions begin and end, which offset stands at a time, and what a consumer group has committed.

Requests are grouped by the broker that must answer them, so a thousand partitions cost one request to each broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.generated.wire.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.generated.wire.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from moldau.spark.client.cluster import GROUP, TRANSIENT, Cluster, unknown_topic
from moldau.spark.client.connection import Disconnected
from moldau.spark.errors import MoldauError, refusal

TopicPartition = tuple[str, int]

# Timestamps that stand for an end of the log.
LATEST, EARLIEST = -1, -2
NO_OFFSET = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """The first offset at or after a time (or LATEST, EARLIEST) in each partition; NO_OFFSET when there is none."""
    deadline = cluster.deadline()
    found: dict[TopicPartition, int] = {}
    missing = dict(wanted)
    while missing:
        problem = "no answer"
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in missing:
            by_leader.setdefault(cluster.leader(*partition, deadline), []).append(partition)
        for leader, partitions in by_leader.items():
            try:
                answer = cluster.node(leader).request(_list_request(partitions, missing, isolation))
            except Disconnected as error:
                problem = str(error)
                continue
            for topic in answer.topics:
                for each in topic.partitions:
                    partition = (topic.name, each.partition_index)
                    if not each.error_code:
                        found[partition] = each.offset
                        missing.pop(partition, None)
                    elif each.error_code in TRANSIENT:
                        problem = ErrorCode(each.error_code).name
                    else:
                        raise unknown_topic(topic.name, each.error_code)
        if missing:
            for name in {topic for topic, _ in missing}:
                cluster.forget_leader(name)
            if deadline.passed():
                raise MoldauError(f"Offsets of {sorted(missing)} could not be found out: {problem}")
            deadline.pause()
    return found


def _list_request(
    partitions: list[TopicPartition], times: Mapping[TopicPartition, int], isolation: int
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in partitions:
        asked = ListOffsetsPartition(partition_index=index, timestamp=times[topic, index])
        topics.setdefault(topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )


def group_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, str]]:
    """(offset, metadata) the group has committed, for those partitions where it has. Waits out open transactions."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    request = OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=asked) for name, asked in topics.items()],
        require_stable=True,
    )

    def worst(answer: Any) -> int:
        codes = [answer.error_code, *(each.error_code for topic in answer.topics for each in topic.partitions)]
        return next((code for code in codes if code), 0)

    doing = f"Reading the offsets of group '{group}'"
    answer = cluster.ask_coordinator(GROUP, group, request, worst, doing)
    if answer.error_code:
        raise refusal(answer.error_code, doing)
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.metadata or "")
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0 and not each.error_code
    }


def commit_group_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], metadata: str = ""
) -> None:
    """Commit offsets for a group that has no members."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        committed = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(committed)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )

    def worst(answer: Any) -> int:
        return next((each.error_code for topic in answer.topics for each in topic.partitions if each.error_code), 0)

    doing = f"Committing offsets to group '{group}'"
    answer = cluster.ask_coordinator(GROUP, group, request, worst, doing)
    if worst(answer):
        raise refusal(worst(answer), doing)
