"""A whole quorum in one process: virtual clock, virtual network, disks that forget; and the rules it must keep."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random

from quorum_world import CLUSTER_ID, LEVEL, InlineBackground, topic

from moldau.metadata.image import Provenance
from moldau.metadata.publisher import CommittedBatch, MetadataLoader
from moldau.metadata.records import MetadataRecord
from moldau.ports import Address
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
from moldau.protocol.generated.metadata.topic_record import TopicRecord
from moldau.protocol.generated.wire.api_versions_response import ApiVersionsResponse, SupportedFeatureKey
from moldau.quorum.encoding import encode_records
from moldau.quorum.format import FormatRequest, format_storage
from moldau.quorum.leader import Leader
from moldau.quorum.metadata_log import MetadataLog, MetadataLogSettings
from moldau.quorum.quorum import Peers, Quorum
from moldau.quorum.settings import QuorumSettings
from moldau.quorum.snapshot_emitter import SnapshotEmitter, SnapshotSettings
from moldau.quorum.voters import Voter, VoterEndpoint, VoterSet, own_kraft_versions
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk
from moldau.testing.network import VirtualNetwork

SETTINGS = QuorumSettings()


class Listener:
    """Follows the committed log of one life of one node, and compares it with what everybody else saw."""

    def __init__(self, world: RaftWorld, node: RaftNode) -> None:
        self._world = world
        self._node = node
        self.next_offset = 0

    def load_snapshot(self, records: Sequence[MetadataRecord], provenance: Provenance) -> None:
        assert not self._node.quorum.is_leader or self.next_offset == 0, "a leader loaded a snapshot"
        assert provenance.offset + 1 >= self.next_offset, "a snapshot took the state back"
        names = [record.name for record in records if isinstance(record, TopicRecord)]
        self._world.check_prefix(provenance.offset + 1, names)
        self.next_offset = provenance.offset + 1

    def load_batches(self, batches: Sequence[CommittedBatch], *, more_follows: bool) -> None:
        for batch in batches:
            assert batch.base_offset == self.next_offset, "committed batches with a gap, or twice"
            self.next_offset = batch.last_offset + 1
            names = tuple(record.name for record in batch.records if isinstance(record, TopicRecord))
            self._world.check_committed(batch.base_offset, batch.last_offset, batch.epoch, names)


class RaftNode:
    """One node through all its lives."""

    def __init__(self, world: RaftWorld, node_id: int, *, voter: bool, can_vote: bool = True) -> None:
        self.world = world
        self.id = node_id
        self.address = Address(f"node{node_id}", 9093)
        self.directory_id = bytes([node_id]) * 16
        self.disk = SimulatedDisk(world.clock)
        self.can_vote = can_vote
        self.own = Voter(
            node_id,
            self.directory_id,
            (VoterEndpoint("CONTROLLER", self.address.host, self.address.port),),
            own_kraft_versions(),
        )
        self.is_initial_voter = voter
        self.alive = False
        self.lead_epochs: list[int] = []
        self.epoch = 0
        self.high_watermark = 0
        self.votes: dict[int, int] = {}
        self.settings = SETTINGS

    def format(self, voters: VoterSet | None) -> None:
        request = FormatRequest(
            node_id=self.id,
            cluster_id=CLUSTER_ID,
            directories=["/data"],
            metadata_directory="/data",
            dynamic=voters is not None,
            initial_voters=voters if self.is_initial_voter else None,
        )
        format_storage(self.disk, request, now_ms=self.world.clock.now_ms(), random=Random(self.id))

    def start(self) -> None:
        world = self.world
        self.alive = True
        self.high_watermark = 0
        network = world.network
        log = MetadataLog(
            self.disk, world.clock, "/data", MetadataLogSettings(segment_bytes=1 << 14, retention_bytes=1), failed=_fail
        )
        self.quorum = Quorum(
            disk=self.disk,
            clock=world.clock,
            log=log,
            own=self.own,
            static_voters=world.static_voters,
            peers=Peers(
                network.of(self.address),
                world.random,
                CLUSTER_ID,
                "CONTROLLER",
                tuple(node.address for node in world.nodes.values() if node.is_initial_voter),
                self.settings,
                self.can_vote,
            ),
        )
        self.loader = MetadataLoader()
        self.listener = Listener(world, self)
        self.quorum.add_listener(self.loader)
        self.quorum.add_listener(self.listener)
        self.emitter = SnapshotEmitter(
            self.quorum, self.loader, self.disk, world.clock, InlineBackground(), SnapshotSettings(1 << 40, 0)
        )
        self.quorum.add_listener(self.emitter)
        self.quorum.add_leadership_listener(self)
        served = {int(key): handler for key, handler in self.quorum.handlers().items()}
        served[ApiKey.API_VERSIONS] = _api_versions
        network.listen(self.address, served)
        self.quorum.start()

    def lead(self, epoch: int) -> None:
        self.lead_epochs.append(epoch)

    def resign(self) -> None:
        pass

    def crash(self, random: Random | None, *, keep_unsynced: bool = False) -> None:
        self.alive = False
        self.world.network.crash(self.address)
        self.quorum.stop_activity()
        self.disk.crash(random, keep_unsynced=keep_unsynced)
        self.disk.hold_syncs = False

    @property
    def topics(self) -> list[str]:
        return list(self.loader.image.topics_by_name)


def _fail(failure: object) -> None:
    raise AssertionError(f"a log failed: {failure}")


def _api_versions(request: object, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(supported_features=[SupportedFeatureKey("kraft.version", 0, 1)])


class RaftWorld:
    def __init__(self, seed: int = 1, *, voters: int = 3, observers: int = 0, dynamic: bool = True) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.network = VirtualNetwork(self.clock, self.random)
        self.nodes = {i: RaftNode(self, i, voter=True) for i in range(1, voters + 1)}
        for i in range(voters + 1, voters + observers + 1):
            self.nodes[i] = RaftNode(self, i, voter=False, can_vote=False)
        initial: VoterSet = {node.id: node.own for node in self.nodes.values() if node.is_initial_voter}
        self.dynamic = dynamic
        self.static_voters = (
            None if dynamic else {i: voter._replace(directory_id=bytes(16)) for i, voter in initial.items()}
        )
        for node in self.nodes.values():
            node.format(initial if dynamic else None)
        # What is committed, as anybody first saw it: offset of a batch -> (last offset, epoch, topics).
        self.committed: dict[int, tuple[int, int, tuple[str, ...]]] = {}
        self.acknowledged: list[str] = []
        self.leaders: dict[int, int] = {}
        self.appended = 0
        self._trace = hashlib.sha256()
        self.story: list[str] = []

    def start(self) -> RaftWorld:
        for node in self.nodes.values():
            node.start()
        return self

    # ---- time

    def tell(self, text: str) -> None:
        self.story.append(f"{self.clock.monotonic_ms():>7} {text}")

    def step(self) -> None:
        """Run the next timer or message, and look at everything."""
        due = self.clock.next_due_ms()
        assert due is not None, "nothing will ever happen again"
        self.clock.advance(due)
        self.check()

    def run(self, milliseconds: int) -> None:
        until = self.clock.monotonic_ms() + milliseconds
        while True:
            due = self.clock.next_due_ms()
            if due is None or self.clock.monotonic_ms() + due > until:
                self.clock.advance(max(0, until - self.clock.monotonic_ms()))
                self.check()
                return
            self.step()

    def run_until(self, condition: object, limit_ms: int = 20_000) -> int:
        """Let time pass until something is so; how long that took."""
        assert callable(condition)
        begin = self.clock.monotonic_ms()
        while not condition():
            assert self.clock.monotonic_ms() - begin < limit_ms, f"not within {limit_ms} ms:\n{self.describe()}"
            self.step()
        return self.clock.monotonic_ms() - begin

    # ---- use

    @property
    def alive(self) -> list[RaftNode]:
        return [node for node in self.nodes.values() if node.alive]

    @property
    def leader(self) -> RaftNode | None:
        """The newest leader that has committed something of its own epoch."""
        found = [node for node in self.alive if isinstance(node.quorum.role, Leader) and node.lead_epochs]
        found = [node for node in found if node.lead_epochs[-1] == node.quorum.epoch]
        return max(found, key=lambda node: node.quorum.epoch, default=None)

    def elect(self, limit_ms: int = 20_000) -> RaftNode:
        self.run_until(lambda: self.leader is not None, limit_ms)
        assert self.leader is not None
        return self.leader

    def append(self, node: RaftNode, count: int = 1) -> None:
        names = [f"t{self.appended + i}" for i in range(count)]
        self.appended += count
        records: list[MetadataRecord] = [topic(name) for name in names]
        if not node.loader.image.metadata_version:
            records.insert(0, FeatureLevelRecord(name="metadata.version", feature_level=LEVEL))

        def done(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.acknowledged.extend(names)

        node.quorum.append(records, encode_records(records, LEVEL)).committed.then(done)

    def is_past(self, epoch: int) -> bool:
        return any(node.quorum.epoch > epoch for node in self.alive)

    def is_settled(self) -> bool:
        """Everybody who is alive follows one leader and has all of its log."""
        leader = self.leader
        if leader is None:
            return False
        end = leader.quorum.next_offset
        return all(
            node.quorum.epoch == leader.quorum.epoch
            and node.quorum.next_offset == end
            and node.listener.next_offset == end
            for node in self.alive
        )

    # ---- rules

    def check_committed(self, base: int, last: int, epoch: int, names: tuple[str, ...]) -> None:
        seen = self.committed.setdefault(base, (last, epoch, names))
        assert seen == (last, epoch, names), f"what is committed at {base} changed: {seen} and {(last, epoch, names)}"

    def check_prefix(self, end_offset: int, names: list[str]) -> None:
        expected = [n for base, (_, _, batch) in sorted(self.committed.items()) if base < end_offset for n in batch]
        assert names == expected, "a snapshot does not say what was committed"

    def check(self) -> None:
        for node in self.nodes.values():
            if not node.alive:
                continue
            quorum = node.quorum
            role = quorum.role
            epoch = role.epoch
            assert epoch >= node.epoch, f"node {node.id} went back from epoch {node.epoch} to {epoch}"
            node.epoch = epoch
            assert quorum.high_watermark >= node.high_watermark, "the high watermark went back"
            node.high_watermark = quorum.high_watermark
            assert quorum.high_watermark <= quorum.log.end_offset, "more is committed than there is"
            if isinstance(role, Leader):
                led = self.leaders.setdefault(epoch, node.id)
                assert led == node.id, f"epoch {epoch} has two leaders: {led} and {node.id}"
            voted = role.election.voted_id
            if voted >= 0:
                before = node.votes.setdefault(epoch, voted)
                assert before == voted, f"node {node.id} voted twice in epoch {epoch}: {before} and {voted}"
        self._trace.update(repr([(n.id, n.alive, n.epoch, n.high_watermark) for n in self.nodes.values()]).encode())

    def check_logs(self) -> None:
        """Below the high watermark all logs are byte for byte the same, and nothing acknowledged is missing."""
        contents: dict[int, bytes] = {}
        for node in self.alive:
            log = node.quorum.log
            start = max(log.start_offset, log.latest_snapshot_id.offset)
            for header, batch in log.batches(start, node.quorum.high_watermark):
                seen = contents.setdefault(header.base_offset, bytes(batch))
                assert seen == bytes(batch), f"logs differ at {header.base_offset}"
        everything = {name for _, _, names in self.committed.values() for name in names}
        lost = [name for name in self.acknowledged if name not in everything]
        assert not lost, f"acknowledged and lost: {lost}"

    def trace(self) -> str:
        return self._trace.hexdigest()

    def describe(self) -> str:
        lines = [*self.story[-40:]]
        for node in self.nodes.values():
            if not node.alive:
                lines.append(f"node {node.id}: down")
                continue
            q = node.quorum
            lines.append(
                f"node {node.id}: {type(q.role).__name__} epoch {q.epoch} leader {q.leader_id} end {q.next_offset} "
                f"(epoch {q.log.last_epoch}, durable {q.log.durable_offset}) hw {q.high_watermark} "
                f"voters {sorted(q.voters)}"
            )
        return "\n".join(lines)
