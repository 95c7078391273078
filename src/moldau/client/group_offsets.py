"""The offsets groups have committed: reading, setting and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.client.cluster import TRANSIENT, Cluster, Coordinator, TopicPartition, by_topic
from moldau.client.coordinators import ask_coordinator, ask_coordinators
from moldau.client.errors import explained, failure, refusal
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

# The first version of OffsetFetch that asks for several groups.
_FIRST_BATCHED = 8
_NO_MEMBER_EPOCH = -1


@dataclass(slots=True)
class Committed:
    offset: int
    leader_epoch: int | None
    metadata: str


def fetch_offsets(
    cluster: Cluster,
    groups: Iterable[str],
    partitions: Iterable[TopicPartition] | None = None,
    *,
    settled: bool = False,
) -> dict[str, dict[TopicPartition, Committed] | ApiError]:
    """The offsets each group has committed, in these partitions or in all; none for a group nobody knows.

    With `settled` open transactions that are about to change them are waited for.
    """
    from moldau.protocol.generated.wire import offset_fetch_request as wire

    indexes = None if partitions is None else by_topic(partitions)
    if cluster.any_connection().choose_version(ApiKey.OFFSET_FETCH) >= _FIRST_BATCHED:
        named = [wire.OffsetFetchRequestTopics(name=name, partition_indexes=some) for name, some in indexes or ()]
        topics = None if indexes is None else named

        def build(some: list[str]) -> wire.OffsetFetchRequest:
            asked = [wire.OffsetFetchRequestGroup(group_id=group, topics=topics) for group in some]
            return wire.OffsetFetchRequest(groups=asked, require_stable=settled)

        def read(answer: Any, _: Coordinator) -> dict[str, dict[TopicPartition, Committed] | ApiError]:
            return {each.group_id: _committed(each) for each in answer.groups}

        return ask_coordinators(cluster, groups, build, read)
    found: dict[str, dict[TopicPartition, Committed] | ApiError] = {}
    single = [wire.OffsetFetchRequestTopic(name=name, partition_indexes=some) for name, some in indexes or ()]
    for group in groups:
        request = wire.OffsetFetchRequest(
            group_id=group, topics=None if indexes is None else single, require_stable=settled
        )
        try:
            # Not even a request that says nothing of several groups fits a version that knows of them.
            found[group] = ask_coordinator(cluster, group, request, _committed, max_version=_FIRST_BATCHED - 1)
        except ApiError as error:
            found[group] = error
    return found


def _committed(answer: Any) -> dict[TopicPartition, Committed] | ApiError:
    if answer.error_code != ErrorCode.NONE:
        return failure(answer.error_code)
    found = [(topic.name, each) for topic in answer.topics for each in topic.partitions]
    passing = next((each.error_code for _, each in found if each.error_code in TRANSIENT), None)
    if passing is not None:
        return failure(passing)
    return {
        (name, each.partition_index): Committed(
            each.committed_offset,
            each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None,
            each.metadata or "",
        )
        for name, each in found
        if each.error_code == ErrorCode.NONE and each.committed_offset >= 0
    }


def group_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, str]]:
    """(offset, metadata) the group has committed, for those partitions where it has. Waits out open transactions."""
    found = fetch_offsets(cluster, [group], partitions, settled=True)[group]
    if isinstance(found, ApiError):
        raise refusal(found.code, f"Reading the offsets of group '{group}'", found.message)
    return {partition: (each.offset, each.metadata) for partition, each in found.items()}


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
    """Set the offsets of a group without members; ApiError for the first partition that could not be set."""
    from moldau.protocol.generated.wire.offset_commit_request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, index), offset in offsets.items():
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=metadata
        )
        topics.setdefault(name, []).append(partition)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=_NO_MEMBER_EPOCH,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    def read(answer: Any) -> ApiError | None:
        codes = [each.error_code for topic in answer.topics for each in topic.partitions]
        bad = next((code for code in codes if code != ErrorCode.NONE), None)
        return None if bad is None else failure(bad)

    ask_coordinator(cluster, group, request, read)


def commit_group_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], metadata: str = ""
) -> None:
    """The same with an error for people."""
    with explained(f"Committing offsets to group '{group}'"):
        commit_offsets(cluster, group, offsets, metadata)


def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ApiError | None]:
    """Forget committed offsets; for each partition why it could not be done. ApiError if the group is the trouble."""
    from moldau.protocol.generated.wire.offset_delete_request import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for name, index in sorted(set(partitions)):
        topics.setdefault(name, []).append(OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    def read(answer: Any) -> dict[TopicPartition, ApiError | None] | ApiError:
        if answer.error_code != ErrorCode.NONE:
            return failure(answer.error_code)
        return {
            (topic.name, each.partition_index): failure(each.error_code) if each.error_code != ErrorCode.NONE else None
            for topic in answer.topics
            for each in topic.partitions
        }

    results: dict[TopicPartition, ApiError | None] = ask_coordinator(cluster, group, request, read)
    return results
