"""One node of a quorum of three, told by hand what arrives: each rule of each request, one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from quorum_world import CLUSTER_ID, LEVEL, topic

from moldau.metadata.publisher import MetadataLoader
from moldau.ports import Address, Pending, Unreachable
from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
from moldau.protocol.generated.wire.add_raft_voter_request import AddRaftVoterRequest, Listener
from moldau.protocol.generated.wire.api_versions_response import ApiVersionsResponse, SupportedFeatureKey
from moldau.protocol.generated.wire.begin_quorum_epoch_request import BeginQuorumEpochRequest
from moldau.protocol.generated.wire.end_quorum_epoch_request import EndQuorumEpochRequest
from moldau.protocol.generated.wire.fetch_request import FetchRequest
from moldau.protocol.generated.wire.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
)
from moldau.protocol.generated.wire.fetch_response import PartitionData as FetchedPartition
from moldau.protocol.generated.wire.fetch_snapshot_request import FetchSnapshotRequest
from moldau.protocol.generated.wire.fetch_snapshot_response import FetchSnapshotResponse
from moldau.protocol.generated.wire.remove_raft_voter_request import RemoveRaftVoterRequest
from moldau.protocol.generated.wire.update_raft_voter_request import KRaftVersionFeature, UpdateRaftVoterRequest
from moldau.protocol.generated.wire.update_raft_voter_request import Listener as UpdateListener
from moldau.protocol.generated.wire.vote_request import VoteRequest
from moldau.protocol.generated.wire.vote_response import VoteResponse
from moldau.quorum import messages
from moldau.quorum.candidate import Candidate
from moldau.quorum.encoding import build_batches, encode_records
from moldau.quorum.follower import Follower
from moldau.quorum.format import FormatRequest, format_storage
from moldau.quorum.leader import Leader
from moldau.quorum.messages import LeaderHint
from moldau.quorum.metadata_log import MetadataLog, MetadataLogSettings
from moldau.quorum.prospective import Prospective
from moldau.quorum.quorum import Peers, Quorum
from moldau.quorum.resigned import Resigned
from moldau.quorum.snapshots import SnapshotId
from moldau.quorum.unattached import Unattached
from moldau.quorum.voters import ReplicaKey, Voter, VoterEndpoint, own_kraft_versions
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk

STATE = "/data/__cluster_metadata-0/quorum-state"


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 16)


def voter(node_id: int) -> Voter:
    endpoint = VoterEndpoint("CONTROLLER", f"node{node_id}", 9093)
    return Voter(node_id, key(node_id).directory_id, (endpoint,), own_kraft_versions())


class Sent:
    def __init__(self, to: Address, request: Any, reply: Callable[[Any], None]) -> None:
        self.to = to
        self.request = request
        self.reply = reply


class Script:
    """Node 1 of voters 1, 2, 3; `sent` is what it sent, in order."""

    def __init__(self, *, count: int = 3, dynamic: bool = True) -> None:
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.clock)
        self.sent: list[Sent] = []
        voters = {i: voter(i) for i in range(1, count + 1)}
        request = FormatRequest(
            node_id=1,
            cluster_id=CLUSTER_ID,
            directories=["/data"],
            metadata_directory="/data",
            dynamic=dynamic,
            initial_voters=voters if dynamic else None,
        )
        format_storage(self.disk, request, now_ms=0, random=Random(1))
        self._static = None if dynamic else {i: v._replace(directory_id=bytes(16)) for i, v in voters.items()}
        self.start()

    def start(self) -> None:
        settings = MetadataLogSettings(retention_bytes=1)
        log = MetadataLog(self.disk, self.clock, "/data", settings, failed=_fail)
        peers = Peers(self, Random(1), CLUSTER_ID, "CONTROLLER")
        self.quorum = Quorum(
            disk=self.disk, clock=self.clock, log=log, own=voter(1), static_voters=self._static, peers=peers
        )
        self.loader = MetadataLoader()
        self.quorum.add_listener(self.loader)
        self.quorum.start()

    def send(
        self, to: Address, request: Any, version: int, reply: Callable[[Any], None], *, timeout_ms: int, lane: str = ""
    ) -> None:
        encode(request, version)
        self.sent.append(Sent(to, request, reply))

    def take(self, kind: type) -> list[Sent]:
        """The requests of a kind that were sent since the last look."""
        found = [each for each in self.sent if isinstance(each.request, kind)]
        self.sent = [each for each in self.sent if not isinstance(each.request, kind)]
        return found

    # ---- what others say

    def vote(
        self,
        epoch: int,
        candidate: int = 2,
        *,
        pre_vote: bool = False,
        last: tuple[int, int] = (0, 0),
        cluster_id: str = CLUSTER_ID,
        to: ReplicaKey | None = None,
        version: int = 2,
    ) -> tuple[ErrorCode, bool]:
        request = messages.vote_request(
            cluster_id, to or key(1), key(candidate), epoch, last[0], last[1], pre_vote=pre_vote
        )
        request = decode(VoteRequest, encode(request, version), version)
        response = self.quorum.elections.vote(request, version)
        decode(VoteResponse, encode(response, version), version)
        if response.error_code:
            return ErrorCode(response.error_code), False
        partition = response.topics[0].partitions[0]
        assert (partition.leader_epoch, partition.leader_id) == (self.quorum.epoch, self.quorum.leader_id)
        return ErrorCode(partition.error_code), partition.vote_granted

    def begin(self, epoch: int, leader: int = 2, to: ReplicaKey | None = None) -> ErrorCode:
        request = messages.begin_epoch_request(CLUSTER_ID, to or key(1), leader, epoch, voter(leader).endpoints)
        request = decode(BeginQuorumEpochRequest, encode(request, 1), 1)
        response = self.quorum.elections.begin_epoch(request, 1)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def end(self, epoch: int, leader: int, successors: list[int]) -> ErrorCode:
        keys = [key(each) for each in successors]
        request = messages.end_epoch_request(CLUSTER_ID, leader, epoch, keys, voter(leader).endpoints)
        request = decode(EndQuorumEpochRequest, encode(request, 1), 1)
        response = self.quorum.elections.end_epoch(request, 1)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def fetch(
        self, replica: int, offset: int, last_epoch: int, *, epoch: int | None = None, wait: int = 0, hw: int = 1 << 60
    ) -> Any:
        request = messages.fetch_request(
            CLUSTER_ID,
            key(replica),
            self.quorum.epoch if epoch is None else epoch,
            last_epoch,
            offset,
            hw,
            max_bytes=1 << 20,
            max_wait_ms=wait,
        )
        answer = self.quorum.serving.fetch(decode(FetchRequest, encode(request, 18), 18), 18)
        if not isinstance(answer, Pending):
            answer = decode(FetchResponse, encode(answer, 18), 18)
        return answer if isinstance(answer, Pending) else answer.responses[0].partitions[0]

    # ---- roles

    def become_leader(self) -> Leader:
        while not isinstance(self.quorum.role, Prospective):
            self.clock.advance(10)
        for sent in self.take(VoteRequest):
            sent.reply(granted(self.quorum.epoch))
        for sent in self.take(VoteRequest):
            sent.reply(granted(self.quorum.epoch))
        role = self.quorum.role
        assert isinstance(role, Leader)
        return role

    def become_follower(self, epoch: int = 1) -> Follower:
        assert self.begin(epoch) is ErrorCode.NONE
        role = self.quorum.role
        assert isinstance(role, Follower)
        return role

    def answer_fetch(self, partition: FetchedPartition) -> None:
        sent = self.take(FetchRequest)[-1]
        partition.current_leader = LeaderIdAndEpoch(self.quorum.leader_id, self.quorum.epoch)
        sent.reply(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]))

    def records(self, *names: str, base: int, epoch: int) -> bytes:
        values = encode_records([topic(name) for name in names], LEVEL)
        return b"".join(b for b, _ in build_batches(values, base_offset=base, epoch=epoch, timestamp_ms=1))


def _fail(failure: object) -> None:
    raise AssertionError(str(failure))


def granted(epoch: int) -> VoteResponse:
    return messages.vote_response(LeaderHint(ErrorCode.NONE, epoch=epoch), 2, granted=True)


def rejected(epoch: int, leader: int = -1) -> VoteResponse:
    return messages.vote_response(LeaderHint(ErrorCode.NONE, leader, epoch), 2, granted=False)


# ---- votes


def test_a_vote_is_given_once_an_epoch_and_is_durable_before_it_is_told() -> None:
    script = Script()
    assert script.vote(1, 2) == (ErrorCode.NONE, True)
    state = json.loads(script.disk.read_bytes(STATE))
    assert (state["leaderEpoch"], state["votedId"]) == (1, 2)
    assert script.vote(1, 3) == (ErrorCode.NONE, False)
    assert script.vote(1, 2) == (ErrorCode.NONE, True)
    script.disk.crash()
    script.start()
    assert script.vote(1, 3) == (ErrorCode.NONE, False)
    assert script.vote(1, 2) == (ErrorCode.NONE, True)
    assert script.vote(2, 3) == (ErrorCode.NONE, True)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_votes_in_every_version(version: int) -> None:
    script = Script(dynamic=version > 0)
    assert script.vote(1, 2, version=version) == (ErrorCode.NONE, True)


def test_votes_that_are_refused() -> None:
    script = Script()
    assert script.vote(5, cluster_id="other")[0] is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert script.vote(5, last=(5, 1)) == (ErrorCode.INVALID_REQUEST, False)
    assert script.vote(5, last=(1, -1)) == (ErrorCode.INVALID_REQUEST, False)
    assert script.vote(5, last=(-1, 1)) == (ErrorCode.INVALID_REQUEST, False)
    assert script.quorum.epoch == 0
    assert script.vote(5, to=ReplicaKey(1, b"another disk....")) == (ErrorCode.INVALID_VOTER_KEY, False)
    assert script.quorum.epoch == 5
    assert script.vote(4) == (ErrorCode.FENCED_LEADER_EPOCH, False)
    assert script.quorum.elections.vote(VoteRequest(cluster_id=CLUSTER_ID), 2).error_code == ErrorCode.INVALID_REQUEST


def test_only_a_log_with_everything_gets_a_vote() -> None:
    script = Script()
    script.become_follower(3)
    script.answer_fetch(FetchedPartition(high_watermark=0, records=script.records("a", "b", base=0, epoch=3)))
    assert script.vote(4, 2, last=(2, 9)) == (ErrorCode.NONE, False)
    assert script.vote(4, 2, last=(3, 1)) == (ErrorCode.NONE, False)
    assert script.vote(4, 3, last=(3, 2)) == (ErrorCode.NONE, True)


def test_pre_votes_change_nothing_and_are_refused_while_the_leader_is_there() -> None:
    script = Script()
    assert script.vote(0, 2, pre_vote=True) == (ErrorCode.NONE, True)
    assert script.vote(0, 3, pre_vote=True) == (ErrorCode.NONE, True)
    role = script.become_follower(1)
    assert script.vote(1, 3, pre_vote=True) == (ErrorCode.NONE, True), "the leader is only hearsay"
    script.answer_fetch(FetchedPartition(high_watermark=0))
    assert role.has_fetched
    assert script.vote(1, 3, pre_vote=True) == (ErrorCode.NONE, False)
    assert script.quorum.role is role
    (fetch,) = script.take(FetchRequest)
    fetch.reply(Unreachable("refused", nobody_listens=True))
    assert script.vote(1, 3, pre_vote=True) == (ErrorCode.NONE, True), "the leader is gone"


def test_a_leader_refuses_every_vote_of_its_epoch_and_yields_to_a_later_one() -> None:
    script = Script()
    epoch = script.become_leader().epoch
    assert script.vote(epoch, 2, pre_vote=True, last=(epoch, 99)) == (ErrorCode.NONE, False)
    assert script.quorum.is_leader
    assert script.vote(epoch + 1, 2, last=(epoch, 99)) == (ErrorCode.NONE, True)
    assert isinstance(script.quorum.role, Unattached)


# ---- standing for election


def test_from_the_start_to_the_leader() -> None:
    script = Script()
    assert isinstance(script.quorum.role, Unattached)
    script.clock.advance(200)
    assert isinstance(script.quorum.role, Prospective)
    asked = script.take(VoteRequest)
    assert {sent.to.host for sent in asked} == {"node2", "node3"}
    assert all(sent.request.topics[0].partitions[0].pre_vote for sent in asked)
    assert script.quorum.epoch == 0
    asked[0].reply(granted(0))
    assert isinstance(script.quorum.role, Candidate)
    assert json.loads(script.disk.read_bytes(STATE))["votedId"] == 1
    asked = script.take(VoteRequest)
    assert not asked[0].request.topics[0].partitions[0].pre_vote
    asked[1].reply(granted(1))
    assert script.quorum.is_leader
    assert {sent.to.host for sent in script.take(BeginQuorumEpochRequest)} == {"node2", "node3"}
    asked[0].reply(rejected(1))
    assert script.quorum.is_leader


def test_a_lost_pre_vote_bumps_no_epoch() -> None:
    script = Script()
    script.clock.advance(200)
    for sent in script.take(VoteRequest):
        sent.reply(rejected(0))
    script.clock.advance(30_000)
    assert script.quorum.epoch == 0


def test_an_answer_that_knows_the_leader_ends_the_election() -> None:
    script = Script()
    script.clock.advance(200)
    script.take(VoteRequest)[0].reply(rejected(4, leader=3))
    role = script.quorum.role
    assert isinstance(role, Follower)
    assert (role.epoch, role.election.leader_id, role.leader_address) == (4, 3, Address("node3", 9093))


def test_unanswered_votes_are_asked_for_again() -> None:
    script = Script()
    script.clock.advance(200)
    first = script.take(VoteRequest)
    first[0].reply(Unreachable("no route"))
    script.clock.advance(50)
    (again,) = script.take(VoteRequest)
    assert again.to == first[0].to


# ---- epochs


def test_the_beginning_of_an_epoch() -> None:
    script = Script()
    script.become_follower(3)
    assert script.quorum.leader_id == 2
    assert script.begin(2, 3) is ErrorCode.FENCED_LEADER_EPOCH
    assert script.begin(4, 3, to=ReplicaKey(1, b"another disk....")) is ErrorCode.INVALID_VOTER_KEY
    assert (script.quorum.epoch, script.quorum.leader_id) == (4, 3)


def test_the_end_of_an_epoch_calls_the_successors_in_turn() -> None:
    script = Script()
    script.become_follower(3)
    assert script.end(3, 2, [1, 3]) is ErrorCode.NONE
    script.clock.advance(1)
    assert isinstance(script.quorum.role, Prospective)
    script = Script()
    script.become_follower(3)
    script.end(3, 2, [3, 1])
    script.clock.advance(100)
    assert isinstance(script.quorum.role, Follower), "the other one is to try first"
    script.clock.advance(500)
    assert isinstance(script.quorum.role, Prospective)
    assert script.end(2, 2, [1]) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_silent_leader_is_given_up_after_the_fetch_timeout() -> None:
    script = Script()
    script.become_follower(1)
    script.clock.advance(1900)
    assert isinstance(script.quorum.role, Follower)
    script.answer_fetch(FetchedPartition(high_watermark=0))
    script.clock.advance(1900)
    assert isinstance(script.quorum.role, Follower)
    script.clock.advance(200)
    assert isinstance(script.quorum.role, Prospective)


def test_a_leader_without_a_majority_resigns_and_does_not_lead_that_epoch_again() -> None:
    script = Script()
    epoch = script.become_leader().epoch
    script.clock.advance(2900)
    script.fetch(2, 0, 0)
    script.clock.advance(2900)
    assert script.quorum.is_leader
    script.clock.advance(200)
    assert isinstance(script.quorum.role, Resigned)
    assert script.quorum.leader_id == -1
    assert len(script.take(EndQuorumEpochRequest)) == 2
    script.disk.crash()
    script.quorum.stop_activity()
    script.start()
    assert isinstance(script.quorum.role, Resigned)
    script.clock.advance(2100)
    assert script.quorum.epoch == epoch + 1
    assert isinstance(script.quorum.role, Unattached | Prospective)


# ---- fetching


def leading(script: Script, *names: str) -> Leader:
    leader = script.become_leader()
    records: list[Any] = [FeatureLevelRecord(name="metadata.version", feature_level=LEVEL), *map(topic, names)]
    script.quorum.append(records, encode_records(records, LEVEL))
    return leader


def test_a_fetch_is_refused_unless_this_node_leads_that_epoch() -> None:
    script = Script()
    script.become_follower(3)
    assert script.fetch(3, 0, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert script.fetch(3, 0, 0).current_leader.leader_id == 2
    assert script.fetch(3, 0, 0, epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert script.fetch(3, 0, 0, epoch=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert script.fetch(3, 0, 5, epoch=4).error_code == ErrorCode.INVALID_REQUEST
    assert script.fetch(3, -1, 0).error_code == ErrorCode.INVALID_REQUEST


def test_records_are_committed_by_a_majority_and_its_next_fetch_says_so() -> None:
    script = Script()
    leader = leading(script, "a", "b")
    end = script.quorum.next_offset
    first = script.fetch(2, 0, 0)
    assert len(first.records) > 0
    assert (first.high_watermark, leader.high_watermark) == (-1, -1)
    assert script.fetch(9, end, 1).high_watermark == -1, "an observer counts for nothing"
    assert script.fetch(2, end, 1).high_watermark == end
    assert script.loader.image.topics_by_name.keys() == {"a", "b"}


def test_a_record_of_an_earlier_epoch_is_not_committed_by_itself() -> None:
    script = Script()
    script.become_follower(1)
    script.answer_fetch(FetchedPartition(high_watermark=0, records=script.records("old", base=0, epoch=1)))
    script.vote(2, 2, last=(0, 0))
    leader = script.become_leader()
    script.fetch(2, 1, 1)
    assert leader.high_watermark == -1
    script.fetch(2, script.quorum.next_offset, leader.epoch)
    assert leader.high_watermark == script.quorum.next_offset


def test_a_fetch_waits_for_records_and_for_the_high_watermark() -> None:
    script = Script()
    leader = leading(script, "a")
    end = script.quorum.next_offset
    script.fetch(3, 0, 0)
    waiting = script.fetch(2, end, leader.epoch, wait=500, hw=end)
    assert isinstance(waiting, Pending)
    assert leader.high_watermark == end, "the fetch itself acknowledged everything"
    late = script.fetch(3, end, leader.epoch, wait=500, hw=0)
    assert not isinstance(late, Pending), "who does not know the high watermark is told at once"
    records = [topic("b")]
    script.quorum.append(records, encode_records(records, LEVEL))
    assert waiting.done
    assert len(waiting.value.responses[0].partitions[0].records) > 0
    waiting = script.fetch(2, end + 1, leader.epoch, wait=500, hw=1 << 60)
    script.clock.advance(499)
    assert not waiting.done
    script.clock.advance(1)
    assert waiting.value.responses[0].partitions[0].error_code == ErrorCode.NONE
    waiting = script.fetch(2, end + 1, leader.epoch, wait=500, hw=1 << 60)
    script.quorum.resign()
    assert waiting.value.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_parted_ways_is_told_where() -> None:
    script = Script()
    script.become_follower(2)
    script.answer_fetch(FetchedPartition(high_watermark=0, records=script.records("a", "b", base=0, epoch=2)))
    script.vote(5, 2)
    leader = script.become_leader()
    told = script.fetch(2, 3, 4)
    assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (2, 2)
    told = script.fetch(2, 9, 2)
    assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (2, 2)
    told = script.fetch(2, 99, leader.epoch)
    assert told.diverging_epoch.end_offset == script.quorum.next_offset
    assert leader.end_of(2) == -1


def test_a_follower_truncates_what_its_leader_does_not_have() -> None:
    script = Script()
    script.become_follower(2)
    script.answer_fetch(FetchedPartition(high_watermark=1, records=script.records("a", base=0, epoch=1)))
    script.answer_fetch(FetchedPartition(high_watermark=1, records=script.records("b", "c", base=1, epoch=2)))
    assert script.quorum.next_offset == 3
    script.begin(5, 3)
    script.answer_fetch(FetchedPartition(diverging_epoch=EpochEndOffset(1, 1)))
    assert script.quorum.next_offset == 1
    (sent,) = script.take(FetchRequest)
    asked = sent.request.topics[0].partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (1, 1)


def test_committed_records_are_never_truncated() -> None:
    script = Script()
    script.become_follower(2)
    script.answer_fetch(FetchedPartition(high_watermark=2, records=script.records("a", "b", base=0, epoch=2)))
    script.begin(5, 3)
    script.answer_fetch(FetchedPartition(diverging_epoch=EpochEndOffset(1, 0)))
    assert script.quorum.next_offset == 2


def test_a_fetch_waits_for_the_sync_whoever_leads() -> None:
    script = Script()
    script.become_follower(2)
    script.disk.hold_syncs = True
    script.answer_fetch(FetchedPartition(high_watermark=0, records=script.records("a", base=0, epoch=2)))
    assert not script.take(FetchRequest)
    script.begin(5, 3)
    assert not script.take(FetchRequest), "the new leader may not count on it either"
    script.disk.hold_syncs = False
    while script.disk.finish_syncs():
        pass
    assert len(script.take(FetchRequest)) == 1


def test_batches_that_do_not_go_on_where_the_log_ends_are_left_out() -> None:
    script = Script()
    script.become_follower(2)
    script.answer_fetch(FetchedPartition(high_watermark=0, records=script.records("gap", base=7, epoch=2)))
    assert script.quorum.next_offset == 0
    assert len(script.take(FetchRequest)) == 1


# ---- snapshots


def test_fetch_snapshot() -> None:
    script = Script()
    leader = leading(script, "a")
    script.fetch(2, script.quorum.next_offset, leader.epoch)
    from moldau.quorum.snapshot_emitter import SnapshotEmitter, SnapshotSettings
    from moldau.testing.background import SteppedBackground

    background = SteppedBackground()
    emitter = SnapshotEmitter(
        script.quorum, script.loader, script.disk, script.clock, background, SnapshotSettings(1, 0)
    )
    assert emitter.emit()
    background.run_all()
    snapshot_id = script.quorum.log.latest_snapshot_id
    assert script.fetch(3, 0, 0).snapshot_id.end_offset == snapshot_id.offset

    def ask(
        position: int = 0, wanted: SnapshotId = snapshot_id, epoch: int | None = None, name: str = "__cluster_metadata"
    ) -> Any:
        request = messages.snapshot_request(
            CLUSTER_ID, key(3), leader.epoch if epoch is None else epoch, wanted, position, 100
        )
        request.topics[0].name = name
        request = decode(FetchSnapshotRequest, encode(request, 1), 1)
        response = script.quorum.serving.fetch_snapshot(request, 1)
        return decode(FetchSnapshotResponse, encode(response, 1), 1).topics[0].partitions[0]

    first = ask()
    assert (len(first.unaligned_records), first.position) == (100, 0)
    data = b""
    while len(data) < first.size:
        data += bytes(ask(len(data)).unaligned_records)
    assert data == script.quorum.log.read_snapshot_part(snapshot_id, 0, 1 << 20)
    assert ask(first.size).error_code == ErrorCode.POSITION_OUT_OF_RANGE
    assert ask(wanted=SnapshotId(1, 1)).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(wanted=SnapshotId(0, 0)).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(name="other").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- voters


def add_request(node_id: int, listener: str = "CONTROLLER", cluster_id: str = CLUSTER_ID) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        voter_id=node_id,
        voter_directory_id=key(node_id).directory_id,
        listeners=[Listener(listener, f"node{node_id}", 9093)],
    )


def code_of(answer: Any) -> ErrorCode:
    assert isinstance(answer, Pending)
    assert answer.done, "not answered yet"
    return ErrorCode(answer.value.error_code)


def versions(low: int, high: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(supported_features=[SupportedFeatureKey("kraft.version", low, high)])


def committed_leader(script: Script) -> Leader:
    leader = script.become_leader()
    script.fetch(2, script.quorum.next_offset, leader.epoch)
    assert leader.high_watermark == script.quorum.next_offset
    script.sent.clear()
    return leader


def test_adding_a_voter() -> None:
    script = Script()
    changes = script.quorum.voter_changes
    leader = committed_leader(script)
    script.fetch(4, script.quorum.next_offset, leader.epoch)
    answer = changes.add(add_request(4), 0)
    assert code_of(changes.add(add_request(5), 0)) is ErrorCode.REQUEST_TIMED_OUT, "one change at a time"
    (sent,) = script.sent
    assert sent.to == Address("node4", 9093)
    sent.reply(versions(0, 1))
    assert sorted(script.quorum.voters) == [1, 2, 3, 4], "it counts before it is committed"
    assert not answer.done  # type: ignore[union-attr]
    script.fetch(2, script.quorum.next_offset, leader.epoch)
    assert not answer.done, "two of four are no majority"  # type: ignore[union-attr]
    script.fetch(4, script.quorum.next_offset, leader.epoch)
    assert code_of(answer) is ErrorCode.NONE


def test_additions_that_are_refused() -> None:
    script = Script()
    changes = script.quorum.voter_changes
    assert code_of(changes.add(add_request(4), 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = script.become_leader()
    assert code_of(changes.add(add_request(4), 0)) is ErrorCode.REQUEST_TIMED_OUT, "nothing is committed yet"
    script.fetch(2, script.quorum.next_offset, leader.epoch)
    assert code_of(changes.add(add_request(4, cluster_id="x"), 0)) is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert code_of(changes.add(add_request(2), 0)) is ErrorCode.DUPLICATE_VOTER
    assert code_of(changes.add(add_request(4, listener="OTHER"), 0)) is ErrorCode.INVALID_REQUEST
    for answer_of_voter, code in (
        (Unreachable("gone"), ErrorCode.REQUEST_TIMED_OUT),
        (versions(0, 0), ErrorCode.INVALID_REQUEST),
        (versions(0, 1), ErrorCode.REQUEST_TIMED_OUT),  # it has never fetched
    ):
        script.sent.clear()
        answer = changes.add(add_request(4), 0)
        script.sent[-1].reply(answer_of_voter)
        assert code_of(answer) is code
    static = Script(dynamic=False)
    committed_leader(static)
    assert code_of(static.quorum.voter_changes.add(add_request(4), 0)) is ErrorCode.UNSUPPORTED_VERSION


def test_removing_voters_down_to_the_leader_and_the_leader_itself() -> None:
    script = Script()
    leader = committed_leader(script)

    def remove(node_id: int, directory_id: bytes | None = None) -> Any:
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            voter_id=node_id,
            voter_directory_id=key(node_id).directory_id if directory_id is None else directory_id,
        )
        return script.quorum.voter_changes.remove(request, 0)

    assert code_of(remove(7)) is ErrorCode.VOTER_NOT_FOUND
    assert code_of(remove(3, b"another disk....")) is ErrorCode.VOTER_NOT_FOUND
    assert code_of(remove(3, bytes(16))) is ErrorCode.INVALID_REQUEST
    answer = remove(3)
    assert code_of(remove(2)) is ErrorCode.REQUEST_TIMED_OUT
    script.fetch(2, script.quorum.next_offset, leader.epoch)
    assert code_of(answer) is ErrorCode.NONE
    assert sorted(script.quorum.voters) == [1, 2]
    answer = remove(1)
    assert script.quorum.is_leader, "it leads until its removal is committed"
    script.fetch(2, script.quorum.next_offset, leader.epoch)
    assert code_of(answer) is ErrorCode.NONE
    assert isinstance(script.quorum.role, Resigned)


def test_updating_a_voter() -> None:
    script = Script()
    leader = committed_leader(script)

    def update(node_id: int, port: int, epoch: int, *, high: int = 1) -> ErrorCode:
        request = UpdateRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            current_leader_epoch=epoch,
            voter_id=node_id,
            voter_directory_id=key(node_id).directory_id,
            listeners=[UpdateListener("CONTROLLER", f"node{node_id}", port)],
            kraft_version_feature=KRaftVersionFeature(0, high),
        )
        return ErrorCode(script.quorum.voter_changes.update(request, 0).error_code)

    assert update(2, 9999, leader.epoch - 1) is ErrorCode.FENCED_LEADER_EPOCH
    assert update(7, 9999, leader.epoch) is ErrorCode.VOTER_NOT_FOUND
    assert update(2, 9999, leader.epoch, high=0) is ErrorCode.INVALID_REQUEST
    end = script.quorum.next_offset
    assert update(2, 9093, leader.epoch) is ErrorCode.NONE
    assert script.quorum.next_offset == end, "nothing changed"
    assert update(2, 9999, leader.epoch) is ErrorCode.NONE
    assert script.quorum.voters[2].endpoints[0].port == 9999
    assert update(3, 9999, leader.epoch) is ErrorCode.REQUEST_TIMED_OUT, "the change before is not committed"


def test_a_static_quorum_becomes_dynamic_when_all_voters_are_known() -> None:
    script = Script(dynamic=False)
    leader = committed_leader(script)
    changes = script.quorum.voter_changes
    assert "not known" in (changes.why_not_dynamic() or "")
    for node_id in (2, 3):
        request = UpdateRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            current_leader_epoch=leader.epoch,
            voter_id=node_id,
            voter_directory_id=key(node_id).directory_id,
            listeners=[UpdateListener("CONTROLLER", f"node{node_id}", 9093)],
            kraft_version_feature=KRaftVersionFeature(0, 1),
        )
        assert changes.update(request, 0).error_code == ErrorCode.NONE
    assert changes.upgrade() is None
    assert script.quorum.kraft_version == 1
    assert script.quorum.voters == {1: voter(1), 2: voter(2), 3: voter(3)}
    script.fetch(2, script.quorum.next_offset, leader.epoch)
    assert leader.high_watermark == script.quorum.next_offset
