"""A consumer group as tools see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.modern.assignment import NOTHING
from moldau.coordinator.group.modern.assignment import Assignment as Target
from moldau.metadata.image import ClusterImage
from moldau.protocol.generated.wire.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def describe(group: ConsumerGroup, assignor: str, image: ClusterImage) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        # The newest first, as Apache Kafka mostly has them.
        members=[_member(group, member, image) for member in reversed(group.members.values())],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, image: ClusterImage) -> Member:
    # What it has still to give up is its own as yet.
    owned: dict[bytes, list[int]] = {}
    for each in (member.assigned, member.revoking):
        for topic, partitions in each.items():
            owned.setdefault(topic, []).extend(partitions)
    target: Target = group.targets.get(member.member_id, NOTHING)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(owned, image),
        target_assignment=_assignment(target, image),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(topics: Mapping[bytes, Iterable[int]], image: ClusterImage) -> Assignment:
    """Only topics that exist: the others have no name any more."""
    found: list[TopicPartitions] = []
    for topic_id, partitions in topics.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            found.append(TopicPartitions(topic_id, topic.name, sorted(partitions)))
    return Assignment(found)
