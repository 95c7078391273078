"""The way of one member from what it has to what it is to have.

First it gives up what it must not keep, and says so; then it moves to the new epoch and gets what others have given
up already; the rest comes as they do. So no partition ever has two owners. A pure function: it decides, others write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from moldau.coordinator.group.consumer.member import ConsumerMember, MemberState, Owned
from moldau.coordinator.group.modern.assignment import Assignment
from moldau.protocol.errors import ApiError, ErrorCode


class TopicPartitions(Protocol):
    """What a member says it has of one topic."""

    topic_id: bytes
    partitions: list[int]


class Goal(NamedTuple):
    """What a member is to have."""

    epoch: int
    target: Assignment
    # The topics it reads now, which may be fewer than the target was made for.
    topics: frozenset[bytes]
    # Whether it has just changed its mind about them.
    resubscribed: bool
    # Whether somebody has this partition.
    is_owned: Callable[[bytes, int], bool]


def reconcile(member: ConsumerMember, goal: Goal, owned: Sequence[TopicPartitions] | None) -> ConsumerMember:
    """The member one step closer to its goal. `owned` is what it says it has, None when it says nothing new."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != goal.epoch:
                return _advance(member, goal, owned, member.epoch)
            return _drop_unread(member, goal, owned) if goal.resubscribed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _has_any(owned, member.revoking):
                return _drop_unread(member, goal, owned) if goal.resubscribed else member
            return _advance(member, goal, owned, member.epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(member, goal, owned, member.epoch)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The member's state is not known here. It must give up all its partitions and join again.",
                )
            return _advance(member, goal, owned, goal.epoch)


def _advance(
    member: ConsumerMember, goal: Goal, owned: Sequence[TopicPartitions] | None, epoch_until_revoked: int
) -> ConsumerMember:
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    getting: list[tuple[bytes, int]] = []
    unreleased = False
    for topic, epochs in member.assigned.items():
        target = goal.target.get(topic, frozenset()) if topic in goal.topics else frozenset()
        stays = {partition: epoch for partition, epoch in epochs.items() if partition in target}
        goes = {partition: epoch for partition, epoch in epochs.items() if partition not in target}
        if stays:
            kept[topic] = stays
        if goes:
            revoking[topic] = goes
    for topic, target in goal.target.items():
        if topic not in goal.topics:
            continue
        has = kept.get(topic, {})
        giving_up = member.revoking.get(topic, {})
        for partition in target:
            if partition in has:
                continue
            if partition not in giving_up and goal.is_owned(topic, partition):
                unreleased = True
            else:
                getting.append((topic, partition))
    if revoking and _has_any(owned, revoking):
        return member.moved_to(epoch_until_revoked, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    for topic, partition in getting:
        kept.setdefault(topic, {})[partition] = goal.epoch
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return member.moved_to(goal.epoch, state, kept)


def _drop_unread(member: ConsumerMember, goal: Goal, owned: Sequence[TopicPartitions] | None) -> ConsumerMember:
    """Take away what the member no longer wants, before there is a new target."""
    unread = {topic: epochs for topic, epochs in member.assigned.items() if topic not in goal.topics}
    if not unread:
        return member
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic in goal.topics}
    revoking: dict[bytes, Mapping[int, int]] = dict(member.revoking)
    for topic, epochs in unread.items():
        revoking[topic] = {**revoking.get(topic, {}), **epochs}
    if _has_any(owned, revoking):
        return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return member.moved_to(member.epoch, member.state, kept, member.revoking)


def _has_any(owned: Sequence[TopicPartitions] | None, of: Owned) -> bool:
    """Whether the member may still have one of these partitions; if it says nothing, it has not changed anything."""
    if owned is None:
        return bool(of)
    for each in owned:
        epochs = of.get(each.topic_id)
        if epochs is not None and any(partition in epochs for partition in each.partitions):
            return True
    return False
