"""Groups as tools see them: listed, described, and deleted when nobody is in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.classic.group import DEAD_STATE, ClassicGroup
from moldau.coordinator.group.offset_records import offset_tombstone
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.delete_groups_response import DeletableGroupResult
from moldau.protocol.generated.wire.describe_groups_response import DescribedGroup
from moldau.protocol.generated.wire.list_groups_response import ListedGroup

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard

# Since this version DescribeGroups says that a group does not exist; before, it looks dead.
_NOT_FOUND_SINCE = 6


class GroupOverview:
    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """Groups in one of the states and of one of the types, in small letters; no filter lets all through.

        The newest come first.
        """
        return [
            ListedGroup(group.group_id, group.listed_protocol_type, group.state_name, group.type.value)
            for group in reversed(self._shard.groups.values())
            if (not states or group.state_name.lower() in states) and (not types or group.type.value in types)
        ]

    def describe_classic(self, group_id: str, version: int) -> DescribedGroup:
        group = self._shard.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.describe()
        absent = DescribedGroup(group_id=group_id, group_state=DEAD_STATE)
        if version >= _NOT_FOUND_SINCE:
            absent.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            what = "not found" if group is None else "is not a classic group"
            absent.error_message = f"Group {group_id} {what}."
        return absent

    def delete(self, group_ids: Sequence[str]) -> Decision[list[DeletableGroupResult]]:
        results: list[DeletableGroupResult] = []
        records: list[CoordinatorRecord] = []
        for group_id in group_ids:
            try:
                group = self._shard.group(group_id)
                group.check_delete()
            except ApiError as error:
                results.append(DeletableGroupResult(group_id, error.code))
                continue
            records += self._offset_tombstones(group_id)
            records += group.tombstones()
            results.append(DeletableGroupResult(group_id))
        return Decision(results, records, atomic=False)

    def _offset_tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        offsets = self._shard.offsets
        partitions = {(topic, partition) for topic, found in offsets.of_group(group_id).items() for partition in found}
        partitions.update(offsets.pending(group_id))
        return [offset_tombstone(group_id, topic, partition) for topic, partition in sorted(partitions)]
