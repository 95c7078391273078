"""The course of a rebalance: it is prepared, everybody joins (or is given up), the leader's assignment is awaited.

Changes the group in memory and answers the members that wait. Records are written only where a successor must know:
when the group is empty again, and when the assignment has come (`syncs.py`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from moldau.coordinator.decision import Decision
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicState
from moldau.coordinator.group.classic.member import NO_ASSIGNMENT
from moldau.coordinator.group.classic.records import group_record
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from moldau.coordinator.group.classic.groups import ClassicGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")

UNCHANGED: Decision[None] = Decision(None)

GATHERING_MS: Final = 100
"""The least time that the first members of a group wait for each other. With none, whoever comes first would be done
alone within a millisecond, and those who start together with it would have to wait for its next heartbeat."""


class Rebalances:
    def __init__(self, shard: GroupShard, groups: ClassicGroups) -> None:
        self._shard = shard
        self._groups = groups

    # ---- beginning

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> Decision[None]:
        return self.prepare(group, reason) if group.can_rebalance else self.complete_if_all_joined(group)

    def prepare(self, group: ClassicGroup, reason: str) -> Decision[None]:
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.drop_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._forget_syncs(group)
        initial = group.state is ClassicState.EMPTY
        log.info("group %s rebalances, generation %d is over: %s", group.group_id, group.generation, reason)
        group.transition(ClassicState.PREPARING_REBALANCE, self._shard.clock.now_ms())
        if not initial:
            if group.all_joined:
                return self.complete(group)
            self._complete_later(group, group.rebalance_timeout_ms)
            return UNCHANGED
        # The first members of a group seldom come alone: the others are given some time.
        delay = max(self._shard.config().integer("group.initial.rebalance.delay.ms"), GATHERING_MS)
        self._wait_for_more(group.group_id, delay, max(group.rebalance_timeout_ms - delay, 0))
        return UNCHANGED

    def _wait_for_more(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        host = self._shard.host
        host.timers.schedule(
            ("join", group_id),
            delay_ms,
            lambda: host.perform(lambda: self._initial_delay_over(group_id, delay_ms, remaining_ms)),
        )

    def _initial_delay_over(self, group_id: str, delay_ms: int, remaining_ms: int) -> Decision[None]:
        group = self._groups.find(group_id)
        if group is None:
            return UNCHANGED
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            longest = max(self._shard.config().integer("group.initial.rebalance.delay.ms"), GATHERING_MS)
            self._wait_for_more(group_id, min(longest, remaining_ms), max(remaining_ms - delay_ms, 0))
            return UNCHANGED
        return self.complete(group)

    def _complete_later(self, group: ClassicGroup, delay_ms: int) -> None:
        host, group_id = self._shard.host, group.group_id

        def complete() -> Decision[None]:
            found = self._groups.find(group_id)
            return UNCHANGED if found is None else self.complete(found)

        host.timers.schedule(("join", group_id), delay_ms, lambda: host.perform(complete))

    # ---- everybody has joined, or time is up

    def complete_if_all_joined(self, group: ClassicGroup) -> Decision[None]:
        if (
            group.state is ClassicState.PREPARING_REBALANCE
            and group.previous_state is not ClassicState.EMPTY
            and group.all_joined
        ):
            return self.complete(group)
        return UNCHANGED

    def complete(self, group: ClassicGroup) -> Decision[None]:
        """Begin the next generation with those who have joined."""
        shard = self._shard
        group_id = group.group_id
        shard.host.timers.cancel(("join", group_id))
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return UNCHANGED
        for member in [each for each in group.members.values() if each.awaiting_join is None]:
            # A static member keeps its place until its session ends: it may only be restarting.
            if member.instance_id is None:
                group.remove(member.member_id)
                self._groups.sessions.end(group_id, member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only static members, and none of them has come: their sessions will end sooner or later.
            self._complete_later(group, group.rebalance_timeout_ms)
            return UNCHANGED
        group.begin_generation(shard.clock.now_ms())
        if group.is_empty:
            log.info("group %s is empty in generation %d", group_id, group.generation)
            return Decision(None, [group_record(group, {})], replay=False)
        log.info("group %s has %d members in generation %d", group_id, len(group.members), group.generation)
        for member in list(group.members.values()):
            group.answer_join(member, group.join_response(member.member_id))
            self._groups.sessions.alive(group_id, member)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        self._expect_syncs(group)
        return UNCHANGED

    # ---- waiting for everybody to ask for the assignment

    def _expect_syncs(self, group: ClassicGroup) -> None:
        host, group_id, generation = self._shard.host, group.group_id, group.generation
        host.timers.schedule(
            ("sync", group_id),
            group.rebalance_timeout_ms,
            lambda: host.perform(lambda: self._syncs_overdue(group_id, generation)),
        )

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._shard.host.timers.cancel(("sync", group.group_id))

    def _syncs_overdue(self, group_id: str, generation: int) -> Decision[None]:
        group = self._groups.find(group_id)
        if group is None or group.generation != generation or not group.pending_syncs:
            return UNCHANGED
        if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            return UNCHANGED
        missing = sorted(group.pending_syncs)
        for member_id in missing:
            group.remove(member_id)
            self._groups.sessions.end(group_id, member_id)
        return self.prepare(group, f"{', '.join(missing)} never asked for an assignment")

    def _forget_syncs(self, group: ClassicGroup) -> None:
        group.pending_syncs.clear()
        self._shard.host.timers.cancel(("sync", group.group_id))

    # ---- the assignment

    def drop_assignment(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Nobody gets anything in this generation: who waits is told why."""
        for member in list(group.members.values()):
            member.assignment = NO_ASSIGNMENT
            if group.answer_sync(member, SyncGroupResponse(error_code=code)):
                self._groups.sessions.alive(group.group_id, member)

    def assignment_stored(
        self, group: ClassicGroup, generation: int, assignments: dict[str, bytes], error: ApiError | None
    ) -> None:
        """The leader's assignment is committed, or could not be; meanwhile another rebalance may have begun."""
        if group.state is not ClassicState.COMPLETING_REBALANCE or group.generation != generation:
            return
        if error is not None:
            self.drop_assignment(group, error.code)
            self._shard.host.perform(
                lambda: self.prepare_or_complete(group, f"the assignment could not be stored ({error.code.name})")
            )
            return
        for member in list(group.members.values()):
            member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
            response = SyncGroupResponse(
                protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
            )
            if group.answer_sync(member, response):
                self._groups.sessions.alive(group.group_id, member)
        group.transition(ClassicState.STABLE, self._shard.clock.now_ms())
