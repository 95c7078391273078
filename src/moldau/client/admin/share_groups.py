"""Share groups: describing them, and reading, setting and deleting where they start in each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.client.admin.client import Admin
from moldau.client.admin.groups import SHARE, GroupDescription, Member, assigned_partitions
from moldau.client.cluster import Coordinator, TopicPartition
from moldau.client.coordinators import ask_coordinator, ask_coordinators
from moldau.client.errors import failure
from moldau.protocol.errors import ApiError, ErrorCode


@dataclass(slots=True)
class ShareStart:
    """From where on a group still has records to hand out in a partition; unknown until it first read there."""

    offset: int | None
    leader_epoch: int | None
    lag: int | None


def describe_share_groups(admin: Admin, groups: Iterable[str]) -> dict[str, GroupDescription | ApiError]:
    from moldau.protocol.generated.wire.share_group_describe_request import ShareGroupDescribeRequest

    def read(answer: Any, coordinator: Coordinator) -> dict[str, GroupDescription | ApiError]:
        return {each.group_id: _group(each, coordinator) for each in answer.groups}

    return ask_coordinators(admin, groups, lambda some: ShareGroupDescribeRequest(group_ids=some), read)


def _group(found: Any, coordinator: Coordinator) -> GroupDescription | ApiError:
    if found.error_code != ErrorCode.NONE:
        return failure(found.error_code, found.error_message)
    members = [
        Member(
            each.member_id,
            None,
            each.client_id,
            each.client_host,
            assigned_partitions(each.assignment),
            epoch=each.member_epoch,
            subscribed=list(each.subscribed_topic_names),
        )
        for each in found.members
    ]
    return GroupDescription(
        found.group_id,
        SHARE,
        "share",
        found.group_state,
        coordinator,
        found.assignor_name,
        members,
        found.group_epoch,
        found.assignment_epoch,
    )


def fetch_share_offsets(admin: Admin, groups: Iterable[str]) -> dict[str, dict[TopicPartition, ShareStart] | ApiError]:
    from moldau.protocol.generated.wire.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )

    def read(answer: Any, _: Coordinator) -> dict[str, dict[TopicPartition, ShareStart] | ApiError]:
        return {each.group_id: _starts(each) for each in answer.groups}

    return ask_coordinators(
        admin,
        groups,
        lambda some: DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None) for group in some]
        ),
        read,
    )


def _starts(found: Any) -> dict[TopicPartition, ShareStart] | ApiError:
    if found.error_code != ErrorCode.NONE:
        return failure(found.error_code, found.error_message)

    def start(each: Any) -> ShareStart:
        if each.start_offset < 0:
            return ShareStart(None, None, None)
        # Brokers before the lag was introduced leave the field at its default.
        return ShareStart(
            each.start_offset,
            each.leader_epoch if each.leader_epoch >= 0 else None,
            each.lag if each.lag >= 0 else None,
        )

    return {
        (topic.topic_name, each.partition_index): start(each)
        for topic in found.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }


def alter_share_offsets(admin: Admin, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set where a group without members starts; ApiError for the first partition that could not be set."""
    from moldau.protocol.generated.wire.alter_share_group_offsets_request import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestPartition,
        AlterShareGroupOffsetsRequestTopic,
    )

    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (name, index), offset in offsets.items():
        partition = AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        topics.setdefault(name, []).append(partition)
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=p) for name, p in topics.items()],
    )

    def read(answer: Any) -> ApiError | None:
        parts = [each for topic in answer.responses for each in topic.partitions]
        for each in (answer, *parts):
            if each.error_code != ErrorCode.NONE:
                return failure(each.error_code, each.error_message)
        return None

    ask_coordinator(admin, group, request, read)


def delete_share_offsets(admin: Admin, group: str, topics: Iterable[str]) -> dict[str, ApiError | None]:
    """Forget a group's state in whole topics; for each topic why it could not be done. ApiError if the group is the
    trouble."""
    from moldau.protocol.generated.wire.delete_share_group_offsets_request import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequestTopic,
    )

    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in sorted(set(topics))]
    )

    def read(answer: Any) -> dict[str, ApiError | None] | ApiError:
        if answer.error_code != ErrorCode.NONE:
            return failure(answer.error_code, answer.error_message)
        return {
            each.topic_name: failure(each.error_code, each.error_message) if each.error_code else None
            for each in answer.responses
        }

    results: dict[str, ApiError | None] = ask_coordinator(admin, group, request, read)
    return results
