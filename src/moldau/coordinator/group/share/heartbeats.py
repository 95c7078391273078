"""ShareGroupHeartbeat: members join, say what they want to read, and hear what they are to have.

Nothing has to be given up before somebody else gets it, so a member takes over its part of a new assignment at once.
Only partitions whose state the share coordinators have initialised are assigned; a heartbeat that finds others says so
in its decision, and whoever carries it out asks for that (`Beaten.initialize`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.modern.assignment import NOTHING, Assignee, Assignment
from moldau.coordinator.group.modern.group import NO_TIME
from moldau.coordinator.group.modern.simple_assignor import assign_simply
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.member import JOINING, LEFT, ShareMember
from moldau.coordinator.group.share.records import (
    current_record,
    epoch_record,
    member_record,
    removal,
    target_metadata_record,
    target_record,
)
from moldau.coordinator.group.share.topics import Partitions
from moldau.coordinator.timers import interval_is_over
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from moldau.protocol.generated.wire.share_group_heartbeat_response import (
    Assignment as Assigned,
)
from moldau.protocol.generated.wire.share_group_heartbeat_response import (
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.group.share.groups import ShareGroups

log = logging.getLogger("moldau.coordinator")

# Heartbeats of members that wait for partitions: not more often than this, and not more than a hundred a second in all.
_QUICK_MS: Final = 500
_QUICK_MS_PER_MEMBER: Final = 10


class Beaten(NamedTuple):
    """What a heartbeat leads to."""

    response: ShareGroupHeartbeatResponse
    # Partitions whose state has to be initialised, and the state's epoch.
    initialize: Partitions = NOTHING
    state_epoch: int = 0


class Heartbeats:
    def __init__(self, shard: GroupShard, groups: ShareGroups) -> None:
        self._shard = shard
        self._groups = groups

    def heartbeat(self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str) -> Decision[Beaten]:
        """Raises ApiError when the member is refused."""
        if request.member_epoch == LEFT:
            return self._leave(request)
        joining = request.member_epoch == JOINING
        group = self._groups.open(request.group_id, joining)
        self._check_room(group, request.member_id)
        member = _member(group, request)
        updated = _updated(member, request, client_id, client_host)
        records: list[CoordinatorRecord] = []
        if updated != member:
            records.append(member_record(group.group_id, updated))
        known = group.members.get(member.member_id)
        topics = group.topics_after(known, updated)
        epoch = self._epoch(group, member, updated, topics, records)
        target_epoch, target = self._target(group, epoch, updated, records)
        moved = self._moved(updated, target_epoch, target, changed=epoch != group.epoch)
        if moved != updated:
            records.append(current_record(group.group_id, moved))
        self._groups.sessions.alive(
            group.group_id, member.member_id, self._groups.settings(group.group_id).share_session_timeout_ms
        )
        needed = self._groups.initialization.needed(group, topics, records)
        response = ShareGroupHeartbeatResponse(
            member_id=moved.member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=self._interval(group, waits=bool(needed) or moved.epoch < epoch),
        )
        if joining or request.subscribed_topic_names is not None or moved.assigned != member.assigned:
            response.assignment = Assigned(
                [TopicPartitions(topic, sorted(partitions)) for topic, partitions in moved.assigned.items()]
            )
        return Decision(Beaten(response, needed, epoch), records)

    def _check_room(self, group: ShareGroup, member_id: str) -> None:
        most = self._shard.config().integer("group.share.max.size")
        if len(group.members) >= most and member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {most} members.",
            )

    def _interval(self, group: ShareGroup, *, waits: bool) -> int:
        """Whoever waits for partitions is to ask again soon: that is the only way to hear of them."""
        usual = self._groups.settings(group.group_id).share_heartbeat_interval_ms
        return min(usual, max(_QUICK_MS, _QUICK_MS_PER_MEMBER * len(group.members))) if waits else usual

    # ---- what the group reads

    def _epoch(
        self,
        group: ShareGroup,
        member: ShareMember,
        updated: ShareMember,
        topics: set[str],
        records: list[CoordinatorRecord],
    ) -> int:
        """The group's epoch, which grows when it reads other topics, these change, or more of them can be assigned."""
        changed = updated.topics != member.topics
        if group.assignment_epoch >= group.epoch:
            changed |= self._groups.initialization.is_unassigned(group)
        if not (changed or group.is_stale):
            return group.epoch
        metadata_hash = self._groups.hashes.of_group(topics, self._shard.image)
        epoch = group.epoch
        if changed or metadata_hash != group.metadata_hash:
            epoch += 1
            records.append(epoch_record(group.group_id, epoch, metadata_hash))
            log.info("group %s is in epoch %d", group.group_id, epoch)
        group.fresh_since_epoch = epoch
        return epoch

    # ---- who gets what

    def _target(
        self, group: ShareGroup, epoch: int, updated: ShareMember, records: list[CoordinatorRecord]
    ) -> tuple[int, Assignment]:
        if group.assignment_epoch >= epoch or not self._is_due(group):
            return group.assignment_epoch, group.targets.get(updated.member_id, NOTHING)
        image = self._shard.image
        members = {**group.members, updated.member_id: updated}
        ids: dict[frozenset[str], frozenset[bytes]] = {}
        for member in members.values():
            if member.topics not in ids:
                found = map(image.topic, member.topics)
                ids[member.topics] = frozenset(topic.id for topic in found if topic is not None)
        assignees = [
            Assignee(member.member_id, None, ids[member.topics], group.targets.get(member.member_id, NOTHING))
            for member in members.values()
        ]
        result = assign_simply(assignees, self._groups.initialization.assignable(group))
        for member_id, assignment in result.items():
            if group.targets.get(member_id) != assignment:
                records.append(target_record(group.group_id, member_id, assignment))
        records.append(target_metadata_record(group.group_id, epoch, self._shard.clock.now_ms()))
        log.info("group %s has a new assignment for epoch %d", group.group_id, epoch)
        return epoch, result[updated.member_id]

    def _is_due(self, group: ShareGroup) -> bool:
        """Not more often than settings say; but a group that has nothing yet gets what there is at once."""
        if group.assignment_time_ms == NO_TIME:
            return True
        if self._groups.initialization.assignable(group) and not any(group.targets.values()):
            return True
        interval = self._groups.settings(group.group_id).share_assignment_interval_ms
        return interval_is_over(group.assignment_time_ms, interval, self._shard.clock.now_ms())

    def _moved(self, member: ShareMember, epoch: int, target: Assignment, *, changed: bool) -> ShareMember:
        if epoch != member.epoch:
            return replace(member, epoch=epoch, previous_epoch=member.epoch, assigned=self._readable(member, target))
        return replace(member, assigned=self._readable(member, target)) if changed else member

    def _readable(self, member: ShareMember, target: Assignment) -> Assignment:
        """What of its target the member still wants: it may be older than its subscription."""
        image = self._shard.image
        read: Mapping[bytes, frozenset[int]] = {
            topic_id: partitions
            for topic_id, partitions in target.items()
            if (topic := image.topic_by_id(topic_id)) is not None and topic.name in member.topics
        }
        return read

    # ---- who goes

    def _leave(self, request: ShareGroupHeartbeatRequest) -> Decision[Beaten]:
        group = self._groups.find(request.group_id)
        member = group.member(request.member_id)
        log.info("group %s: member %s leaves", group.group_id, member.member_id)
        response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        return self._remove(group, member, Beaten(response))

    def session_over(self, group_id: str, member_id: str) -> Decision[None]:
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Decision(None)
        log.info("group %s: member %s is out: it was not heard of in time", group_id, member_id)
        removed = self._remove(group, member, Beaten(ShareGroupHeartbeatResponse()))
        return Decision(None, removed.records, done=removed.done)

    def _remove(self, group: ShareGroup, member: ShareMember, response: Beaten) -> Decision[Beaten]:
        records = removal(group.group_id, member.member_id)
        topics = group.topics_after(member, None)
        records.append(
            epoch_record(group.group_id, group.epoch + 1, self._groups.hashes.of_group(topics, self._shard.image))
        )
        sessions = self._groups.sessions
        sessions.end(group.group_id, member.member_id)

        def written(error: ApiError | None) -> None:
            if error is not None:
                # It is a member still, and must not stay for ever.
                timeout = self._groups.settings(group.group_id).share_session_timeout_ms
                sessions.alive(group.group_id, member.member_id, timeout)

        return Decision(response, records, done=written)


def _updated(member: ShareMember, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str) -> ShareMember:
    """The member with everything that its request says anew."""
    topics = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=member.topics if topics is None else frozenset(topics),
    )


def _member(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """The member as it is known so far."""
    said = request.member_epoch
    if said == JOINING:
        known = group.members.get(request.member_id)
        if known is None:
            log.info("group %s: member %s joins", group.group_id, request.member_id)
            return ShareMember(request.member_id)
        return known
    member = group.member(request.member_id)
    epoch = member.epoch
    if said > epoch:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({said}) than the one known by the group coordinator "
            f"({epoch}). The member must abandon all its partitions and rejoin.",
        )
    if said < epoch and said != member.previous_epoch:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({said}) than the one known by the group coordinator "
            f"({epoch}), and it does not match the previous member epoch ({member.previous_epoch}). The member must "
            "abandon all its partitions and rejoin.",
        )
    return member
