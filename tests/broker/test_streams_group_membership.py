"""Streams groups: joining, leaving, epochs, fencing, moving tasks, copies, limits; what a refused member is told."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode
from group_client import Member, commit, stable, with_groups
from streams_group_client import StreamsMember, described, settle, stateful, stateless

from moldau.coordinator.group.streams.statuses import Status
from moldau.node.cluster_metrics import collect_groups
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.delete_groups_request import DeleteGroupsRequest
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.generated.wire.list_groups_request import ListGroupsRequest
from moldau.protocol.generated.wire.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.generated.wire.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.generated.wire.streams_group_heartbeat_request import TaskIds, TaskOffset
from moldau.protocol.generated.wire.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

SESSION_MS = 45_000
INTERVAL_MS = 5000


def started(**settings: str) -> SimulatedNode:
    node = with_groups(
        **{
            "group_streams_initial_rebalance_delay_ms": "0",
            "group_streams_assignment_interval_ms": "0",
            **settings,
        }
    )
    node.create_topic("orders", 6)
    node.create_topic("app-store-changelog", 6)
    return node


@pytest.fixture
def node() -> SimulatedNode:
    return started()


def tasks(*partitions: int) -> set[tuple[str, int]]:
    return {("0", partition) for partition in partitions}


def configure(node: SimulatedNode, group: str, **settings: str) -> None:
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=32, resource_name=group, configs=configs)
    (result,) = node.client.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result


# ---- coming and going


def test_one_member_gets_everything(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"), tags={"zone": "x"}, rack="r", endpoint=("here", 7))
    answer = member.join()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 2)
    assert (answer.heartbeat_interval_ms, answer.status) == (INTERVAL_MS, [])
    assert (member.active, member.standby, answer.warmup_tasks) == (tasks(*range(6)), set(), [])
    quiet = member.acknowledge()
    assert (quiet.member_epoch, quiet.active_tasks, quiet.heartbeat_interval_ms) == (2, None, INTERVAL_MS)
    group = described(node)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    (found,) = group.members
    assert (found.member_id, found.client_id, found.client_host) == ("a", "client-a", "/192.0.2.7")
    assert (found.process_id, found.rack_id, found.topology_epoch) == ("process-a", "r", 0)
    assert [(tag.key, tag.value) for tag in found.client_tags] == [("zone", "x")]
    assert (found.user_endpoint.host, found.user_endpoint.port) == ("here", 7)
    assert [(each.subtopology_id, each.partitions) for each in found.assignment.active_tasks] == [("0", [*range(6)])]


def test_a_second_member_waits_until_the_first_has_given_up(node: SimulatedNode) -> None:
    first, second = (StreamsMember(node, name, stateless("orders")) for name in "ab")
    first.join()
    second.join()
    assert (second.active, second.epoch) == (set(), 3)
    assert second.answer.heartbeat_interval_ms < INTERVAL_MS, "others are about to give something up"
    assert described(node).group_state == "Reconciling"
    first.beat()
    assert (first.epoch, len(first.active)) == (2, 3), "until it has given up what it must"
    second.beat()
    assert second.active == set()
    first.acknowledge()
    assert first.epoch == 3
    second.beat()
    assert second.active == tasks(*range(6)) - first.active
    assert described(node).group_state == "Stable"


def test_a_member_that_leaves_makes_room_at_once(node: SimulatedNode) -> None:
    first, second = (StreamsMember(node, name, stateless("orders")) for name in "ab")
    first.join()
    second.join()
    settle(node, first, second)
    answer = first.leave()
    assert (answer.error_code, answer.member_epoch, answer.status) == (0, -1, [])
    second.beat()
    assert second.active == tasks(*range(6))


def test_a_silent_member_is_out(node: SimulatedNode) -> None:
    first, second = (StreamsMember(node, name, stateless("orders")) for name in "ab")
    first.join()
    second.join()
    settle(node, first, second)
    node.clock.advance(SESSION_MS - 5000)
    second.beat()
    node.clock.advance(10_000)
    assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    second.beat()
    assert second.active == tasks(*range(6))


def test_a_member_that_does_not_give_up_is_out(node: SimulatedNode) -> None:
    slow = StreamsMember(node, "a", stateless("orders"), rebalance_ms=2000)
    other = StreamsMember(node, "b", stateless("orders"))
    slow.join()
    other.join()
    slow.beat()
    node.clock.advance(1500)
    slow.beat()
    node.clock.advance(600)
    assert slow.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    other.beat()
    assert other.active == tasks(*range(6))


def test_epochs_are_checked(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    member.join()
    ahead = member.send(member.request(member_epoch=9))
    assert ahead.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (9)" in ahead.error_message
    node.create_topic("noise")
    lost = member.send(member.request(member_epoch=0))
    assert lost.error_code == ErrorCode.INVALID_REQUEST
    again = member.send(member.first())
    assert (again.error_code, again.member_epoch) == (0, 2)
    other = StreamsMember(node, "b", stateless("orders"))
    other.join()
    member.active = tasks(*range(6))
    member.epoch = 2
    member.beat(**member.said())
    member.acknowledge()
    assert member.epoch == 3
    # The answer that brought epoch 3 is lost.
    kept = member.said()
    assert member.send(member.request(member_epoch=2, **kept)).error_code == 0
    assert member.send(member.request(member_epoch=2)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    more = {**kept, "active_tasks": [TaskIds("0", [*range(6)])]}
    assert member.send(member.request(member_epoch=2, **more)).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_strangers_are_refused(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    assert member.send(member.request(member_epoch=3)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert member.leave().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member.join()
    stranger = StreamsMember(node, "x", stateless("orders"))
    assert stranger.send(stranger.request(member_epoch=2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    nonsense = member.send(member.request(**{**member.said(), "active_tasks": [TaskIds("0", [6])]}))
    assert (nonsense.error_code, nonsense.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Task 6 for subtopology 0 is invalid. Number of tasks for this subtopology: 6",
    )
    unknown = member.send(member.request(**{**member.said(), "active_tasks": [TaskIds("7", [0])]}))
    assert unknown.error_message == "Subtopology 7 does not exist in the topology."


def test_a_group_may_be_full() -> None:
    node = started(group_streams_max_size="1")
    StreamsMember(node, "a", stateless("orders")).join()
    answer = StreamsMember(node, "b", stateless("orders")).join()
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The streams group has reached its maximum capacity of 1 members.",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
        ({"standby_tasks": [TaskIds("0", [0])]}, "StandbyTasks must be empty when (re-)joining."),
        ({"warmup_tasks": [TaskIds("0", [0])]}, "WarmupTasks are not supported yet."),
        ({"task_offsets": [TaskOffset("0", 0, 1)]}, "TaskOffsets are not supported yet."),
        ({"task_end_offsets": []}, "TaskEndOffsets are not supported yet."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
        ({"member_epoch": -2, "topology": None}, "InstanceId can't be null."),
        ({"member_epoch": -3, "topology": None}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": 1, "topology": None, "standby_tasks": None}, "If one task-type is non-null, all must be"),
    ],
)
def test_requests_that_make_no_sense(node: SimulatedNode, changes: dict[str, Any], message: str) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    answer = member.send(member.first(**changes))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message.startswith(message)


# ---- the topology


def test_the_topology_is_that_of_the_first_member(node: SimulatedNode) -> None:
    first = StreamsMember(node, "a", stateless("orders", epoch=1))
    first.join()
    same = StreamsMember(node, "b", stateless("orders", epoch=1))
    assert same.join().error_code == 0
    old = StreamsMember(node, "c", stateless("orders", epoch=0))
    assert old.join().error_code == 0
    assert old.statuses == {
        Status.STALE_TOPOLOGY: "The member's topology epoch 0 is behind the group's topology epoch 1."
    }
    other = StreamsMember(node, "d", stateful("orders", epoch=1)).join()
    assert (other.error_code, other.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Topology updates are not supported yet.",
    )


def test_one_member_may_stop_the_application(node: SimulatedNode) -> None:
    first, second = (StreamsMember(node, name, stateless("orders")) for name in "ab")
    first.join()
    second.join()
    first.beat(shutdown_application=True)
    said = {
        Status.SHUTDOWN_APPLICATION: (
            "Streams group member a encountered a fatal error and requested a shutdown for the entire application."
        )
    }
    assert first.statuses == said
    first.leave()
    second.beat()
    assert second.statuses == said
    second.leave()
    again = StreamsMember(node, "c", stateless("orders"))
    again.join()
    assert again.statuses == {}


# ---- when assignments are made


def test_the_first_assignment_waits_for_others() -> None:
    node = started(group_streams_initial_rebalance_delay_ms="3000")
    first, second = (StreamsMember(node, name, stateless("orders")) for name in "ab")
    first.join()
    assert first.statuses == {
        Status.ASSIGNMENT_DELAYED: "Assignment delayed due to the configured initial rebalance delay."
    }
    assert (first.epoch, first.active) == (1, set())
    node.clock.advance(1000)
    second.join()
    assert second.active == set()
    first.beat()
    node.clock.advance(2500)
    first.beat()
    second.beat()
    assert (len(first.active), len(second.active)) == (3, 3)
    assert (first.statuses, second.statuses) == ({}, {})
    assert described(node).group_state == "Stable"


def test_assignments_are_not_made_too_often() -> None:
    node = started(group_streams_assignment_interval_ms="1000")
    first, second = (StreamsMember(node, name, stateless("orders")) for name in "ab")
    first.join()
    second.join()
    assert second.statuses == {
        Status.ASSIGNMENT_DELAYED: "Assignment delayed due to the configured assignment interval."
    }
    node.clock.advance(1000)
    second.beat()
    assert (second.statuses, second.epoch) == ({}, 3)


def test_an_assignment_does_not_wait_for_a_time_that_is_still_to_come() -> None:
    node = started(group_streams_assignment_interval_ms="1000")
    first, second = (StreamsMember(node, name, stateless("orders")) for name in "ab")
    first.join()
    node.clock.set_back(3_600_000)
    second.join()
    assert (second.statuses, second.epoch) == ({}, 3)


def test_settings_of_a_group(node: SimulatedNode) -> None:
    configure(node, "app", streams_heartbeat_interval_ms="6000", streams_session_timeout_ms="50000")
    first, second = (StreamsMember(node, name, stateful("orders")) for name in "ab")
    first.join()
    second.join()
    settle(node, first, second)
    assert first.beat().heartbeat_interval_ms == 6000
    assert first.standby == set()
    configure(node, "app", streams_num_standby_replicas="1")
    settle(node, first, second)
    assert (len(first.active), len(second.active)) == (3, 3)
    assert (first.standby, second.standby) == (second.active, first.active)
    node.clock.advance(48_000)
    assert first.beat().error_code == 0


def test_copies_are_in_other_processes() -> None:
    node = started(group_streams_num_standby_replicas="1")
    members = [
        StreamsMember(node, "a1", stateful("orders"), process="a"),
        StreamsMember(node, "a2", stateful("orders"), process="a"),
        StreamsMember(node, "b1", stateful("orders"), process="b"),
    ]
    for member in members:
        member.join()
    settle(node, *members)
    on_a = members[0].active | members[1].active
    assert on_a | members[2].active == tasks(*range(6))
    assert members[2].standby == on_a
    assert members[0].standby | members[1].standby == members[2].active
    assert described(node).group_state == "Stable"
    members[2].leave()
    settle(node, *members[:2])
    assert members[0].active | members[1].active == tasks(*range(6))
    assert not members[0].standby | members[1].standby, "there is no other process any more"


def test_endpoints_are_told_to_all(node: SimulatedNode) -> None:
    first = StreamsMember(node, "a", stateless("orders"), endpoint=("a.example", 1))
    second = StreamsMember(node, "b", stateless("orders"), endpoint=("b.example", 2))
    silent = StreamsMember(node, "c", stateless("orders"))
    for member in (first, second, silent):
        member.join()
    settle(node, first, second, silent)
    assert first.endpoints.keys() == silent.endpoints.keys() == {("a.example", 1), ("b.example", 2)}
    (read,) = silent.endpoints["a.example", 1].active_partitions
    assert (read.topic, {("0", index) for index in read.partitions}) == ("orders", first.active)
    quiet = silent.beat()
    assert quiet.partitions_by_user_endpoint is None


# ---- offsets


def test_only_current_members_commit(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    member.join()

    def committed(partition: int = 0, **who: Any) -> int:
        return commit(node.client, "app", "orders", partition, 5, **{"member": "a", **who})

    assert committed(generation=2) == 0
    assert committed(generation=3) == ErrorCode.STALE_MEMBER_EPOCH
    assert committed(generation=1) == ErrorCode.STALE_MEMBER_EPOCH
    assert committed(member="x", generation=2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(generation=2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    # A new epoch that leaves a task where it was does not make commits of the old epoch wrong.
    StreamsMember(node, "b", stateless("orders")).join()
    member.beat()
    member.acknowledge()
    assert member.epoch == 3
    kept = min(partition for _, partition in member.active)
    gone = min(partition for _, partition in tasks(*range(6)) - member.active)
    assert committed(kept, generation=2) == 0
    assert committed(gone, generation=2) == ErrorCode.STALE_MEMBER_EPOCH


def test_reading_offsets_checks_the_epoch(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    member.join()
    commit(node.client, "app", "orders", 0, 5, member="a", generation=2)

    def read(member_id: str | None, epoch: int) -> tuple[int, int | None]:
        topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(group_id="app", member_id=member_id, member_epoch=epoch, topics=topics)
        (group,) = node.client.send(OffsetFetchRequest(groups=[asked]), 9).groups
        return group.error_code, None if group.error_code else group.topics[0].partitions[0].committed_offset

    assert read("a", 2) == (0, 5)
    assert read(None, -1) == (0, 5)
    assert read("a", 1) == (ErrorCode.STALE_MEMBER_EPOCH, None)
    assert read("x", 2) == (ErrorCode.UNKNOWN_MEMBER_ID, None)


def test_offsets_of_topics_that_are_read_stay(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    member.join()
    commit(node.client, "app", "orders", 0, 5, member="a", generation=2)
    asked = OffsetDeleteRequest(
        group_id="app", topics=[OffsetDeleteRequestTopic("orders", [OffsetDeleteRequestPartition(0)])]
    )

    def deleted() -> int:
        return int(node.client.send(asked, 0).topics[0].partitions[0].error_code)

    assert deleted() == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    member.leave()
    assert deleted() == 0


# ---- as tools see it


def listed(node: SimulatedNode, **fields: Any) -> list[tuple[str, str, str, str]]:
    groups = node.client.send(ListGroupsRequest(**fields), 5).groups
    return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in groups]


def test_listing_describing_and_deleting(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    member.join()
    assert listed(node) == [("app", "streams", "Stable", "streams")]
    assert listed(node, types_filter=["streams"]) == listed(node)
    assert listed(node, types_filter=["consumer"]) == []
    deleting = DeleteGroupsRequest(groups_names=["app"])
    (refused,) = node.client.send(deleting, 2).results
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert described(node).group_state == "Empty"
    assert described(node, include_authorized_operations=True).authorized_operations > 0
    (gone,) = node.client.send(deleting, 2).results
    assert gone.error_code == 0
    absent = described(node)
    assert (absent.error_code, absent.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group app not found.")
    assert listed(node) == []
    assert described(node, "").error_code == ErrorCode.INVALID_GROUP_ID


def test_the_metrics_page_counts_streams_groups(node: SimulatedNode) -> None:
    for name in "ab":
        StreamsMember(node, name, stateless("orders")).join()
    assert node.broker.groups is not None
    samples = [sample for family in collect_groups(node.broker.groups) for sample in family.samples]
    assert [(each.name, each.labels, each.value) for each in samples] == [
        ("moldau_groups", {"type": "streams", "state": "Reconciling"}, 1),
        ("moldau_streams_group_rebalances_total", {}, 2),
    ]


def test_groups_without_members_go_in_the_end(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    member.join()
    member.leave()
    node.clock.advance(11 * 60 * 1000)
    assert listed(node) == []


def test_an_empty_classic_group_becomes_a_streams_group_and_back(node: SimulatedNode) -> None:
    classic = Member(node, "app")
    stable(node, classic)
    member = StreamsMember(node, "a", stateless("orders"))
    assert member.join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    classic.leave()
    assert member.join().error_code == 0
    assert listed(node)[0][3] == "streams"
    refused = Member(node, "app").join()
    assert refused.value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member.leave()
    Member(node, "app").join_now()
    assert listed(node)[0][3] == "classic"


def test_offsets_alone_do_not_keep_an_application_out(node: SimulatedNode) -> None:
    assert commit(node.client, "app", "orders", 0, 5) == 0
    member = StreamsMember(node, "a", stateless("orders"))
    assert member.join().error_code == 0
    node.restart()
    assert listed(node)[0][3] == "streams"


# ---- switched off


def test_the_feature_can_be_off() -> None:
    node = started()
    update = FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
    assert node.client.send(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == 0
    assert StreamsMember(node, "a", stateless("orders")).join().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert described(node).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_protocol_can_be_off() -> None:
    node = started(group_coordinator_rebalance_protocols="classic,consumer")
    assert StreamsMember(node, "a", stateless("orders")).join().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert described(node).error_code == ErrorCode.UNSUPPORTED_VERSION


# ---- another coordinator


def test_a_group_survives_a_restart(node: SimulatedNode) -> None:
    first = StreamsMember(node, "a", stateful("orders"), endpoint=("here", 1), tags={"k": "v"}, rack="r")
    second = StreamsMember(node, "b", stateful("orders"))
    first.join()
    second.join()
    first.beat()
    before = described(node)
    node.restart()
    after = described(node)
    assert sorted(map(repr, before.members)) == sorted(map(repr, after.members))
    assert (before.group_epoch, before.assignment_epoch) == (after.group_epoch, after.assignment_epoch)
    assert after.topology.subtopologies[0].state_changelog_topics[0].partitions == 0, "not looked at yet"
    for member in (first, second):
        member.client = type(member.client)(node, client_id=member.client.client_id)
    settle(node, first, second)
    assert first.active | second.active == tasks(*range(6))
    assert not first.active & second.active
    assert described(node).topology == before.topology


def test_members_that_did_not_survive_it_are_noticed() -> None:
    short = {"group_streams_session_timeout_ms": "5001", "group_streams_min_session_timeout_ms": "1"}
    node = started(**short)
    StreamsMember(node, "a", stateless("orders")).join()
    node.restart()
    assert described(node).group_state == "Stable"
    node.clock.advance(5500)
    assert described(node).group_state == "Empty"


def test_a_member_that_must_give_up_has_no_more_time_after_a_restart(node: SimulatedNode) -> None:
    slow = StreamsMember(node, "a", stateless("orders"), rebalance_ms=2000)
    slow.join()
    StreamsMember(node, "b", stateless("orders")).join()
    slow.beat()
    node.restart()
    node.clock.advance(2500)
    assert [member.member_id for member in described(node).members] == ["b"]
