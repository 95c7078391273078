"""Consumer groups: joining, leaving, epochs, fencing, static members, limits; what a refused member is told."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode
from consumer_group_client import NextMember, described, settle
from group_client import commit, fetch, with_groups

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.consumer_group_heartbeat_request import TopicPartitions
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.delete_groups_request import DeleteGroupsRequest
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.generated.wire.list_groups_request import ListGroupsRequest
from moldau.protocol.generated.wire.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

SESSION_MS = 45_000
INTERVAL_MS = 5000


@pytest.fixture
def node() -> SimulatedNode:
    node = with_groups()
    node.create_topic("orders", 6)
    node.create_topic("payments", 3)
    return node


def orders(*partitions: int) -> set[tuple[str, int]]:
    return {("orders", partition) for partition in partitions}


def test_one_member_gets_everything(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "orders", "nothing-yet")
    answer = member.join()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 2)
    assert answer.heartbeat_interval_ms == INTERVAL_MS
    assert member.partitions == orders(*range(6))
    quiet = member.acknowledge()
    assert (quiet.member_epoch, quiet.assignment) == (2, None)


def test_the_coordinator_may_choose_the_id(node: SimulatedNode) -> None:
    answers = [NextMember(node, "", "orders").send(NextMember(node, "", "orders").full(), 0) for _ in range(2)]
    assert all(len(answer.member_id) == 36 for answer in answers)
    assert answers[0].member_id != answers[1].member_id


def test_a_second_member_waits_until_the_first_has_given_up(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders"), NextMember(node, "b", "orders")
    first.join()
    node.clock.advance(1000)
    second.join()
    assert (second.partitions, second.epoch) == (set(), 3)
    assert described(node).group_state == "Reconciling"
    first.beat()
    assert first.epoch == 2, "until it has given up what it must"
    assert len(first.partitions) == 3
    second.beat()
    assert second.partitions == set()
    first.acknowledge()
    assert first.epoch == 3
    second.beat()
    assert second.partitions == orders(*range(6)) - first.partitions
    assert described(node).group_state == "Stable"


def test_a_member_that_leaves_makes_room_at_once(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders"), NextMember(node, "b", "orders")
    first.join()
    second.join()
    settle(node, first, second)
    assert len(second.partitions) == 3
    answer = first.leave()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", -1)
    node.clock.advance(1000)
    second.beat()
    assert second.partitions == orders(*range(6))
    second.leave()
    assert described(node).group_state == "Empty"
    assert described(node).members == []


def test_a_member_that_dies_is_out_after_its_session(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders"), NextMember(node, "b", "orders")
    first.join()
    second.join()
    settle(node, first, second)
    for _ in range(SESSION_MS // INTERVAL_MS - 2):
        node.clock.advance(INTERVAL_MS)
        second.beat()
    assert len(second.partitions) == 3
    node.clock.advance(INTERVAL_MS)
    second.beat()
    node.clock.advance(INTERVAL_MS)
    second.beat()
    assert second.partitions == orders(*range(6))
    assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    first.join()
    settle(node, first, second)
    assert len(first.partitions) == len(second.partitions) == 3


def test_a_member_that_does_not_give_up_in_time_is_out(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders", rebalance_ms=7000), NextMember(node, "b", "orders")
    first.join()
    node.clock.advance(1000)
    second.join()
    first.beat()
    for _ in range(8):
        node.clock.advance(1000)
        # It is alive, but it still has what it must give up.
        stuck = first.send(first.request())
        second.beat()
    assert stuck.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    node.clock.advance(1000)
    second.beat()
    assert second.partitions == orders(*range(6))


# ---- epochs


def test_epochs_that_are_too_old_or_too_new_are_fenced(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "orders")
    member.join()
    node.create_topic("later")
    member.topics.append("later")
    node.clock.advance(1000)
    member._take(member.send(member.full()))
    member.acknowledge()
    assert member.epoch == 3
    too_new = member.send(member.request(member_epoch=9))
    assert too_new.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (9)" in too_new.error_message
    # The epoch before is accepted only with nothing that the member does not have.
    assert member.send(member.request(member_epoch=2)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.send(member.request(member_epoch=2, topic_partitions=member.said())).error_code == 0
    more = [TopicPartitions(b"?" * 16, [0])]
    assert member.send(member.request(member_epoch=2, topic_partitions=more)).error_code == (
        ErrorCode.FENCED_MEMBER_EPOCH
    )
    assert member.send(member.request(member_epoch=1)).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_strangers(node: SimulatedNode) -> None:
    stranger = NextMember(node, "x", "orders")
    stranger.epoch = 5
    assert stranger.beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert stranger.leave().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    NextMember(node, "a", "orders").join()
    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": [TopicPartitions(bytes(16), [0])]}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_requests(node: SimulatedNode, fields: dict[str, Any], said: str) -> None:
    member = NextMember(node, "a", "orders")
    answer = member.send(member.full(**fields))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, said)


def test_an_unknown_assignor(node: SimulatedNode) -> None:
    answer = NextMember(node, "a", "orders", assignor="best").join()
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "ServerAssignor best is not supported. Supported assignors: uniform, range."


def test_a_full_group() -> None:
    node = with_groups(group_consumer_max_size="1")
    assert NextMember(node, "a", "orders").join().error_code == 0
    assert NextMember(node, "b", "orders").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert NextMember(node, "a", "orders").join().error_code == 0


def test_the_protocol_can_be_switched_off() -> None:
    node = with_groups(group_coordinator_rebalance_protocols="classic")
    assert NextMember(node, "a", "orders").join().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert described(node).error_code == ErrorCode.UNSUPPORTED_VERSION


# ---- static members


def test_a_static_member_comes_back_to_what_it_had(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders", instance="one"), NextMember(node, "b", "orders", instance="two")
    first.join()
    second.join()
    settle(node, first, second)
    had, epoch = first.partitions, first.epoch
    assert first.leave(-2).member_epoch == -2
    again = NextMember(node, "c", "orders", instance="one")
    answer = again.join()
    assert (answer.error_code, answer.member_epoch) == (0, epoch)
    assert again.partitions == had
    settle(node, again, second)
    assert again.partitions == had, "nothing has moved"
    assert described(node).group_epoch == epoch
    assert first.beat().error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_has_one_owner(node: SimulatedNode) -> None:
    first = NextMember(node, "a", "orders", instance="one")
    first.join()
    other = NextMember(node, "b", "orders", instance="one")
    assert other.join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    other.epoch = first.epoch
    assert other.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert other.leave().error_code == ErrorCode.FENCED_INSTANCE_ID
    stranger = NextMember(node, "c", "orders", instance="nobody")
    stranger.epoch = 2
    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_is_out(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders", instance="one"), NextMember(node, "b", "orders")
    first.join()
    second.join()
    settle(node, first, second)
    first.leave(-2)
    for _ in range(SESSION_MS // INTERVAL_MS + 2):
        node.clock.advance(INTERVAL_MS)
        second.beat()
    assert second.partitions == orders(*range(6))


# ---- subscriptions


def test_topics_that_come_grow_and_go(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "orders", "later")
    member.join()
    node.create_topic("later", 2)
    node.clock.advance(1000)
    member.settle()
    assert member.partitions == orders(*range(6)) | {("later", 0), ("later", 1)}
    node.client.send(CreatePartitionsRequest(topics=[CreatePartitionsTopic("later", 4, assignments=None)]), 3)
    node.clock.advance(1000)
    member.settle()
    assert ("later", 3) in member.partitions
    node.client.send(DeleteTopicsRequest(topics=[DeleteTopicState("orders")]), 6)
    node.clock.advance(1000)
    settle(node, member, rounds=2)
    assert member.partitions == {("later", index) for index in range(4)}


def test_a_member_changes_its_mind(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders"), NextMember(node, "b", "orders", "payments")
    first.join()
    second.join()
    settle(node, first, second)
    assert len(first.partitions) + len(second.partitions) == 9
    second.topics = ["payments"]
    second._take(second.send(second.full()))
    assert not second.partitions & orders(*range(6)), "it gives up at once what it does not want"
    second.acknowledge()
    settle(node, first, second)
    assert first.partitions == orders(*range(6))
    assert second.partitions == {("payments", index) for index in range(3)}


def test_assignors_are_chosen_by_majority(node: SimulatedNode) -> None:
    members = [
        NextMember(node, "a", "orders", "payments", assignor="range"),
        NextMember(node, "b", "orders", "payments", assignor="range"),
        NextMember(node, "c", "orders", "payments", assignor="uniform"),
    ]
    for member in members:
        member.join()
    settle(node, *members)
    assert described(node).assignor_name == "range"
    assert members[0].partitions == orders(0, 1) | {("payments", 0)}
    for member in members[:2]:
        member.leave()
    assert described(node).assignor_name == "uniform"


# ---- how often


def test_groups_on_the_move_ask_for_heartbeats_more_often(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders"), NextMember(node, "b", "orders")
    first.join()
    assert first.interval == INTERVAL_MS
    first.acknowledge()
    assert first.interval == 500
    second.join()
    assert second.interval == 500
    settle(node, first, second, rounds=3)
    assert first.interval == second.interval == 500, "others may come"
    settle(node, first, second, rounds=6)
    assert first.interval == second.interval == INTERVAL_MS


def test_new_assignments_wait_for_more_newcomers(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders"), NextMember(node, "b", "orders")
    first.join()
    second.join()
    found = described(node)
    assert (found.group_epoch, found.assignment_epoch, found.group_state) == (3, 2, "Assigning")
    assert second.epoch == 2
    node.clock.advance(999)
    second.beat()
    assert described(node).assignment_epoch == 2
    node.clock.advance(1)
    second.beat()
    assert described(node).assignment_epoch == 3


def test_settings_of_the_group(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "orders")
    member.join()
    configs = {"consumer.heartbeat.interval.ms": "6000", "consumer.session.timeout.ms": "50000"}
    resource = AlterConfigsResource(
        resource_type=32, resource_name="group", configs=[AlterableConfig(*each) for each in _set(configs)]
    )
    answer = node.client.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0
    node.clock.advance(10_000)
    member.beat()
    assert member.interval == 6000
    node.clock.advance(49_000)
    assert member.beat().error_code == 0
    node.clock.advance(50_001)
    assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def _set(configs: dict[str, str]) -> list[tuple[str, int, str]]:
    return [(name, 0, value) for name, value in configs.items()]


# ---- offsets and tools


def test_commits_and_fetches_by_epoch(node: SimulatedNode) -> None:
    first, second = NextMember(node, "a", "orders"), NextMember(node, "b", "orders")
    client = first.client
    first.join()

    def committed(partition: int, member: NextMember, epoch: int, **how: Any) -> int:
        return commit(client, "group", "orders", partition, 7, member=member.id, generation=epoch, **how)

    assert committed(0, first, 2) == 0
    assert committed(0, first, 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert committed(0, first, 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert committed(0, second, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(client, "group", "orders", 0, 1) == ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"
    node.clock.advance(1000)
    second.join()
    settle(node, first, second)
    assert first.epoch == 3
    (kept, *_), (lost, *_) = sorted(first.partitions), sorted(second.partitions)
    # An answer may still be on its way: what the member has had all the time it may commit in its old epoch.
    assert committed(kept[1], first, 2) == 0
    assert committed(lost[1], first, 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert committed(lost[1], second, 2) == ErrorCode.STALE_MEMBER_EPOCH

    def fetched(member: str | None, epoch: int) -> int:
        asked = OffsetFetchRequestGroup("group", member, epoch, [OffsetFetchRequestTopics("orders", bytes(16), [0])])
        (answer,) = client.send(OffsetFetchRequest(groups=[asked]), 9).groups
        return int(answer.error_code)

    assert fetched("a", 3) == 0
    assert fetched("a", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetched("x", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetched(None, -1) == 0
    first.leave()
    second.leave()
    assert commit(client, "group", "orders", 0, 1) == 0, "nobody is in it any more"


def test_tools_see_the_group(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "orders", instance="one", rack="r1")
    member.join()
    (listed,) = node.client.send(ListGroupsRequest(types_filter=["Consumer"]), 5).groups
    assert (listed.group_id, listed.group_state, listed.group_type, listed.protocol_type) == (
        "group",
        "Stable",
        "consumer",
        "consumer",
    )
    assert node.client.send(ListGroupsRequest(states_filter=["empty"]), 5).groups == []
    found = described(node, include_authorized_operations=True)
    (seen,) = found.members
    assert (seen.member_id, seen.instance_id, seen.rack_id, seen.member_epoch) == ("a", "one", "r1", 2)
    assert (seen.client_id, seen.client_host, seen.member_type) == ("client-a", "/192.0.2.7", 1)
    assert [(t.topic_name, t.partitions) for t in seen.assignment.topic_partitions] == [("orders", [*range(6)])]
    assert seen.assignment == seen.target_assignment
    assert found.authorized_operations > 0
    assert described(node, "nothing").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_only_empty_groups_are_deleted(node: SimulatedNode) -> None:
    member = NextMember(node, "a", "orders")
    member.join()
    commit(member.client, "group", "orders", 0, 5, member="a", generation=2)

    def delete() -> int:
        (result,) = node.client.send(DeleteGroupsRequest(groups_names=["group"]), 2).results
        return int(result.error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert delete() == 0
    assert described(node).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert fetch(node.client, "group").topics == []
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_of_offsets_becomes_a_consumer_group(node: SimulatedNode) -> None:
    commit(node.client, "group", "orders", 0, 5)
    member = NextMember(node, "a", "orders")
    assert member.join().error_code == 0
    assert described(node).group_state == "Stable"
    (topic,) = fetch(node.client, "group").topics
    assert topic.partitions[0].committed_offset == 5
