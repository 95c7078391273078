"""The consumer groups of one shard: the parts that decide about them, and what these parts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.config.group_config import GroupConfig
from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.classic_members import ClassicMembers
from moldau.coordinator.group.consumer.describe import describe
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.heartbeats import Heartbeats
from moldau.coordinator.group.consumer.leaves import Leaves
from moldau.coordinator.group.consumer.migration import Migration
from moldau.coordinator.group.consumer.moves import Moves
from moldau.coordinator.group.consumer.replays import Replays
from moldau.coordinator.group.consumer.subscriptions import Subscriptions
from moldau.coordinator.group.consumer.targets import Targets
from moldau.coordinator.group.consumer.timeouts import Timeouts
from moldau.coordinator.group.consumer.topic_patterns import TopicPatterns
from moldau.coordinator.group.modern.groups import EpochGroups
from moldau.metadata.image import GROUP_RESOURCE
from moldau.protocol.errors import ApiError
from moldau.protocol.generated.wire.consumer_group_describe_response import DescribedGroup

if TYPE_CHECKING:
    from moldau.config.node_config import NodeConfig
    from moldau.coordinator.group.shard import GroupShard
    from moldau.metadata.delta import ImageDelta
    from moldau.metadata.image import ClusterImage


class ConsumerGroups(EpochGroups[ConsumerGroup]):
    def __init__(self, shard: GroupShard) -> None:
        super().__init__(shard, ConsumerGroup)
        self.replays = Replays(shard, self)
        self.timeouts = Timeouts(shard, self)
        self.patterns = TopicPatterns(shard, self)
        self.subscriptions = Subscriptions(shard, self)
        self.targets = Targets(shard, self)
        self.moves = Moves(shard, self)
        self.heartbeats = Heartbeats(shard, self)
        self.leaves = Leaves(shard, self)
        self.migration = Migration(shard, self)
        self.classic_members = ClassicMembers(shard, self)
        self._settings: dict[str, GroupConfig] = {}
        self._settings_of: NodeConfig | None = None
        # When the epoch of a group has last grown, as far as that is recent.
        self._changed_at: dict[str, int] = {}

    # ---- finding

    def open(self, group_id: str, create: bool, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """The group of a heartbeat. A member that joins may make one, or make one of a classic group."""
        group = self._shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None:
            if not create:
                raise self._does_not_exist(group_id)
            return ConsumerGroup(group_id)
        if create and isinstance(group, ClassicGroup):
            if group.is_empty:
                records += group.tombstones()
                return ConsumerGroup(group_id)
            return self.migration.upgrade(group, records)
        raise self._is_another_kind(group_id)

    def forget(self, group: ConsumerGroup) -> None:
        super().forget(group)
        self._shard.host.timers.cancel(("regex", group.group_id))
        self._changed_at.pop(group.group_id, None)

    def _forget_member(self, group_id: str, member_id: str) -> None:
        self.timeouts.forget(group_id, member_id)

    # ---- what the parts share

    def settings(self, group_id: str) -> GroupConfig:
        config = self._shard.config()
        if config is not self._settings_of:
            self._settings_of = config
            self._settings.clear()
        settings = self._settings.get(group_id)
        if settings is None:
            overrides = self._shard.image.config_overrides(GROUP_RESOURCE, group_id)
            settings = self._settings[group_id] = GroupConfig.effective(config, overrides)
        return settings

    def forget_settings(self, group_id: str) -> None:
        """The group is gone, of whatever kind it was."""
        self._settings.pop(group_id, None)

    def changed(self, group_id: str) -> None:
        """The group's epoch grows."""
        self._changed_at[group_id] = self._shard.clock.monotonic_ms()

    def has_changed_within(self, group_id: str, period_ms: int) -> bool:
        changed_at = self._changed_at.get(group_id)
        if changed_at is None:
            return False
        if self._shard.clock.monotonic_ms() < changed_at + period_ms:
            return True
        del self._changed_at[group_id]
        return False

    def describe(self, group_id: str) -> DescribedGroup:
        try:
            group = self.find(group_id)
        except ApiError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        return describe(group, self.targets.preferred_assignor(group.members.values()), self._shard.image)

    # ---- the shard's calls

    def loaded(self) -> None:
        self.patterns.newest_topics = self._shard.image.offset
        for group in self.all():
            for member in group.members.values():
                self.timeouts.alive(group.group_id, member)
                self.timeouts.watch_revocation(group.group_id, member)

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        for kind, name in delta.configs:
            if kind == GROUP_RESOURCE:
                self._settings.pop(name, None)
        if delta.created_topics:
            self.patterns.newest_topics = image.offset
        super().image_published(delta, image)

    def _topics_changed(self, names: set[str]) -> None:
        for name in names:
            self.subscriptions.hashes.forget(name)
