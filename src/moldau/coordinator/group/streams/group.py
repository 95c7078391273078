"""One streams group: its epochs, its topology, its members, the target of each and which process has which task.

Changes only by replaying records (`replays.py`), but for what need not survive this coordinator: the topology on the
cluster's topics, who wants the application to stop, and how often endpoints have changed. Keeps the rules of
committing and reading offsets; who joins, leaves and gets what is decided by its siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.group.group import CommitCheck, GroupType
from moldau.coordinator.group.modern.group import EpochGroup, EpochGroupState
from moldau.coordinator.group.streams.configured_topology import ConfiguredTopology
from moldau.coordinator.group.streams.member import StreamsMember
from moldau.coordinator.group.streams.records import (
    current_tombstone,
    group_tombstone,
    member_tombstone,
    target_metadata_tombstone,
    target_tombstone,
    topology_tombstone,
)
from moldau.coordinator.group.streams.tasks import OwnedTasks, TaskIds, Tasks
from moldau.coordinator.group.streams.topology import Topology
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from moldau.coordinator.group.offset_records import CommittedOffset

# The oldest OffsetCommit that knows of member epochs.
_EPOCH_COMMITS_SINCE: Final = 9


class StreamsGroup(EpochGroup[StreamsMember, Tasks]):
    __slots__ = (
        "_active",
        "_standby",
        "_warmup",
        "assignment_settings",
        "configured",
        "endpoint_epoch",
        "shutdown_requested_by",
        "topology",
        "validated_topology_epoch",
    )

    type = GroupType.STREAMS

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = 0
        # The settings that the newest epoch stands for.
        self.assignment_settings: Mapping[str, str] = {}
        self.topology: Topology | None = None
        # Which process runs each task, and which have a copy or prepare one; also while they have still to give it up.
        self._active: dict[tuple[str, int], str] = {}
        self._standby: dict[tuple[str, int], set[str]] = {}
        self._warmup: dict[tuple[str, int], set[str]] = {}
        # ---- what does not survive this coordinator
        self.configured: ConfiguredTopology | None = None
        self.shutdown_requested_by: str | None = None
        self.endpoint_epoch = 0

    # ---- state

    def _compute_state(self) -> EpochGroupState:
        if not self.members:
            return EpochGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return EpochGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return EpochGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return EpochGroupState.STABLE
        return EpochGroupState.RECONCILING

    def set_validated(self, validated_topology_epoch: int, settings: Mapping[str, str]) -> None:
        """What the newest epoch stands for."""
        self.validated_topology_epoch = validated_topology_epoch
        self.assignment_settings = settings
        self._state = None

    def set_topology(self, topology: Topology | None) -> None:
        self.topology = topology
        self._state = None

    def request_shutdown(self, member_id: str) -> None:
        """Everybody is told to stop; who asked first is remembered until all are gone."""
        if self.shutdown_requested_by is None:
            self.shutdown_requested_by = member_id

    # ---- members

    def put(self, member: StreamsMember) -> None:
        self._release_all(self.members.get(member.member_id))
        self.members[member.member_id] = member
        for owned in (member.assigned, member.revoking):
            self._own(owned, member.process_id)
        self._state = None

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release_all(member)
        if not self.members:
            self.shutdown_requested_by = None
        self._state = None

    def _own(self, owned: OwnedTasks, process_id: str) -> None:
        for subtopology_id, epochs in owned.active.items():
            for partition in epochs:
                self._active[subtopology_id, partition] = process_id
        for tasks, processes in ((owned.standby, self._standby), (owned.warmup, self._warmup)):
            for subtopology_id, partitions in tasks.items():
                for partition in partitions:
                    processes.setdefault((subtopology_id, partition), set()).add(process_id)

    def _release_all(self, member: StreamsMember | None) -> None:
        if member is None:
            return
        process_id = member.process_id
        for owned in (member.assigned, member.revoking):
            for subtopology_id, epochs in owned.active.items():
                for partition in epochs:
                    if self._active.get((subtopology_id, partition)) == process_id:
                        del self._active[subtopology_id, partition]
            _release(owned.standby, self._standby, process_id)
            _release(owned.warmup, self._warmup, process_id)

    def runs_anywhere(self, subtopology_id: str, partition: int) -> bool:
        return (subtopology_id, partition) in self._active

    def is_in_process(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        """Whether this process runs the task, or has a copy of it of any kind."""
        task = (subtopology_id, partition)
        return self._active.get(task) == process_id or self.is_copied_in(process_id, subtopology_id, partition)

    def is_copied_in(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        task = (subtopology_id, partition)
        return process_id in self._standby.get(task, ()) or process_id in self._warmup.get(task, ())

    def reads_any(self, topics: set[str]) -> bool:
        return self.topology is not None and not topics.isdisjoint(self.topology.required_topics)

    # ---- offsets and deletion

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> CommitCheck | None:
        if generation < 0 and not self.members:
            return None
        if transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and version < _EPOCH_COMMITS_SINCE:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {_EPOCH_COMMITS_SINCE} or above must be used by members using the streams group "
                "protocol",
            )
        if generation == member.epoch:
            return None
        if generation > member.epoch:
            raise _stale(f"Received member epoch {generation} is newer than current member epoch {member.epoch}.")
        topology = self.topology
        if topology is None:
            raise _stale("Topology is not available for offset commit validation.")

        def check(topic: str, _: bytes, partition: int) -> None:
            # Whoever has not heard of its new epoch yet may still commit what it has had all the time.
            subtopology_id = topology.readers.get(topic)
            if subtopology_id is None:
                raise _stale(f"Topic {topic} is not in the topology.")
            since = member.assigned_at(subtopology_id, partition)
            if since is None:
                raise _stale(f"Task {subtopology_id}-{partition} is not assigned or pending revocation for member.")
            if generation < since:
                raise _stale(
                    f"Received member epoch {generation} is older than assignment epoch {since} for task "
                    f"{subtopology_id}-{partition}."
                )

        return check

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(
                f"The received member epoch {member_epoch} does not match the expected member epoch {member.epoch}."
            )

    def check_offset_delete(self) -> None:
        return

    def is_subscribed_to(self, topic: str) -> bool:
        # The offsets of a group without members may expire.
        return bool(self.members) and self.topology is not None and topic in self.topology.readers

    def offset_age_from(self) -> Callable[[CommittedOffset], int] | None:
        return lambda offset: offset.commit_timestamp

    def tombstones(self) -> list[CoordinatorRecord]:
        group_id = self.group_id
        return [
            *(current_tombstone(group_id, member_id) for member_id in self.members),
            *(target_tombstone(group_id, member_id) for member_id in self.members),
            target_metadata_tombstone(group_id),
            *(member_tombstone(group_id, member_id) for member_id in self.members),
            group_tombstone(group_id),
            topology_tombstone(group_id),
        ]


def _release(tasks: TaskIds, processes: dict[tuple[str, int], set[str]], process_id: str) -> None:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            task = (subtopology_id, partition)
            having = processes.get(task)
            if having is not None:
                having.discard(process_id)
                if not having:
                    del processes[task]


def _stale(message: str) -> ApiError:
    return ApiError(ErrorCode.STALE_MEMBER_EPOCH, message)
