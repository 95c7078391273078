"""One classic group: its state, its members and what they agreed on.

Keeps the rules that hold at any moment (who may speak, which protocols all members know, who leads). When a rebalance
begins and ends is decided by `rebalances.py`; who joins and leaves by its siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.classic.member import ClassicMember, Protocols
from moldau.coordinator.group.classic.records import group_tombstone
from moldau.coordinator.group.classic.subscription import CONSUMER, subscribed_topics
from moldau.coordinator.group.group import Group, GroupType
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.describe_groups_response import DescribedGroup
from moldau.protocol.generated.wire.join_group_response import JoinGroupResponse
from moldau.protocol.generated.wire.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from moldau.coordinator.group.offset_records import CommittedOffset


class ClassicState(Enum):
    """The values are Kafka's own names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


T = TypeVar("T")

DEAD_STATE: Final = ClassicState.DEAD.value
_BEFORE: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.STABLE: frozenset({ClassicState.COMPLETING_REBALANCE}),
    ClassicState.DEAD: frozenset(ClassicState),
}


class ClassicGroup(Group):
    __slots__ = (
        "awaiting_join_count",
        "generation",
        "leader_id",
        "members",
        "new_member_added",
        "pending_members",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_members",
        "subscribed",
        "supported",
    )

    type = GroupType.CLASSIC

    def __init__(self, group_id: str, now_ms: int | None) -> None:
        super().__init__(group_id)
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.DEAD
        # Wall clock; None when the record that the group was loaded from did not say.
        self.state_since_ms = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        # Ids that were given out to clients which have not come back with them yet.
        self.pending_members: set[str] = set()
        # Members that have not asked for their assignment of this generation yet.
        self.pending_syncs: set[str] = set()
        self.awaiting_join_count = 0
        # How many members support each protocol.
        self.supported: dict[str, int] = {}
        # The topics that members of a consumer group read; None when that is not known.
        self.subscribed: frozenset[str] | None = None
        self.new_member_added = False

    # ---- state

    def transition(self, state: ClassicState, now_ms: int) -> None:
        assert self.state in _BEFORE[state], f"{self.group_id}: from {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in _BEFORE[ClassicState.PREPARING_REBALANCE]

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    def begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed = self.compute_subscribed()
        self.transition(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, now_ms)
        self.pending_syncs.clear()

    # ---- members

    def add(self, member: ClassicMember, answer: Pending[JoinGroupResponse] | None = None) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, "a static member is added once"
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.await_join(member, answer)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.awaiting_join is not None:
                self.awaiting_join_count -= 1
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
            # Whoever waits under this id must come back with another one.
            _keep(member.awaiting_join, _unknown_member)
            _keep(member.awaiting_sync, lambda: SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            member.awaiting_join = member.awaiting_sync = None
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_syncs.discard(member_id)

    def update(
        self,
        member: ClassicMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        answer: Pending[JoinGroupResponse] | None,
    ) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.await_join(member, answer)

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> ClassicMember:
        """Give a static member a new id and fence whoever still waits under the old one."""
        old = self.members.pop(old_id)
        self.answer_join(old, JoinGroupResponse(member_id=old_id, error_code=ErrorCode.FENCED_INSTANCE_ID))
        self.answer_sync(old, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        member = self.members[new_id] = old.replaced_by(new_id)
        if self.leader_id == old_id:
            self.leader_id = new_id
        self.static_members[instance_id] = new_id
        return member

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Have a leader that takes part in this rebalance; False when nobody does."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is None:
            joined = next((id_ for id_, member in self.members.items() if member.awaiting_join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise ApiError unless this is a member; an instance id that is someone else's now fences the member."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    # ---- answering

    def await_join(self, member: ClassicMember, answer: Pending[JoinGroupResponse] | None) -> None:
        before, member.awaiting_join = member.awaiting_join, answer
        if before is not None:
            # The client has asked again, on another connection: nobody listens to the first request any more.
            _keep(before, lambda: _again(member.member_id))
        self.awaiting_join_count += (answer is not None) - (before is not None)

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> bool:
        answer, member.awaiting_join = member.awaiting_join, None
        if answer is None:
            return False
        self.awaiting_join_count -= 1
        answer.resolve(response)
        return True

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        answer, member.awaiting_sync = member.awaiting_sync, None
        if answer is None:
            return False
        answer.resolve(response)
        return True

    def join_response(self, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """What a member of the current generation is told; the leader gets everybody's metadata."""
        leads = member_id == self.leader_id
        name = self.protocol_name
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=name,
            leader=self.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=[member.joined(name) for member in self.members.values()] if leads and name is not None else [],
        )

    def describe(self) -> DescribedGroup:
        stable = self.state is ClassicState.STABLE
        name = self.protocol_name if stable else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            protocol_type=self.listed_protocol_type,
            protocol_data=name or "",
            members=[member.describe(name) for member in self.members.values()],
        )

    def unloaded(self) -> None:
        for member in self.members.values():
            self.answer_join(
                member, JoinGroupResponse(member_id=member.member_id, error_code=ErrorCode.NOT_COORDINATOR)
            )
            self.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
        self.state = ClassicState.DEAD

    # ---- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody with these protocols can work with those who are here."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.supported.get(name, 0) == count for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that all members know and most prefer."""
        count = len(self.members)
        candidates = {name for name, supporters in self.supported.items() if supporters == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count_protocols(self, member: ClassicMember, change: int) -> None:
        for name in dict.fromkeys(name for name, _ in member.protocols):
            count = self.supported.get(name, 0) + change
            if count:
                self.supported[name] = count
            else:
                self.supported.pop(name, None)

    def compute_subscribed(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            of_member = subscribed_topics(member.metadata(self.protocol_name))
            if of_member is None:
                return None
            topics.update(of_member)
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed

    # ---- offsets and deletion

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        if self.state is ClassicState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.state is ClassicState.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional and self.state is not ClassicState.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._check_not_dead()

    def check_offset_delete(self) -> None:
        self._check_not_dead()
        if self.state is not ClassicState.EMPTY and self.protocol_type != CONSUMER:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        self._check_not_dead()
        if self.state is not ClassicState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def _check_not_dead(self) -> None:
        if self.state is ClassicState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")

    def offset_age_from(self) -> Callable[[CommittedOffset], int] | None:
        if self.protocol_type is not None:
            if self.state is ClassicState.EMPTY:
                since = self.state_since_ms
                return (lambda offset: offset.commit_timestamp) if since is None else (lambda _: since)
            if self.protocol_type != CONSUMER or self.subscribed is None or self.state is not ClassicState.STABLE:
                return None
        return lambda offset: offset.commit_timestamp

    def tombstones(self) -> list[CoordinatorRecord]:
        return [group_tombstone(self.group_id)]


def _unknown_member() -> JoinGroupResponse:
    return JoinGroupResponse(member_id="", error_code=ErrorCode.UNKNOWN_MEMBER_ID)


def _again(member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=ErrorCode.REBALANCE_IN_PROGRESS)


def _keep(promise: Pending[T] | None, response: Callable[[], T]) -> None:
    if promise is not None:
        promise.resolve(response())
