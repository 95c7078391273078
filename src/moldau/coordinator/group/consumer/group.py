"""One consumer group: its epochs, members, the target of each and who has which partition.

Changes only by replaying records (`groups.py`), except for a group that was just made up to decide about. Keeps the
rules of committing and reading offsets; who joins, leaves and gets what is decided by its siblings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.consumer.member import ConsumerMember, Owned
from moldau.coordinator.group.consumer.records import (
    Resolved,
    current_tombstone,
    epoch_tombstone,
    member_tombstone,
    partition_metadata_tombstone,
    regex_tombstone,
    target_metadata_tombstone,
    target_tombstone,
)
from moldau.coordinator.group.group import CommitCheck, GroupType
from moldau.coordinator.group.modern.assignment import NOTHING, Assignment
from moldau.coordinator.group.modern.group import EpochGroup, EpochGroupState
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from moldau.coordinator.group.offset_records import CommittedOffset

PROTOCOL_TYPE: Final = "consumer"
# The oldest OffsetCommit that knows of member epochs.
_EPOCH_COMMITS_SINCE: Final = 9


class ConsumerGroup(EpochGroup[ConsumerMember, Assignment]):
    __slots__ = (
        "_names",
        "classic_count",
        "has_partition_metadata",
        "owners",
        "regex_counts",
        "regexes",
        "static_members",
    )

    type = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        # Who has each partition, or has still to give it up.
        self.owners: dict[bytes, dict[int, str]] = {}
        self.regexes: dict[str, Resolved] = {}
        # How many members subscribe with each expression, and to each topic by its name.
        self.regex_counts: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self.classic_count = 0
        # Whether an older release has left a record behind that nobody needs any more.
        self.has_partition_metadata = False

    # ---- state

    def _compute_state(self) -> EpochGroupState:
        if not self.members:
            return EpochGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return EpochGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return EpochGroupState.STABLE
        return EpochGroupState.RECONCILING

    # ---- members

    def put(self, member: ConsumerMember) -> None:
        self._count(self.members.get(member.member_id), -1)
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._state = None

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self._state = None

    def _count(self, member: ConsumerMember | None, change: int) -> None:
        if member is None:
            return
        for topic in member.topics:
            _add(self._names, topic, change)
        if member.regex:
            _add(self.regex_counts, member.regex, change)
        if member.classic is not None:
            self.classic_count += change
        for owned in (member.assigned, member.revoking):
            if change > 0:
                self._own(owned, member.member_id)
            else:
                self._release(owned, member.member_id)

    def _own(self, owned: Owned, member_id: str) -> None:
        for topic, partitions in owned.items():
            self.owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, owned: Owned, member_id: str) -> None:
        for topic, partitions in owned.items():
            owners = self.owners.get(topic)
            if owners is None:
                continue
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                del self.owners[topic]

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        owners = self.owners.get(topic_id)
        return owners is not None and partition in owners

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target(self, member: ConsumerMember) -> Assignment:
        """What the member is to have; a static member under a new id inherits what it had under the old one."""
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id, member_id)
        return self.targets.get(member_id, NOTHING)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether somebody still has what this member is to get."""
        for topic, partitions in self.targets.get(member.member_id, NOTHING).items():
            has = member.assigned.get(topic, {})
            if any(partition not in has and self.is_owned(topic, partition) for partition in partitions):
                return True
        return False

    # ---- subscriptions

    def topics_after(
        self, before: Iterable[ConsumerMember], after: Iterable[ConsumerMember], regexes: Iterable[Resolved]
    ) -> set[str]:
        """All topics that are read when these members have taken the place of those, and expressions mean this."""
        names = self._names
        changes: Counter[str] = Counter()
        for member in before:
            changes.subtract(member.topics)
        for member in after:
            changes.update(member.topics)
        topics = {name for name, count in names.items() if count + changes.get(name, 0) > 0}
        topics.update(name for name, change in changes.items() if change > 0)
        for resolved in regexes:
            topics |= resolved.topics
        return topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._names or any(topic in resolved.topics for resolved in self.regexes.values())

    def reads_any(self, topics: set[str]) -> bool:
        return not topics.isdisjoint(self._names) or any(
            not topics.isdisjoint(resolved.topics) for resolved in self.regexes.values()
        )

    @property
    def has_topics(self) -> bool:
        return bool(self._names) or bool(self.regex_counts)

    # ---- offsets and deletion

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> CommitCheck | None:
        if generation < 0 and not self.members:
            return None
        if transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and member.classic is None and version < _EPOCH_COMMITS_SINCE:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Members of consumer groups must use OffsetCommit version {_EPOCH_COMMITS_SINCE} or above.",
            )
        if generation == member.epoch:
            return None
        stale = _stale_code(member)
        if generation > member.epoch:
            raise ApiError(stale, f"Epoch {generation} is newer than the member's epoch {member.epoch}.")

        def check(_: str, topic_id: bytes, partition: int) -> None:
            # Whoever has not heard of its new epoch yet may still commit what it has had all the time.
            since = member.assigned_at(topic_id, partition)
            if since is None or generation < since:
                raise ApiError(stale, f"Epoch {generation} is too old for partition {partition}.")

        return check

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise ApiError(_stale_code(member), f"Epoch {member_epoch} is not the member's epoch {member.epoch}.")

    def check_offset_delete(self) -> None:
        return

    def offset_age_from(self) -> Callable[[CommittedOffset], int] | None:
        return lambda offset: offset.commit_timestamp

    def tombstones(self) -> list[CoordinatorRecord]:
        return self.tombstones_for(self.members)

    def tombstones_for(self, member_ids: Collection[str]) -> list[CoordinatorRecord]:
        """The records that remove the group, whose members go by these ids now."""
        group_id = self.group_id
        return [
            *(current_tombstone(group_id, member_id) for member_id in member_ids),
            *(target_tombstone(group_id, member_id) for member_id in member_ids),
            target_metadata_tombstone(group_id),
            *(member_tombstone(group_id, member_id) for member_id in member_ids),
            *(regex_tombstone(group_id, regex) for regex in self.regexes),
            partition_metadata_tombstone(group_id),
            epoch_tombstone(group_id),
        ]


def _add(counter: Counter[str], key: str, change: int) -> None:
    count = counter[key] + change
    if count:
        counter[key] = count
    else:
        del counter[key]


def _stale_code(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
