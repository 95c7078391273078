"""JoinGroup: who is let in, under which id, and whether that begins a rebalance.

Members are answered through the promise they come with, at once or when the rebalance they take part in is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from moldau.coordinator.decision import Decision
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicState
from moldau.coordinator.group.classic.member import ClassicMember, Protocols
from moldau.coordinator.group.classic.rebalances import UNCHANGED
from moldau.coordinator.group.classic.records import group_record, new_group_record
from moldau.coordinator.group.group import Group, GroupType
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.join_group_request import JoinGroupRequest
from moldau.protocol.generated.wire.join_group_response import JoinGroupResponse

if TYPE_CHECKING:
    from moldau.coordinator.group.classic.groups import ClassicGroups
    from moldau.coordinator.group.shard import GroupShard

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a new member may wait in a rebalance: it has no id yet to send heartbeats with."""

_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
# Groups of these types become classic groups when nobody is in them.
_CONVERTIBLE: Final = (GroupType.CONSUMER, GroupType.STREAMS)


class Joining(NamedTuple):
    """One JoinGroup request and where it came from."""

    request: JoinGroupRequest
    protocols: Protocols
    client_id: str
    client_host: str
    api_version: int
    answer: Pending[JoinGroupResponse]

    def refuse(self, member_id: str, code: ErrorCode) -> Decision[None]:
        self.answer.resolve(JoinGroupResponse(member_id=member_id, error_code=code, protocol_name=None))
        return UNCHANGED


class Joins:
    def __init__(self, shard: GroupShard, groups: ClassicGroups) -> None:
        self._shard = shard
        self._groups = groups

    def join(self, joining: Joining) -> Decision[None]:
        request = joining.request
        existing = self._shard.groups.get(request.group_id)
        mixed = self._groups.mixed(request.group_id)
        if mixed is not None and not mixed.is_empty:
            return self._shard.consumer.classic_members.join(mixed, joining)
        emptied: Group | None = None
        if existing is not None and existing.is_empty and existing.type in _CONVERTIBLE:
            # Nobody is in it: it becomes a classic group.
            emptied, existing = existing, None
        if existing is None:
            if request.member_id:
                return joining.refuse(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            group = ClassicGroup(request.group_id, self._shard.clock.now_ms())
            self._shard.groups[request.group_id] = group
        elif isinstance(existing, ClassicGroup):
            group = existing
        else:
            return joining.refuse("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        decision = self._join(group, joining)
        if existing is None and not decision.records:
            return Decision(
                None,
                [*([] if emptied is None else emptied.tombstones()), new_group_record(group)],
                replay=False,
                done=lambda error: self._stored_new(group, emptied, joining, error),
            )
        return decision

    def _stored_new(self, group: ClassicGroup, emptied: Group | None, joining: Joining, error: ApiError | None) -> None:
        if error is None:
            return
        self._groups.forget(group)
        if emptied is not None:
            self._shard.groups[group.group_id] = emptied
        if not joining.answer.done:
            joining.answer.resolve(JoinGroupResponse(error_code=error.code, protocol_name=None))

    def _join(self, group: ClassicGroup, joining: Joining) -> Decision[None]:
        request = joining.request
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self._groups.sessions.end(group.group_id, request.member_id)
            joining.refuse("", ErrorCode.GROUP_MAX_SIZE_REACHED)
            # Perhaps it was the one that the others waited for.
            return self._groups.rebalances.complete_if_all_joined(group)
        if not group.supports(request.protocol_type, joining.protocols):
            return joining.refuse(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return self._join_known(group, joining) if request.member_id else self._join_unknown(group, joining)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        if group.is_empty:
            return True
        size = self._shard.config().integer("group.max.size")
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            # Those who have joined count: when the limit was lowered, the last to come back find no room.
            return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count < size
        return member is not None or len(group.members) < size

    # ---- without an id

    def _join_unknown(self, group: ClassicGroup, joining: Joining) -> Decision[None]:
        request = joining.request
        instance_id = request.group_instance_id
        new_id = f"{instance_id or joining.client_id}-{UUID(int=self._shard.random.getrandbits(128), version=4)}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                return self._replace_static(group, joining, old_id, new_id)
        elif joining.api_version >= _MEMBER_ID_REQUIRED_SINCE:
            # Without this detour, a client whose answer is lost would leave a member behind on each attempt.
            group.pending_members.add(new_id)
            self._groups.sessions.expect(group.group_id, new_id, request.session_timeout_ms)
            return joining.refuse(new_id, ErrorCode.MEMBER_ID_REQUIRED)
        return self._add(group, joining, new_id)

    def _add(self, group: ClassicGroup, joining: Joining, member_id: str) -> Decision[None]:
        request = joining.request
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            joining.client_id,
            joining.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            joining.protocols,
        )
        member.is_new = True
        if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
            group.new_member_added = True
        group.add(member, joining.answer)
        self._groups.sessions.end(group.group_id, member_id)
        self._groups.sessions.alive(group.group_id, member, NEW_MEMBER_TIMEOUT_MS)
        return self._groups.rebalances.prepare_or_complete(group, f"{member_id} joins{_reason(request)}")

    # ---- with an id

    def _join_known(self, group: ClassicGroup, joining: Joining) -> Decision[None]:
        request = joining.request
        member_id = request.member_id
        if member_id in group.pending_members:
            if request.group_instance_id is not None:
                return joining.refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return self._add(group, joining, member_id)
        try:
            group.check_member(member_id, request.group_instance_id)
        except ApiError as error:
            return joining.refuse(member_id, error.code)
        member = group.members[member_id]
        same = list(member.protocols) == list(joining.protocols)
        if group.state is ClassicState.COMPLETING_REBALANCE and same:
            # It may have missed the answer to its first request.
            joining.answer.resolve(group.join_response(member_id))
            return UNCHANGED
        if group.state is ClassicState.STABLE and same and group.leader_id != member_id:
            joining.answer.resolve(group.join_response(member_id))
            return UNCHANGED
        if group.is_empty:
            return joining.refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        # A leader that joins again wants a rebalance, for reasons that only it knows (new partitions of a topic).
        self._update(group, member, joining)
        return self._groups.rebalances.prepare_or_complete(group, f"{member_id} joins again{_reason(request)}")

    def _update(self, group: ClassicGroup, member: ClassicMember, joining: Joining) -> None:
        request = joining.request
        group.update(
            member, joining.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, joining.answer
        )

    # ---- a static member that was restarted

    def _replace_static(self, group: ClassicGroup, joining: Joining, old_id: str, new_id: str) -> Decision[None]:
        request = joining.request
        instance_id = request.group_instance_id
        assert instance_id is not None
        leader_before = group.leader_id
        member = group.replace_static(instance_id, old_id, new_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._groups.sessions.end(group.group_id, old_id)
        self._update(group, member, joining)
        self._groups.sessions.alive(group.group_id, member)
        rebalances = self._groups.rebalances
        if group.state is ClassicState.COMPLETING_REBALANCE:
            # The leader may be at work with the old id: what it assigns to that would be lost.
            return rebalances.prepare(group, f"static member {instance_id} is back as {new_id}{_reason(request)}")
        if group.state is not ClassicState.STABLE:
            return rebalances.complete_if_all_joined(group)
        if group.select_protocol() != group.protocol_name:
            return rebalances.prepare_or_complete(group, f"static member {instance_id} changes the protocol")

        def stored(error: ApiError | None) -> None:
            if error is not None:
                group.answer_join(member, JoinGroupResponse(error_code=error.code, protocol_name=None))
                group.update(member, *before, None)
                reverted = group.replace_static(instance_id, new_id, old_id)
                self._groups.sessions.alive(group.group_id, reverted)
            else:
                group.answer_join(member, self._static_response(group, new_id, leader_before, joining.api_version))

        assignments = {each.member_id: each.assignment for each in group.members.values()}
        return Decision(None, [group_record(group, assignments)], replay=False, done=stored)

    def _static_response(
        self, group: ClassicGroup, member_id: str, leader_before: str | None, version: int
    ) -> JoinGroupResponse:
        if version >= _SKIP_ASSIGNMENT_SINCE:
            return group.join_response(member_id, skip_assignment=group.leader_id == member_id)
        # Older clients would assign anew if they knew that they lead; the assignment is still good.
        response = group.join_response(member_id)
        response.leader = leader_before or ""
        response.members = []
        return response


def _reason(request: JoinGroupRequest) -> str:
    return f" ({request.reason})" if request.reason else ""
