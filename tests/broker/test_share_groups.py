"""Share groups: who gets what and when, what is refused, what tools see, and what survives a restart."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import Client, SimulatedNode, batch, fetch_request, produce_request, records_of
from share_state_client import StateClient, with_share_state
from txn_client import restart

from moldau.protocol.coordinator_records import decode_key, decode_value
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import alter_share_group_offsets_request as altering
from moldau.protocol.generated.wire import delete_share_group_offsets_request as deleting
from moldau.protocol.generated.wire import describe_share_group_offsets_request as describing
from moldau.protocol.generated.wire.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.delete_groups_request import DeleteGroupsRequest
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.generated.wire.list_groups_request import ListGroupsRequest
from moldau.protocol.generated.wire.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.generated.wire.share_group_describe_request import ShareGroupDescribeRequest
from moldau.protocol.generated.wire.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from moldau.protocol.generated.wire.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

GROUP_RESOURCE = 32
DOWNGRADE = 3


class Member:
    """Heartbeats as a client library does, and remembers what it has."""

    def __init__(self, node: SimulatedNode, name: str, *topics: str, group: str = "group") -> None:
        self.client = Client(node, client_id=f"client-{name}")
        self.id = name
        self.group = group
        self.topics = list(topics)
        self.epoch = 0
        # By topic id.
        self.has: dict[bytes, list[int]] = {}
        self.answer: Any = None

    def send(self, **fields: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            **{"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch, **fields}
        )
        answer = self.answer = self.client.send(request, 1)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.has = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    def join(self) -> Any:
        self.epoch = 0
        return self.send(subscribed_topic_names=self.topics)

    def beat(self) -> Any:
        return self.send()

    def leave(self) -> Any:
        return self.send(member_epoch=-1)


@pytest.fixture
def node() -> SimulatedNode:
    return with_share_state()


@pytest.fixture
def orders(node: SimulatedNode) -> bytes:
    return node.create_topic("orders", 4)


def described(node: SimulatedNode, group: str = "group") -> Any:
    return node.client.send(ShareGroupDescribeRequest([group]), 1).groups[0]


def offsets(node: SimulatedNode, *topics: str, group: str = "group") -> dict[tuple[str, int], tuple[int, int]]:
    """(start offset, lag) of each partition; of all topics when none is named."""
    named = [describing.DescribeShareGroupOffsetsRequestTopic(topic, [0, 1, 2, 3]) for topic in topics]
    asked = describing.DescribeShareGroupOffsetsRequestGroup(group, named or None)
    found = node.client.send(describing.DescribeShareGroupOffsetsRequest([asked]), 1).groups[0]
    assert found.error_code == 0, found
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag)
        for topic in found.topics
        for each in topic.partitions
    }


def alter(node: SimulatedNode, topic: str, starts: dict[int, int], group: str = "group") -> Any:
    partitions = [altering.AlterShareGroupOffsetsRequestPartition(*each) for each in starts.items()]
    topics = [altering.AlterShareGroupOffsetsRequestTopic(topic, partitions)]
    return node.client.send(altering.AlterShareGroupOffsetsRequest(group, topics), 0)


def delete_offsets(node: SimulatedNode, *topics: str, group: str = "group") -> Any:
    named = [deleting.DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
    return node.client.send(deleting.DeleteShareGroupOffsetsRequest(group, named), 0)


def configure(node: SimulatedNode, group: str, **settings: str) -> None:
    resource = AlterConfigsResource(
        GROUP_RESOURCE, group, [AlterableConfig(name.replace("_", "."), 0, value) for name, value in settings.items()]
    )
    assert node.client.send(IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code == 0


# ---- who gets what


def test_partitions_come_once_their_state_is_there(node: SimulatedNode, orders: bytes) -> None:
    member = Member(node, "a", "orders")
    first = member.join()
    assert (first.member_epoch, first.assignment.topic_partitions) == (2, [])
    assert first.heartbeat_interval_ms < 5000, "it is to ask again soon"
    second = member.beat()
    assert (second.member_epoch, second.heartbeat_interval_ms) == (3, 5000)
    assert member.has == {orders: [0, 1, 2, 3]}
    assert member.beat().assignment is None, "nothing new"
    assert StateClient(node, orders).summary(3).error_code == 0


def test_a_newcomer_shares_the_work(node: SimulatedNode, orders: bytes) -> None:
    first, second = Member(node, "a", "orders"), Member(node, "b", "orders")
    first.join()
    first.beat()
    assert second.join().assignment.topic_partitions == [], "not more often than once a second"
    node.clock.advance(1000)
    second.beat()
    first.beat()
    assert sorted(first.has[orders] + second.has[orders]) == [0, 1, 2, 3]
    assert first.epoch == second.epoch == 4


def test_more_members_than_partitions(node: SimulatedNode) -> None:
    topic_id = node.create_topic("small", 1)
    members = [Member(node, name, "small") for name in "abc"]
    for _ in range(2):
        for member in members:
            member.beat() if member.epoch else member.join()
        node.clock.advance(1000)
    assert [member.has for member in members] == [{topic_id: [0]}] * 3


def test_a_leaver_leaves_its_work_to_others(node: SimulatedNode, orders: bytes) -> None:
    first, second = Member(node, "a", "orders"), Member(node, "b", "orders")
    first.join()
    second.join()
    node.clock.advance(1000)
    first.beat()
    second.beat()
    assert second.leave().member_epoch == -1
    node.clock.advance(1000)
    first.beat()
    assert first.has == {orders: [0, 1, 2, 3]}
    assert second.send(member_epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_topic_that_comes_and_grows(node: SimulatedNode) -> None:
    member = Member(node, "a", "later")
    assert member.join().assignment.topic_partitions == []
    topic_id = node.create_topic("later", 1)
    for _ in range(2):
        node.clock.advance(1000)
        member.beat()
    assert member.has == {topic_id: [0]}
    node.client.send(CreatePartitionsRequest([CreatePartitionsTopic("later", 3, None)], 1000), 3)
    for _ in range(3):
        node.clock.advance(1000)
        member.beat()
    assert member.has == {topic_id: [0, 1, 2]}


def test_a_topic_that_is_deleted_is_forgotten(node: SimulatedNode, orders: bytes) -> None:
    kept = node.create_topic("kept")
    member = Member(node, "a", "orders", "kept")
    member.join()
    member.beat()
    assert member.has.keys() == {orders, kept}
    node.client.send(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 4)
    node.clock.advance(1000)
    member.beat()
    assert member.has == {kept: [0]}
    assert {topic for topic, _ in offsets(node)} == {"kept"}


def test_another_subscription(node: SimulatedNode, orders: bytes) -> None:
    other = node.create_topic("other")
    member = Member(node, "a", "orders")
    member.join()
    member.beat()
    member.send(subscribed_topic_names=["other"])
    assert member.has == {}, "what it does not read any more is given up at once"
    for _ in range(2):
        node.clock.advance(1000)
        member.beat()
    assert member.has == {other: [0]}


# ---- who is refused


def test_epochs(node: SimulatedNode, orders: bytes) -> None:
    member = Member(node, "a", "orders")
    member.join()
    member.beat()
    assert member.send(member_epoch=2).error_code == 0, "it may have missed the last answer"
    assert member.send(member_epoch=1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.send(member_epoch=9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    again = member.join()
    assert again.error_code == 0
    assert again.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"member_id": "x" * 37},
        {"group_id": ""},
        {"rack_id": " "},
        {"member_epoch": 0, "subscribed_topic_names": []},
        {"member_epoch": 0, "subscribed_topic_names": None},
        {"member_epoch": -2},
    ],
)
def test_requests_that_make_no_sense(node: SimulatedNode, fields: dict[str, Any]) -> None:
    assert Member(node, "a", "orders").send(**fields).error_code == ErrorCode.INVALID_REQUEST


def test_groups_and_members_nobody_knows(node: SimulatedNode, orders: bytes) -> None:
    assert Member(node, "a", "orders").send(member_epoch=3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert Member(node, "a", "orders").leave().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    Member(node, "a", "orders").join()
    assert Member(node, "b", "orders").send(member_epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group() -> None:
    node = with_share_state(group_share_max_size="1")
    node.create_topic("orders")
    assert Member(node, "a", "orders").join().error_code == 0
    assert Member(node, "b", "orders").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert Member(node, "a", "orders").join().error_code == 0


def test_groups_of_another_type(node: SimulatedNode, orders: bytes) -> None:
    joining = ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="c",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    assert node.client.send(joining, 1).error_code == 0
    assert Member(node, "a", "orders", group="consumers").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert alter(node, "orders", {0: 0}, group="consumers").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    Member(node, "a", "orders").join()
    joining.group_id = "group"
    assert node.client.send(joining, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    commit = OffsetCommitRequest(
        group_id="group",
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[OffsetCommitRequestPartition(0, 5)])],
    )
    answer = node.client.send(commit, 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_without_the_feature_there_are_no_share_groups(node: SimulatedNode, orders: bytes) -> None:
    change = FeatureUpdateKey("share.version", 0, upgrade_type=DOWNGRADE)
    assert node.client.send(UpdateFeaturesRequest(1000, [change]), 2).error_code == 0
    refused = Member(node, "a", "orders").join()
    assert (refused.error_code, refused.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
    assert described(node).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert alter(node, "orders", {0: 0}).error_code == ErrorCode.UNSUPPORTED_VERSION


# ---- time


def test_silent_members_are_out(node: SimulatedNode, orders: bytes) -> None:
    member = Member(node, "a", "orders")
    member.join()
    node.clock.advance(44_000)
    assert member.beat().error_code == 0
    node.clock.advance(44_000)
    assert described(node).group_state == "Stable"
    node.clock.advance(2_000)
    assert (described(node).group_state, described(node).members) == ("Empty", [])
    assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_groups_have_settings_of_their_own(node: SimulatedNode, orders: bytes) -> None:
    configure(node, "group", share_heartbeat_interval_ms="7000", share_session_timeout_ms="50000")
    member = Member(node, "a", "orders")
    member.join()
    assert member.beat().heartbeat_interval_ms == 7000
    node.clock.advance(49_000)
    assert len(described(node).members) == 1
    node.clock.advance(2_000)
    assert described(node).members == []


def test_an_empty_group_stays(node: SimulatedNode, orders: bytes) -> None:
    member = Member(node, "a", "orders")
    member.join()
    member.leave()
    node.clock.advance(700_000)
    assert described(node).group_state == "Empty"


# ---- tools


def test_describe_and_list(node: SimulatedNode, orders: bytes) -> None:
    member = Member(node, "a", "orders")
    member.join()
    member.beat()
    group = described(node)
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        3,
        3,
        "simple",
    )
    (only,) = group.members
    assert (only.member_id, only.member_epoch, only.client_id, only.client_host) == ("a", 3, "client-a", "/192.0.2.7")
    assert only.subscribed_topic_names == ["orders"]
    assert only.assignment.topic_partitions[0].topic_name == "orders"
    for types, states, found in (([], [], 1), (["Share"], ["stable"], 1), (["consumer"], [], 0), ([], ["Empty"], 0)):
        listed = node.client.send(ListGroupsRequest(states_filter=states, types_filter=types), 5).groups
        assert len(listed) == found
    listed = node.client.send(ListGroupsRequest(), 5).groups
    assert [(each.protocol_type, each.group_state, each.group_type) for each in listed] == [
        ("share", "Stable", "share")
    ]
    assert described(node, "nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described(node, "").error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_are_altered_described_and_deleted(node: SimulatedNode, orders: bytes) -> None:
    node.client.send(produce_request("orders", batch(*[b"x"] * 10), version=9), 9)
    answer = alter(node, "orders", {0: 4, 1: 0, 9: 0})
    assert [each.error_code for each in answer.responses[0].partitions] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert answer.responses[0].topic_id == orders
    assert offsets(node) == {("orders", 0): (4, 6), ("orders", 1): (0, 0)}
    StateClient(node, orders).write((5, 6, 2, 1), start=4, complete=2)
    assert offsets(node, "orders")["orders", 0] == (4, 4), "what is done with is not behind"
    assert offsets(node, "orders")["orders", 2] == (-1, -1)
    assert offsets(node, "nothing")["nothing", 0] == (-1, -1)
    assert alter(node, "nothing", {0: 0}).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = delete_offsets(node, "orders", "nothing")
    assert {each.topic_name: each.error_code for each in answer.responses} == {
        "orders": 0,
        "nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert offsets(node) == {}
    assert StateClient(node, orders).read().error_code == ErrorCode.INVALID_REQUEST
    again = delete_offsets(node, "orders").responses[0]
    assert (again.error_code, again.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "There is no offset information to delete.",
    )


def test_a_group_with_members_keeps_its_offsets(node: SimulatedNode, orders: bytes) -> None:
    member = Member(node, "a", "orders")
    member.join()
    assert alter(node, "orders", {0: 4}).error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete_offsets(node, "orders").error_code == ErrorCode.NON_EMPTY_GROUP
    assert node.client.send(DeleteGroupsRequest(["group"]), 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete_offsets(node, "orders", group="nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_group_takes_its_state_along(node: SimulatedNode, orders: bytes) -> None:
    member = Member(node, "a", "orders")
    member.join()
    member.leave()
    results = node.client.send(DeleteGroupsRequest(["group", "nobody"]), 2).results
    assert {each.group_id: each.error_code for each in results} == {"group": 0, "nobody": ErrorCode.GROUP_ID_NOT_FOUND}
    assert described(node).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert StateClient(node, orders).read(2).error_code == ErrorCode.INVALID_REQUEST
    restart(node)
    assert node.client.send(ListGroupsRequest(), 5).groups == []


# ---- the log


def group_log(node: SimulatedNode) -> list[tuple[str, Any]]:
    answer = node.client.send(fetch_request("__consumer_offsets", 0, version=12, max_bytes=50 << 20), 12)
    found: list[tuple[str, Any]] = []
    for record in records_of(answer.responses[0].partitions[0].records):
        assert record.key is not None
        key = decode_key("group", record.key)
        assert key.API_KEY is not None
        value = None if record.value is None else decode_value("group", key.API_KEY, record.value)[0]
        found.append((type(key).__name__.removeprefix("ShareGroup").removesuffix("Key"), value))
    return found


def test_records_of_a_join(node: SimulatedNode, orders: bytes) -> None:
    Member(node, "a", "orders").join()
    kinds = [kind for kind, _ in group_log(node)]
    assert kinds == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
        "StatePartitionMetadata",
        "StatePartitionMetadata",
    ]
    begun, done = (value for kind, value in group_log(node) if kind == "StatePartitionMetadata")
    assert [(each.topic_name, each.partitions) for each in begun.initializing_topics] == [("orders", [0, 1, 2, 3])]
    assert (begun.initialized_topics, done.initializing_topics) == ([], [])
    assert [(each.topic_name, each.partitions) for each in done.initialized_topics] == [("orders", [0, 1, 2, 3])]


def test_a_restart_brings_everything_back(node: SimulatedNode, orders: bytes) -> None:
    node.create_topic("other", 2)
    members = [Member(node, "a", "orders"), Member(node, "b", "orders", "other")]
    for member in members:
        member.join()
    for _ in range(2):
        node.clock.advance(1000)
        for member in members:
            member.beat()
    before = described(node)
    assert before.group_epoch == before.assignment_epoch
    starts = offsets(node)
    restart(node)
    after = described(node)
    before.members.sort(key=lambda member: member.member_id)
    after.members.sort(key=lambda member: member.member_id)
    assert after == before
    assert offsets(node) == starts
    members[0].client = Client(node, client_id="client-a")
    answer = members[0].beat()
    assert (answer.error_code, answer.assignment) == (0, None)
    node.clock.advance(44_000)
    members[0].beat()
    node.clock.advance(2_000)
    assert [member.member_id for member in described(node).members] == ["a"], "sessions go on after a restart"


def test_an_initialisation_that_nobody_finished_is_begun_again(node: SimulatedNode, orders: bytes) -> None:
    member = Member(node, "a", "orders")
    persister = node.broker.share_persister()
    asked: list[Any] = []
    persister.initialize = lambda request: asked.append(request) or _never()  # type: ignore[method-assign]
    member.join()
    member.beat()
    assert len(asked) == 1, "it is under way"
    node.clock.advance(31_000)
    member.beat()
    assert len(asked) == 2
    restart(node)
    member.client = Client(node, client_id="client-a")
    node.clock.advance(31_000)
    member.beat()
    member.beat()
    assert member.has == {orders: [0, 1, 2, 3]}


def test_an_initialisation_is_begun_again_although_the_clock_was_set_back(node: SimulatedNode, orders: bytes) -> None:
    member = Member(node, "a", "orders")
    asked: list[Any] = []
    node.broker.share_persister().initialize = lambda request: asked.append(request) or _never()  # type: ignore[method-assign]
    member.join()
    node.clock.set_back(3_600_000)
    node.clock.advance(31_000)
    member.beat()
    assert len(asked) == 2


def _never() -> Any:
    from moldau.ports import Pending

    return Pending()


def test_without_a_persister_nothing_is_remembered() -> None:
    node = with_share_state(**{"group.share.persister.class.name": ""})
    topic_id = node.create_topic("orders", 1)
    member = Member(node, "a", "orders")
    member.join()
    member.beat()
    assert member.has == {topic_id: [0]}
    assert StateClient(node, topic_id).read().error_code == ErrorCode.INVALID_REQUEST
    assert offsets(node) == {("orders", 0): (-1, -1)}
