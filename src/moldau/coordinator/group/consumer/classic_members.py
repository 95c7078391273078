"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup for members of the classic protocol in a consumer group.

They are members like the others; their generation is their epoch. What others hear in answers to heartbeats, they are
told by being asked to join again: nobody waits for anybody in such a group.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.consumer.embedded_protocol import read_subscription, write_assignment
from moldau.coordinator.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from moldau.coordinator.group.consumer.heartbeats import check_static
from moldau.coordinator.group.consumer.member import ClassicSide, ConsumerMember, MemberState
from moldau.coordinator.group.consumer.migration import DISABLED
from moldau.coordinator.group.consumer.reconciliation import TopicPartitions
from moldau.coordinator.group.consumer.targets import Target
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.consumer_group_heartbeat_request import TopicPartitions as Owns
from moldau.protocol.generated.wire.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.generated.wire.heartbeat_request import HeartbeatRequest
from moldau.protocol.generated.wire.join_group_response import JoinGroupResponse
from moldau.protocol.generated.wire.leave_group_request import MemberIdentity
from moldau.protocol.generated.wire.leave_group_response import MemberResponse
from moldau.protocol.generated.wire.sync_group_request import SyncGroupRequest
from moldau.protocol.generated.wire.sync_group_response import SyncGroupResponse
from moldau.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from moldau.coordinator.group.classic.joins import Joining
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")

_MEMBER_ID_REQUIRED_SINCE = 4


class ClassicMembers:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups

    # ---- JoinGroup

    def join(self, group: ConsumerGroup, joining: Joining) -> Decision[None]:
        try:
            return self._join(group, joining)
        except ApiError as error:
            return joining.refuse("", error.code)

    def _join(self, group: ConsumerGroup, joining: Joining) -> Decision[None]:
        groups, request = self._groups, joining.request
        unknown = not request.member_id
        member_id = request.member_id or str(UUID(int=self._shard.random.getrandbits(128), version=4))
        self._check_join(group, joining, member_id)
        instance_id = request.group_instance_id
        if unknown and instance_id is None and joining.api_version >= _MEMBER_ID_REQUIRED_SINCE:
            return joining.refuse(member_id, ErrorCode.MEMBER_ID_REQUIRED)
        records: list[CoordinatorRecord] = []
        existing = group.static_member(instance_id)
        downgrade = existing is not None and groups.migration.must_downgrade_with(group, existing)
        if instance_id is None:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        elif not unknown:
            member = check_static(existing, instance_id, member_id)
        elif existing is None:
            member = ConsumerMember(member_id)
        else:
            member = groups.heartbeats.replace_static(group, existing, member_id, records)
        subscription = _subscription(joining)
        updated = _updated(member, joining, subscription)
        # A classic member has matched its own expressions, if it has any.
        subscribed = groups.subscriptions.update(group, member, updated, lambda _: True, records)
        owned = self._owned(subscription)
        if not downgrade or existing is None:
            target = groups.targets.update(group, subscribed.epoch, updated, subscribed.resolved, records)
            moved = groups.moves.move(group, updated, target, subscribed, owned, records)
            return Decision(None, records, done=lambda error: self._joined(group.group_id, joining, moved, error))
        moved = updated
        rebalance = group.assignment_epoch < subscribed.epoch
        if not rebalance:
            target = Target(group.assignment_epoch, group.target(updated))
            moved = groups.moves.move(group, updated, target, subscribed, owned, records)
        return self._join_back(group, joining, existing, moved, records, rebalance)

    def _check_join(self, group: ConsumerGroup, joining: Joining, member_id: str) -> None:
        if self._groups.migration.policy == DISABLED:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._groups.heartbeats.check_room(group, member_id)
        names = {name for name, _ in joining.protocols}
        for member in group.members.values():
            if member.classic is not None:
                names &= {name for name, _ in member.classic.protocols}
        if joining.request.protocol_type != PROTOCOL_TYPE or not names:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _joined(self, group_id: str, joining: Joining, member: ConsumerMember, error: ApiError | None) -> None:
        if joining.answer.done:
            return
        if error is not None:
            joining.refuse("", error.code)
            return
        timeouts = self._groups.timeouts
        timeouts.joined(group_id, member.member_id)
        timeouts.alive(group_id, member)
        timeouts.expect_sync(group_id, member)
        joining.answer.resolve(_join_response(member))

    def _join_back(
        self,
        group: ConsumerGroup,
        joining: Joining,
        existing: ConsumerMember,
        moved: ConsumerMember,
        records: list[CoordinatorRecord],
        rebalance: bool,
    ) -> Decision[None]:
        """The last member of the consumer protocol comes back as a classic one, and takes the group with it."""
        migration = self._groups.migration
        classic, converted = migration.downgrade_with(group, existing, moved)
        reverse = migration.take_over(group, classic)
        if rebalance:
            migration.rebalance(classic)

        def written(error: ApiError | None) -> None:
            reverse(error)
            if joining.answer.done:
                return
            if error is not None:
                joining.refuse("", error.code)
            else:
                joining.answer.resolve(_join_response(moved))

        return Decision(None, [*records, *converted], replay=False, done=written)

    def _owned(self, subscription: ConsumerProtocolSubscription) -> Sequence[TopicPartitions]:
        image = self._shard.image
        found: list[TopicPartitions] = []
        for each in subscription.owned_partitions:
            topic = image.topic(each.topic)
            if topic is not None:
                found.append(Owns(topic.id, each.partitions))
        return found

    # ---- SyncGroup and Heartbeat

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, answer: Pending[SyncGroupResponse]
    ) -> Decision[None]:
        group_id = group.group_id
        try:
            member, side = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
            if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
                None,
                side.protocol_name,
            ):
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._groups.timeouts.expect_join(group_id, member)
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        except ApiError as error:
            answer.resolve(SyncGroupResponse(error_code=error.code))
            return Decision(None)

        def committed(error: ApiError | None) -> None:
            if error is not None:
                answer.resolve(SyncGroupResponse(error_code=error.code))
                return
            self._groups.timeouts.synced(group_id, member.member_id)
            self._groups.timeouts.alive(group_id, member)
            answer.resolve(
                SyncGroupResponse(
                    protocol_type=request.protocol_type,
                    protocol_name=request.protocol_name,
                    assignment=write_assignment(member.assigned, side.metadata, self._shard.image),
                )
            )

        return Decision(None, done=committed)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
        try:
            member, _ = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
        except ApiError as error:
            return error.code
        timeouts = self._groups.timeouts
        timeouts.alive(group.group_id, member)
        must_rejoin = (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        )
        if not must_rejoin:
            return ErrorCode.NONE
        timeouts.expect_join(group.group_id, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicSide]:
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = check_static(group.static_member(instance_id), instance_id, member_id)
        if member.classic is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
        if generation != member.epoch:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.classic

    # ---- LeaveGroup

    def leave(self, group: ConsumerGroup, members: Sequence[MemberIdentity]) -> Decision[list[MemberResponse]]:
        results: list[MemberResponse] = []
        leaving: dict[str, ConsumerMember] = {}
        for who in members:
            result = MemberResponse(who.member_id, who.group_instance_id)
            results.append(result)
            try:
                if who.group_instance_id is None:
                    member = group.member(who.member_id)
                else:
                    existing = group.static_member(who.group_instance_id)
                    # An administrator names a static member by its instance alone.
                    known_as = who.member_id or ("" if existing is None else existing.member_id)
                    member = check_static(existing, who.group_instance_id, known_as)
            except ApiError as error:
                result.error_code = error.code
                continue
            leaving[member.member_id] = member
        return self._groups.leaves.fence(group, list(leaving.values()), results)


def _join_response(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.classic.protocol_name,
        member_id=member.member_id,
    )


def _subscription(joining: Joining) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(joining.protocols[0][1])
    except ProtocolError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error


def _updated(member: ConsumerMember, joining: Joining, subscription: ConsumerProtocolSubscription) -> ConsumerMember:
    request = joining.request
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=joining.client_id,
        client_host=joining.client_host,
        classic=ClassicSide(request.session_timeout_ms, tuple(joining.protocols)),
    )
