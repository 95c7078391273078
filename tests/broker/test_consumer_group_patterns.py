"""Subscriptions by regular expression: resolved at once, again when topics come, and only to what may be seen."""

from __future__ import annotations

import pytest
from broker_node import SimulatedNode
from consumer_group_client import NextMember, described, settle
from group_client import with_groups

from moldau.broker.authorization import Operation, ResourceKind
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

REFRESH_MS = 10_001


@pytest.fixture
def node() -> SimulatedNode:
    node = with_groups()
    for name in ("orders-eu", "orders-us", "payments"):
        node.create_topic(name, 2)
    return node


def names(member: NextMember) -> list[str]:
    return sorted({name for name, _ in member.partitions})


def test_resolved_when_joining(node: SimulatedNode) -> None:
    member = NextMember(node, "a", regex="orders-.*")
    assert member.join().error_code == 0
    assert names(member) == ["orders-eu", "orders-us"]
    assert described(node).members[0].subscribed_topic_regex == "orders-.*"


def test_an_invalid_expression(node: SimulatedNode) -> None:
    answer = NextMember(node, "a", regex="(?=x)").join()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message == (
        "SubscribedTopicRegex `(?=x)` is not a valid regular expression: invalid or unsupported Perl syntax."
    )
    assert described(node).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_names_and_an_expression(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "payments", regex=".*-us")
    member.join()
    assert names(member) == ["orders-us", "payments"]


def test_new_topics_are_found_but_not_all_the_time(node: SimulatedNode) -> None:
    member = NextMember(node, "a", regex="orders-.*")
    member.join()
    node.create_topic("orders-jp")
    node.clock.advance(2000)
    member.settle()
    assert names(member) == ["orders-eu", "orders-us"]
    node.clock.advance(REFRESH_MS)
    member.settle()
    assert names(member) == ["orders-eu", "orders-jp", "orders-us"]


def test_topics_that_are_deleted(node: SimulatedNode) -> None:
    member = NextMember(node, "a", regex="orders-.*")
    member.join()
    node.client.send(DeleteTopicsRequest(topics=[DeleteTopicState("orders-eu")]), 6)
    node.clock.advance(2000)
    settle(node, member, rounds=3)
    assert names(member) == ["orders-us"]


def test_members_with_different_expressions(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", regex="orders-.*"), NextMember(node, "b", regex="pay.*|orders-eu")
    first.join()
    second.join()
    settle(node, first, second)
    assert first.partitions | second.partitions == {
        (name, index) for name in ("orders-eu", "orders-us", "payments") for index in range(2)
    }
    assert not first.partitions & second.partitions
    assert "payments" not in names(first)
    second.leave()
    node.clock.advance(1000)
    first.settle()
    assert names(first) == ["orders-eu", "orders-us"]


def test_a_member_changes_its_expression(node: SimulatedNode) -> None:
    member = NextMember(node, "a", regex="orders-.*")
    member.join()
    member.regex = "pay.*"
    node.clock.advance(1000)
    member._take(member.send(member.full()))
    member.acknowledge()
    assert names(member) == ["payments"]
    member.regex = ""
    member.topics = ["orders-us"]
    node.clock.advance(1000)
    member._take(member.send(member.full()))
    member.acknowledge()
    assert names(member) == ["orders-us"]


def test_what_expressions_mean_survives_a_restart(node: SimulatedNode) -> None:
    member = NextMember(node, "a", regex="orders-.*")
    member.join()
    before = described(node)
    node.restart()
    member.client = type(member.client)(node, client_id=member.client.client_id)
    assert member.beat().error_code == 0
    assert described(node) == before


def test_only_what_the_member_may_know_of(node: SimulatedNode) -> None:
    class NotThese:
        def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
            return kind is not ResourceKind.TOPIC or name != "orders-us"

    node.services.authorizer = NotThese()
    member = NextMember(node, "a", regex="orders-.*")
    member.join()
    assert names(member) == ["orders-eu"]
    refused = NextMember(node, "b", "orders-us").join()
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_many_topics_are_matched_in_steps(node: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.coordinator.group.consumer.topic_patterns._STEP", 20)
    member = NextMember(node, "a", regex="orders-(eu|us)")
    member.join()
    assert member.partitions == set(), "not all topics were looked at yet"
    node.clock.advance(0)
    node.clock.advance(1000)
    member.settle()
    assert names(member) == ["orders-eu", "orders-us"]


def test_who_leaves_meanwhile_needs_no_result(node: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.coordinator.group.consumer.topic_patterns._STEP", 20)
    member = NextMember(node, "a", regex="orders-(eu|us)")
    member.join()
    member.leave()
    epoch = described(node).group_epoch
    node.clock.advance(1000)
    assert described(node).group_epoch == epoch
