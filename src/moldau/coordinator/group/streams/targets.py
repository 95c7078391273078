"""What each member of a group is to have: computed anew when the group's epoch has grown, but not too often.

A group that was empty waits a little for others to come before its first assignment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.modern.group import NO_TIME
from moldau.coordinator.group.streams.configured_topology import ConfiguredTopology
from moldau.coordinator.group.streams.group import StreamsGroup
from moldau.coordinator.group.streams.member import StreamsMember
from moldau.coordinator.group.streams.records import target_metadata_record, target_record
from moldau.coordinator.group.streams.statuses import Status
from moldau.coordinator.group.streams.task_assignor import TaskAssignee, Work, assign_tasks
from moldau.coordinator.group.streams.tasks import NO_TASKS, Tasks
from moldau.coordinator.timers import interval_is_over
from moldau.protocol.generated.wire.streams_group_heartbeat_response import Status as WireStatus

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.group.streams.groups import StreamsGroups

log = logging.getLogger("moldau.coordinator")

_INITIAL: Final = "first assignment"
_STANDBYS: Final = "num.standby.replicas"


class Target(NamedTuple):
    epoch: int
    tasks: Tasks
    # Why it is not the newest one, if it is not.
    delay: WireStatus | None = None


class Targets:
    def __init__(self, shard: GroupShard, groups: StreamsGroups) -> None:
        self._shard = shard
        self._groups = groups

    def settings(self, group_id: str) -> dict[str, str]:
        """The settings that assignments depend on, as records carry them."""
        return {_STANDBYS: str(self._groups.settings(group_id).streams_num_standby_replicas)}

    # ---- the first assignment

    def delay_first(self, group: StreamsGroup) -> None:
        """The group has nobody yet: others are likely to come together with the first one."""
        timers, key = self._shard.host.timers, (_INITIAL, group.group_id)
        delay = self._groups.settings(group.group_id).streams_initial_rebalance_delay_ms
        if delay > 0 and not timers.is_scheduled(key):
            timers.schedule(key, delay, lambda: self._shard.host.perform(lambda: self._first(group.group_id)))

    def forget(self, group_id: str) -> None:
        self._shard.host.timers.cancel((_INITIAL, group_id))

    def _first(self, group_id: str) -> Decision[None]:
        group = self._groups.get(group_id)
        if group is None or group.is_empty or group.epoch <= group.assignment_epoch or group.configured is None:
            return Decision(None)
        records: list[CoordinatorRecord] = []
        self._compute(group, group.epoch, group.members, group.configured, group.assignment_settings, records)
        return Decision(None, records)

    # ---- any assignment

    def update(
        self,
        group: StreamsGroup,
        epoch: int,
        updated: StreamsMember,
        configured: ConfiguredTopology,
        settings: Mapping[str, str],
        records: list[CoordinatorRecord],
    ) -> Target:
        """What this member is to have, in a group that is in this epoch now."""
        if self._shard.host.timers.is_scheduled((_INITIAL, group.group_id)):
            delay = Status.ASSIGNMENT_DELAYED.saying(
                "Assignment delayed due to the configured initial rebalance delay."
            )
            return Target(group.assignment_epoch, NO_TASKS, delay)
        known = group.targets.get(updated.member_id, NO_TASKS)
        if group.assignment_epoch >= epoch:
            return Target(group.assignment_epoch, known)
        if not self._is_due(group):
            delay = Status.ASSIGNMENT_DELAYED.saying("Assignment delayed due to the configured assignment interval.")
            return Target(group.assignment_epoch, known, delay)
        members = {**group.members, updated.member_id: updated}
        result = self._compute(group, epoch, members, configured, settings, records)
        return Target(epoch, result[updated.member_id])

    def _is_due(self, group: StreamsGroup) -> bool:
        interval = self._groups.settings(group.group_id).streams_assignment_interval_ms
        if group.assignment_time_ms == NO_TIME:
            return True
        return interval_is_over(group.assignment_time_ms, interval, self._shard.clock.now_ms())

    def _compute(
        self,
        group: StreamsGroup,
        epoch: int,
        members: Mapping[str, StreamsMember],
        configured: ConfiguredTopology,
        settings: Mapping[str, str],
        records: list[CoordinatorRecord],
    ) -> Mapping[str, Tasks]:
        if configured.is_ready:
            assignees = [
                TaskAssignee(member_id, member.process_id, group.targets.get(member_id, NO_TASKS))
                for member_id, member in members.items()
            ]
            work = {name: Work(each.tasks, each.is_stateful) for name, each in configured.subtopologies.items()}
            result = assign_tasks(assignees, work, int(settings.get(_STANDBYS, 0)))
        else:
            result = dict.fromkeys(members, NO_TASKS)
        for member_id, target in result.items():
            if group.targets.get(member_id) != target:
                records.append(target_record(group.group_id, member_id, target))
        records.append(target_metadata_record(group.group_id, epoch, self._shard.clock.now_ms()))
        log.info("group %s has a new assignment for epoch %d", group.group_id, epoch)
        return result
