"""A quorum of one voter: epochs, control records, commit only when durable, restart, crash at any moment."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorum_world import DIRECTORY_ID, QuorumWorld, own_voter

from moldau.metadata.image import NO_PROVENANCE
from moldau.protocol.codec import decode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from moldau.protocol.generated.wire.leader_change_message import LeaderChangeMessage
from moldau.protocol.generated.wire.voters_record import VotersRecord
from moldau.quorum.describe import describe_quorum
from moldau.quorum.quorum import QuorumError
from moldau.quorum.state_file import CorruptQuorumState
from moldau.quorum.voters import voters_from_record
from moldau.records.record import ControlRecord, read_control_records

STATE = "/data/__cluster_metadata-0/quorum-state"


def control_records(world: QuorumWorld) -> list[ControlRecord]:
    log = world.quorum.log
    return [
        record
        for header, batch in log.batches(0, log.end_offset)
        if header.is_control
        for record in read_control_records(batch)
    ]


def test_the_first_epoch_begins_with_leader_version_and_voters() -> None:
    world = QuorumWorld()
    quorum = world.start()
    leader, version, voters = control_records(world)
    assert (quorum.is_leader, quorum.epoch, quorum.leader_id, quorum.kraft_version) == (True, 1, 1, 1)
    change = decode(LeaderChangeMessage, leader.value, 0)
    assert (change.leader_id, [v.voter_id for v in change.granting_voters]) == (1, [1])
    assert (leader.type, version.type, voters.type) == (2, 5, 6)
    assert voters_from_record(decode(VotersRecord, voters.value, 0)) == {1: own_voter()}
    assert world.leadership.epochs == [1]


def test_every_start_is_a_new_epoch_and_only_a_changed_voter_is_written_again() -> None:
    world = QuorumWorld()
    for epoch in (1, 2, 3):
        assert world.start().epoch == epoch
        world.quorum.shutdown()
    assert [record.type for record in control_records_after_restart(world)] == [2, 5, 6, 2, 2, 2]
    world.quorum.shutdown()
    world.start(own_voter(port=9999))
    assert [record.type for record in control_records(world)][-3:] == [2, 5, 6]
    assert world.quorum.voters[1].endpoints[0].port == 9999


def control_records_after_restart(world: QuorumWorld) -> list[ControlRecord]:
    world.start()
    return control_records(world)


def test_quorum_state_file() -> None:
    world = QuorumWorld()
    world.start()
    state = json.loads(world.disk.read_bytes(STATE))
    assert state == {
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": 1,
        "votedDirectoryId": "ZGVmZ2hpamtsbW5vcHFycw",
        "data_version": 1,
    }
    world = QuorumWorld(dynamic=False)
    world.start()
    state = json.loads(world.disk.read_bytes(STATE))
    assert state["data_version"] == 0
    assert state["currentVoters"] == [{"voterId": 1}]
    assert [record.type for record in control_records(world)] == [2]


def test_an_epoch_is_durable_before_it_is_used() -> None:
    """A leader that forgets its epoch could lead the same epoch twice with different records."""
    world = QuorumWorld()
    world.start()
    world.disk.hold_syncs = True
    world.append_topics("a")
    world.disk.crash()
    world.disk.hold_syncs = False
    assert world.start().epoch == 2


def test_a_state_file_of_nonsense_is_refused() -> None:
    world = QuorumWorld()
    world.start()
    world.quorum.shutdown()
    world.disk.write_atomically(STATE, b"{}")
    with pytest.raises(CorruptQuorumState, match="quorum-state"):
        world.start()


def test_nothing_is_committed_before_it_is_durable() -> None:
    world = QuorumWorld()
    world.start()
    world.disk.hold_syncs = True
    first = world.append_topics("a")
    second = world.append_topics("b", "c")
    assert not first.committed.done
    assert world.topics == []
    world.disk.finish_syncs()
    assert first.committed.value is ErrorCode.NONE
    world.disk.finish_syncs()
    assert second.committed.value is ErrorCode.NONE
    assert (first.last_offset, second.base_offset, second.last_offset) == (3, 4, 5)
    assert world.topics == ["a", "b", "c"]
    assert world.quorum.high_watermark == 6


def test_a_listener_may_append_while_it_is_told() -> None:
    world = QuorumWorld()
    world.start()
    offsets: list[int] = []

    def follow(delta: object, image: object) -> None:
        offsets.append(world.loader.image.offset)
        if len(offsets) < 4:
            world.append_topics(f"more-{len(offsets)}")

    world.loader.add_publisher(follow)
    world.append_topics("first")
    assert offsets == sorted(set(offsets))
    assert world.topics == ["more-1", "more-2", "more-3", "first"]


def test_who_waits_at_shutdown_is_told() -> None:
    world = QuorumWorld()
    world.start()
    world.disk.hold_syncs = True
    appended = world.append_topics("a")
    world.quorum.shutdown()
    assert appended.committed.value is ErrorCode.NOT_CONTROLLER
    assert world.leadership.resigned == 1


def test_a_disk_that_fails_commits_nothing() -> None:
    world = QuorumWorld()
    world.start()
    world.disk.fail("sync", ending=".log")
    appended = world.append_topics("a")
    assert not appended.committed.done
    assert len(world.failures) == 1
    assert world.topics == []


def test_large_appends_are_split_and_read_back() -> None:
    world = QuorumWorld()
    world.start()
    names = [f"t{i}" for i in range(25_000)]
    world.append_topics(*names)
    before = replace(world.loader.image, provenance=NO_PROVENANCE)
    world.quorum.shutdown()
    world.start()
    assert world.topics == names
    assert replace(world.loader.image, provenance=NO_PROVENANCE) == before


def test_a_node_that_knows_no_voter_at_all() -> None:
    world = QuorumWorld(dynamic=False)
    world.start()
    world.static = {}
    with pytest.raises(QuorumError, match="not a voter"):
        world.start(own_voter()._replace(id=7))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_a_crash_at_any_moment_keeps_what_was_committed(seed: int) -> None:
    """Random appends, syncs that end late, crashes that keep a random part of what was not synced, restarts."""
    random = Random(seed)
    world = QuorumWorld()
    world.start()
    committed: list[str] = []
    appended = 0

    def note(names: list[str], code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            committed.extend(names)

    for _ in range(random.randint(3, 25)):
        action = random.random()
        if action < 0.6:
            names = [f"t{appended + i}" for i in range(random.randint(1, 4))]
            appended += len(names)
            world.append_topics(*names).committed.then(partial(note, names))
        elif action < 0.75:
            world.disk.hold_syncs = random.random() < 0.5
        elif action < 0.9:
            world.disk.finish_syncs(random.randint(0, 3))
        else:
            epoch = world.quorum.epoch
            world.disk.crash(random if random.random() < 0.7 else None, keep_unsynced=random.random() < 0.2)
            world.disk.hold_syncs = False
            world.start()
            assert world.quorum.epoch > epoch
            assert world.topics[: len(committed)] == committed
            # What survived without having been acknowledged is committed by the new epoch.
            committed[:] = world.topics
            appended = max((int(name[1:]) for name in committed), default=-1) + 1
        assert world.topics == committed
        assert world.loader.image.offset < world.quorum.next_offset


def test_a_cut_at_every_byte_of_the_last_batch_loses_only_that_batch() -> None:
    world = QuorumWorld()
    world.start()
    world.append_topics("kept")
    path = "/data/__cluster_metadata-0/00000000000000000000.log"
    whole = world.disk.file_size(path)
    world.append_topics("cut")
    data = world.disk.read_bytes(path)
    for size in range(whole, len(data)):
        other = QuorumWorld()
        other.start()
        other.quorum.shutdown()
        other.disk.write_atomically(path, data[:size])
        other.start()
        assert other.topics == ["kept"]


def test_describe_quorum() -> None:
    world = QuorumWorld()
    world.start()
    world.append_topics("a")
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    response = describe_quorum(world.quorum, request, 2, world.clock)
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, 4)
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.replica_directory_id, voter.log_end_offset) == (1, DIRECTORY_ID, 4)
    assert voter.last_caught_up_timestamp == world.clock.now_ms()
    assert [(e.name, e.port) for e in response.nodes[0].listeners] == [("CONTROLLER", 9093)]
    assert describe_quorum(world.quorum, request, 1, world.clock).nodes == []
    request.topics[0].topic_name = "other"
    answer = describe_quorum(world.quorum, request, 2, world.clock)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.quorum.shutdown()
    request.topics[0].topic_name = "__cluster_metadata"
    answer = describe_quorum(world.quorum, request, 2, world.clock)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
