"""Groups as tools see them: DescribeGroups, ListGroups, DeleteGroups, and what the caller may see of them."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import Client, SimulatedNode
from group_client import GATHERED_MS, Member, commit, fetch, offsets, stable, with_groups

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.broker import Broker
from moldau.metadata.delta import ImageDelta
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.delete_groups_request import DeleteGroupsRequest
from moldau.protocol.generated.wire.describe_groups_request import DescribeGroupsRequest
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.list_groups_request import ListGroupsRequest


@pytest.fixture
def node() -> SimulatedNode:
    node = with_groups()
    node.create_topic("orders")
    return node


# ---- DescribeGroups


@pytest.mark.parametrize("version", range(7))
def test_describe_a_stable_group(node: SimulatedNode, version: int) -> None:
    member = Member(node, instance="a")
    stable(node, member)
    (group,) = node.client.send(DescribeGroupsRequest(groups=["group"]), version).groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "group", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (described,) = group.members
    assert (described.member_id, described.client_id, described.client_host) == (member.id, "tests", "/192.0.2.7")
    assert (described.member_metadata, described.member_assignment) == (b"metadata", b"0")
    assert described.group_instance_id == ("a" if version >= 4 else None)


@pytest.mark.parametrize("version", range(7))
def test_describe_a_group_that_does_not_exist(node: SimulatedNode, version: int) -> None:
    (group,) = node.client.send(DescribeGroupsRequest(groups=["nobody"]), version).groups
    assert group.group_state == "Dead"
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert group.error_message == ("Group nobody not found." if version >= 6 else None)


def test_describe_every_state(node: SimulatedNode) -> None:
    def described() -> tuple[str, int, str]:
        (group,) = node.client.send(DescribeGroupsRequest(groups=["group"]), 5).groups
        return group.group_state, len(group.members), group.protocol_data

    member, other = Member(node), Member(node)
    member.join()
    assert described() == ("PreparingRebalance", 1, "")
    node.clock.advance(GATHERED_MS)
    assert described() == ("CompletingRebalance", 1, "")
    member.sync({member.id: b"x"})
    assert described() == ("Stable", 1, "range")
    other.join()
    assert described() == ("PreparingRebalance", 2, "")
    other.leave()
    member.join_now()
    member.leave()
    assert described() == ("Empty", 0, "")


def test_describe_with_authorized_operations(node: SimulatedNode) -> None:
    request = DescribeGroupsRequest(groups=["group"], include_authorized_operations=True)
    stable(node, Member(node))
    (group,) = node.client.send(request, 5).groups
    assert {bit for bit in range(32) if group.authorized_operations >> bit & 1} == {3, 6, 8, 10, 11}
    (without,) = node.client.send(DescribeGroupsRequest(groups=["group"]), 5).groups
    assert without.authorized_operations == -(2**31)


# ---- ListGroups


@pytest.mark.parametrize("version", range(6))
def test_list_groups(node: SimulatedNode, version: int) -> None:
    stable(node, Member(node, "workers", protocol_type="connect"))
    commit(node.client, "alone", "orders", 0, 1)
    answer = node.client.send(ListGroupsRequest(), version)
    listed = {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups}
    states = ("Stable", "Empty") if version >= 4 else ("", "")
    kind = "classic" if version >= 5 else ""
    assert listed == {"workers": ("connect", states[0], kind), "alone": ("", states[1], kind)}


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        (["Stable"], [], ["workers"]),
        (["stable", " EMPTY "], [], ["alone", "workers"]),
        (["Dead"], [], []),
        (["nonsense"], [], []),
        ([], ["Classic"], ["alone", "workers"]),
        ([], ["consumer"], []),
        (["Empty"], ["classic", "share"], ["alone"]),
    ],
)
def test_list_some_groups(node: SimulatedNode, states: list[str], types: list[str], expected: list[str]) -> None:
    stable(node, Member(node, "workers", protocol_type="connect"))
    commit(node.client, "alone", "orders", 0, 1)
    answer = node.client.send(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert sorted(each.group_id for each in answer.groups) == expected


# ---- DeleteGroups


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(node: SimulatedNode, version: int) -> None:
    stable(node, Member(node, "busy"))
    commit(node.client, "alone", "orders", 0, 1)
    request = DeleteGroupsRequest(["busy", "alone", "nobody", "alone"])
    answer = node.client.send(request, version)
    assert {each.group_id: each.error_code for each in answer.results} == {
        "busy": ErrorCode.NON_EMPTY_GROUP,
        "alone": 0,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert offsets(fetch(node.client, "alone")) == {}
    node.restart()
    assert [each.group_id for each in node.client.send(ListGroupsRequest(), 5).groups] == ["busy"]


def test_very_many_offsets_are_deleted_in_parts(node: SimulatedNode) -> None:
    """Their tombstones do not fit into one batch."""
    node.create_topic("wide", 1)
    shard = node.broker.group_coordinator().host(0).shard
    for partition in range(30_000):
        shard.offsets._put("g", "w" * 200, partition, b"")
    commit(node.client, "g", "orders", 0, 1)
    assert node.client.send(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 0
    assert shard.offsets.count == 0
    assert not shard.groups


# ---- who may see what


class Only:
    def __init__(self, *allowed: tuple[Operation, ResourceKind, str]) -> None:
        self.allowed = allowed

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return (operation, kind, name) in self.allowed


def guarded(node: SimulatedNode, *allowed: tuple[Operation, ResourceKind, str]) -> Client:
    node.services.authorizer = Only(*allowed)
    node.broker = Broker(node.services)
    node.broker.image_published(ImageDelta(), node.services.image)
    return Client(node)


def test_only_allowed_groups_are_shown(node: SimulatedNode) -> None:
    for group in ("mine", "theirs"):
        commit(node.client, group, "orders", 0, 1)
    client = guarded(node, (Operation.DESCRIBE, ResourceKind.GROUP, "mine"))
    assert [each.group_id for each in client.send(ListGroupsRequest(), 5).groups] == ["mine"]
    described = client.send(DescribeGroupsRequest(groups=["mine", "theirs"]), 5).groups
    assert [(each.group_id, each.error_code) for each in described] == [
        ("mine", 0),
        ("theirs", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]
    deleted = client.send(DeleteGroupsRequest(["mine"]), 2).results
    assert [each.error_code for each in deleted] == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert fetch(client, "theirs").error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert fetch(client, "mine").topics == [], "the topic may not be seen"
    asked = fetch(client, "mine", {"orders": [0]}).topics[0].partitions[0]
    assert asked.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_commits_need_group_and_topic(node: SimulatedNode) -> None:
    group: Any = (Operation.READ, ResourceKind.GROUP, "g")
    topic: Any = (Operation.READ, ResourceKind.TOPIC, "orders")
    assert commit(guarded(node), "g", "orders", 0, 1) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert commit(guarded(node, group), "g", "orders", 0, 1) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert commit(guarded(node, group, topic), "g", "orders", 0, 1) == 0
    member = Member(node, "other")
    assert member.post_join().value.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_coordinators_are_found_for_those_who_may_know(node: SimulatedNode) -> None:
    client = guarded(node, (Operation.DESCRIBE, ResourceKind.GROUP, "mine"))
    answer = client.send(FindCoordinatorRequest(coordinator_keys=["mine", "theirs"]), 4)
    assert [(each.key, each.error_code, each.node_id) for each in answer.coordinators] == [
        ("mine", 0, 1),
        ("theirs", ErrorCode.GROUP_AUTHORIZATION_FAILED, -1),
    ]
    single = client.send(FindCoordinatorRequest(key="theirs"), 3)
    assert single.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_strangers_do_not_make_topics() -> None:
    node = SimulatedNode()
    client = guarded(node)
    assert client.send(FindCoordinatorRequest(key="any"), 3).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert node.services.image.topic("__consumer_offsets") is None
