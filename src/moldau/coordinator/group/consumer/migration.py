"""Groups that change between the classic and the consumer protocol while members of both are in them.

The first member of the consumer protocol makes a consumer group of a classic one; when the last of them has gone, the
others get a classic group again. Each direction can be switched off (`group.consumer.migration.policy`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicState
from moldau.coordinator.group.classic.member import NO_ASSIGNMENT, ClassicMember
from moldau.coordinator.group.classic.records import group_record
from moldau.coordinator.group.consumer.embedded_protocol import (
    assignment_by_id,
    read_assignment,
    read_subscription,
    write_assignment,
)
from moldau.coordinator.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from moldau.coordinator.group.consumer.member import ClassicSide, ConsumerMember
from moldau.coordinator.group.consumer.records import (
    current_record,
    epoch_record,
    member_record,
    target_metadata_record,
    target_record,
)
from moldau.coordinator.group.modern.assignment import NOTHING, Assignment
from moldau.coordinator.group.modern.group import NO_TIME
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.join_group_response import JoinGroupResponse
from moldau.protocol.generated.wire.sync_group_response import SyncGroupResponse
from moldau.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")

R = TypeVar("R")

_UPGRADES: Final = frozenset({"upgrade", "bidirectional"})
_DOWNGRADES: Final = frozenset({"downgrade", "bidirectional"})
DISABLED: Final = "disabled"


class Migration:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups

    @property
    def policy(self) -> str:
        return self._shard.config().text("group.consumer.migration.policy").lower()

    # ---- from classic to consumer

    def upgrade(self, classic: ClassicGroup, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """A consumer group with the members of a classic one, which goes when the records are replayed."""
        self._check_upgrade(classic)
        group = self._converted(classic)
        for waiting in list(classic.members.values()):
            again = JoinGroupResponse(member_id=waiting.member_id, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            classic.answer_join(waiting, again)
            classic.answer_sync(waiting, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        group_id = group.group_id
        members = group.members.values()
        records += classic.tombstones()
        records += [member_record(group_id, member) for member in members]
        records.append(epoch_record(group_id, group.epoch, group.metadata_hash))
        records += [target_record(group_id, member_id, target) for member_id, target in group.targets.items()]
        records.append(target_metadata_record(group_id, group.assignment_epoch, group.assignment_time_ms))
        records += [current_record(group_id, member) for member in members]
        for member in members:
            self._groups.timeouts.alive(group_id, member)
        log.info("group %s is a consumer group now", group_id)
        return group

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        most = self._shard.config().integer("group.consumer.max.size")
        if self.policy not in _UPGRADES:
            reason = "online upgrade is disabled"
        elif classic.protocol_type != PROTOCOL_TYPE:
            reason = "the group does not use the consumer embedded protocol"
        elif len(classic.members) > most:
            reason = "the group size exceeds the consumer group maximum size"
        else:
            return
        raise _cannot_upgrade(classic.group_id, reason)

    def _converted(self, classic: ClassicGroup) -> ConsumerGroup:
        group = ConsumerGroup(classic.group_id)
        generation = classic.generation
        group.set_assignment_epoch(generation, NO_TIME)
        name = classic.protocol_name or classic.select_protocol()
        try:
            for member in classic.members.values():
                target = self._target_of(classic.group_id, member.assignment)
                group.targets[member.member_id] = target
                group.put(_consumer_member(member, name, generation, target))
        except ProtocolError as error:
            raise _cannot_upgrade(classic.group_id, "the embedded consumer protocol is malformed") from error
        topics = group.topics_after((), (), ())
        group.set_epoch(generation, self._groups.subscriptions.hashes.of_group(topics, self._shard.image))
        return group

    def _target_of(self, group_id: str, data: bytes) -> Assignment:
        if data == NO_ASSIGNMENT:
            return NOTHING
        assignment = read_assignment(data)
        if assignment.user_data:
            raise _cannot_upgrade(
                group_id,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade",
            )
        return assignment_by_id(assignment, self._shard.image)

    # ---- from consumer to classic

    def must_downgrade_without(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
        """Whether only members of the classic protocol are left when these have gone."""
        left = len(group.members) - len(leaving)
        leaving_classic = sum(member.classic is not None for member in leaving)
        return left > 0 and group.classic_count - leaving_classic == left and self._may_downgrade(left)

    def must_downgrade_with(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """Whether all are of the classic protocol when this one has come back as such a member."""
        size = len(group.members)
        return replaced.classic is None and group.classic_count == size - 1 and self._may_downgrade(size)

    def _may_downgrade(self, size: int) -> bool:
        return self.policy in _DOWNGRADES and size <= self._shard.config().integer("group.max.size")

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], response: R) -> Decision[R]:
        gone = {member.member_id for member in leaving}
        staying = [member for member in group.members.values() if member.member_id not in gone]
        classic = self._classic(group, staying, {})
        records = [*group.tombstones(), group_record(classic, _assignments(classic))]
        reverse = self.take_over(group, classic)
        self.rebalance(classic)
        return Decision(response, records, replay=False, done=reverse)

    def downgrade_with(
        self, group: ConsumerGroup, replaced: ConsumerMember, joining: ConsumerMember
    ) -> tuple[ClassicGroup, list[CoordinatorRecord]]:
        """The classic group in which a static member takes its old place under a new id, and the records for it."""
        members = [joining if member is replaced else member for member in group.members.values()]
        classic = self._classic(group, members, {joining.member_id: replaced.member_id})
        ids = [member.member_id for member in members]
        return classic, [*group.tombstones_for(ids), group_record(classic, _assignments(classic))]

    def _classic(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], old_ids: dict[str, str]
    ) -> ClassicGroup:
        classic = ClassicGroup(group.group_id, self._shard.clock.now_ms())
        classic.generation = group.epoch
        classic.protocol_type = PROTOCOL_TYPE
        for member in members:
            side = member.classic
            assert side is not None, "only members of the classic protocol are left"
            target = group.targets.get(old_ids.get(member.member_id, member.member_id), NOTHING)
            classic.add(
                ClassicMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    side.session_timeout_ms,
                    PROTOCOL_TYPE,
                    side.protocols,
                    write_assignment(target, side.metadata, self._shard.image),
                )
            )
        classic.state = ClassicState.STABLE
        classic.protocol_name = classic.select_protocol()
        classic.subscribed = classic.compute_subscribed()
        return classic

    def take_over(self, group: ConsumerGroup, classic: ClassicGroup) -> Callable[[ApiError | None], None]:
        """Put the classic group in the consumer group's place; the result undoes that if it could not be written."""
        shard, groups = self._shard, self._groups
        groups.forget(group)
        shard.groups[group.group_id] = classic
        for member in classic.members.values():
            shard.classic.sessions.alive(group.group_id, member)
        log.info("group %s is a classic group now", group.group_id)

        def reverse(error: ApiError | None) -> None:
            if error is None or shard.groups.get(group.group_id) is not classic:
                return
            shard.classic.forget(classic)
            shard.groups[group.group_id] = group
            for member in group.members.values():
                groups.timeouts.alive(group.group_id, member)

        return reverse

    def rebalance(self, classic: ClassicGroup) -> None:
        shard = self._shard
        shard.host.perform(lambda: shard.classic.rebalances.prepare(classic, "it was a consumer group before"))


def _consumer_member(member: ClassicMember, protocol: str, generation: int, target: Assignment) -> ConsumerMember:
    subscription = read_subscription(member.metadata(protocol))
    return ConsumerMember(
        member.member_id,
        epoch=generation,
        previous_epoch=generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned={topic: dict.fromkeys(partitions, generation) for topic, partitions in target.items()},
        classic=ClassicSide(member.session_timeout_ms, tuple(member.protocols)),
    )


def _assignments(classic: ClassicGroup) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in classic.members.values()}


def _cannot_upgrade(group_id: str, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {reason}."
    )
