"""What the leader of a replicated partition knows of the other replicas, and what follows from it.

Decides how far a partition is committed (by every replica that is in sync, or that the controller may already count
as such) and which replicas ought to join or leave the in-sync set. The controller decides whether they do; this file
sends nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from moldau.log.pacing import Throttle
    from moldau.log.partition_log import PartitionLog
    from moldau.replication.partition import Partition

UNKNOWN: Final = -1


class Duties(Protocol):
    """What a leader needs from its node."""

    def now_ms(self) -> int:
        """Time that never jumps."""
        ...

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the cluster's image lets this life of the broker be in sync."""
        ...

    @property
    def readers_at_followers(self) -> bool:
        """Whether consumers may be sent to replicas that do not lead (KIP-392)."""
        ...

    @property
    def leader_throttle(self) -> Throttle:
        """The rate at which leaders here send to replicas that catch up."""
        ...

    def propose(self, partition: Partition) -> None:
        """Ask the controller for the in-sync set the partition wants (`LeaderState.proposed`)."""
        ...


class Follower:
    """One of the other replicas, as its fetches show it."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "leader_end_then", "log_start")

    def __init__(self, caught_up_ms: int) -> None:
        self.broker_epoch = UNKNOWN
        self.end_offset = UNKNOWN
        self.log_start = UNKNOWN
        # When it last had everything, for all we know.
        self.caught_up_ms = caught_up_ms
        self.fetched_ms = 0
        # Where the leader's log ended at its previous fetch.
        self.leader_end_then = 1 << 62

    def fetched(self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_then:
            # It has now what there was then: it was in sync at that time, though more has come since.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = offset
        self.log_start = log_start
        self.broker_epoch = broker_epoch
        self.leader_end_then = leader_end
        self.fetched_ms = now_ms


class LeaderState:
    """One epoch of leadership over a partition with several replicas."""

    __slots__ = (
        "_duties",
        "_partition",
        "followers",
        "proposed",
        "proposed_at",
        "start_offset",
        "start_watchers",
        "uncommitted_bytes",
    )

    def __init__(self, partition: Partition, duties: Duties) -> None:
        self._partition = partition
        self._duties = duties
        self.followers: dict[int, Follower] = {}
        # The in-sync set that the controller was asked for and may have decided on already.
        self.proposed: tuple[int, ...] | None = None
        self.proposed_at = UNKNOWN
        # Where this epoch begins: who has less may still lack what is committed. Known once the log is open.
        self.start_offset = 1 << 62
        self.uncommitted_bytes = 0
        # Called when a replica has deleted records from its beginning.
        self.start_watchers: list[Callable[[], None]] = []
        self.replicas_changed()

    def replicas_changed(self) -> None:
        """Take over the assignment and the in-sync set of the image."""
        partition = self._partition
        now = self._duties.now_ms()
        known = self.followers
        self.followers = {
            replica: known.get(replica) or Follower(now if replica in partition.isr else 0)
            for replica in partition.replicas
            if replica != partition.node_id
        }
        if self.proposed is not None and partition.partition_epoch > self.proposed_at:
            self.proposed = None

    def now_ms(self) -> int:
        """The time that `Follower.caught_up_ms` is measured in."""
        return self._duties.now_ms()

    @property
    def tells_watermarks(self) -> bool:
        """Whether followers are told at once what is committed, since consumers wait for it there."""
        return self._duties.readers_at_followers

    def held_back_ms(self, replica: int) -> int:
        """How long a replica must wait for more; 0 when it need not. Asked only for partitions that are throttled."""
        return 0 if replica in self._partition.isr else self._duties.leader_throttle.wait_ms()

    def sent(self, size: int) -> None:
        """Bytes of a throttled partition were sent to a replica."""
        self._duties.leader_throttle.spend(size)

    def withdraw(self) -> None:
        """The controller has refused the proposal for good."""
        self.proposed = None

    def fetched(self, replica: int, offset: int, log_start: int, broker_epoch: int, log: PartitionLog) -> None:
        """A replica asks for what follows `offset`: it has everything before."""
        follower = self.followers[replica]
        deleted = log_start > follower.log_start
        follower.fetched(offset, log_start, broker_epoch, log.log_end_offset, self._duties.now_ms())
        if deleted:
            for look in list(self.start_watchers):
                look()
        if replica not in self._partition.isr and self.proposed is None:
            self._consider(replica, log)

    def has_all(
        self, replica: int, offset: int, log_start: int, broker_epoch: int, log: PartitionLog, now_ms: int
    ) -> bool:
        """Whether a replica in sync says nothing new and lacks nothing, which is then all there is to note.

        Most partitions are like that at most fetches, and a fetch is about all of them.
        """
        follower = self.followers.get(replica)
        if (
            follower is None
            or follower.end_offset != offset
            or log.log_end_offset != offset
            or follower.log_start != log_start
            or follower.broker_epoch != broker_epoch
            or replica not in self._partition.isr
        ):
            return False
        follower.caught_up_ms = follower.fetched_ms = now_ms
        follower.leader_end_then = offset
        return True

    def _consider(self, replica: int, log: PartitionLog) -> None:
        follower = self.followers[replica]
        if follower.end_offset < max(log.high_watermark, self.start_offset):
            return
        if self._duties.may_join(replica, follower.broker_epoch):
            partition = self._partition
            self._propose((*partition.isr, replica))

    def _propose(self, isr: tuple[int, ...]) -> None:
        self.proposed = isr
        self.proposed_at = self._partition.partition_epoch
        self._duties.propose(self._partition)

    def let_go_of_laggards(self, max_lag_ms: int) -> None:
        """Propose an in-sync set without those who have not kept up for so long."""
        partition = self._partition
        if self.proposed is not None or not partition.opened:
            return
        now, end = self._duties.now_ms(), partition.log.log_end_offset
        kept = tuple(
            replica
            for replica in partition.isr
            if replica == partition.node_id or self._keeps_up(replica, end, now, max_lag_ms)
        )
        if len(kept) < len(partition.isr):
            self._propose(kept)

    def _keeps_up(self, replica: int, end: int, now: int, max_lag_ms: int) -> bool:
        follower = self.followers.get(replica)
        return follower is None or follower.end_offset == end or now - follower.caught_up_ms <= max_lag_ms

    def committed(self, own: int) -> int:
        """The offset before which every replica that counts has everything, this one having it up to `own`."""
        partition = self._partition
        isr = partition.isr
        if len(isr) < partition.min_isr and len(isr) < len(partition.replicas):
            return UNKNOWN
        followers = self.followers
        for replica in isr if self.proposed is None else {*isr, *self.proposed}:
            follower = followers.get(replica)
            if follower is not None and follower.end_offset < own:
                own = follower.end_offset
        return own

    def bytes_committed(self, new_bytes: int, log: PartitionLog, committed: int) -> int:
        """How many bytes readers see in addition, about, when `committed` becomes the high watermark."""
        self.uncommitted_bytes += new_bytes
        before = log.high_watermark
        if committed <= before:
            return 0
        share = self.uncommitted_bytes * (committed - before) // max(log.log_end_offset - before, 1)
        self.uncommitted_bytes -= share
        return max(share, 1)

    def lowest_log_start(self, own: int) -> int:
        """Where the log begins on the replica that keeps the most, of those that are alive."""
        alive = self._duties.may_join
        starts = (each.log_start for replica, each in self.followers.items() if alive(replica, UNKNOWN))
        return min((own, *starts))
