"""Groups with members of both protocols: upgrade, downgrade, and how classic members fare among the others."""

from __future__ import annotations

import pytest
from broker_node import SimulatedNode
from consumer_group_client import NextMember, described, settle
from group_client import GATHERED_MS, Member, commit, subscription, with_groups

from moldau.coordinator.group.consumer.embedded_protocol import read_assignment
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from moldau.protocol.generated.wire.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from moldau.protocol.generated.wire.consumer_protocol_subscription import (
    TopicPartition as OwnedPartitions,
)
from moldau.protocol.generated.wire.describe_groups_request import DescribeGroupsRequest
from moldau.protocol.generated.wire.list_groups_request import ListGroupsRequest
from moldau.protocol.wire import Writer

Partition = tuple[str, int]


@pytest.fixture
def node() -> SimulatedNode:
    node = with_groups()
    node.create_topic("orders", 4)
    return node


def metadata(owned: set[Partition]) -> bytes:
    """What a cooperative consumer of `orders` says about itself."""
    message = ConsumerProtocolSubscription(topics=["orders"], user_data=None)
    if owned:
        message.owned_partitions = [OwnedPartitions("orders", sorted(index for _, index in owned))]
    writer = Writer()
    writer.buf += b"\0\1"
    message.write(writer, 1)
    return bytes(writer.buf)


def given(*partitions: int) -> bytes:
    writer = Writer()
    writer.buf += b"\0\1"
    assigned = [TopicPartition("orders", list(partitions))] if partitions else []
    ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None).write(writer, 1)
    return bytes(writer.buf)


class Cooperative(Member):
    """A classic consumer that keeps what it has until it is told otherwise."""

    def __init__(self, node: SimulatedNode, **how: str | None) -> None:
        super().__init__(node, protocols=(("cooperative-sticky", metadata(set())),), **how)  # type: ignore[arg-type]
        self.owned: set[Partition] = set()

    def rejoin(self) -> None:
        self.protocols = (("cooperative-sticky", metadata(self.owned)),)
        answer = self.join_now()
        assert answer.error_code == 0, answer
        self.take(self.sync())

    def take(self, answer: object) -> None:
        assert answer.error_code == 0, answer  # type: ignore[attr-defined]
        data = answer.assignment  # type: ignore[attr-defined]
        topics = read_assignment(data).assigned_partitions if data else []
        self.owned = {(topic.topic, index) for topic in topics for index in topic.partitions}

    def settle(self) -> None:
        for _ in range(4):
            code = self.heartbeat()
            if code != ErrorCode.REBALANCE_IN_PROGRESS:
                assert code == 0
                return
            self.rejoin()


def classic_group(node: SimulatedNode, *members: Cooperative) -> None:
    """These members share `orders` in the classic way."""
    answers = [member.join() for member in members]
    node.clock.advance(GATHERED_MS)
    assert all(answer.done and answer.value.error_code == 0 for answer in answers)
    leader = next(member for member in members if member.joined.leader == member.id)
    waiting = [(member, member.post_sync()) for member in members if member is not leader]
    shares = {member.id: given(*range(4)[number :: len(members)]) for number, member in enumerate(members)}
    leader.take(leader.sync(shares))
    for member, answer in waiting:
        member.take(answer.value)


def group_type(node: SimulatedNode) -> tuple[str, str]:
    (listed,) = node.client.send(ListGroupsRequest(), 5).groups
    return listed.group_type, listed.group_state


def settle_all(node: SimulatedNode, classic: list[Cooperative], modern: list[NextMember], rounds: int = 8) -> None:
    for _ in range(rounds):
        for old in classic:
            old.settle()
        for new in modern:
            new.settle()
        node.clock.advance(1000)


def test_a_classic_group_is_upgraded_and_shares_its_work(node: SimulatedNode) -> None:
    old = Cooperative(node)
    classic_group(node, old)
    commit(old.client, "group", "orders", 0, 9, member=old.id, generation=old.generation)
    generation = old.generation
    new = NextMember(node, "new", "orders")
    answer = new.join()
    assert answer.error_code == 0
    assert group_type(node)[0] == "consumer"
    assert new.partitions == set()
    assert described(node).group_epoch == generation + 1
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    settle_all(node, [old], [new])
    assert len(old.owned) == len(new.partitions) == 2
    assert not old.owned & new.partitions
    kinds = {member.member_id: member.member_type for member in described(node).members}
    assert kinds == {old.id: 0, "new": 1}
    (seen,) = node.client.send(DescribeGroupsRequest(groups=["group"]), 6).groups
    assert seen.error_code == ErrorCode.GROUP_ID_NOT_FOUND, "it is no classic group any more"


def test_the_last_of_the_new_takes_the_group_back(node: SimulatedNode) -> None:
    old = Cooperative(node)
    classic_group(node, old)
    new = NextMember(node, "new", "orders")
    new.join()
    settle_all(node, [old], [new])
    new.leave()
    assert group_type(node) == ("classic", "PreparingRebalance")
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    old.protocols = (("cooperative-sticky", metadata(old.owned)),)
    assert old.join_now().error_code == 0
    old.take(old.sync({old.id: given(0, 1, 2, 3)}))
    assert len(old.owned) == 4
    assert group_type(node) == ("classic", "Stable")
    assert old.heartbeat() == 0


def test_a_classic_member_joins_a_consumer_group(node: SimulatedNode) -> None:
    new, old = NextMember(node, "new", "orders"), Cooperative(node)
    new.join()
    node.clock.advance(1000)
    old.rejoin()
    assert old.owned == set()
    settle_all(node, [old], [new])
    assert len(old.owned) == len(new.partitions) == 2
    left = old.leave()
    assert left.members[0].error_code == 0
    node.clock.advance(1000)
    settle(node, new, rounds=3)
    assert len(new.partitions) == 4


def test_groups_of_both_kinds_survive_a_restart(node: SimulatedNode) -> None:
    old, new = Cooperative(node), NextMember(node, "new", "orders")
    classic_group(node, old)
    new.join()
    settle_all(node, [old], [new])
    before = described(node)
    node.restart()
    assert described(node) == before
    old.client = type(old.client)(node)
    new.client = type(new.client)(node, client_id=new.client.client_id)
    assert old.heartbeat() == 0
    assert new.beat().error_code == 0
    new.leave()
    assert group_type(node) == ("classic", "PreparingRebalance")
    node.restart()
    assert group_type(node) == ("classic", "Stable"), "as far as its records say"


def test_a_static_member_changes_sides_and_back(node: SimulatedNode) -> None:
    old = Cooperative(node, instance="one")
    classic_group(node, old)
    had, generation = old.owned, old.generation
    new = NextMember(node, "new", "orders", instance="one")
    assert new.join().error_code == 0
    assert new.partitions == had
    assert new.epoch == generation, "nothing has changed for the group"
    assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    again = Cooperative(node, instance="one")
    answer = again.join_now()
    assert answer.error_code == 0
    assert group_type(node) == ("classic", "Stable")
    again.take(again.sync())
    assert again.owned == had
    assert again.heartbeat() == 0


def test_classic_members_are_fenced_and_expire_as_others_do(node: SimulatedNode) -> None:
    new, old = NextMember(node, "new", "orders"), Cooperative(node)
    new.join()
    node.clock.advance(1000)
    old.rejoin()
    settle_all(node, [old], [new])
    assert old.heartbeat(old.generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert old.commit("orders", 0, 1, generation=old.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert old.commit("orders", 0, 1) == 0
    assert old.sync(protocol_name="range").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stranger = Cooperative(node)
    stranger.id, stranger.generation = "nobody", 3
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stranger.id, stranger.generation = "new", new.epoch
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID, "that one does not speak the classic protocol"
    for _ in range(11):
        node.clock.advance(1000)
        new.settle()
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID, "its own session timeout counts"
    assert len(new.partitions) == 4


def test_a_classic_member_that_does_not_join_again_is_out(node: SimulatedNode) -> None:
    old = Cooperative(node)
    old.rebalance_ms = 5000
    classic_group(node, old)
    new = NextMember(node, "new", "orders")
    new.join()
    for _ in range(7):
        node.clock.advance(1000)
        old.heartbeat()
        new.settle()
    assert len(new.partitions) == 4


def test_protocols_must_have_something_in_common(node: SimulatedNode) -> None:
    new, old = NextMember(node, "new", "orders"), Cooperative(node)
    new.join()
    old.rejoin()
    other = Member(node, protocols=(("range", subscription("orders")),))
    assert other.join_now().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    connect = Member(node, protocol_type="connect", protocols=(("cooperative-sticky", b""),))
    assert connect.join_now().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    nonsense = Member(node, protocols=(("cooperative-sticky", b"\0"),))
    assert nonsense.join_now().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_consumer_group_becomes_a_classic_one(node: SimulatedNode) -> None:
    new = NextMember(node, "new", "orders")
    new.join()
    new.leave()
    old = Cooperative(node)
    classic_group(node, old)
    assert group_type(node) == ("classic", "Stable")
    node.restart()
    assert group_type(node) == ("classic", "Stable")


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [("disabled", False, False), ("upgrade", True, False), ("DOWNGRADE", False, True), ("bidirectional", True, True)],
)
def test_policies(policy: str, up: bool, down: bool) -> None:
    node = with_groups(group_consumer_migration_policy=policy)
    node.create_topic("orders", 4)
    classic_group(node, Cooperative(node))
    answer = NextMember(node, "new", "orders").join()
    assert answer.error_code == (0 if up else ErrorCode.GROUP_ID_NOT_FOUND)
    new, old = NextMember(node, "new", "orders", group="other"), Cooperative(node, group="other")
    new.join()
    if policy == "disabled":
        assert old.join_now().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return
    old.rejoin()
    new.leave()
    groups = {listed.group_id: listed.group_type for listed in node.client.send(ListGroupsRequest(), 5).groups}
    assert groups["other"] == ("classic" if down else "consumer")


def test_groups_of_other_kinds_are_not_upgraded(node: SimulatedNode) -> None:
    worker = Member(node, protocol_type="connect", protocols=(("sessioned", b"x"),))
    worker.join_now()
    worker.sync({worker.id: b"work"})
    answer = NextMember(node, "new", "orders").join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "does not use the consumer embedded protocol" in answer.error_message
    assert worker.heartbeat() == 0
