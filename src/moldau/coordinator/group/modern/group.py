"""What the kinds of group with epochs (consumer, share, streams) have in common: members, targets, and their epochs.

Changes only by replaying records (`replays.py`). What a member is and what it may have differs from kind to kind.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from moldau.coordinator.group.group import Group
from moldau.protocol.errors import ApiError, ErrorCode

# No assignment has been computed yet.
NO_TIME: Final = 0


class EpochGroupState(Enum):
    """The values are Kafka's own names. Each kind of group knows some of them."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class EpochMember(Protocol):
    """A member as its records say it; never changed in place."""

    @property
    def member_id(self) -> str: ...


MemberT = TypeVar("MemberT", bound=EpochMember)
TargetT = TypeVar("TargetT")


class EpochGroup(Group, Generic[MemberT, TargetT]):
    __slots__ = (
        "_state",
        "assignment_epoch",
        "assignment_time_ms",
        "epoch",
        "fresh_since_epoch",
        "members",
        "metadata_hash",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 1
        self.assignment_time_ms = NO_TIME
        self.members: dict[str, MemberT] = {}
        # What each member is to have.
        self.targets: dict[str, TargetT] = {}
        # The epoch in which the topics were last looked at; None when they may have changed since.
        self.fresh_since_epoch: int | None = None
        self._state: EpochGroupState | None = None

    # ---- state

    @property
    def state(self) -> EpochGroupState:
        state = self._state
        if state is None:
            state = self._state = self._compute_state()
        return state

    @abstractmethod
    def _compute_state(self) -> EpochGroupState: ...

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return self.type.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_stale(self) -> bool:
        """Whether the topics must be looked at again. A decision that could not be written does not count."""
        return self.fresh_since_epoch is None or self.epoch < self.fresh_since_epoch

    @abstractmethod
    def reads_any(self, topics: set[str]) -> bool: ...

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        self._state = None

    def set_assignment_epoch(self, epoch: int, time_ms: int) -> None:
        self.assignment_epoch = epoch
        self.assignment_time_ms = time_ms
        self._state = None

    # ---- members

    def member(self, member_id: str) -> MemberT:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    @abstractmethod
    def put(self, member: MemberT) -> None: ...

    @abstractmethod
    def remove(self, member_id: str) -> None: ...

    # ---- deletion

    def check_delete(self) -> None:
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
