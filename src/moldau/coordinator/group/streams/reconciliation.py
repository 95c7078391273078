"""The way of one member from the tasks it has to those it is to have.

First it gives up what it must not keep, and says so; then it moves to the new epoch and gets what nobody else has any
more; the rest comes as others give it up. So no task ever runs twice, and no process has a task twice, be it as a
copy. A pure function: it decides, others write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from moldau.coordinator.group.streams.member import MemberState, StreamsMember
from moldau.coordinator.group.streams.tasks import OwnedTasks, TaskIds, Tasks
from moldau.protocol.errors import ApiError, ErrorCode


class Holders(Protocol):
    """Which process has which task now (a streams group knows)."""

    def runs_anywhere(self, subtopology_id: str, partition: int) -> bool: ...
    def is_copied_in(self, process_id: str, subtopology_id: str, partition: int) -> bool: ...
    def is_in_process(self, process_id: str, subtopology_id: str, partition: int) -> bool: ...


class Goal(NamedTuple):
    """What a member is to have."""

    epoch: int
    target: Tasks
    holders: Holders


def reconcile(member: StreamsMember, goal: Goal, owned: Tasks | None) -> StreamsMember:
    """The member one step closer to its goal. `owned` is what it says it has, None when it says nothing new."""
    match member.state:
        case MemberState.STABLE:
            return member if member.epoch == goal.epoch else _advance(member, goal, owned, member.epoch)
        case MemberState.UNREVOKED_TASKS:
            if owned is None or owned.has_any(member.revoking):
                return member
            return _advance(member, goal, owned, member.epoch + 1)
        case MemberState.UNRELEASED_TASKS:
            return _advance(member, goal, owned, member.epoch)
        case MemberState.UNKNOWN:
            if owned is None or any(owned):
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
                )
            return _advance(member, goal, owned, goal.epoch)


class _Step(NamedTuple):
    """Tasks of one kind: what stays, what goes, what comes; and whether something has to wait."""

    kept: dict[str, dict[int, int]]
    revoking: dict[str, dict[int, int]]
    getting: dict[str, dict[int, int]]
    waits: bool


def _advance(member: StreamsMember, goal: Goal, owned: Tasks | None, epoch_until_revoked: int) -> StreamsMember:
    process, holders = member.process_id, goal.holders

    def active_is_taken(subtopology_id: str, partition: int) -> bool:
        return holders.runs_anywhere(subtopology_id, partition) or holders.is_copied_in(
            process, subtopology_id, partition
        )

    def copy_is_taken(subtopology_id: str, partition: int) -> bool:
        return holders.is_in_process(process, subtopology_id, partition)

    active = _step(member.assigned.active, goal.target.active, goal.epoch, active_is_taken)
    standby = _step(_timeless(member.assigned.standby), goal.target.standby, goal.epoch, copy_is_taken)
    warmup = _step(_timeless(member.assigned.warmup), goal.target.warmup, goal.epoch, copy_is_taken)
    revoking = OwnedTasks(active.revoking, _ids(standby.revoking), _ids(warmup.revoking))
    if not revoking.is_empty and (owned is None or owned.has_any(revoking)):
        kept = OwnedTasks(active.kept, _ids(standby.kept), _ids(warmup.kept))
        return member.moved_to(epoch_until_revoked, MemberState.UNREVOKED_TASKS, kept, revoking)
    assigned = OwnedTasks(_merged(active), _ids(_merged(standby)), _ids(_merged(warmup)))
    waits = active.waits or standby.waits or warmup.waits
    return member.moved_to(goal.epoch, MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE, assigned)


def _step(
    current: Mapping[str, Mapping[int, int]], target: TaskIds, epoch: int, is_taken: Callable[[str, int], bool]
) -> _Step:
    step: _Step = _Step({}, {}, {}, waits=False)
    waits = False
    for subtopology_id in current.keys() | target.keys():
        wanted = target.get(subtopology_id, frozenset())
        for partition, since in current.get(subtopology_id, {}).items():
            place = step.kept if partition in wanted else step.revoking
            place.setdefault(subtopology_id, {})[partition] = since
        kept = step.kept.get(subtopology_id, {})
        for partition in wanted:
            if partition in kept:
                continue
            if is_taken(subtopology_id, partition):
                waits = True
            else:
                step.getting.setdefault(subtopology_id, {})[partition] = epoch
    return step._replace(waits=waits)


def _merged(step: _Step) -> dict[str, dict[int, int]]:
    merged = {subtopology_id: dict(epochs) for subtopology_id, epochs in step.kept.items()}
    for subtopology_id, epochs in step.getting.items():
        merged.setdefault(subtopology_id, {}).update(epochs)
    return merged


def _timeless(tasks: TaskIds) -> dict[str, dict[int, int]]:
    """Copies have no epochs."""
    return {subtopology_id: dict.fromkeys(partitions, 0) for subtopology_id, partitions in tasks.items()}


def _ids(tasks: Mapping[str, Mapping[int, int]]) -> TaskIds:
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in tasks.items()}
