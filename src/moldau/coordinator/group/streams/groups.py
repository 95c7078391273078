"""The streams groups of one shard: the parts that decide about them, and what these parts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.modern.groups import EpochGroups
from moldau.coordinator.group.streams.describe import describe
from moldau.coordinator.group.streams.group import StreamsGroup
from moldau.coordinator.group.streams.heartbeats import Heartbeats
from moldau.coordinator.group.streams.leaves import Leaves
from moldau.coordinator.group.streams.replays import Replays
from moldau.coordinator.group.streams.targets import Targets
from moldau.coordinator.group.streams.timeouts import Timeouts
from moldau.protocol.errors import ApiError
from moldau.protocol.generated.wire.streams_group_describe_response import DescribedGroup

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard


class StreamsGroups(EpochGroups[StreamsGroup]):
    def __init__(self, shard: GroupShard) -> None:
        super().__init__(shard, StreamsGroup)
        self.replays = Replays(shard, self)
        self.timeouts = Timeouts(shard, self)
        self.targets = Targets(shard, self)
        self.heartbeats = Heartbeats(shard, self)
        self.leaves = Leaves(self)
        # How often the epoch of one of the groups has grown.
        self.rebalances = 0

    # ---- finding

    def open(self, group_id: str, create: bool, records: list[CoordinatorRecord]) -> StreamsGroup:
        """The group of a heartbeat. A member that joins may make one, or make one of an empty classic group."""
        group = self._shard.groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if group is None:
            if not create:
                raise self._does_not_exist(group_id)
            return StreamsGroup(group_id)
        if create and isinstance(group, ClassicGroup) and group.is_empty:
            records += group.tombstones()
            return StreamsGroup(group_id)
        raise self._is_another_kind(group_id)

    def forget(self, group: StreamsGroup) -> None:
        super().forget(group)
        self.targets.forget(group.group_id)

    def _forget_member(self, group_id: str, member_id: str) -> None:
        self.timeouts.forget(group_id, member_id)

    # ---- what the parts share

    def describe(self, group_id: str) -> DescribedGroup:
        try:
            group = self.find(group_id)
        except ApiError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        return describe(group)

    # ---- the shard's calls

    def loaded(self) -> None:
        for group in self.all():
            for member in group.members.values():
                self.timeouts.alive(group.group_id, member.member_id)
                self.timeouts.watch_revocation(group.group_id, member)
