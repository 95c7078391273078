"""ConsumerGroupHeartbeat: members join, say what they want and have, and hear what they are to have.

A group that is on the move asks for heartbeats more often than a quiet one, because that is the only way its members
hear of each other; the more members, the less often.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import AWAY, JOINING, LEFT, ConsumerMember, Owned
from moldau.coordinator.group.consumer.records import current_record, member_record, removal, target_record
from moldau.coordinator.group.consumer.topic_patterns import MayDescribe
from moldau.coordinator.group.modern.group import EpochGroupState
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from moldau.protocol.generated.wire.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
)
from moldau.protocol.generated.wire.consumer_group_heartbeat_response import TopicPartitions as Assigned

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")

# Heartbeats of a group on the move: not more often than this, and not more than a hundred a second in all.
_QUICK_MS: Final = 500
_QUICK_MS_PER_MEMBER: Final = 10


class Beat(NamedTuple):
    """One heartbeat and where it came from."""

    request: ConsumerGroupHeartbeatRequest
    client_id: str
    client_host: str
    may_describe: MayDescribe


class Heartbeats:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups

    def heartbeat(self, beat: Beat) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Raises ApiError when the member is refused."""
        request = beat.request
        if request.member_epoch in (LEFT, AWAY):
            return self._groups.leaves.leave(
                request.group_id, request.member_id, request.instance_id, request.member_epoch
            )
        groups = self._groups
        joining = request.member_epoch == JOINING
        records: list[CoordinatorRecord] = []
        group = groups.open(request.group_id, joining, records)
        self.check_room(group, request.member_id)
        member_id = request.member_id or str(UUID(int=self._shard.random.getrandbits(128), version=4))
        member = self._member(group, request, member_id, records)
        updated = _updated(member, beat)
        subscribed = groups.subscriptions.update(group, member, updated, beat.may_describe, records)
        target = groups.targets.update(group, subscribed.epoch, updated, subscribed.resolved, records)
        owned = request.topic_partitions
        moved = groups.moves.move(group, updated, target, subscribed, owned, records)
        groups.timeouts.alive(request.group_id, moved)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=self._interval(group, subscribed.epoch, moved, joining),
        )
        if joining or _is_full(request) or moved.assigned != member.assigned:
            response.assignment = _assignment(moved.assigned)
        return Decision(response, records)

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        most = self._shard.config().integer("group.consumer.max.size")
        if len(group.members) >= most and member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum of {most} members."
            )

    # ---- who is it

    def _member(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        records: list[CoordinatorRecord],
    ) -> ConsumerMember:
        """The member as it is known so far; records tell of a static member that has a new id."""
        joining = request.member_epoch == JOINING
        if request.instance_id is not None:
            existing = group.static_member(request.instance_id)
            if not joining:
                member = check_static(existing, request.instance_id, member_id)
                _check_epoch(member, request)
                return member
            if existing is not None:
                if existing.classic is None and existing.epoch != AWAY:
                    raise ApiError(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {member_id} with instance id {request.instance_id} cannot join the group "
                        f"because the instance id is owned by {existing.member_id} member.",
                    )
                return self.replace_static(group, existing, member_id, records)
        if joining and member_id not in group.members:
            log.info("group %s: member %s joins", group.group_id, member_id)
            return ConsumerMember(member_id)
        member = group.member(member_id)
        _check_epoch(member, request)
        return member

    def replace_static(
        self,
        group: ConsumerGroup,
        existing: ConsumerMember,
        member_id: str,
        records: list[CoordinatorRecord],
    ) -> ConsumerMember:
        """A static member is back under a new id, and goes on with what it had."""
        group_id = group.group_id
        member = existing.replaced_by(member_id)
        log.info("group %s: member %s is back as %s", group_id, existing.member_id, member_id)
        records += removal(group_id, existing.member_id)
        records.append(member_record(group_id, member))
        records.append(target_record(group_id, member_id, group.target(existing)))
        records.append(current_record(group_id, member))
        self._groups.timeouts.forget(group_id, existing.member_id)
        return member

    # ---- how soon is it to come back

    def _interval(self, group: ConsumerGroup, epoch: int, member: ConsumerMember, joining: bool) -> int:
        usual = self._groups.settings(group.group_id).consumer_heartbeat_interval_ms
        quick = max(_QUICK_MS, _QUICK_MS_PER_MEMBER * len(group.members))
        if quick >= usual or not (group.has_topics or member.topics or member.regex):
            return usual
        if not member.is_reconciled_to(epoch):
            # Classic members give up partitions at their own pace; asking for them more often does not help.
            return usual if group.classic_count else quick
        if joining:
            # It comes back by itself as soon as it has taken over what it got.
            return usual
        # For a while after a change, others are likely to come (or to go) as well.
        moving = group.state is not EpochGroupState.STABLE or self._groups.has_changed_within(group.group_id, usual)
        return quick if moving else usual


def _updated(member: ConsumerMember, beat: Beat) -> ConsumerMember:
    """The member with everything that its request says anew."""
    request = beat.request
    changes: dict[str, object] = {}
    if request.instance_id is not None and request.instance_id != member.instance_id:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None and request.rack_id != member.rack_id:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms not in (-1, member.rebalance_timeout_ms):
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None and request.server_assignor != member.assignor:
        changes["assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        topics = frozenset(request.subscribed_topic_names)
        if topics != member.topics:
            changes["topics"] = topics
    if request.subscribed_topic_regex is not None and request.subscribed_topic_regex != member.regex:
        changes["regex"] = request.subscribed_topic_regex
    if beat.client_id != member.client_id:
        changes["client_id"] = beat.client_id
    if beat.client_host != member.client_host:
        changes["client_host"] = beat.client_host
    if member.classic is not None:
        changes["classic"] = None
    return replace(member, **changes) if changes else member  # type: ignore[arg-type]


def check_static(existing: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
    if existing is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}.",
        )
    return existing


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    said, known = request.member_epoch, member.epoch
    if said in (JOINING, known):
        return
    if said < known and said == member.previous_epoch and _has_no_more(request.topic_partitions, member.assigned):
        # It has missed the answer that told it of its epoch.
        return
    which = "greater" if said > known else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({said}) than the one known by the group coordinator "
        f"({known}). The member must abandon all its partitions and rejoin.",
    )


def _has_no_more(said: Sequence[TopicPartitions] | None, assigned: Owned) -> bool:
    if said is None:
        return False
    return all(assigned.get(each.topic_id, {}).keys() >= set(each.partitions) for each in said)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscription and request.topic_partitions is not None


def _assignment(assigned: Owned) -> Assignment:
    return Assignment([Assigned(topic, sorted(partitions)) for topic, partitions in assigned.items()])
