"""Consumer groups survive a restart with everything that matters, and their records are Kafka's."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode, fetch_request, records_of
from consumer_group_client import NextMember, described, settle
from group_client import with_groups

from moldau.protocol.coordinator_records import decode_key, decode_value
from moldau.protocol.errors import ErrorCode


@pytest.fixture
def node() -> SimulatedNode:
    node = with_groups()
    node.create_topic("orders", 6)
    return node


def log_of(node: SimulatedNode) -> list[tuple[str, Any]]:
    """The group's records: the name of each kind, and its value."""
    answer = node.client.send(fetch_request("__consumer_offsets", 0, version=12, max_bytes=50 << 20), 12)
    found: list[tuple[str, Any]] = []
    for record in records_of(answer.responses[0].partitions[0].records):
        assert record.key is not None
        key = decode_key("group", record.key)
        value = None
        if record.value is not None:
            assert key.API_KEY is not None
            value = decode_value("group", key.API_KEY, record.value)[0]
        found.append((type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key"), value))
    return found


def test_records_of_a_join_and_a_leave(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "orders")
    member.join()
    kinds = [kind for kind, _ in log_of(node)]
    assert kinds == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    (_, metadata), (_, group), (_, target), (_, target_epoch), (_, current) = log_of(node)
    assert metadata.subscribed_topic_names == ["orders"]
    assert (group.epoch, target_epoch.assignment_epoch, current.member_epoch) == (2, 2, 2)
    assert group.metadata_hash != 0
    assert target_epoch.assignment_timestamp == node.clock.now_ms()
    assert target.topic_partitions[0].partitions == [*range(6)]
    assert (current.previous_member_epoch, current.state) == (0, 0)
    assert current.assigned_partitions[0].assignment_epochs == [2] * 6
    member.beat()
    assert len(log_of(node)) == 5, "a heartbeat that changes nothing writes nothing"
    member.leave()
    assert [(kind, value is None) for kind, value in log_of(node)[5:]] == [
        ("CurrentMemberAssignment", True),
        ("TargetAssignmentMember", True),
        ("MemberMetadata", True),
        ("Metadata", False),
    ]


def test_members_go_on_after_a_restart(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders", instance="one"), NextMember(node, "b", "orders")
    first.join()
    second.join()
    settle(node, first, second)
    before = described(node)
    had = first.partitions, second.partitions
    node.restart()
    assert described(node) == before
    for member in (first, second):
        member.client = type(member.client)(node, client_id=member.client.client_id)
        assert member.beat().error_code == 0
    assert (first.partitions, second.partitions) == had
    assert described(node).group_epoch == before.group_epoch, "nothing has changed"
    assert NextMember(node, "c", "orders", instance="one").join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_restart_in_the_middle_of_a_rebalance(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders"), NextMember(node, "b", "orders")
    first.join()
    node.clock.advance(1000)
    second.join()
    first.beat()
    node.restart()
    for member in (first, second):
        member.client = type(member.client)(node, client_id=member.client.client_id)
    second.beat()
    assert second.partitions == set(), "the first has not said that it gave anything up"
    settle(node, first, second, step_ms=500)
    assert len(first.partitions) == len(second.partitions) == 3
    assert not first.partitions & second.partitions


def test_whoever_is_silent_after_a_restart_is_out() -> None:
    # Short, because the timers of the node's former life must not fire.
    node = with_groups(group_consumer_session_timeout_ms="6000", group_consumer_min_session_timeout_ms="6000")
    member = NextMember(node, "a", "orders")
    member.join()
    node.restart()
    node.clock.advance(5999)
    assert described(node).group_state == "Stable"
    node.clock.advance(1)
    assert described(node).group_state == "Empty"


def test_an_emptied_group_survives(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "orders")
    member.join()
    member.leave()
    node.restart()
    found = described(node)
    assert (found.group_state, found.group_epoch) == ("Empty", 3)
    again = NextMember(node, "b", "orders")
    again.join()
    assert again.epoch == 4, "epochs only grow"


def test_static_members_that_are_away(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "orders", instance="one")
    member.join()
    had = member.partitions
    member.leave(-2)
    node.restart()
    again = NextMember(node, "b", "orders", instance="one")
    assert again.join().error_code == 0
    assert again.partitions == had
