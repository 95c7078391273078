"""One partition's next state: who leads it, who is in sync, who is eligible, and when a reassignment is complete.

Given what is known about the partition and its replicas, decides the smallest record that changes it, or none. The
rules of clean, preferred and unclean election live here and nowhere else. A leader outside the in-sync and eligible
sets is only ever chosen when the election allows it, and the record then says that data may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import NamedTuple

from moldau.controller.state import ControllerState
from moldau.metadata.features import DIRECTORIES_SINCE, NO_EPOCH_BUMP_ON_SHRINK_SINCE
from moldau.metadata.image import NO_LEADER, RECOVERING, TopicImage
from moldau.metadata.replay import NO_LEADER_CHANGE
from moldau.protocol.generated.metadata.partition_change_record import PartitionChangeRecord


class Election(Enum):
    ONLINE = "keep the leader while it is possible"
    PREFERRED = "prefer the first replica"
    UNCLEAN = "any live replica rather than none"


class _Elected(NamedTuple):
    leader: int
    unclean: bool


class PartitionChange:
    """Set what is wanted, then `build`."""

    __slots__ = (
        "_acceptable",
        "_index",
        "_min_isr",
        "_partition",
        "_state",
        "_topic_id",
        "adding",
        "directories",
        "election",
        "elr",
        "isr",
        "recovery_state",
        "removing",
        "replicas",
        "unclean_shutdown",
    )

    def __init__(
        self,
        state: ControllerState,
        topic: TopicImage,
        index: int,
        *,
        min_isr: int,
        is_alive: Callable[[int], bool] | None = None,
    ) -> None:
        """`is_alive` says which brokers may lead; those that the cluster considers active unless told otherwise."""
        partition = topic.partitions[index]
        self._state = state
        self._topic_id = topic.id
        self._index = index
        self._partition = partition
        self._min_isr = min(min_isr, len(partition.replicas))
        self._acceptable = is_alive or state.is_active
        self.isr = list(partition.isr)
        self.elr = list(partition.elr)
        self.replicas = list(partition.replicas)
        self.removing = list(partition.removing_replicas)
        self.adding = list(partition.adding_replicas)
        self.recovery_state = partition.leader_recovery_state
        self.election = Election.ONLINE
        self.unclean_shutdown: Collection[int] = ()
        self.directories = dict(zip(partition.replicas, partition.directories, strict=True))

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None when nothing changes."""
        before = self._partition
        record = PartitionChangeRecord(partition_id=self._index, topic_id=self._topic_id)
        self._complete_reassignment()
        self._choose_eligible()
        self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(before.replicas) <= set(self.replicas):
            # Removed replicas must notice that they are out: a new leader epoch fences them.
            record.leader = before.leader
        self._note_eligible(record)
        if record.isr is None and tuple(self.isr) != before.isr and (self.isr or self._state.elr_enabled):
            record.isr = self.isr
        if (
            self._state.metadata_version < NO_EPOCH_BUMP_ON_SHRINK_SINCE
            and record.leader == NO_LEADER_CHANGE
            and record.isr is not None
            and not set(before.isr) <= set(record.isr)
        ):
            record.leader = before.leader
        self._note_last_known_leader(record)
        self._note_assignment(record)
        if self.recovery_state != before.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        return None if _changes_nothing(record) else record

    # ---- reassignment

    def _complete_reassignment(self) -> None:
        """When every added replica is in sync, the removed ones leave and the reassignment is over."""
        if not (self.removing or self.adding):
            return
        merged = [replica for replica in self.replicas if replica not in self.removing]
        in_sync = [replica for replica in self.isr if replica in merged]
        if not merged or not in_sync or not set(self.adding) <= set(in_sync):
            return
        if len(self.adding) < len(self.removing) and not set(merged) <= set(in_sync):
            # Fewer replicas than before: all that stay must be in sync, or the removal could lose the rest.
            return
        self.replicas, self.isr = merged, in_sync
        self.removing, self.adding = [], []

    # ---- eligible leader replicas

    def _choose_eligible(self) -> None:
        """While fewer are in sync than the minimum, those that left last still have every committed record."""
        if not self._state.elr_enabled:
            return
        if len(self.isr) >= self._min_isr:
            self.elr = []
            return
        candidates = dict.fromkeys([*self.elr, *self._partition.isr])
        self.elr = [
            replica
            for replica in candidates
            if replica in self.replicas and replica not in self.isr and replica not in self.unclean_shutdown
        ]

    def _note_eligible(self, record: PartitionChangeRecord) -> None:
        elected_uncleanly = record.isr is not None
        if elected_uncleanly or not self._state.elr_enabled:
            self.elr = []
        if tuple(self.elr) != self._partition.elr:
            record.eligible_leader_replicas = self.elr

    def _note_last_known_leader(self, record: PartitionChangeRecord) -> None:
        """Remember who led a partition that loses its leader: with nobody else left, it may lead again."""
        if not self._state.elr_enabled:
            return
        known = self._partition.last_known_elr
        if record.leader == NO_LEADER and not known and self._partition.leader in self.replicas:
            record.last_known_elr = [self._partition.leader]
        elif record.leader >= 0 and known:
            record.last_known_elr = []

    # ---- election

    def _elect(self, record: PartitionChangeRecord) -> None:
        elected = self._preferred() if self.election is Election.PREFERRED else self._any()
        leader, unclean = elected
        if leader == self._partition.leader:
            return
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [replica for replica in self.elr if replica != leader]
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if self._partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
                self.recovery_state = RECOVERING

    def _preferred(self) -> _Elected:
        for replica in (self.replicas[0], self._partition.leader, *self.replicas[1:]):
            if self._may_lead(replica):
                return _Elected(replica, False)
        return self._last_known_or_none()

    def _any(self) -> _Elected:
        for replica in (self._partition.leader, *self.replicas):
            if self._may_lead(replica):
                return _Elected(replica, False)
        last_known = self._last_known_or_none()
        if last_known.leader != NO_LEADER or self.election is not Election.UNCLEAN:
            return last_known
        for replica in self.replicas:
            if self._is_live(replica):
                return _Elected(replica, True)
        return _Elected(NO_LEADER, False)

    def _last_known_or_none(self) -> _Elected:
        known = self._partition.last_known_elr
        if self._state.elr_enabled and not self.elr and not self.isr and len(known) == 1 and self._is_live(known[0]):
            return _Elected(known[0], True)
        return _Elected(NO_LEADER, False)

    def _may_lead(self, replica: int) -> bool:
        """Whether it has every committed record and is alive."""
        has_everything = replica in self.isr or (not self.isr and replica in self.elr)
        return has_everything and self._is_live(replica)

    def _is_live(self, replica: int) -> bool:
        if not self._acceptable(replica):
            return False
        broker = self._state.brokers.get(replica)
        directory = self.directories.get(replica)
        return broker is not None and directory is not None and broker.has_online_directory(directory)

    # ---- assignment

    def _note_assignment(self, record: PartitionChangeRecord) -> None:
        before = self._partition
        if self.replicas:
            if self._state.metadata_version >= DIRECTORIES_SINCE:
                directories = [
                    self.directories[replica] if replica in self.directories else self._state.default_directory(replica)
                    for replica in self.replicas
                ]
                if tuple(directories) != before.directories:
                    record.directories = directories
            if tuple(self.replicas) != before.replicas:
                record.replicas = self.replicas
        if tuple(self.removing) != before.removing_replicas:
            record.removing_replicas = self.removing
        if tuple(self.adding) != before.adding_replicas:
            record.adding_replicas = self.adding


def _changes_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.leader == NO_LEADER_CHANGE
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state < 0
        and record.directories is None
    )


def without(brokers: Sequence[int], *removed: int) -> list[int]:
    return [broker for broker in brokers if broker not in removed]
