"""The metadata quorum on this node: its role, its log, and what is committed.

A state machine without threads or sockets: it is started once, told what arrives, appends when asked, and calls its
listeners with what became committed. Roles live in files of their own and follow each other as `transitions.py` says;
this file changes them, and holds what every role shares. The events come in four kinds, one file each: `elections.py`
(votes, epochs and timeouts), `following.py` (fetching from a leader), `serving.py` (being fetched from) and
`voter_changes.py`. It must never call a record committed that is not durable on a majority of the voters, and never
act in an epoch, or on a vote, before `quorum-state` says so on disk.

A quorum of one voter is no special case but in one thing: a voter that is alone need not ask, and leads at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from moldau.metadata.publisher import CommittedBatch
from moldau.metadata.records import MetadataRecord
from moldau.ports import Address, Clock, Disk, Network, Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.kraft_version_record import KRaftVersionRecord
from moldau.protocol.generated.wire.leader_change_message import LeaderChangeMessage
from moldau.protocol.generated.wire.leader_change_message import Voter as LeaderChangeVoter
from moldau.quorum.candidate import Candidate
from moldau.quorum.delivery import Delivery, QuorumListener
from moldau.quorum.elections import Elections
from moldau.quorum.encoding import build_batches
from moldau.quorum.follower import Follower
from moldau.quorum.following import Following
from moldau.quorum.leader import Leader
from moldau.quorum.metadata_log import MetadataLog
from moldau.quorum.observer import Observer
from moldau.quorum.resigned import Resigned
from moldau.quorum.serving import Serving
from moldau.quorum.settings import QuorumSettings
from moldau.quorum.snapshots import BOOTSTRAP_SNAPSHOT_ID, Snapshot, SnapshotId
from moldau.quorum.state_file import NOBODY, ElectionState, read_election_state, write_election_state
from moldau.quorum.transitions import NEXT_ROLES, Role
from moldau.quorum.unattached import Unattached
from moldau.quorum.voter_changes import VoterChanges
from moldau.quorum.voter_history import BEFORE_THE_LOG, VoterHistory
from moldau.quorum.voters import ReplicaKey, Voter, VoterSet, voters_record
from moldau.records.batch import (
    CONTROL_KRAFT_VERSION,
    CONTROL_KRAFT_VOTERS,
    CONTROL_LEADER_CHANGE,
    BatchHeader,
    iter_batches,
)
from moldau.records.builder import build_control_batch

__all__ = ["Appended", "LeadershipListener", "Peers", "Quorum", "QuorumError", "QuorumListener"]

log = logging.getLogger("moldau.quorum")


class QuorumError(Exception):
    """The quorum cannot work as it is configured or formatted; the text is for the person who operates it."""


class LeadershipListener(Protocol):
    """Someone who acts only while this node leads: the controller."""

    def lead(self, epoch: int) -> None:
        """This node leads, and everything committed by earlier leaders has been delivered."""
        ...

    def resign(self) -> None: ...


class Appended(NamedTuple):
    """Records in the leader's log that are not committed yet."""

    base_offset: int
    last_offset: int
    committed: Pending[ErrorCode]
    """NONE once committed; NOT_CONTROLLER when leadership was lost before that was known."""


class _Nowhere:
    """The network of a node that has no peers."""

    def send(self, to: Address, request: Any, api_version: int, reply: Any, *, timeout_ms: int, lane: str = "") -> None:
        raise AssertionError(f"this node knows no other, but sends to {to}")


class Peers(NamedTuple):
    """What a quorum needs to work with other nodes."""

    network: Network
    random: Random
    cluster_id: str
    listener: str
    """The name of the controllers' listener over which they reach each other."""
    bootstrap: Sequence[Address] = ()
    """Where a node that knows no voters may ask for the leader."""
    settings: QuorumSettings = QuorumSettings()
    can_vote: bool = True
    """Whether this node has the controller role: a broker stays an observer, and need not sync what it fetches."""


_ALONE: Final = Peers(_Nowhere(), Random(0), "", "")


class Quorum:
    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        log: MetadataLog,
        own: Voter,
        static_voters: VoterSet | None,
        peers: Peers = _ALONE,
    ) -> None:
        """`own` is this node as a voter (directory id and controller listeners); `static_voters` are those of
        `controller.quorum.voters`, None when the setting is empty."""
        self.disk = disk
        self.clock = clock
        self.log = log
        self.own = own
        self.peers = peers
        self.settings = peers.settings
        self.history = VoterHistory(static_voters)
        self.role: Role = Unattached(ElectionState(0))
        self.high_watermark = 0
        self.closed = False
        self.delivery = Delivery(log, self._everything_is_delivered)
        self._persisted = ElectionState(0)
        self._leadership: list[LeadershipListener] = []
        self._leader_changed: list[Callable[[], None]] = []
        self._announced_epoch = -1
        self._waiting: deque[tuple[int, Pending[ErrorCode]]] = deque()
        self.elections = Elections(self)
        self.following = Following(self)
        self.serving = Serving(self)
        self.voter_changes = VoterChanges(self)

    # ---- what others ask

    @property
    def node_id(self) -> int:
        return self.own.id

    @property
    def own_key(self) -> ReplicaKey:
        return ReplicaKey(self.own.id, self.own.directory_id)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        """The leader of this epoch as far as this node knows; a leader that resigned is none."""
        return NOBODY if isinstance(self.role, Resigned) else self.role.election.leader_id

    @property
    def leader_address(self) -> Address | None:
        role = self.role
        if isinstance(role, Leader):
            return self.own.address(self.peers.listener)
        return role.leader_address if isinstance(role, Follower | Observer) else None

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def kraft_version(self) -> int:
        return self.history.kraft_version

    @property
    def is_voter(self) -> bool:
        return self.peers.can_vote and self.history.may_vote(self.own_key, self.high_watermark)

    @property
    def next_offset(self) -> int:
        """Where the next appended record goes."""
        return self.log.end_offset

    def add_listener(self, listener: QuorumListener) -> None:
        """Listeners are added before `start`, and told in this order."""
        self.delivery.listeners.append(listener)

    def add_leadership_listener(self, listener: LeadershipListener) -> None:
        self._leadership.append(listener)

    def add_leader_watcher(self, changed: Callable[[], None]) -> None:
        """Told when `leader_id` or `leader_address` changed."""
        self._leader_changed.append(changed)

    def handlers(self) -> Mapping[ApiKey, Callable[[Any, int], Any]]:
        """What is served to the other nodes: request and version to an answer, or the promise of one."""
        return {
            ApiKey.VOTE: self.elections.vote,
            ApiKey.BEGIN_QUORUM_EPOCH: self.elections.begin_epoch,
            ApiKey.END_QUORUM_EPOCH: self.elections.end_epoch,
            ApiKey.FETCH: self.serving.fetch,
            ApiKey.FETCH_SNAPSHOT: self.serving.fetch_snapshot,
            ApiKey.ADD_RAFT_VOTER: self.voter_changes.add,
            ApiKey.REMOVE_RAFT_VOTER: self.voter_changes.remove,
            ApiKey.UPDATE_RAFT_VOTER: self.voter_changes.update,
        }

    # ---- starting

    def start(self) -> None:
        """Read what is on disk and take part in the quorum."""
        self._read_voters()
        election = read_election_state(self.disk, self.log.directory) or ElectionState(0)
        self._persisted = election
        if self.log.last_epoch > election.epoch:
            election = ElectionState(self.log.last_epoch)
        self.role = Unattached(election)
        if not self.is_voter:
            self._check_observer()
            self.become(Observer(self._without_leader(election)))
        elif list(self.voters) == [self.own.id]:
            self.become_candidate()
        elif election.leader_id == self.own.id:
            self.role = Resigned(election, [voter.key for voter in self.voters.values() if voter.id != self.own.id])
            self._role_changed()
        else:
            self.become(Unattached(self._without_leader(election), just_started=True))

    def _without_leader(self, election: ElectionState) -> ElectionState:
        """Who led before is found out anew: only the epoch and the vote bind this node."""
        return election._replace(leader_id=NOBODY)

    def _check_observer(self) -> None:
        known = [voter for voter in self.voters.values() if voter.id != self.own.id]
        if not known and not self.peers.bootstrap:
            raise QuorumError(
                f"node {self.own.id} is not a voter of the metadata quorum (voters: {sorted(self.voters)}): format "
                "its storage with --standalone, or name it in controller.quorum.voters"
            )

    def _read_voters(self) -> None:
        """The voters as of the end of the log: also uncommitted control records count, as KRaft demands."""
        snapshot_id, snapshot = self.log.latest_snapshot_id, self.log.latest_snapshot
        if snapshot is not None:
            self._begin_history(snapshot_id, snapshot)
        for header, batch in self.log.batches(snapshot_id.offset, self.log.end_offset):
            self.history.read(header, batch)

    def _begin_history(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        offset = BEFORE_THE_LOG if snapshot_id == BOOTSTRAP_SNAPSHOT_ID else snapshot_id.offset - 1
        self.history.begin(offset, snapshot.kraft_version, snapshot.voters)

    # ---- roles

    def become(self, role: Role) -> None:
        """Change the role; an epoch, a vote and a leader are on disk before anybody can know of them."""
        old = self.role
        assert type(role) in NEXT_ROLES[type(old)], f"{type(old).__name__} cannot become {type(role).__name__}"
        assert role.epoch >= old.epoch, "epochs never go back"
        self._persist(role.election)
        self.role = role
        log.debug("node %d: %s -> %s in epoch %d", self.own.id, type(old).__name__, type(role).__name__, role.epoch)
        if isinstance(old, Leader):
            self._stop_leading()
        if self.role is role:
            self._role_changed()

    def _persist(self, election: ElectionState) -> None:
        """A node that cannot keep its vote must not act on it, nor go on as if it had not been asked: it stops."""
        if election != self._persisted:
            self.log.guarded(
                lambda: write_election_state(
                    self.disk, self.log.directory, election, self.kraft_version, sorted(self.voters)
                )
            )
            self._persisted = election

    def _role_changed(self) -> None:
        role = self.role
        for part in (self.serving, self.voter_changes, self.elections, self.following):
            part.role_changed()
            if self.role is not role:
                return
        for changed in self._leader_changed:
            changed()

    def _stop_leading(self) -> None:
        self.delivery.forget_own()
        if self._announced_epoch >= 0:
            self._announced_epoch = -1
            for listener in self._leadership:
                listener.resign()
        waiting, self._waiting = self._waiting, deque()
        for _, committed in waiting:
            committed.resolve(ErrorCode.NOT_CONTROLLER)

    def become_unattached(self, epoch: int) -> None:
        """An epoch without a leader, so far."""
        election = self.role.election if epoch == self.epoch else ElectionState(epoch)
        election = self._without_leader(election)
        self.become(Unattached(election) if self.is_voter else Observer(election))

    def become_voted(self, candidate: ReplicaKey) -> None:
        election = ElectionState(self.epoch, voted_id=candidate.id, voted_directory_id=candidate.directory_id)
        self.become(Unattached(election) if self.is_voter else Observer(election))

    def become_follower(self, epoch: int, leader_id: int, address: Address) -> None:
        election = self.role.election if epoch == self.epoch else ElectionState(epoch)
        election = election._replace(leader_id=leader_id)
        self.become(Follower(election, address) if self.is_voter else Observer(election, address))

    def become_candidate(self, attempt: int = 1) -> None:
        candidate = Candidate(self.epoch + 1, self.own_key, self.voters, attempt)
        self.become(candidate)
        if self.role is candidate and candidate.ballot.is_won:
            self.become_leader()

    def become_leader(self) -> None:
        candidate = self.role
        assert isinstance(candidate, Candidate), "only a candidate is elected"
        election = candidate.election._replace(leader_id=self.own.id)
        granted = frozenset(candidate.ballot.granted)
        leader = Leader(election, self.own_key, self.voters, granted, self.log.end_offset)
        log.info("node %d leads the metadata quorum in epoch %d", self.own.id, leader.epoch)
        self.become(leader)
        if self.role is leader:
            self.append_control(self._first_records(leader))

    def resign(self) -> None:
        """Give up leading this epoch, and tell the others so that one of them takes over at once."""
        role = self.role
        if isinstance(role, Leader):
            self.become(Resigned(role.election, role.successors()))

    def learn(self, epoch: int, leader_id: int, address: Address | None) -> bool:
        """Another node says that this is so; true when it changed this node's role."""
        if epoch < self.epoch or leader_id == self.own.id:
            if epoch > self.epoch:
                # It once led an epoch it has forgotten; it must not lead it again.
                self.become_unattached(epoch)
                return True
            return False
        address = address or self.address_of(leader_id)
        if leader_id != NOBODY and address is not None:
            if epoch > self.epoch or self.role.election.leader_id == NOBODY:
                self.become_follower(epoch, leader_id, address)
                return True
            return self._learn_address(leader_id, address)
        if epoch > self.epoch:
            self.become_unattached(epoch)
            return True
        return False

    def _learn_address(self, leader_id: int, address: Address) -> bool:
        role = self.role
        if role.election.leader_id != leader_id:
            log.critical("epoch %d has two leaders: %d and %d", role.epoch, role.election.leader_id, leader_id)
            return False
        if isinstance(role, Follower | Observer) and role.leader_address is None:
            self.become_follower(role.epoch, leader_id, address)
            return True
        return False

    def address_of(self, node_id: int) -> Address | None:
        voter = self.voters.get(node_id)
        return None if voter is None else voter.address(self.peers.listener)

    # ---- voters

    def _voters_changed(self) -> None:
        """The log says something new about who votes."""
        role = self.role
        if isinstance(role, Leader):
            if role.change_voters(self.voters):
                self.leader_committed()
            if self.role is role:
                self.elections.voters_changed(role)
        elif isinstance(role, Observer):
            if self.is_voter:
                if role.leader_address is not None:
                    self.become(Follower(role.election, role.leader_address))
                else:
                    self.become(Unattached(role.election))
        elif not self.is_voter and not isinstance(role, Resigned):
            address = role.leader_address if isinstance(role, Follower) else None
            self.become(Observer(role.election, address))

    def _first_records(self, leader: Leader) -> list[tuple[int, bytes]]:
        """What every epoch begins with: who leads and who voted for it. The first leader of a dynamic quorum, and one
        whose address or supported versions changed, also writes the voters."""
        change = LeaderChangeMessage(
            version=0,
            leader_id=self.own.id,
            voters=[LeaderChangeVoter(voter_id=voter_id) for voter_id in sorted(leader.voters)],
            granting_voters=[LeaderChangeVoter(voter_id=voter_id) for voter_id in sorted(leader.granted)],
        )
        records = [(CONTROL_LEADER_CHANGE, encode(change, 0))]
        not_in_log = self.history.last_offset == BEFORE_THE_LOG
        entry = self.voters.get(self.own.id)
        if self.kraft_version >= 1 and entry is not None and (not_in_log or entry != self.own):
            records += self.voter_records({**self.voters, self.own.id: self.own}, self.kraft_version)
        return records

    def voter_records(self, voters: VoterSet, kraft_version: int | None = None) -> list[tuple[int, bytes]]:
        records: list[tuple[int, bytes]] = []
        if kraft_version is not None:
            version = KRaftVersionRecord(version=0, kraft_version=kraft_version)
            records.append((CONTROL_KRAFT_VERSION, encode(version, 0)))
        records.append((CONTROL_KRAFT_VOTERS, encode(voters_record(voters), 0)))
        return records

    # ---- appending as the leader

    def append(self, records: Sequence[MetadataRecord], values: Sequence[bytes]) -> Appended:
        """Append records (and their encoded values) to the leader's log. One batch when they fit one."""
        assert isinstance(self.role, Leader), "only the leader appends"
        assert records, "an append has records"
        base_offset = self.log.end_offset
        batches = build_batches(values, base_offset=base_offset, epoch=self.epoch, timestamp_ms=self.clock.now_ms())
        done = 0
        for batch, count in batches:
            self._append_batch(batch, count, records[done : done + count])
            done += count
        committed: Pending[ErrorCode] = Pending()
        last_offset = self.log.end_offset - 1
        self._waiting.append((last_offset, committed))
        self._appended()
        return Appended(base_offset, last_offset, committed)

    def append_control(self, records: Sequence[tuple[int, bytes]]) -> int:
        """Append control records in a batch of their own; the offset of the last one."""
        base_offset = self.log.end_offset
        batch = build_control_batch(
            records, timestamp=self.clock.now_ms(), base_offset=base_offset, leader_epoch=self.epoch
        )
        self._append_batch(batch, len(records), ())
        if self.history.read(BatchHeader(batch), memoryview(batch)):
            self._voters_changed()
        self._appended()
        return base_offset + len(records) - 1

    def _append_batch(self, batch: bytes, count: int, records: Sequence[MetadataRecord]) -> None:
        base_offset = self.log.end_offset
        self.log.append(batch)
        self.delivery.appended(
            CommittedBatch(base_offset, base_offset + count - 1, self.epoch, self.clock.now_ms(), len(batch), records)
        )

    def _appended(self) -> None:
        """Others may have it before it is durable here."""
        self.serving.wake()
        epoch = self.epoch
        self.log.sync(lambda: self._synced(epoch))

    def _synced(self, epoch: int) -> None:
        role = self.role
        if isinstance(role, Leader) and role.epoch == epoch and role.holds(self.log.durable_offset):
            self.leader_committed()

    def leader_committed(self) -> None:
        """A majority has more than before."""
        assert isinstance(self.role, Leader), "only the leader commits"
        high_watermark = self.role.high_watermark
        self.serving.wake()
        self.commit(high_watermark)
        self.voter_changes.committed()

    # ---- appending as a follower

    def append_replicated(self, records: memoryview, epoch: int) -> bool:
        """Append what the leader sent, if it goes on where the log ends; whether anything was appended."""
        end_offset = self.log.end_offset
        batches = list(iter_batches(records))
        if not batches or batches[0].base_offset != end_offset or not self.log.append_replicated(records, epoch):
            return False
        voters_changed = False
        for header in batches:
            if header.base_offset < self.log.end_offset:
                voters_changed |= self.history.read(header, records[header.position : header.end])
        if voters_changed:
            self._voters_changed()
        return True

    def truncate(self, offset: int) -> None:
        """The leader's log is another one from here on."""
        assert offset >= self.high_watermark, f"truncation to {offset} below the high watermark {self.high_watermark}"
        log.info("node %d truncates the metadata log from %d to %d", self.own.id, self.log.end_offset, offset)
        self.log.truncate(offset)
        if self.history.truncate(offset):
            self._voters_changed()

    def load_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """A snapshot from the leader takes the place of the whole log."""
        self._begin_history(snapshot_id, snapshot)
        self.high_watermark = max(self.high_watermark, snapshot_id.offset)
        self.delivery.snapshot(snapshot_id, snapshot)
        self._voters_changed()

    # ---- committing

    def commit(self, high_watermark: int) -> None:
        """Everything before this offset is committed: hand it over."""
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
        self.delivery.deliver(self.high_watermark)
        if isinstance(self.role, Follower) and not self.is_voter:
            # Its removal is committed.
            self._voters_changed()

    def _everything_is_delivered(self, until: int) -> None:
        role = self.role
        if isinstance(role, Leader) and self._announced_epoch != role.epoch and until > role.epoch_start_offset:
            self._announced_epoch = role.epoch
            for listener in self._leadership:
                listener.lead(role.epoch)
        while self._waiting and self._waiting[0][0] < until:
            self._waiting.popleft()[1].resolve(ErrorCode.NONE)

    # ---- stopping

    def shutdown(self) -> None:
        """Stop taking part and close the log; who still waits for a commit is told that this node no longer knows."""
        self.stop_activity()
        self.log.close()

    def stop_activity(self) -> None:
        """Cancel every timer and ignore every answer that is still under way."""
        if self.closed:
            return
        self.closed = True
        was_leader = isinstance(self.role, Leader)
        self.role = Unattached(ElectionState(self.epoch))
        if was_leader:
            self._stop_leading()
        for part in (self.serving, self.voter_changes, self.elections, self.following):
            part.stop()
