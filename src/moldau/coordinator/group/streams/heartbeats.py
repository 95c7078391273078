"""StreamsGroupHeartbeat: members join with their topology, say what they have, and hear what they are to have.

A group that is on the move asks for heartbeats more often than a quiet one, because that is the only way its members
hear of each other; the more members, the less often.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.modern.group import EpochGroupState
from moldau.coordinator.group.streams.configured_topology import ConfiguredSubtopology, ConfiguredTopology, configure
from moldau.coordinator.group.streams.endpoints import endpoints_of
from moldau.coordinator.group.streams.group import StreamsGroup
from moldau.coordinator.group.streams.member import AWAY, JOINING, LEFT, StreamsMember, UserEndpoint
from moldau.coordinator.group.streams.reconciliation import Goal, reconcile
from moldau.coordinator.group.streams.records import current_record, group_record, member_record, topology_record
from moldau.coordinator.group.streams.statuses import Status
from moldau.coordinator.group.streams.targets import Target
from moldau.coordinator.group.streams.tasks import Tasks, is_contained, task_ids
from moldau.coordinator.group.streams.topology import Topology, topology_of
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic
from moldau.protocol.generated.wire.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from moldau.protocol.generated.wire.streams_group_heartbeat_request import TaskIds as SaidTasks
from moldau.protocol.generated.wire.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse, TaskIds

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.group.streams.groups import StreamsGroups

log = logging.getLogger("moldau.coordinator")

# Heartbeats of a group on the move: not more often than this, and not more than a hundred a second in all.
_QUICK_MS: Final = 500
_QUICK_MS_PER_MEMBER: Final = 10
_NOT_VALIDATED: Final = -1


class Beat(NamedTuple):
    """One heartbeat and where it came from."""

    request: StreamsGroupHeartbeatRequest
    client_id: str
    client_host: str


class Beaten(NamedTuple):
    """The answer to a heartbeat, and the topics that the application needs and that are not there yet."""

    response: StreamsGroupHeartbeatResponse
    missing_topics: Mapping[str, CreatableTopic] = {}


class _Epoch(NamedTuple):
    """A group after one of its members was heard."""

    number: int
    configured: ConfiguredTopology
    settings: Mapping[str, str]


class Heartbeats:
    def __init__(self, shard: GroupShard, groups: StreamsGroups) -> None:
        self._shard = shard
        self._groups = groups

    def heartbeat(self, beat: Beat) -> Decision[Beaten]:
        """Raises ApiError when the member is refused."""
        request, groups = beat.request, self._groups
        if request.member_epoch in (LEFT, AWAY):
            left = groups.leaves.leave(request)
            return Decision(Beaten(left.response), left.records, done=left.done)
        records: list[CoordinatorRecord] = []
        joining = request.member_epoch == JOINING
        group = groups.open(request.group_id, joining, records)
        if joining:
            self._check_room(group)
        member = self._member(group, request, joining)
        updated = _updated(member, beat)
        changed = updated != member
        if changed:
            records.append(member_record(group.group_id, updated))
        topology = self._topology(group, request, records)
        epoch = self._epoch(group, topology, request, changed, records)
        if group.is_empty:
            groups.targets.delay_first(group)
        target = groups.targets.update(group, epoch.number, updated, epoch.configured, epoch.settings, records)
        moved = self._move(group, updated, target, request, records)
        groups.timeouts.alive(group.group_id, moved.member_id)
        if request.shutdown_application:
            group.request_shutdown(moved.member_id)
        response = self._response(group, moved, epoch, target)
        if joining or moved.assigned != member.assigned:
            _tell_tasks(response, group, moved)
        if group.endpoint_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = endpoints_of(group, moved, self._shard.image)
        if groups.get(group.group_id) is group:
            # A group that was just made up begins with nothing once it is written.
            response.endpoint_information_epoch = group.endpoint_epoch
        return Decision(Beaten(response, epoch.configured.missing), records)

    def _check_room(self, group: StreamsGroup) -> None:
        most = self._shard.config().integer("group.streams.max.size")
        if len(group.members) >= most:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {most} members.",
            )

    # ---- who is it, and what does it run

    def _member(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, joining: bool) -> StreamsMember:
        if joining and request.member_id not in group.members:
            log.info("group %s: member %s joins", group.group_id, request.member_id)
            return StreamsMember(request.member_id)
        member = group.member(request.member_id)
        _check_epoch(member, request)
        return member

    def _topology(
        self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, records: list[CoordinatorRecord]
    ) -> Topology:
        """The group's topology: that of its first member, for as long as the group lives."""
        known = group.topology
        if request.topology is None:
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Group {group.group_id} has no topology.")
            return known
        said = topology_of(request.topology)
        if known is None:
            log.info("group %s has a topology of epoch %d", group.group_id, said.epoch)
            records.append(topology_record(group.group_id, said))
            return said
        if known.epoch <= said.epoch and known != said:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return known

    # ---- what the group is up to

    def _epoch(
        self,
        group: StreamsGroup,
        topology: Topology,
        request: StreamsGroupHeartbeatRequest,
        changed: bool,
        records: list[CoordinatorRecord],
    ) -> _Epoch:
        """A new epoch, if the member, the topics or the settings are not what they were."""
        metadata_hash, configured = group.metadata_hash, group.configured
        if configured is None or group.topology is None or group.is_stale:
            metadata_hash = self._groups.hashes.of_group(topology.required_topics, self._shard.image)
            if configured is None or group.topology is None or metadata_hash != group.metadata_hash:
                configured = group.configured = configure(topology, self._shard.image)
                problem = configured.problem
                if problem is not None:
                    log.info("group %s cannot work yet: %s", group.group_id, problem.detail)
        validated = _NOT_VALIDATED
        if configured.is_ready:
            validated = topology.epoch
            for said in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
                _check_tasks(said or (), configured.subtopologies)
        settings = self._groups.targets.settings(group.group_id)
        epoch = group.epoch
        if (
            changed
            or metadata_hash != group.metadata_hash
            or validated != group.validated_topology_epoch
            or settings != group.assignment_settings
        ):
            epoch += 1
            records.append(group_record(group.group_id, epoch, metadata_hash, validated, settings))
            log.info("group %s is in epoch %d", group.group_id, epoch)
            self._groups.rebalances += 1
        group.fresh_since_epoch = epoch
        return _Epoch(epoch, configured, settings)

    def _move(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        target: Target,
        request: StreamsGroupHeartbeatRequest,
        records: list[CoordinatorRecord],
    ) -> StreamsMember:
        if member.is_reconciled_to(target.epoch):
            return member
        moved = reconcile(member, Goal(target.epoch, target.tasks, group), _owned(request))
        if moved is member or moved == member:
            return member
        records.append(current_record(group.group_id, moved))
        self._groups.timeouts.watch_revocation(group.group_id, moved)
        return moved

    # ---- what it is told

    def _response(
        self, group: StreamsGroup, member: StreamsMember, epoch: _Epoch, target: Target
    ) -> StreamsGroupHeartbeatResponse:
        status = []
        known, problem = group.topology, epoch.configured.problem
        if known is not None and member.topology_epoch < known.epoch:
            status.append(
                Status.STALE_TOPOLOGY.saying(
                    f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
                    f"{known.epoch}."
                )
            )
        if target.delay is not None:
            status.append(target.delay)
        if problem is not None:
            status.append(problem.status.saying(problem.detail))
        if group.shutdown_requested_by is not None:
            status.append(
                Status.SHUTDOWN_APPLICATION.saying(
                    f"Streams group member {group.shutdown_requested_by} encountered a fatal error and requested a "
                    "shutdown for the entire application."
                )
            )
        return StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._interval(group, member, epoch, target),
            status=status,
        )

    def _interval(self, group: StreamsGroup, member: StreamsMember, epoch: _Epoch, target: Target) -> int:
        usual = self._groups.settings(group.group_id).streams_heartbeat_interval_ms
        quick = max(_QUICK_MS, _QUICK_MS_PER_MEMBER * len(group.members))
        problem = epoch.configured.problem
        if problem is not None:
            # Topics that the coordinator makes itself are there soon; for others nobody knows.
            return min(quick, usual) if problem.status is Status.MISSING_INTERNAL_TOPICS else usual
        others = group.state in (EpochGroupState.ASSIGNING, EpochGroupState.RECONCILING)
        settled = target.delay is None and member.is_reconciled_to(epoch.number) and not others
        return usual if settled else min(quick, usual)


def _tell_tasks(response: StreamsGroupHeartbeatResponse, group: StreamsGroup, member: StreamsMember) -> None:
    response.active_tasks = _listed(member.assigned.active)
    response.standby_tasks = _listed(member.assigned.standby)
    response.warmup_tasks = _listed(member.assigned.warmup)
    if member.user_endpoint is not None:
        group.endpoint_epoch += 1


def _listed(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id, sorted(partitions)) for subtopology_id, partitions in tasks.items()]


def _updated(member: StreamsMember, beat: Beat) -> StreamsMember:
    """The member with everything that its request says anew."""
    request = beat.request
    changes: dict[str, Any] = {"client_id": beat.client_id, "client_host": beat.client_host}
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topology is not None:
        changes["topology_epoch"] = request.topology.epoch
    if request.process_id is not None:
        changes["process_id"] = request.process_id
    if request.client_tags is not None:
        changes["client_tags"] = {each.key: each.value for each in request.client_tags}
    if request.user_endpoint is not None:
        changes["user_endpoint"] = UserEndpoint(request.user_endpoint.host, request.user_endpoint.port)
    if all(getattr(member, name) == value for name, value in changes.items()):
        return member
    return replace(member, **changes)


def _owned(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return Tasks(task_ids(active), task_ids(standby), task_ids(warmup))


def _check_epoch(member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> None:
    said, known = request.member_epoch, member.epoch
    if said in (JOINING, known):
        return
    if (
        said < known
        and said == member.previous_epoch
        and is_contained(request.active_tasks, member.assigned.active)
        and is_contained(request.standby_tasks, member.assigned.standby)
        and is_contained(request.warmup_tasks, member.assigned.warmup)
    ):
        # It has missed the answer that told it of its epoch.
        return
    which = "greater" if said > known else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {which} member epoch ({said}) than the one known by the group coordinator "
        f"({known}). The member must abandon all its partitions and rejoin.",
    )


def _check_tasks(said: Iterable[SaidTasks], subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    for each in said:
        subtopology = subtopologies.get(each.subtopology_id)
        if subtopology is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Subtopology {each.subtopology_id} does not exist in the topology."
            )
        for partition in each.partitions:
            if not 0 <= partition < subtopology.tasks:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {partition} for subtopology {each.subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {subtopology.tasks}",
                )
