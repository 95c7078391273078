"""The share coordinator: whose writes count, what is written, what survives a restart, and how the log stays short."""

from __future__ import annotations

import pytest
from broker_node import SimulatedNode
from share_state_client import STATE_TOPIC, StateClient, state_log, with_share_state
from txn_client import restart

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest
from moldau.protocol.generated.wire.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.write_share_group_state_request import WriteShareGroupStateRequest

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


@pytest.fixture
def node() -> SimulatedNode:
    return with_share_state()


@pytest.fixture
def state(node: SimulatedNode) -> StateClient:
    return StateClient(node, node.create_topic("orders", 3))


def test_a_partition_is_initialised_written_and_read(state: StateClient) -> None:
    assert state.initialize(start=10, state_epoch=3).error_code == 0
    assert state.write((10, 19, ACKNOWLEDGED, 1), (25, 29, AVAILABLE, 2), start=10, complete=10).error_code == 0
    found = state.read()
    assert (found.error_code, found.state_epoch, found.start_offset) == (0, 3, 10)
    assert state.batches() == [(10, 19, ACKNOWLEDGED, 1), (25, 29, AVAILABLE, 2)]
    summary = state.summary()
    assert (summary.start_offset, summary.delivery_complete_count, summary.state_epoch) == (10, 10, 3)


def test_a_start_offset_drops_what_is_before_it(state: StateClient) -> None:
    state.initialize(start=0)
    state.write((0, 9, ACKNOWLEDGED, 1), (10, 19, AVAILABLE, 1), start=0)
    state.write(start=15)
    assert state.batches() == [(15, 19, AVAILABLE, 1)]


def test_a_write_that_comes_late_does_not_move_the_start_back(state: StateClient) -> None:
    state.initialize(start=0)
    late = ((0, 9, ACKNOWLEDGED, 1), (10, 19, AVAILABLE, 1))
    state.write(*late, start=0)
    state.write((10, 19, ACKNOWLEDGED, 2), start=10)
    state.write(start=20)
    assert state.write(*late, start=0).error_code == 0
    assert (state.read().start_offset, state.batches()) == (20, [])
    restart(state.node)
    assert (state.read().start_offset, state.batches()) == (20, [])


def test_nobody_reads_or_writes_what_is_not_initialised(state: StateClient) -> None:
    assert state.read().error_code == ErrorCode.INVALID_REQUEST
    assert state.write((0, 1, AVAILABLE, 1)).error_code == ErrorCode.INVALID_REQUEST
    summary = state.summary()
    assert (summary.error_code, summary.start_offset, summary.delivery_complete_count) == (0, -1, -1)
    assert state.delete().error_code == 0, "there is nothing to delete, and nothing wrong with that"
    assert state_log(state.node) == []


def test_an_initialised_partition_that_was_never_read_has_no_start(state: StateClient) -> None:
    state.initialize()
    summary = state.summary()
    assert (summary.start_offset, summary.delivery_complete_count) == (-1, -1)


def test_a_leader_that_was_replaced_is_fenced(state: StateClient) -> None:
    state.initialize(start=0)
    assert state.read(leader_epoch=5).error_code == 0
    assert state.write((0, 1, AVAILABLE, 1), leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert state.read(leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert state.write((0, 1, AVAILABLE, 1), leader_epoch=5).error_code == 0
    assert state.summary().leader_epoch == 5
    restart(state.node)
    assert state.write((0, 1, AVAILABLE, 1), leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_state_that_was_replaced_is_fenced(state: StateClient) -> None:
    state.initialize(start=0, state_epoch=2)
    assert state.write(state_epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert state.initialize(state_epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert state.initialize(start=7, state_epoch=2).error_code == 0
    assert state.read().start_offset == 7


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_initialisation_that_comes_late_undoes_nothing(state: StateClient, epoch: int) -> None:
    state.initialize(state_epoch=1)
    assert state.write((0, 9, ACKNOWLEDGED, 1), start=0, complete=10).error_code == 0
    assert state.initialize(state_epoch=epoch).error_code == 0
    found = state.read()
    assert (found.start_offset, found.state_epoch) == (0, epoch)
    assert state.batches() == [(0, 9, ACKNOWLEDGED, 1)]
    restart(state.node)
    assert state.batches() == [(0, 9, ACKNOWLEDGED, 1)]


def test_unknown_topics_and_partitions(state: StateClient) -> None:
    stranger = StateClient(state.node, bytes(15) + b"x")
    assert stranger.initialize().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert state.initialize(3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert state.initialize(-1).error_code == ErrorCode.INVALID_REQUEST
    assert stranger.summary().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_about_nothing_is_answered_with_nothing(node: SimulatedNode) -> None:
    assert node.client.send(WriteShareGroupStateRequest("group"), 1).results == []


def test_every_so_many_updates_a_snapshot_is_written() -> None:
    node = with_share_state(share_coordinator_snapshot_update_records_per_snapshot="2")
    state = StateClient(node, node.create_topic("orders"))
    state.initialize(start=0)
    for offset in range(5):
        state.write((offset, offset, ACKNOWLEDGED, 1), start=0)
    kinds = [kind for kind, _ in state_log(node)]
    assert kinds == ["ShareSnapshot", "ShareUpdate", "ShareUpdate", "ShareSnapshot", "ShareUpdate", "ShareUpdate"]
    snapshot = state_log(node)[3][1]
    assert (snapshot.snapshot_epoch, snapshot.create_timestamp) == (1, snapshot.write_timestamp)
    assert [(each.first_offset, each.last_offset) for each in snapshot.state_batches] == [(0, 2)]


def test_a_restart_brings_everything_back(state: StateClient) -> None:
    state.initialize(start=0, state_epoch=1)
    state.initialize(1, start=5)
    state.write((0, 4, ACKNOWLEDGED, 1), start=0)
    state.write((3, 9, ARCHIVED, 3), start=2, complete=7)
    state.initialize(2)
    state.delete(2)
    before = [state.read(0), state.read(1), state.summary(0)]
    restart(state.node)
    assert [state.read(0), state.read(1), state.summary(0)] == before
    assert state.read(2).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_that_is_deleted_takes_its_state_along(state: StateClient) -> None:
    state.initialize(start=0)
    state.initialize(1, start=0)
    state.node.client.send(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 4)
    assert [value for _, value in state_log(state.node)[-2:]] == [None, None]
    assert not next(iter(state.node.broker.share_coordinator().runtime.shards())).partitions


# ---- keeping the log short


def log_start(node: SimulatedNode) -> int:
    return node.broker.services.partitions.get(STATE_TOPIC, 0).log.log_start_offset


def test_records_that_say_nothing_new_are_pruned() -> None:
    node = with_share_state(
        share_coordinator_snapshot_update_records_per_snapshot="1",
        **{"share.coordinator.state.topic.prune.interval.ms": "1000"},
    )
    state = StateClient(node, node.create_topic("orders", 2))
    state.initialize(0, start=0)
    state.initialize(1, start=0)
    for offset in range(6):
        state.write((offset, offset, ACKNOWLEDGED, 1), start=0)
    node.clock.advance(1100)
    assert log_start(node) == 1, "the other partition's only snapshot is needed"
    for offset in range(4):
        state.write((offset, offset, ACKNOWLEDGED, 1), start=0, partition=1)
    node.clock.advance(1000)
    assert log_start(node) > 1
    before = [state.batches(0), state.batches(1)]
    restart(node)
    assert [state.batches(0), state.batches(1)] == before


def test_what_is_cold_is_written_anew_so_that_the_rest_can_go() -> None:
    node = with_share_state(
        **{
            "share.coordinator.state.topic.prune.interval.ms": "2500",
            "share.coordinator.cold.partition.snapshot.interval.ms": "1000",
        }
    )
    state = StateClient(node, node.create_topic("orders"))
    state.initialize(start=3)
    state.write((3, 5, ACKNOWLEDGED, 1), start=3)
    node.clock.advance(1100)
    kind, cold = state_log(node)[-1]
    assert (kind, cold.start_offset, cold.snapshot_epoch) == ("ShareSnapshot", 3, 1)
    assert cold.write_timestamp > cold.create_timestamp
    node.clock.advance(1000)
    assert len(state_log(node)) == 3, "once is enough while nothing changes"
    node.clock.advance(1000)
    assert log_start(node) == 2
    assert state.batches() == [(3, 5, ACKNOWLEDGED, 1)]


# ---- finding it


def test_find_coordinator_knows_share_coordinators(node: SimulatedNode) -> None:
    key = "a:group:AAAAAAAAAAAAAAAAAAAAAQ:3"
    answer = node.client.send(FindCoordinatorRequest(key_type=2, coordinator_keys=[key, "nonsense"]), 6)
    found, refused = answer.coordinators
    assert (found.error_code, found.node_id) == (0, 1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_the_topic_is_made_as_kafka_makes_it(node: SimulatedNode) -> None:
    resource = DescribeConfigsResource(resource_type=2, resource_name=STATE_TOPIC)
    answer = node.client.send(DescribeConfigsRequest(resources=[resource]), 4)
    settings = {each.name: each.value for each in answer.results[0].configs}
    assert settings["cleanup.policy"] == "delete"
    assert settings["retention.ms"] == "-1"
    assert settings["segment.bytes"] == "104857600"
    assert settings["min.insync.replicas"] == "1"
