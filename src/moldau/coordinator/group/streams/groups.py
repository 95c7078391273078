"""The streams groups of one shard: the parts that decide about them, and what these parts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.config.group_config import GroupConfig
from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.modern.topic_hashes import TopicHashes
from moldau.coordinator.group.streams.describe import describe
from moldau.coordinator.group.streams.group import StreamsGroup
from moldau.coordinator.group.streams.heartbeats import Heartbeats
from moldau.coordinator.group.streams.leaves import Leaves
from moldau.coordinator.group.streams.replays import Replays
from moldau.coordinator.group.streams.targets import Targets
from moldau.coordinator.group.streams.timeouts import Timeouts
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.streams_group_describe_response import DescribedGroup

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.metadata.delta import ImageDelta
    from moldau.metadata.image import ClusterImage


class StreamsGroups:
    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self.replays = Replays(shard, self)
        self.timeouts = Timeouts(shard, self)
        self.targets = Targets(shard, self)
        self.heartbeats = Heartbeats(shard, self)
        self.leaves = Leaves(self)
        # How often the epoch of one of the groups has grown.
        self.rebalances = 0

    # ---- finding

    def get(self, group_id: str) -> StreamsGroup | None:
        group = self._shard.groups.get(group_id)
        return group if isinstance(group, StreamsGroup) else None

    def find(self, group_id: str) -> StreamsGroup:
        group = self._shard.group(group_id)
        if not isinstance(group, StreamsGroup):
            raise _not_a_streams_group(group_id)
        return group

    def open(self, group_id: str, create: bool, records: list[CoordinatorRecord]) -> StreamsGroup:
        """The group of a heartbeat. A member that joins may make one, or make one of an empty classic group."""
        group = self._shard.groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if group is None:
            if not create:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
            return StreamsGroup(group_id)
        if create and isinstance(group, ClassicGroup) and group.is_empty:
            records += group.tombstones()
            return StreamsGroup(group_id)
        raise _not_a_streams_group(group_id)

    def forget(self, group: StreamsGroup) -> None:
        """Remove a group from memory, with everything that was to happen to it."""
        if self._shard.groups.get(group.group_id) is group:
            del self._shard.groups[group.group_id]
        for member_id in group.members:
            self.timeouts.forget(group.group_id, member_id)
        self.targets.forget(group.group_id)
        self._shard.consumer.forget_settings(group.group_id)

    # ---- what the parts share

    def settings(self, group_id: str) -> GroupConfig:
        return self._shard.consumer.settings(group_id)

    @property
    def hashes(self) -> TopicHashes:
        return self._shard.consumer.subscriptions.hashes

    def describe(self, group_id: str) -> DescribedGroup:
        try:
            group = self.find(group_id)
        except ApiError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        return describe(group)

    # ---- the shard's calls

    def loaded(self) -> None:
        for group in self._shard.groups.values():
            if isinstance(group, StreamsGroup):
                for member in group.members.values():
                    self.timeouts.alive(group.group_id, member.member_id)
                    self.timeouts.watch_revocation(group.group_id, member)

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """Groups that need one of the topics that have changed look at them again with the next heartbeat.

        Comes after the consumer groups' turn, which makes the shared hashes forget those topics.
        """
        names = {topic.name for topic in delta.deleted_topics.values()}
        for topic_id in delta.changed_partitions:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                names.add(topic.name)
        if not names:
            return
        for group in self._shard.groups.values():
            if isinstance(group, StreamsGroup) and group.needs_any(names):
                group.fresh_since_epoch = None


def _not_a_streams_group(group_id: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
