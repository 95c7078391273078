"""Committed offsets: every version, who may commit, what is remembered, and when it is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode
from group_client import Member, commit, fetch, offsets, stable, subscription, with_groups

from moldau.coordinator.decision import Transaction
from moldau.coordinator.group.offset_commits import Committer, OffsetToCommit
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.generated.wire.offset_commit_response import OffsetCommitResponsePartition
from moldau.protocol.generated.wire.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.generated.wire.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

HOUR_MS = 3600 * 1000


@pytest.fixture
def groups() -> SimulatedNode:
    node = with_groups()
    node.create_topic("orders", 3)
    return node


# ---- every version


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_in_every_version(groups: SimulatedNode, version: int) -> None:
    epoch = 7 if version >= 6 else -1
    assert commit(groups.client, "g", "orders", 1, 41, metadata="note", leader_epoch=epoch, version=version) == 0
    (topic,) = fetch(groups.client, "g", {"orders": [1]}).topics
    (found,) = topic.partitions
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (41, epoch, "note")


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_of_one_group_in_every_version(groups: SimulatedNode, version: int) -> None:
    commit(groups.client, "g", "orders", 0, 5, metadata="m", leader_epoch=2)
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("orders", [0, 2])])
    answer = groups.client.send(request, version)
    (topic,) = answer.topics
    epoch = 2 if version >= 5 else -1
    assert [
        (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata) for p in topic.partitions
    ] == [
        (0, 5, epoch, "m"),
        (2, -1, -1, ""),
    ]
    assert answer.error_code == 0


@pytest.mark.parametrize("version", range(2, 8))
def test_fetch_of_everything_before_several_groups(groups: SimulatedNode, version: int) -> None:
    commit(groups.client, "g", "orders", 2, 9)
    answer = groups.client.send(OffsetFetchRequest(group_id="g", topics=None), version)
    assert [(t.name, [(p.partition_index, p.committed_offset) for p in t.partitions]) for t in answer.topics] == [
        ("orders", [(2, 9)])
    ]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_fetch_of_several_groups(groups: SimulatedNode, version: int) -> None:
    commit(groups.client, "a", "orders", 0, 1)
    commit(groups.client, "b", "orders", 1, 2)
    known = groups.services.image.topic("orders")
    assert known is not None
    by_id = version >= 10
    asked = OffsetFetchRequestTopics("" if by_id else "orders", known.id if by_id else bytes(16), [0])
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup("a", topics=[asked]),
            OffsetFetchRequestGroup("b", topics=None),
            OffsetFetchRequestGroup("nobody", topics=None),
        ]
    )
    one, two, three = groups.client.send(request, version).groups
    assert (one.group_id, one.topics[0].partitions[0].committed_offset) == ("a", 1)
    assert (two.group_id, two.topics[0].partitions[0].committed_offset) == ("b", 2)
    assert (two.topics[0].name, two.topics[0].topic_id) == (("", known.id) if by_id else ("orders", bytes(16)))
    assert (three.error_code, three.topics) == (0, [])


def test_unknown_topics_and_partitions(groups: SimulatedNode) -> None:
    client = groups.client
    assert commit(client, "g", "nothing", 0, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(client, "g", "orders", 3, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(client, "g", "nothing", 0, 1, version=10) == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch(client, "g").topics == [], "no group came of it"
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("", b"?" * 16, [0])])]
    )
    (group,) = client.send(request, 10).groups
    assert group.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_one_bad_partition_does_not_spoil_the_rest(groups: SimulatedNode) -> None:
    partitions = [OffsetCommitRequestPartition(index, 10 + index) for index in (0, 7, 1)]
    request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("orders", partitions=partitions)])
    (topic,) = groups.client.send(request, 9).topics
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(0, 0), (7, 3), (1, 0)]
    assert offsets(fetch(groups.client, "g")) == {("orders", 0): 10, ("orders", 1): 11}


def test_metadata_that_is_too_long() -> None:
    node = with_groups(offset_metadata_max_bytes="10")
    node.create_topic("orders")
    assert commit(node.client, "g", "orders", 0, 1, metadata="x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(node.client, "g", "orders", 0, 1, metadata="x" * 10) == 0
    assert commit(node.client, "g", "orders", 0, 2, metadata=None) == 0
    (topic,) = fetch(node.client, "g").topics
    assert (topic.partitions[0].committed_offset, topic.partitions[0].metadata) == (2, "")


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 128, 4000])
def test_metadata_comes_back_as_it_was(groups: SimulatedNode, length: int) -> None:
    assert commit(groups.client, "g", "orders", 0, 1, metadata="é" * length) == 0
    groups.restart()
    (topic,) = fetch(groups.client, "g").topics
    assert topic.partitions[0].metadata == "é" * length


# ---- who may commit


def test_without_the_topic_nobody_coordinates(node: SimulatedNode) -> None:
    node.create_topic("orders")
    assert commit(node.client, "g", "orders", 0, 1) == ErrorCode.NOT_COORDINATOR
    assert fetch(node.client, "g").error_code == ErrorCode.NOT_COORDINATOR
    old = node.client.send(OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("orders", [0])]), 1)
    assert old.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR, "version 1 has no other place for it"


def test_a_group_that_does_not_exist(groups: SimulatedNode) -> None:
    client = groups.client
    assert commit(client, "g", "orders", 0, 1, member="m", generation=1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(client, "g", "orders", 0, 1, member="m", generation=1, version=8) == ErrorCode.ILLEGAL_GENERATION


def test_members_commit_in_their_generation(groups: SimulatedNode) -> None:
    member, other = Member(groups), Member(groups)
    stable(groups, member)
    assert member.commit("orders", 0, 3) == 0
    assert member.commit("orders", 0, 3, generation=member.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert member.commit("orders", 0, 3, member="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(groups.client, "group", "orders", 0, 9) == ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"
    # While a rebalance is being prepared, the old generation may still commit; while it is completed, nobody.
    other.join()
    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert member.commit("orders", 0, 4) == 0
    member.join()
    assert member.commit("orders", 0, 5) == ErrorCode.REBALANCE_IN_PROGRESS
    assert offsets(fetch(groups.client, "group")) == {("orders", 0): 4}


def test_commits_keep_a_session(groups: SimulatedNode) -> None:
    member = Member(groups)
    stable(groups, member)
    for offset in range(5):
        groups.clock.advance(member.session_ms - 1)
        assert member.commit("orders", 0, offset) == 0
    groups.clock.advance(member.session_ms)
    assert member.commit("orders", 0, 9) == ErrorCode.UNKNOWN_MEMBER_ID


# ---- deleting


def delete(node: SimulatedNode, group: str, topic: str, *partitions: int) -> Any:
    asked = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index) for index in partitions])
    return node.client.send(OffsetDeleteRequest(group, [asked]), 0)


def test_delete_offsets(groups: SimulatedNode) -> None:
    for partition in range(3):
        commit(groups.client, "g", "orders", partition, 1)
    answer = delete(groups, "g", "orders", 0, 2, 9)
    assert [(p.partition_index, p.error_code) for p in answer.topics[0].partitions] == [(0, 0), (2, 0), (9, 3)]
    assert offsets(fetch(groups.client, "g")) == {("orders", 1): 1}
    assert delete(groups, "other", "orders", 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(groups, "other", "nothing", 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    unknown = delete(groups, "g", "nothing", 0)
    assert (unknown.error_code, unknown.topics[0].partitions[0].error_code) == (0, 3)
    assert delete(groups, "", "orders", 0).error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_of_topics_that_are_read_stay(groups: SimulatedNode) -> None:
    groups.create_topic("paid")
    member = Member(groups, protocols=(("range", subscription("orders")),))
    stable(groups, member)
    assert member.commit("orders", 0, 1) == member.commit("paid", 0, 1) == 0
    refused = delete(groups, "group", "orders", 0)
    assert refused.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(groups, "group", "paid", 0).topics[0].partitions[0].error_code == 0
    member.leave()
    assert delete(groups, "group", "orders", 0).topics[0].partitions[0].error_code == 0
    assert offsets(fetch(groups.client, "group")) == {}


def test_offsets_of_other_protocols_go_only_without_members(groups: SimulatedNode) -> None:
    worker = Member(groups, protocol_type="connect")
    stable(groups, worker)
    worker.commit("orders", 0, 1)
    assert delete(groups, "group", "orders", 0).error_code == ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_deleted_topics_go(groups: SimulatedNode) -> None:
    groups.create_topic("old")
    commit(groups.client, "g", "old", 0, 5)
    commit(groups.client, "g", "orders", 0, 6)
    groups.client.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="old")]), 6)
    assert offsets(fetch(groups.client, "g")) == {("orders", 0): 6}
    groups.create_topic("old")
    assert offsets(fetch(groups.client, "g", {"old": [0]})) == {("old", 0): -1}
    groups.restart()
    assert offsets(fetch(groups.client, "g")) == {("orders", 0): 6}


# ---- expiry


def test_offsets_without_a_group_expire_by_their_own_age() -> None:
    node = with_groups(offsets_retention_minutes="60")
    node.create_topic("orders", 2)
    commit(node.client, "g", "orders", 0, 1)
    node.clock.advance(HOUR_MS // 2)
    commit(node.client, "g", "orders", 1, 2)
    node.clock.advance(HOUR_MS // 2 + 601_000)
    assert offsets(fetch(node.client, "g")) == {("orders", 1): 2}
    node.clock.advance(HOUR_MS)
    assert offsets(fetch(node.client, "g")) == {}
    assert not node.broker.group_coordinator().host(0).shard.groups, "the group has gone with its last offset"


def test_offsets_of_a_group_expire_when_it_has_been_empty_for_long() -> None:
    node = with_groups(offsets_retention_minutes="60")
    node.create_topic("orders")
    member = Member(node, protocols=(("range", subscription("orders")),), session_ms=1_000_000)
    stable(node, member)
    member.commit("orders", 0, 1)
    for _ in range(12):
        node.clock.advance(900_000)
        assert member.heartbeat() == 0
    assert offsets(fetch(node.client, "group")) == {("orders", 0): 1}, "three hours old, and still being read"
    member.leave()
    node.clock.advance(HOUR_MS - 1000)
    assert offsets(fetch(node.client, "group")) == {("orders", 0): 1}
    node.clock.advance(700_000)
    assert offsets(fetch(node.client, "group")) == {}


def test_topics_no_longer_read_expire_while_the_group_lives() -> None:
    node = with_groups(offsets_retention_minutes="60")
    node.create_topic("orders")
    node.create_topic("old")
    member = Member(node, protocols=(("range", subscription("orders")),), session_ms=1_000_000)
    stable(node, member)
    assert member.commit("orders", 0, 1) == member.commit("old", 0, 1) == 0
    for _ in range(5):
        node.clock.advance(900_000)
        member.heartbeat()
    assert offsets(fetch(node.client, "group")) == {("orders", 0): 1}


def test_a_commit_may_bring_its_own_retention(groups: SimulatedNode) -> None:
    commit(groups.client, "g", "orders", 0, 1, version=4, retention_ms=1000)
    commit(groups.client, "g", "orders", 1, 2, version=4)
    groups.clock.advance(601_000)
    assert offsets(fetch(groups.client, "g")) == {("orders", 1): 2}


# ---- in transactions


class Producer:
    """Commits offsets in a transaction, as the transaction coordinator and TxnOffsetCommit will."""

    def __init__(self, node: SimulatedNode, producer_id: int) -> None:
        self.runtime = node.broker.group_coordinator()
        self.host = self.runtime.host(0)
        self.transaction = Transaction(producer_id, 0)

    def commit(self, partition: int, offset: int, group: str = "g") -> int:
        result = OffsetCommitResponsePartition(partition)
        each = OffsetToCommit("orders", bytes(16), partition, offset, -1, "", result)
        who = Committer(group, "", None, -1, 3)
        outcome = self.runtime.write(
            self.host, lambda shard: shard.commits.commit_transactional(who, [each], result), self.transaction
        )
        assert outcome is result
        return result.error_code

    def end(self, *, committed: bool) -> None:
        outcome = self.runtime.end_transaction(self.host, self.transaction, 0, committed=committed, version=0)
        assert outcome is ErrorCode.NONE


def test_offsets_count_when_their_transaction_commits(groups: SimulatedNode) -> None:
    commit(groups.client, "g", "orders", 0, 1)
    producer = Producer(groups, 77)
    assert producer.commit(0, 5) == 0
    assert offsets(fetch(groups.client, "g")) == {("orders", 0): 1}
    unstable = fetch(groups.client, "g", {"orders": [0, 1]}, require_stable=True).topics[0].partitions
    assert [(p.error_code, p.committed_offset) for p in unstable] == [(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1), (0, -1)]
    groups.restart()
    unstable = fetch(groups.client, "g", {"orders": [0]}, require_stable=True).topics[0].partitions
    assert unstable[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT, "also after a restart"
    Producer(groups, 77).end(committed=True)
    assert offsets(fetch(groups.client, "g", require_stable=True)) == {("orders", 0): 5}
    groups.restart()
    assert offsets(fetch(groups.client, "g", require_stable=True)) == {("orders", 0): 5}


def test_offsets_of_an_aborted_transaction_never_count(groups: SimulatedNode) -> None:
    producer = Producer(groups, 77)
    producer.commit(0, 5)
    producer.end(committed=False)
    assert offsets(fetch(groups.client, "g", {"orders": [0]}, require_stable=True)) == {("orders", 0): -1}
    groups.restart()
    assert offsets(fetch(groups.client, "g", {"orders": [0]}, require_stable=True)) == {("orders", 0): -1}


def test_the_later_commit_wins_whatever_ends_first(groups: SimulatedNode) -> None:
    early, late = Producer(groups, 1), Producer(groups, 2)
    early.commit(0, 10)
    late.commit(0, 20)
    early.commit(1, 10)
    commit(groups.client, "g", "orders", 1, 30)
    late.end(committed=True)
    early.end(committed=True)
    expected = {("orders", 0): 20, ("orders", 1): 30}
    assert offsets(fetch(groups.client, "g")) == expected
    groups.restart()
    assert offsets(fetch(groups.client, "g")) == expected


def test_open_transactions_keep_offsets_from_expiring() -> None:
    node = with_groups(offsets_retention_minutes="60")
    node.create_topic("orders", 2)
    commit(node.client, "g", "orders", 0, 1)
    commit(node.client, "g", "orders", 1, 1)
    producer = Producer(node, 9)
    producer.commit(0, 5)
    node.clock.advance(2 * 3600 * 1000)
    assert offsets(fetch(node.client, "g")) == {("orders", 0): 1}
    producer.end(committed=False)
    node.clock.advance(700_000)
    assert offsets(fetch(node.client, "g")) == {}


def test_a_deleted_offset_is_not_brought_back_by_a_transaction(groups: SimulatedNode) -> None:
    producer = Producer(groups, 9)
    producer.commit(0, 5)
    assert delete(groups, "g", "orders", 0).topics[0].partitions[0].error_code == 0
    producer.end(committed=True)
    assert offsets(fetch(groups.client, "g", {"orders": [0]})) == {("orders", 0): -1}
