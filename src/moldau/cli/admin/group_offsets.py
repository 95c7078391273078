"""The offsets groups have committed: reading, setting and deleting them, and how far each group is behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.cli.admin.client import Admin
from moldau.cli.admin.coordinators import Coordinator, ask_coordinator, ask_coordinators
from moldau.cli.admin.failures import failure
from moldau.cli.admin.groups import GroupDescription, Member
from moldau.cli.admin.offsets import LATEST, list_offsets
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

# The first version of OffsetFetch that asks for several groups; the last ones of both that name topics by their names.
_FIRST_BATCHED = 8
_LAST_WITH_NAMES = 9
_NO_MEMBER_EPOCH = -1

Partition = tuple[str, int]


@dataclass(slots=True)
class Committed:
    offset: int
    leader_epoch: int | None
    metadata: str


@dataclass(slots=True)
class PartitionLag:
    """One partition a group reads or has read: where it stands, where the log ends, who reads it."""

    topic: str
    partition: int
    committed: Committed | None
    end: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed.offset


def fetch_offsets(admin: Admin, groups: Iterable[str]) -> dict[str, dict[Partition, Committed] | ApiError]:
    """All offsets each group has committed; none for a group nobody knows."""
    from moldau.protocol.generated.wire.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup

    version = admin.any_connection(admin.deadline()).choose_version(ApiKey.OFFSET_FETCH, _LAST_WITH_NAMES)
    if version >= _FIRST_BATCHED:

        def read(answer: Any, _: Coordinator) -> dict[str, dict[Partition, Committed] | ApiError]:
            return {each.group_id: _committed(each) for each in answer.groups}

        return ask_coordinators(
            admin,
            groups,
            lambda some: OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in some]
            ),
            read,
            max_version=_LAST_WITH_NAMES,
        )
    found: dict[str, dict[Partition, Committed] | ApiError] = {}
    for group in groups:
        try:
            request = OffsetFetchRequest(group_id=group, topics=None)
            found[group] = ask_coordinator(admin, group, request, _committed, max_version=_LAST_WITH_NAMES)
        except ApiError as error:
            found[group] = error
    return found


def _committed(answer: Any) -> dict[Partition, Committed] | ApiError:
    if answer.error_code != ErrorCode.NONE:
        return failure(answer.error_code)
    return {
        (topic.name, each.partition_index): Committed(
            each.committed_offset,
            each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None,
            each.metadata or "",
        )
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE and each.committed_offset >= 0
    }


def commit_offsets(admin: Admin, group: str, offsets: Mapping[Partition, int]) -> None:
    """Set the offsets of a group without members; ApiError for the first partition that could not be set."""
    from moldau.protocol.generated.wire.offset_commit_request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, index), offset in offsets.items():
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
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

    ask_coordinator(admin, group, request, read, max_version=_LAST_WITH_NAMES)


def delete_offsets(admin: Admin, group: str, partitions: Iterable[Partition]) -> dict[Partition, ApiError | None]:
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

    def read(answer: Any) -> dict[Partition, ApiError | None] | ApiError:
        if answer.error_code != ErrorCode.NONE:
            return failure(answer.error_code)
        return {
            (topic.name, each.partition_index): failure(each.error_code) if each.error_code != ErrorCode.NONE else None
            for topic in answer.topics
            for each in topic.partitions
        }

    results: dict[Partition, ApiError | None] = ask_coordinator(admin, group, request, read)
    return results


def group_lags(
    admin: Admin, descriptions: Iterable[GroupDescription], committed: Mapping[str, Mapping[Partition, Committed]]
) -> dict[str, list[PartitionLag]]:
    """Every partition a group is assigned or has committed to: first those with a member, the member with most
    partitions first, then those nobody reads now."""
    rows: dict[str, list[PartitionLag]] = {}
    for group in descriptions:
        offsets = committed.get(group.group_id, {})
        mine: list[PartitionLag] = []
        assigned: set[Partition] = set()
        for member in sorted(group.members, key=lambda each: -len(each.partitions)):
            for name, index in sorted(member.partitions):
                assigned.add((name, index))
                mine.append(PartitionLag(name, index, offsets.get((name, index)), None, member))
        mine += [
            PartitionLag(name, index, offsets[name, index], None, None)
            for name, index in sorted(set(offsets) - assigned)
        ]
        rows[group.group_id] = mine
    wanted = {(row.topic, row.partition) for mine in rows.values() for row in mine}
    ends = list_offsets(admin, dict.fromkeys(sorted(wanted), LATEST)) if wanted else {}
    for mine in rows.values():
        for row in mine:
            at = ends[row.topic, row.partition]
            # A topic that is gone or has no leader has no end: its lag is unknown, not zero.
            row.end = None if isinstance(at, ApiError) else at.offset
    return rows
