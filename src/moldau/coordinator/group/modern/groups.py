"""The groups of one kind with epochs (consumer, share, streams) on one shard: finding them, and what changes topics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from moldau.coordinator.group.modern.group import EpochGroup
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moldau.config.group_config import GroupConfig
    from moldau.coordinator.group.modern.topic_hashes import TopicHashes
    from moldau.coordinator.group.shard import GroupShard
    from moldau.metadata.delta import ImageDelta
    from moldau.metadata.image import ClusterImage

GroupT = TypeVar("GroupT", bound=EpochGroup[Any, Any])


class EpochGroups(ABC, Generic[GroupT]):
    def __init__(self, shard: GroupShard, kind: type[GroupT]) -> None:
        self._shard = shard
        self.kind = kind

    # ---- finding

    def all(self) -> Iterator[GroupT]:
        return (group for group in self._shard.groups.values() if isinstance(group, self.kind))

    def get(self, group_id: str) -> GroupT | None:
        group = self._shard.groups.get(group_id)
        return group if isinstance(group, self.kind) else None

    def find(self, group_id: str) -> GroupT:
        group = self._shard.group(group_id)
        if not isinstance(group, self.kind):
            raise self._is_another_kind(group_id)
        return group

    def _is_another_kind(self, group_id: str) -> ApiError:
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {self.kind.type.value} group.")

    def _does_not_exist(self, group_id: str) -> ApiError:
        return ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"{self.kind.type.value.capitalize()} group {group_id} not found."
        )

    def forget(self, group: GroupT) -> None:
        """Remove a group from memory, with everything that was to happen to it."""
        if self._shard.groups.get(group.group_id) is group:
            del self._shard.groups[group.group_id]
        for member_id in group.members:
            self._forget_member(group.group_id, member_id)
        self._shard.consumer.forget_settings(group.group_id)

    @abstractmethod
    def _forget_member(self, group_id: str, member_id: str) -> None:
        """Nothing is expected of the member any more."""

    # ---- what the parts share

    def settings(self, group_id: str) -> GroupConfig:
        return self._shard.consumer.settings(group_id)

    @property
    def hashes(self) -> TopicHashes:
        return self._shard.consumer.subscriptions.hashes

    # ---- the shard's calls

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """Groups that read one of the topics that have changed look at them again with the next heartbeat."""
        names = {topic.name for topic in delta.deleted_topics.values()}
        for topic_id in delta.changed_partitions:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                names.add(topic.name)
        if not names:
            return
        self._topics_changed(names)
        for group in self.all():
            if group.reads_any(names):
                group.fresh_since_epoch = None

    def _topics_changed(self, names: set[str]) -> None:
        """For the kind that keeps what all kinds know of topics."""
