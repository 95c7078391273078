"""One member of a streams group, as its records say it. Never changed in place: a new value takes its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from moldau.coordinator.group.streams.tasks import OWNS_NOTHING, OwnedTasks

JOINING: Final = 0
LEFT: Final = -1
# What a static member says that will be back soon. There are none in streams groups yet.
AWAY: Final = -2


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 1
    # It must give tasks up before it gets others.
    UNREVOKED_TASKS = 2
    # It waits for tasks that others have not given up yet.
    UNRELEASED_TASKS = 3
    # Written by a release that knows more states.
    UNKNOWN = 127


class UserEndpoint(NamedTuple):
    """Where the application answers questions about the state that the member keeps."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    member_id: str
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    # Members of one process share its disk: a copy of a task's state is no use next to the task itself.
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: OwnedTasks = OWNS_NOTHING
    revoking: OwnedTasks = OWNS_NOTHING

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved_to(
        self, epoch: int, state: MemberState, assigned: OwnedTasks, revoking: OwnedTasks = OWNS_NOTHING
    ) -> StreamsMember:
        return replace(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)

    def gone(self) -> StreamsMember:
        """On its way out: it has nothing any more."""
        return replace(self, epoch=LEFT, previous_epoch=LEFT, assigned=OWNS_NOTHING, revoking=OWNS_NOTHING)

    def assigned_at(self, subtopology_id: str, partition: int) -> int | None:
        """The epoch in which it got this active task; None when it does not have it."""
        epoch = self.assigned.assigned_at(subtopology_id, partition)
        return self.revoking.assigned_at(subtopology_id, partition) if epoch is None else epoch
