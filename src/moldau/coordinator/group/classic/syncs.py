"""SyncGroup: the leader brings the assignment, the others come for their part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.coordinator.decision import Decision
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicState
from moldau.coordinator.group.classic.member import NO_ASSIGNMENT
from moldau.coordinator.group.classic.rebalances import UNCHANGED
from moldau.coordinator.group.classic.records import group_record
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.sync_group_request import SyncGroupRequest
from moldau.protocol.generated.wire.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from moldau.coordinator.group.classic.groups import ClassicGroups


class Syncs:
    def __init__(self, groups: ClassicGroups) -> None:
        self._groups = groups

    def sync(self, request: SyncGroupRequest, answer: Pending[SyncGroupResponse]) -> Decision[None]:
        mixed = self._groups.mixed(request.group_id)
        if mixed is not None:
            return self._groups.consumer.classic_members.sync(mixed, request, answer)
        group = self._groups.find(request.group_id)
        try:
            if group is None or group.is_empty:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            _check(group, request)
        except ApiError as error:
            answer.resolve(SyncGroupResponse(error_code=error.code))
            return UNCHANGED
        member = group.members[request.member_id]
        self._groups.rebalances.synced(group, member.member_id)
        if group.state is ClassicState.STABLE:
            answer.resolve(
                SyncGroupResponse(
                    protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
                )
            )
            return UNCHANGED
        before, member.awaiting_sync = member.awaiting_sync, answer
        if before is not None:
            # The client has asked again, on another connection: nobody listens to the first request any more.
            before.resolve(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return self._assign(group, request) if member.member_id == group.leader_id else UNCHANGED

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest) -> Decision[None]:
        given = {each.member_id: each.assignment for each in request.assignments}
        assignments = {member_id: given.get(member_id, NO_ASSIGNMENT) for member_id in group.members}
        generation = group.generation
        return Decision(
            None,
            [group_record(group, assignments)],
            replay=False,
            done=lambda error: self._groups.rebalances.assignment_stored(group, generation, assignments, error),
        )


def _check(group: ClassicGroup, request: SyncGroupRequest) -> None:
    if group.state is ClassicState.DEAD:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)


def _differ(said: str | None, agreed: str | None) -> bool:
    return said is not None and agreed is not None and said != agreed
