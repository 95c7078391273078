"""The share groups of one shard: the parts that decide about them, and what these parts share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.coordinator.group.modern.groups import EpochGroups
from moldau.coordinator.group.modern.sessions import MemberSessions
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.heartbeats import Heartbeats
from moldau.coordinator.group.share.initialization import Initialization
from moldau.coordinator.group.share.member import ShareMember
from moldau.coordinator.group.share.offsets import ShareOffsets
from moldau.coordinator.group.share.replays import Replays
from moldau.protocol.errors import ApiError
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


class ShareGroups(EpochGroups[ShareGroup]):
    def __init__(self, shard: GroupShard) -> None:
        super().__init__(shard, ShareGroup)
        self.replays = Replays(shard, self)
        self.initialization = Initialization(shard, self)
        self.heartbeats = Heartbeats(shard, self)
        self.offsets = ShareOffsets(shard, self)
        host = shard.host
        self.sessions = MemberSessions(shard.clock, host.timers, host.perform, self.heartbeats.session_over)

    # ---- finding

    def open(self, group_id: str, create: bool) -> ShareGroup:
        """The group of a request; one that does not exist may be made up, and comes to be with its first record."""
        group = self._shard.groups.get(group_id)
        if group is None:
            if not create:
                raise self._does_not_exist(group_id)
            return ShareGroup(group_id)
        if not isinstance(group, ShareGroup):
            raise self._is_another_kind(group_id)
        return group

    def _forget_member(self, group_id: str, member_id: str) -> None:
        self.sessions.end(group_id, member_id)

    # ---- what the parts share

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
        for group in self.all():
            timeout = self.settings(group.group_id).share_session_timeout_ms
            for member_id in group.members:
                self.sessions.alive(group.group_id, member_id, timeout)

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """After the consumer groups, which keep what is known of settings and topics."""
        super().image_published(delta, image)
        if delta.deleted_topics:
            self._shard.host.perform(lambda: self.offsets.topics_deleted(delta.deleted_topics))
