"""Tasks: a partition of a subtopology, run by somebody (active), copied by somebody (standby) or about to be (warm-up).

Only values. What a member has carries the epoch in which each active task was assigned; what it is to have does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

TaskIds: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by subtopology. Subtopologies without partitions are left out."""

TaskEpochs: TypeAlias = Mapping[str, Mapping[int, int]]
"""The same, with the epoch in which each was assigned."""

AnyTasks: TypeAlias = Mapping[str, Mapping[int, int] | frozenset[int]]


class ListedTasks(Protocol):
    """The tasks of one subtopology, as messages and records have them."""

    subtopology_id: str
    partitions: list[int]


class Tasks(NamedTuple):
    """What a member is to have, or says it has."""

    active: TaskIds
    standby: TaskIds
    warmup: TaskIds

    def has_any(self, of: OwnedTasks) -> bool:
        return _meet(self.active, of.active) or _meet(self.standby, of.standby) or _meet(self.warmup, of.warmup)


class OwnedTasks(NamedTuple):
    """What a member has, as far as the coordinator knows."""

    active: TaskEpochs
    standby: TaskIds
    warmup: TaskIds

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def assigned_at(self, subtopology_id: str, partition: int) -> int | None:
        """The epoch in which an active task was assigned; None when it is not here."""
        return self.active.get(subtopology_id, _NONE).get(partition)


_NONE: Final[Mapping[int, int]] = {}
NO_TASKS: Final = Tasks({}, {}, {})
OWNS_NOTHING: Final = OwnedTasks({}, {}, {})


def task_ids(listed: Iterable[ListedTasks]) -> TaskIds:
    found: dict[str, frozenset[int]] = {}
    for each in listed:
        if each.partitions:
            found[each.subtopology_id] = found.get(each.subtopology_id, frozenset()) | frozenset(each.partitions)
    return found


def is_contained(listed: Iterable[ListedTasks] | None, within: AnyTasks) -> bool:
    """Whether nothing is listed that is not there. Who lists nothing at all has not said what it has."""
    if listed is None:
        return False
    for each in listed:
        known = within.get(each.subtopology_id)
        if known is None or any(partition not in known for partition in each.partitions):
            return False
    return True


def _meet(some: TaskIds, others: AnyTasks) -> bool:
    return any(
        partition in others[subtopology_id]
        for subtopology_id, partitions in some.items()
        if subtopology_id in others
        for partition in partitions
    )
