"""Heartbeat and LeaveGroup: members that are still there, members that go, and members that are sent away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.coordinator.decision import Decision
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicState
from moldau.coordinator.group.classic.rebalances import UNCHANGED
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.heartbeat_request import HeartbeatRequest
from moldau.protocol.generated.wire.leave_group_request import MemberIdentity
from moldau.protocol.generated.wire.leave_group_response import MemberResponse

if TYPE_CHECKING:
    from moldau.coordinator.group.classic.groups import ClassicGroups


class Leaves:
    def __init__(self, groups: ClassicGroups) -> None:
        self._groups = groups

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        mixed = self._groups.mixed(request.group_id)
        if mixed is not None:
            return self._groups.consumer.classic_members.heartbeat(mixed, request)
        group = self._groups.find(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            group.check_member(request.member_id, request.group_instance_id)
        except ApiError as error:
            return error.code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._groups.sessions.alive(group.group_id, group.members[request.member_id])
        preparing = group.state is ClassicState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, group_id: str, members: list[MemberIdentity]) -> Decision[list[MemberResponse]]:
        """Raises ApiError when there is no such group."""
        mixed = self._groups.mixed(group_id)
        if mixed is not None:
            return self._groups.consumer.classic_members.leave(mixed, members)
        group = self._groups.find(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is ClassicState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        results = [MemberResponse(who.member_id, who.group_instance_id, self._leave_one(group, who)) for who in members]
        gone = [result.member_id or result.group_instance_id or "" for result in results if not result.error_code]
        decision = UNCHANGED
        if gone:
            reason = f"{', '.join(gone)} left"
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                decision = self._groups.rebalances.prepare_or_complete(group, reason)
            elif group.state is ClassicState.PREPARING_REBALANCE:
                decision = self._groups.rebalances.complete_if_all_joined(group)
        return Decision(results, decision.records, replay=decision.replay, done=decision.done)

    def _leave_one(self, group: ClassicGroup, who: MemberIdentity) -> ErrorCode:
        member_id = who.member_id
        if not member_id:
            # An administrator names a static member by its instance alone.
            member_id = group.static_members.get(who.group_instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id not in group.pending_members:
            try:
                group.check_member(member_id, who.group_instance_id)
            except ApiError as error:
                return error.code
        self._groups.sessions.end(group.group_id, member_id)
        group.remove(member_id)
        return ErrorCode.NONE

    def session_expired(self, group_id: str, member_id: str) -> Decision[None]:
        group = self._groups.find(group_id)
        if group is None or group.state is ClassicState.DEAD:
            return UNCHANGED
        member = group.members.get(member_id)
        if member is None:
            if member_id not in group.pending_members:
                return UNCHANGED
        elif member.is_alive_by_waiting:
            return UNCHANGED
        group.remove(member_id)
        if member is not None and group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            return self._groups.rebalances.prepare_or_complete(group, f"{member_id} was not heard of in time")
        if group.state is ClassicState.PREPARING_REBALANCE and group.all_joined:
            return self._groups.rebalances.complete(group)
        return UNCHANGED
