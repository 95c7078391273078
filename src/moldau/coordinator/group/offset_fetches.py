"""Reading committed offsets: of some partitions or all, and only stable ones where that is asked for.

Answers in the shape that OffsetFetch has for several groups; older shapes are made of it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.coordinator.group.offset_records import read_offset_value
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.offset_fetch_request import OffsetFetchRequestTopics
from moldau.protocol.generated.wire.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from moldau.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard

NO_OFFSET = -1


class OffsetFetches:
    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def fetch(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        topics: Iterable[OffsetFetchRequestTopics] | None,
        *,
        require_stable: bool,
    ) -> OffsetFetchResponseGroup:
        """Without topics, everything the group has committed. Raises ApiError when the member may not read."""
        group = self._shard.groups.get(group_id)
        known = group is not None
        if group is not None:
            try:
                group.check_fetch(member_id, member_epoch)
            except ApiError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                known = False
        response = OffsetFetchResponseGroup(group_id=group_id)
        if topics is None:
            if known:
                response.topics = self._everything(group_id, require_stable)
        else:
            response.topics = [self._asked(group_id, topic, known, require_stable) for topic in topics]
        return response

    def _everything(self, group_id: str, require_stable: bool) -> list[OffsetFetchResponseTopics]:
        return [
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    self._one(group_id, topic, partition, value, ZERO_UUID, require_stable)
                    for partition, value in partitions.items()
                ],
            )
            for topic, partitions in self._shard.offsets.of_group(group_id).items()
        ]

    def _asked(
        self, group_id: str, topic: OffsetFetchRequestTopics, known: bool, require_stable: bool
    ) -> OffsetFetchResponseTopics:
        offsets = self._shard.offsets.of_topic(group_id, topic.name) if known else {}
        return OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                self._one(group_id, topic.name, partition, offsets.get(partition), topic.topic_id, require_stable)
                for partition in topic.partition_indexes
            ],
        )

    def _one(
        self, group_id: str, topic: str, partition: int, value: bytes | None, topic_id: bytes, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        if require_stable and self._shard.offsets.is_unstable(group_id, topic, partition):
            return OffsetFetchResponsePartitions(
                partition, NO_OFFSET, -1, "", error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
            )
        if value is None:
            return OffsetFetchResponsePartitions(partition, NO_OFFSET, -1, "")
        found = read_offset_value(value)
        if ZERO_UUID not in (topic_id, found.topic_id) and topic_id != found.topic_id:
            # A topic of the same name that has been deleted since.
            return OffsetFetchResponsePartitions(partition, NO_OFFSET, -1, "")
        return OffsetFetchResponsePartitions(partition, found.offset, found.leader_epoch, found.metadata)
