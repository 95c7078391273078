"""What a coordinator remembers: groups and offsets after a restart, while loading, and when another node takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker_node import SimulatedNode
from group_client import SESSION_MS, Member, commit, fetch, offsets, stable, subscription, with_groups

from moldau.broker.coordinators import WAIT_MS
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.hashing import partition_for
from moldau.ports import Pending
from moldau.protocol.coordinator_records import decode_key, decode_value
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.describe_groups_request import DescribeGroupsRequest
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.list_groups_request import ListGroupsRequest
from moldau.records.batch import iter_batches
from moldau.records.record import read_records


def group_of(node: SimulatedNode, group_id: str = "group") -> ClassicGroup:
    group = node.broker.group_coordinator().host(0).shard.groups[group_id]
    assert isinstance(group, ClassicGroup)
    return group


def log_of(node: SimulatedNode) -> list[tuple[Any, Any]]:
    """Every record of the offsets topic, decoded."""
    log = node.services.partitions.get("__consumer_offsets", 0).log
    found: list[tuple[Any, Any]] = []
    offset = 0
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20)
        for header in iter_batches(read.records):
            for record in read_records(read.records, header):
                assert record.key is not None
                key = decode_key("group", record.key)
                assert key.API_KEY is not None
                value = None if record.value is None else decode_value("group", key.API_KEY, record.value)
                found.append((key, value))
        offset = read.next_offset
    return found


# ---- FindCoordinator


def test_the_offsets_topic_is_made_as_the_node_says() -> None:
    node = SimulatedNode(offsets_topic_num_partitions="7", offsets_topic_segment_bytes="2000000")
    assert node.client.send(FindCoordinatorRequest(key="g"), 2).error_code == 0
    topic = node.services.image.topic("__consumer_offsets")
    assert topic is not None
    assert len(topic.partitions) == 7
    overrides = node.services.image.topic_config_overrides("__consumer_offsets")
    assert overrides["cleanup.policy"] == "compact"
    assert overrides["segment.bytes"] == "2000000"


def test_a_question_waits_for_the_topic_but_not_for_ever(node: SimulatedNode) -> None:
    never: Pending[Any] = Pending()
    node.services.controller = Silent(never)
    answer = node.client.post(FindCoordinatorRequest(key="g"), 3)
    other = node.client.post(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    node.clock.advance(WAIT_MS - 1)
    assert not answer.done
    assert not other.done
    node.clock.advance(1)
    assert answer.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert other.value.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_topic_that_cannot_be_made_is_told_at_once() -> None:
    node = SimulatedNode(offsets_topic_replication_factor="3")
    assert node.client.send(FindCoordinatorRequest(key="g"), 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


class Silent:
    """A controller that cannot be reached."""

    def __init__(self, answer: Pending[Any]) -> None:
        self.answer = answer

    def ask(self, request: Any, api_version: int, principal: str, *, host: str = "") -> Pending[Any]:
        return self.answer


# ---- restarts


def test_a_restart_keeps_generation_members_and_assignments() -> None:
    node = with_groups()
    node.create_topic("orders")
    protocols = (("range", subscription("orders")), ("sticky", b""))
    dynamic, static = Member(node, protocols=protocols), Member(node, instance="a", protocols=protocols)
    stable(node, dynamic, static)
    dynamic.commit("orders", 0, 12)
    before = node.client.send(DescribeGroupsRequest(groups=["group"]), 5)
    node.restart()
    for member in (dynamic, static):
        member.client.service = node.broker
    assert node.client.send(DescribeGroupsRequest(groups=["group"]), 5) == before
    assert dynamic.heartbeat() == static.heartbeat() == 0
    assert dynamic.commit("orders", 0, 13) == 0
    assert static.sync().assignment == b"1"
    group = group_of(node)
    assert (group.generation, group.protocol_name, group.leader_id) == (1, "range", dynamic.joined.leader)
    assert group.subscribed == {"orders"}


def test_members_that_do_not_come_back_are_removed() -> None:
    node = with_groups()
    stable(node, Member(node, session_ms=6000), Member(node, session_ms=6000))
    node.restart()
    assert len(group_of(node).members) == 2
    node.clock.advance(6000)
    # Both go at the same moment, and a generation without anybody begins.
    assert (group_of(node).state_name, group_of(node).generation) == ("Empty", 2)
    node.restart()
    assert (group_of(node).state_name, group_of(node).generation) == ("Empty", 2)


def test_a_rebalance_that_was_not_over_is_forgotten() -> None:
    node = with_groups()
    old, new = Member(node), Member(node)
    stable(node, old)
    new.join()
    node.restart()
    old.client.service = new.client.service = node.broker
    assert old.heartbeat() == 0, "the last generation that was stored goes on"
    assert new.post_join().value.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_groups_that_are_too_large_after_a_restart_rebalance() -> None:
    node = with_groups()
    members = [Member(node) for _ in range(3)]
    stable(node, *members)
    node.config = type(node.config).load({**node.config.originals, "group.max.size": "2"})
    node.restart()
    for member in members:
        member.client.service = node.broker
    assert members[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    answers = [member.join() for member in members]
    assert answers[2].value.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [answer.value.generation_id for answer in answers[:2]] == [2, 2]


def test_what_is_written_is_what_kafka_writes() -> None:
    node = with_groups()
    node.create_topic("orders")
    member = Member(node, instance="a")
    stable(node, member)
    member.commit("orders", 0, 5, metadata="m", leader_epoch=3)
    member.leave()
    kinds = [(type(key).__name__, None if value is None else value[1]) for key, value in log_of(node)]
    assert kinds == [
        ("GroupMetadataKey", 3),
        ("GroupMetadataKey", 3),
        ("OffsetCommitKey", 4),
        ("GroupMetadataKey", 3),
    ]
    new, full, offset, empty = (value[0] for _, value in log_of(node))
    assert (new.generation, new.protocol_type, new.protocol, new.leader, new.members) == (0, "", None, None, [])
    assert (full.generation, full.protocol_type, full.protocol, full.leader) == (1, "consumer", "range", member.id)
    (stored,) = full.members
    assert (stored.member_id, stored.group_instance_id, stored.client_id, stored.client_host) == (
        member.id,
        "a",
        "tests",
        "/192.0.2.7",
    )
    assert (stored.rebalance_timeout, stored.session_timeout) == (member.rebalance_ms, member.session_ms)
    assert (stored.subscription, stored.assignment) == (b"metadata", b"0")
    topic = node.services.image.topic("orders")
    assert topic is not None
    assert (offset.offset, offset.leader_epoch, offset.metadata, offset.topic_id) == (5, 3, "m", topic.id)
    assert offset.commit_timestamp == node.clock.now_ms()
    assert (empty.generation, empty.protocol, empty.leader, empty.members) == (2, None, None, [])
    assert empty.protocol_type == "consumer"


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_the_topic_may_be_compressed(codec: int) -> None:
    node = with_groups(offsets_topic_compression_codec=str(codec))
    node.create_topic("orders")
    commit(node.client, "g", "orders", 0, 5)
    log = node.services.partitions.get("__consumer_offsets", 0).log
    assert {header.codec for header in iter_batches(log.read(0, 1 << 20).records)} == {codec}
    node.restart()
    assert offsets(fetch(node.client, "g")) == {("orders", 0): 5}


# ---- loading


class Later:
    """`ports.Background` that runs nothing until it is told."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Iterator[None], Callable[[BaseException | None], None] | None]] = []

    def run(self, steps: Iterator[None], done: Callable[[BaseException | None], None] | None = None) -> None:
        self.jobs.append((steps, done))

    def work(self) -> None:
        for steps, done in self.jobs:
            for _ in steps:
                pass
            if done is not None:
                done(None)


def test_while_loading() -> None:
    node = with_groups()
    node.create_topic("orders")
    member = Member(node)
    stable(node, member)
    member.commit("orders", 0, 5)
    background = Later()
    node.services.background = background
    node.broker.groups = None
    node.broker = type(node.broker)(node.services)
    member.client.service = node.client.service = node.broker
    runtime = node.broker.group_coordinator()
    assert runtime.any_loading
    assert member.commit("orders", 0, 6) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert fetch(node.client, "group").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert member.heartbeat() == 0, "nothing is known against it"
    assert member.post_join().value.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert member.sync().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert member.leave().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.client.send(ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (described,) = node.client.send(DescribeGroupsRequest(groups=["group"]), 4).groups
    assert described.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    background.work()
    assert member.heartbeat() == 0
    assert offsets(fetch(node.client, "group")) == {("orders", 0): 5}


def test_whoever_waits_is_told_when_another_node_takes_over() -> None:
    node = with_groups()
    old, new = Member(node), Member(node)
    stable(node, old)
    waiting = new.join()
    node.client.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="__consumer_offsets")]), 6)
    assert waiting.value.error_code == ErrorCode.NOT_COORDINATOR
    assert old.heartbeat() == ErrorCode.NOT_COORDINATOR
    before = node.clock.waiting
    node.clock.advance(SESSION_MS * 10)
    assert node.clock.waiting <= before, "no timer of the group is left"
    assert node.client.send(FindCoordinatorRequest(key="group"), 3).error_code == 0, "a new topic is made"
    assert Member(node).join_now().generation_id == 1


def test_groups_are_spread_over_the_partitions() -> None:
    node = SimulatedNode(offsets_topic_num_partitions="5")
    node.client.send(FindCoordinatorRequest(key="g"), 3)
    node.create_topic("orders")
    names = [f"group-{number}" for number in range(20)]
    for number, name in enumerate(names):
        assert commit(node.client, name, "orders", 0, number) == 0
    runtime = node.broker.group_coordinator()
    for name in names:
        assert name in runtime.host(partition_for(name, 5)).shard.groups
    node.restart()
    assert [offsets(fetch(node.client, name))["orders", 0] for name in names] == list(range(20))
    assert len(node.client.send(ListGroupsRequest(), 5).groups) == 20
