"""Committing and deleting offsets: who may, how much may be said with an offset, and the records that come of it.

Whether topics exist and may be used by the caller was checked before; here only the group counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.group import CommitCheck, Group
from moldau.coordinator.group.offset_records import NO_TIME, offset_key, offset_tombstone, offset_value
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard

R = TypeVar("R")

# Since this version a commit may say that its group does not exist.
_GROUP_NOT_FOUND_SINCE: Final = 9


class Result(Protocol):
    """What a response says about one partition."""

    error_code: int


class OffsetToCommit:
    """One offset of a request. `result` is the place in the response that tells how it went."""

    __slots__ = ("leader_epoch", "metadata", "offset", "partition", "result", "topic", "topic_id")

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        offset: int,
        leader_epoch: int,
        metadata: str | None,
        result: Result,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.result = result


class Committer:
    """Who commits, as the request says it. A generation of -1 and no member is a consumer without a group."""

    __slots__ = ("api_version", "generation", "group_id", "instance_id", "member_id")

    def __init__(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, api_version: int
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.generation = generation
        self.api_version = api_version


class OffsetCommits:
    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def commit(
        self, who: Committer, offsets: Sequence[OffsetToCommit], response: R, retention_ms: int = -1
    ) -> Decision[R]:
        """A commit outside of transactions. Raises ApiError when the group refuses all of it."""
        group = self._group(who, transactional=False)
        check = group.check_commit(
            who.member_id, who.instance_id, who.generation, transactional=False, version=who.api_version
        )
        self._shard.committed(group, who.member_id)
        return Decision(response, self._records(who.group_id, offsets, retention_ms, check))

    def commit_transactional(self, who: Committer, offsets: Sequence[OffsetToCommit], response: R) -> Decision[R]:
        """A commit that waits for its transaction: write the decision with that `Transaction`."""
        group = self._group(who, transactional=True)
        try:
            check = group.check_commit(
                who.member_id, who.instance_id, who.generation, transactional=True, version=who.api_version
            )
            return Decision(response, self._records(who.group_id, offsets, -1, check))
        except ApiError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION) from error
            raise

    def delete(self, group_id: str, partitions: Iterable[tuple[str, int, Result]]) -> Decision[None]:
        """Forget offsets of topics the group does not read. Each partition comes with its place in the response."""
        shard = self._shard
        group = shard.group(group_id)
        group.check_offset_delete()
        records: list[CoordinatorRecord] = []
        for topic, partition, result in partitions:
            if group.is_subscribed_to(topic):
                result.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif shard.offsets.has(group_id, topic, partition) or shard.offsets.is_unstable(group_id, topic, partition):
                records.append(offset_tombstone(group_id, topic, partition))
        return Decision(None, records, atomic=False)

    def _group(self, who: Committer, *, transactional: bool) -> Group:
        group = self._shard.groups.get(who.group_id)
        if group is not None:
            return group
        if who.generation < 0:
            # Consumers that assign partitions to themselves, and tools, have no group but may keep offsets. The group
            # comes into being when the record is replayed.
            return ClassicGroup(who.group_id, self._shard.clock.now_ms())
        if transactional or who.api_version < _GROUP_NOT_FOUND_SINCE:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {who.group_id} not found.")

    def _records(
        self, group_id: str, offsets: Sequence[OffsetToCommit], retention_ms: int, check: CommitCheck | None
    ) -> list[CoordinatorRecord]:
        shard = self._shard
        now = shard.clock.now_ms()
        expires = NO_TIME if retention_ms < 0 else now + retention_ms
        limit = shard.config().integer("offset.metadata.max.bytes")
        group = group_id.encode()
        records: list[CoordinatorRecord] = []
        for each in offsets:
            metadata = each.metadata or ""
            if len(metadata) > limit:
                each.result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            if check is not None:
                check(each.topic, each.topic_id, each.partition)
            key = offset_key(group, each.topic.encode(), each.partition)
            topic_id = each.topic_id or ZERO_UUID
            records.append((key, offset_value(each.offset, each.leader_epoch, metadata, now, expires, topic_id)))
        return records
