"""The share groups of one shard: the parts that decide about them, and what these parts share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.config.group_config import GroupConfig
from moldau.coordinator.group.modern.sessions import MemberSessions
from moldau.coordinator.group.modern.topic_hashes import TopicHashes
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.heartbeats import Heartbeats
from moldau.coordinator.group.share.initialization import Initialization
from moldau.coordinator.group.share.member import ShareMember
from moldau.coordinator.group.share.offsets import ShareOffsets
from moldau.coordinator.group.share.replays import Replays
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.metadata.delta import ImageDelta
    from moldau.metadata.image import ClusterImage

ASSIGNOR: Final = "simple"


class ShareGroups:
    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self.replays = Replays(shard, self)
        self.initialization = Initialization(shard, self)
        self.heartbeats = Heartbeats(shard, self)
        self.offsets = ShareOffsets(shard, self)
        host = shard.host
        self.sessions = MemberSessions(shard.clock, host.timers, host.perform, self.heartbeats.session_over)

    # ---- finding

    def get(self, group_id: str) -> ShareGroup | None:
        group = self._shard.groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def find(self, group_id: str) -> ShareGroup:
        group = self._shard.group(group_id)
        if not isinstance(group, ShareGroup):
            raise _not_a_share_group(group_id)
        return group

    def open(self, group_id: str, create: bool) -> ShareGroup:
        """The group of a request; one that does not exist may be made up, and comes to be with its first record."""
        group = self._shard.groups.get(group_id)
        if group is None:
            if not create:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            return ShareGroup(group_id)
        if not isinstance(group, ShareGroup):
            raise _not_a_share_group(group_id)
        return group

    def forget(self, group: ShareGroup) -> None:
        """Remove a group from memory, with everything that was to happen to it."""
        if self._shard.groups.get(group.group_id) is group:
            del self._shard.groups[group.group_id]
        for member_id in group.members:
            self.sessions.end(group.group_id, member_id)

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
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR,
            members=[self._described(member) for member in group.members.values()],
        )

    def _described(self, member: ShareMember) -> Member:
        found = ((self._shard.image.topic_by_id(topic_id), each) for topic_id, each in member.assigned.items())
        return Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            assignment=Assignment(
                [
                    TopicPartitions(topic.id, topic.name, sorted(partitions))
                    for topic, partitions in found
                    if topic is not None
                ]
            ),
        )

    # ---- the shard's calls

    def loaded(self) -> None:
        for group in self._shard.groups.values():
            if isinstance(group, ShareGroup):
                timeout = self.settings(group.group_id).share_session_timeout_ms
                for member_id in group.members:
                    self.sessions.alive(group.group_id, member_id, timeout)

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """After the consumer groups, which keep what is known of settings and topics."""
        names = {topic.name for topic in delta.deleted_topics.values()}
        for topic_id in delta.changed_partitions:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                names.add(topic.name)
        if not names:
            return
        for group in self._shard.groups.values():
            if isinstance(group, ShareGroup) and group.reads_any(names):
                group.fresh_since_epoch = None
        if delta.deleted_topics:
            self._shard.host.perform(lambda: self.offsets.topics_deleted(delta.deleted_topics))


def _not_a_share_group(group_id: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
