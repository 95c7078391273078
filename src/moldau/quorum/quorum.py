"""The metadata quorum on this node: its role, its log, and what is committed.

A state machine without threads or sockets: it is started once, appends when asked, and calls its listeners with what
became committed. Roles live in files of their own (`unattached`, `candidate`, `leader`); this file holds the
transitions between them and what every role shares. It must never call a record committed that is not durable on a
majority of the voters, and never act in an epoch before `quorum-state` says so on disk.

This release serves a quorum of one voter: the candidate's own vote is a majority, and its own sync commits. Elections
over the network attach at `_become_candidate` (send Vote, call `Candidate.grant` on each answer), replication at
`Leader.holds` (called for each Fetch of a voter), following and observing as two more roles with `log.truncate`, and
voter changes at `_control_records`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from moldau.metadata.image import Provenance
from moldau.metadata.publisher import CommittedBatch
from moldau.metadata.records import MetadataRecord
from moldau.ports import Clock, Disk, Pending
from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.kraft_version_record import KRaftVersionRecord
from moldau.protocol.generated.wire.leader_change_message import LeaderChangeMessage
from moldau.protocol.generated.wire.leader_change_message import Voter as LeaderChangeVoter
from moldau.protocol.generated.wire.voters_record import VotersRecord
from moldau.quorum.candidate import Candidate
from moldau.quorum.encoding import build_batches, read_batch
from moldau.quorum.leader import Leader
from moldau.quorum.metadata_log import MetadataLog
from moldau.quorum.snapshots import BOOTSTRAP_SNAPSHOT_ID, Snapshot, SnapshotId
from moldau.quorum.state_file import ElectionState, read_election_state, write_election_state
from moldau.quorum.unattached import Unattached
from moldau.quorum.voters import Voter, VoterSet, voters_from_record, voters_record
from moldau.records.batch import CONTROL_KRAFT_VERSION, CONTROL_KRAFT_VOTERS, CONTROL_LEADER_CHANGE
from moldau.records.builder import build_control_batch
from moldau.records.record import read_control_records

# Committed batches handed to the listeners at once while a log is read back: bounds the memory this takes.
BYTES_PER_DELIVERY: Final = 1 << 20


class QuorumError(Exception):
    """The quorum cannot work as it is configured or formatted; the text is for the person who operates it."""


class QuorumListener(Protocol):
    """Someone who follows the committed log. Snapshot and batches come in the order of the log, each once."""

    def load_snapshot(self, records: Sequence[MetadataRecord], provenance: Provenance) -> None: ...

    def load_batches(self, batches: Sequence[CommittedBatch], *, more_follows: bool) -> None: ...


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


class Quorum:
    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        log: MetadataLog,
        own: Voter,
        static_voters: VoterSet | None,
    ) -> None:
        """`own` is this node as a voter (directory id and controller listeners); `static_voters` are those of
        `controller.quorum.voters`, None when the setting is empty."""
        self._disk = disk
        self._clock = clock
        self.log = log
        self._own = own
        self._static_voters = static_voters
        self.kraft_version = 0
        self.voters: VoterSet = {}
        self._voters_in_log = False
        self.role: Unattached | Candidate | Leader = Unattached(ElectionState(0))
        self.high_watermark = 0
        self._listeners: list[QuorumListener] = []
        self._leadership: list[LeadershipListener] = []
        self._next_delivery = 0
        self._delivering = False
        self._announced_epoch = -1
        # Batches this leader appended, decoded: they need not be read back when they are committed.
        self._recent: deque[CommittedBatch] = deque()
        self._waiting: deque[tuple[int, Pending[ErrorCode]]] = deque()

    # ---- what others ask

    @property
    def node_id(self) -> int:
        return self._own.id

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        return self.role.election.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def next_offset(self) -> int:
        """Where the next appended record goes."""
        return self.log.end_offset

    def add_listener(self, listener: QuorumListener) -> None:
        """Listeners are added before `start`, and told in this order."""
        self._listeners.append(listener)

    def add_leadership_listener(self, listener: LeadershipListener) -> None:
        self._leadership.append(listener)

    # ---- starting

    def start(self) -> None:
        """Read what is on disk and take part in the quorum."""
        self._read_voters()
        election = read_election_state(self._disk, self.log.directory) or ElectionState(0)
        self.role = Unattached(ElectionState(max(election.epoch, self.log.last_epoch)))
        if self._own.id not in self.voters:
            raise QuorumError(
                f"node {self._own.id} is not a voter of the metadata quorum (voters: {sorted(self.voters)}): format "
                "its storage with --standalone, or name it in controller.quorum.voters"
            )
        if len(self.voters) > 1:
            raise QuorumError(
                f"the metadata quorum has voters {sorted(self.voters)}: this release serves a quorum of one voter"
            )
        self._become_candidate()

    def _read_voters(self) -> None:
        """The voters as of the end of the log: also uncommitted control records count, as KRaft demands."""
        snapshot_id, snapshot = self.log.latest_snapshot_id, self.log.latest_snapshot
        if snapshot is not None:
            self.kraft_version = snapshot.kraft_version
            if snapshot.voters is not None:
                self.voters = snapshot.voters
                self._voters_in_log = snapshot_id != BOOTSTRAP_SNAPSHOT_ID
        for header, batch in self.log.batches(snapshot_id.offset, self.log.end_offset):
            if not header.is_control:
                continue
            for record in read_control_records(batch):
                if record.type == CONTROL_KRAFT_VERSION:
                    self.kraft_version = decode(KRaftVersionRecord, record.value, 0).kraft_version
                elif record.type == CONTROL_KRAFT_VOTERS:
                    self.voters = voters_from_record(decode(VotersRecord, record.value, 0))
                    self._voters_in_log = True
        if self.kraft_version == 0:
            self.voters = self._static_voters or {}

    # ---- roles

    def _persist(self, election: ElectionState) -> None:
        write_election_state(self._disk, self.log.directory, election, self.kraft_version, sorted(self.voters))

    def _become_candidate(self) -> None:
        candidate = Candidate(self.epoch + 1, self._own_voter(), self.voters)
        self._persist(candidate.election)
        self.role = candidate
        candidate.grant(self._own.id)
        if candidate.is_elected:
            self._become_leader(candidate)

    def _become_leader(self, candidate: Candidate) -> None:
        election = candidate.election._replace(leader_id=self._own.id)
        self._persist(election)
        leader = Leader(election, self.voters, frozenset(candidate.granted), self.log.end_offset)
        self.role = leader
        records = self._control_records(leader)
        batch = build_control_batch(
            records, timestamp=self._clock.now_ms(), base_offset=self.log.end_offset, leader_epoch=leader.epoch
        )
        self._append_batch(batch, len(records), ())
        self._sync()

    def _own_voter(self) -> Voter:
        """This node in the voter set; static voters have no directory id there."""
        return self._own if self.kraft_version >= 1 else self.voters[self._own.id]

    def _control_records(self, leader: Leader) -> list[tuple[int, bytes]]:
        """What every epoch begins with: who leads and who voted for it. The first leader of a dynamic quorum, and one
        whose address or supported versions changed, also writes the voters."""
        change = LeaderChangeMessage(
            version=0,
            leader_id=self._own.id,
            voters=[LeaderChangeVoter(voter_id=voter_id) for voter_id in sorted(leader.voters)],
            granting_voters=[LeaderChangeVoter(voter_id=voter_id) for voter_id in sorted(leader.granted)],
        )
        records = [(CONTROL_LEADER_CHANGE, encode(change, 0))]
        if self.kraft_version >= 1 and (not self._voters_in_log or self.voters[self._own.id] != self._own):
            self.voters = leader.voters = {**self.voters, self._own.id: self._own}
            self._voters_in_log = True
            version = KRaftVersionRecord(version=0, kraft_version=self.kraft_version)
            records.append((CONTROL_KRAFT_VERSION, encode(version, 0)))
            records.append((CONTROL_KRAFT_VOTERS, encode(voters_record(self.voters), 0)))
        return records

    # ---- appending

    def append(self, records: Sequence[MetadataRecord], values: Sequence[bytes]) -> Appended:
        """Append records (and their encoded values) to the leader's log. One batch when they fit one."""
        assert isinstance(self.role, Leader), "only the leader appends"
        assert records, "an append has records"
        base_offset = self.log.end_offset
        batches = build_batches(values, base_offset=base_offset, epoch=self.epoch, timestamp_ms=self._clock.now_ms())
        done = 0
        for batch, count in batches:
            self._append_batch(batch, count, records[done : done + count])
            done += count
        committed: Pending[ErrorCode] = Pending()
        last_offset = self.log.end_offset - 1
        self._waiting.append((last_offset, committed))
        self._sync()
        return Appended(base_offset, last_offset, committed)

    def _append_batch(self, batch: bytes, count: int, records: Sequence[MetadataRecord]) -> None:
        base_offset = self.log.end_offset
        self.log.append(batch)
        self._recent.append(
            CommittedBatch(base_offset, base_offset + count - 1, self.epoch, self._clock.now_ms(), len(batch), records)
        )

    def _sync(self) -> None:
        end_offset, epoch = self.log.end_offset, self.epoch
        self.log.sync(lambda: self._synced(end_offset, epoch))

    def _synced(self, end_offset: int, epoch: int) -> None:
        role = self.role
        if not isinstance(role, Leader) or role.epoch != epoch or not role.holds(self._own.id, end_offset):
            return
        self.high_watermark = role.high_watermark
        self._deliver()

    # ---- delivering

    def _deliver(self) -> None:
        """Hand over what became committed. A listener may append in turn; what that commits is delivered by the loop
        that is already running, so that nobody sees offsets out of order."""
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._next_delivery < self.high_watermark:
                until = self.high_watermark
                for chunk, more_follows in self._committed_chunks(until):
                    for listener in self._listeners:
                        listener.load_batches(chunk, more_follows=more_follows)
                self._next_delivery = until
                self._announce_leadership()
                self._release(until)
        finally:
            self._delivering = False

    def _announce_leadership(self) -> None:
        if self.is_leader and self._announced_epoch != self.epoch:
            self._announced_epoch = self.epoch
            for listener in self._leadership:
                listener.lead(self.epoch)

    def _release(self, until: int) -> None:
        while self._waiting and self._waiting[0][0] < until:
            self._waiting.popleft()[1].resolve(ErrorCode.NONE)

    def _committed_chunks(self, until: int) -> Iterator[tuple[list[CommittedBatch], bool]]:
        """Batches from the next one to deliver on; at first a snapshot stands in for the beginning of the log."""
        if self._next_delivery == 0:
            self._deliver_snapshot()
        first_recent = self._recent[0].base_offset if self._recent else until
        chunk: list[CommittedBatch] = []
        size = 0
        for header, batch in self.log.batches(self._next_delivery, min(first_recent, until)):
            records = () if header.is_control else read_batch(batch)
            chunk.append(
                CommittedBatch(
                    header.base_offset,
                    header.last_offset,
                    header.partition_leader_epoch,
                    header.max_timestamp,
                    header.size,
                    records,
                )
            )
            size += header.size
            if size >= BYTES_PER_DELIVERY:
                yield chunk, True
                chunk, size = [], 0
        while self._recent and self._recent[0].last_offset < until:
            chunk.append(self._recent.popleft())
        yield chunk, False

    def _deliver_snapshot(self) -> None:
        snapshot_id, snapshot = self.log.take_latest_snapshot()
        if snapshot is None or snapshot_id == BOOTSTRAP_SNAPSHOT_ID:
            return
        provenance = _provenance(snapshot_id, snapshot)
        for listener in self._listeners:
            listener.load_snapshot(snapshot.records, provenance)
        self._next_delivery = snapshot_id.offset

    # ---- stopping

    def shutdown(self) -> None:
        """Stop leading and close the log; who still waits for a commit is told that this node no longer knows."""
        if self.is_leader:
            for listener in self._leadership:
                listener.resign()
        self.role = Unattached(ElectionState(self.epoch))
        waiting, self._waiting = self._waiting, deque()
        for _, committed in waiting:
            committed.resolve(ErrorCode.NOT_CONTROLLER)
        self.log.close()


def _provenance(snapshot_id: SnapshotId, snapshot: Snapshot) -> Provenance:
    return Provenance(snapshot_id.offset - 1, snapshot_id.epoch, snapshot.last_timestamp_ms)
