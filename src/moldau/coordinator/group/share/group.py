"""One share group: its epochs, members, what each is to have, and the partitions whose state is kept for it.

Changes only by replaying records (`replays.py`), except for a group that was just made up to decide about. It has no
committed offsets: how far it has read is the share coordinators' business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.group import CommitCheck, GroupType
from moldau.coordinator.group.modern.assignment import Assignment
from moldau.coordinator.group.modern.group import EpochGroup, EpochGroupState
from moldau.coordinator.group.share.member import ShareMember
from moldau.coordinator.group.share.records import group_tombstones, removal
from moldau.coordinator.group.share.topics import ShareTopics
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from moldau.coordinator.group.offset_records import CommittedOffset


class ShareGroup(EpochGroup[ShareMember, Assignment]):
    __slots__ = ("_names", "topics")

    type = GroupType.SHARE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topics: ShareTopics | None = None
        # How many members subscribe to each topic.
        self._names: Counter[str] = Counter()

    # ---- what others see

    def _compute_state(self) -> EpochGroupState:
        return EpochGroupState.STABLE if self.members else EpochGroupState.EMPTY

    @property
    def may_expire(self) -> bool:
        return False

    # ---- members

    def put(self, member: ShareMember) -> None:
        known = self.members.get(member.member_id)
        if known is not None:
            self._names.subtract(known.topics)
        self._names.update(member.topics)
        self._names += Counter()
        self.members[member.member_id] = member
        self._state = None

    def remove(self, member_id: str) -> None:
        known = self.members.pop(member_id, None)
        self._state = None
        if known is not None:
            self._names.subtract(known.topics)
            self._names += Counter()

    # ---- subscriptions

    def topics_after(self, before: ShareMember | None, after: ShareMember | None) -> set[str]:
        """All topics that are read when one member has taken the place of the other."""
        names = self._names.copy()
        if before is not None:
            names.subtract(before.topics)
        if after is not None:
            names.update(after.topics)
        return {name for name, count in names.items() if count > 0}

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._names

    def reads_any(self, topics: set[str]) -> bool:
        return not topics.isdisjoint(self._names)

    # ---- offsets and deletion

    def _no_offsets(self) -> ApiError:
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> CommitCheck | None:
        raise self._no_offsets()

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise self._no_offsets()

    def check_offset_delete(self) -> None:
        raise self._no_offsets()

    def offset_age_from(self) -> Callable[[CommittedOffset], int] | None:
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        members = [each for member_id in self.members for each in removal(self.group_id, member_id)]
        return [*members, *group_tombstones(self.group_id)]
