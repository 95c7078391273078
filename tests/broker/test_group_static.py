"""Static members: their place is kept while they restart, and only one may have it."""

from __future__ import annotations

import pytest
from broker_node import SimulatedNode
from group_client import GATHERED_MS, Member, stable, with_groups

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.leave_group_request import LeaveGroupRequest, MemberIdentity


@pytest.fixture
def node() -> SimulatedNode:
    return with_groups()


def restarted(member: Member, version: int = 9) -> Member:
    return Member(member.node, instance=member.instance, version=version, protocols=member.protocols)


def test_no_id_has_to_be_fetched_first(node: SimulatedNode) -> None:
    member = Member(node, instance="a")
    answer = member.post_join()
    assert not answer.done
    node.clock.advance(GATHERED_MS)
    assert answer.value.error_code == 0
    assert member.id.startswith("a-")


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_follower_comes_back_without_a_rebalance(node: SimulatedNode, version: int) -> None:
    one, two = Member(node, instance="a"), Member(node, instance="b")
    stable(node, one, two)
    leader, follower = (one, two) if one.joined.leader == one.id else (two, one)
    expected = follower.sync().assignment
    back = restarted(follower, version)
    answer = back.post_join().value
    assert (answer.error_code, answer.generation_id, answer.members) == (0, 1, [])
    assert back.id != follower.id
    assert back.sync().assignment == expected, "it has what it had before"
    assert leader.heartbeat() == back.heartbeat() == 0
    assert follower.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert follower.sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert follower.post_join().value.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert follower.leave().members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", [8, 9])
def test_a_leader_comes_back_without_assigning_anew(node: SimulatedNode, version: int) -> None:
    one, two = Member(node, instance="a"), Member(node, instance="b")
    stable(node, one, two)
    leader = one if one.joined.leader == one.id else two
    old_id = leader.id
    back = restarted(leader, version)
    answer = back.post_join().value
    assert answer.error_code == 0
    if version >= 9:
        assert answer.skip_assignment
        assert answer.leader == back.id
        assert len(answer.members) == 2
    else:
        assert answer.leader == old_id, "an older client must not find out that it leads"
        assert answer.members == []
    assert back.sync().error_code == 0


def test_commits_of_the_old_id_are_fenced(node: SimulatedNode) -> None:
    node.create_topic("orders")
    member = Member(node, instance="a")
    stable(node, member)
    back = restarted(member)
    back.post_join()
    assert member.commit("orders", 0, 1) == ErrorCode.FENCED_INSTANCE_ID
    assert back.commit("orders", 0, 1) == 0
    assert back.commit("orders", 0, 1, instance="stranger") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_waits_is_fenced_by_its_successor(node: SimulatedNode) -> None:
    one, two = Member(node, instance="a"), Member(node, instance="b")
    stable(node, one)
    waiting = two.join()
    second = restarted(two).post_join()
    assert waiting.value.error_code == ErrorCode.FENCED_INSTANCE_ID
    one.join_now()
    assert second.value.error_code == 0


def test_while_assigning_a_restart_begins_a_new_rebalance(node: SimulatedNode) -> None:
    one, two = Member(node, instance="a"), Member(node, instance="b")
    answers = [one.join(), two.join()]
    node.clock.advance(GATHERED_MS)
    assert all(answer.done for answer in answers)
    leader, follower = (one, two) if one.joined.leader == one.id else (two, one)
    waiting = follower.post_sync()
    back = restarted(follower).post_join()
    assert waiting.value.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert not back.done
    assert leader.join_now().generation_id == 2
    assert back.value.generation_id == 2


def test_another_protocol_makes_a_rebalance(node: SimulatedNode) -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    one = Member(node, instance="a", protocols=both)
    stable(node, one)
    back = Member(node, instance="a", protocols=both[1:])
    assert back.join_now().generation_id == 2
    assert back.joined.protocol_name == "sticky"


def test_a_static_member_keeps_its_place_for_one_rebalance(node: SimulatedNode) -> None:
    gone, other = Member(node, instance="a", rebalance_ms=6000), Member(node, instance="b", rebalance_ms=6000)
    stable(node, gone, other)
    third = Member(node, rebalance_ms=6000)
    third.join()
    other.join()
    node.clock.advance(6000)
    assert third.joined.generation_id == 2
    leader, follower = (third, other) if third.joined.members else (other, third)
    places = {each.group_instance_id for each in leader.joined.members}
    assert places == {"a", "b", None}, "it did not come, but its session lasts"
    leader.sync({})
    follower.sync()
    node.clock.advance(5999)
    assert third.heartbeat() == 0
    node.clock.advance(1)
    assert third.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "it never asked for its assignment"
    assert gone.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_administrators_remove_static_members_by_name(node: SimulatedNode) -> None:
    one, two = Member(node, instance="a"), Member(node, instance="b")
    stable(node, one, two)
    request = LeaveGroupRequest(
        "group",
        members=[
            MemberIdentity("", "a"),
            MemberIdentity("", "nobody"),
            MemberIdentity("", None),
            MemberIdentity(two.id),
        ],
    )
    answer = node.client.send(request, 5)
    assert [each.error_code for each in answer.members] == [
        0,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        0,
    ]
    assert one.heartbeat() == two.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
