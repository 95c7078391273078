"""Classic groups: joining, syncing, heartbeats and leaving, with everything that can go wrong on the way."""

from __future__ import annotations

import pytest
from broker_node import SimulatedNode
from group_client import GATHERED_MS, REBALANCE_MS, SESSION_MS, Member, stable, with_groups

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.heartbeat_request import HeartbeatRequest
from moldau.protocol.generated.wire.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.generated.wire.leave_group_request import LeaveGroupRequest, MemberIdentity
from moldau.protocol.generated.wire.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment


@pytest.fixture
def node() -> SimulatedNode:
    return with_groups()


# ---- every version


@pytest.mark.parametrize("version", range(10))
def test_join_in_every_version(node: SimulatedNode, version: int) -> None:
    member = Member(node, version=version)
    first = member.post_join()
    if version >= 4:
        assert first.value.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert first.value.member_id.startswith("tests-")
        first = member.post_join()
    node.clock.advance(GATHERED_MS)
    answer = first.value
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id == member.id
    assert [(each.member_id, each.metadata) for each in answer.members] == [(member.id, b"metadata")]
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert not answer.skip_assignment


@pytest.mark.parametrize("version", range(6))
def test_sync_in_every_version(node: SimulatedNode, version: int) -> None:
    member = Member(node)
    member.join_now()
    given = [SyncGroupRequestAssignment(member.id, b"all of it")]
    request = SyncGroupRequest("group", member.generation, member.id, assignments=given)
    answer = member.client.send(request, version)
    assert (answer.error_code, answer.assignment) == (0, b"all of it")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_in_every_version(node: SimulatedNode, version: int) -> None:
    member = Member(node)
    stable(node, member)
    answer = member.client.send(HeartbeatRequest("group", member.generation, member.id), version)
    assert answer.error_code == 0


@pytest.mark.parametrize("version", range(6))
def test_leave_in_every_version(node: SimulatedNode, version: int) -> None:
    member = Member(node)
    stable(node, member)
    if version < 3:
        request, again = (LeaveGroupRequest("group", member.id) for _ in range(2))
        assert member.client.send(request, version).error_code == 0
        assert member.client.send(again, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        request = LeaveGroupRequest("group", members=[MemberIdentity(member.id), MemberIdentity("nobody")])
        answer = member.client.send(request, version)
        assert [(each.member_id, each.error_code) for each in answer.members] == [
            (member.id, 0),
            ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# ---- what is refused


def test_empty_group_ids(node: SimulatedNode) -> None:
    member = Member(node, group="")
    assert member.post_join().value.error_code == ErrorCode.INVALID_GROUP_ID
    assert member.sync().error_code == ErrorCode.INVALID_GROUP_ID
    assert member.heartbeat() == ErrorCode.INVALID_GROUP_ID
    assert member.leave().error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeouts_have_limits(node: SimulatedNode, session_ms: int) -> None:
    assert Member(node, session_ms=session_ms).post_join().value.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_ids_that_were_never_given_out(node: SimulatedNode) -> None:
    stranger = Member(node)
    stranger.id, stranger.generation = "made up", 1
    assert stranger.post_join().value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stable(node, Member(node))
    assert stranger.post_join().value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("protocols", [(), (("sticky", b""),)])
def test_protocols_that_do_not_go_together(node: SimulatedNode, protocols: tuple[tuple[str, bytes], ...]) -> None:
    stable(node, Member(node))
    other = Member(node, protocols=protocols)
    assert other.post_join().value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_protocol_types_that_do_not_go_together(node: SimulatedNode) -> None:
    stable(node, Member(node))
    other = Member(node, protocol_type="connect")
    assert other.post_join().value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Member(node, "new", protocol_type="").post_join().value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_old_generations_are_fenced(node: SimulatedNode) -> None:
    member = Member(node)
    stable(node, member)
    assert member.heartbeat(generation=0) == ErrorCode.ILLEGAL_GENERATION
    assert member.sync(generation_id=7).error_code == ErrorCode.ILLEGAL_GENERATION
    assert member.sync(protocol_name="other").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_type="other").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_name="range", protocol_type="consumer").error_code == 0


def test_a_group_may_be_full() -> None:
    node = with_groups(group_max_size="2")
    members = [Member(node), Member(node)]
    stable(node, *members)
    third = Member(node)
    assert third.post_join().value.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    members[0].leave()
    third.join()
    assert members[1].join_now().error_code == 0
    assert third.joined.error_code == 0


# ---- the course of a rebalance


def test_two_members_share(node: SimulatedNode) -> None:
    one, two = Member(node), Member(node)
    stable(node, one, two)
    assert one.generation == two.generation == 1
    leader, follower = (one, two) if one.joined.leader == one.id else (two, one)
    assert len(leader.joined.members) == 2
    assert follower.joined.members == []
    assert follower.joined.leader == leader.id
    assert (one.sync().assignment, two.sync().assignment) == (b"0", b"1")


def test_a_newcomer_makes_everybody_join_again(node: SimulatedNode) -> None:
    old, new = Member(node), Member(node)
    stable(node, old)
    answer = new.join()
    assert not answer.done
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.join_now().generation_id == 2
    assert answer.value.generation_id == 2
    waiting = new.post_sync()
    assert not waiting.done, "the leader has not brought the assignment yet"
    assert old.sync({old.id: b"a", new.id: b"b"}).assignment == b"a"
    assert waiting.value.assignment == b"b"
    assert old.heartbeat() == new.heartbeat() == 0


def test_the_initial_delay_is_extended_while_members_come() -> None:
    node = with_groups(group_initial_rebalance_delay_ms="3000")
    members = [Member(node, rebalance_ms=7000) for _ in range(4)]
    answers = [members[0].join()]
    node.clock.advance(2000)
    answers.append(members[1].join())
    node.clock.advance(3000)
    assert not answers[0].done, "somebody came: another 3 seconds"
    answers.append(members[2].join())
    node.clock.advance(1999)
    assert not answers[0].done
    node.clock.advance(1)
    assert [answer.done for answer in answers] == [True] * 3, "7 seconds, the rebalance timeout, are the limit"
    assert {answer.value.generation_id for answer in answers} == {1}


def test_nobody_else_comes_in_the_initial_delay() -> None:
    node = with_groups(group_initial_rebalance_delay_ms="3000")
    answer = Member(node).join()
    node.clock.advance(2999)
    assert not answer.done
    node.clock.advance(1)
    assert answer.value.error_code == 0


def test_who_does_not_rejoin_in_time_is_out(node: SimulatedNode) -> None:
    slow, quick, new = Member(node), Member(node), Member(node)
    stable(node, slow, quick)
    new.join()
    quick.join()
    for _ in range(REBALANCE_MS // 5000 - 1):
        node.clock.advance(5000)
        assert slow.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "alive, but not coming"
    node.clock.advance(5000)
    assert quick.joined.generation_id == new.joined.generation_id == 2
    assert slow.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert quick.joined.leader in (quick.id, new.id), "the leader is one of those who came"


def test_who_freezes_is_removed_and_the_others_rebalance(node: SimulatedNode) -> None:
    alive, frozen = Member(node), Member(node)
    stable(node, alive, frozen)
    node.clock.advance(SESSION_MS - 1)
    assert alive.heartbeat() == 0
    node.clock.advance(1)
    assert alive.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert alive.join_now().generation_id == 2
    assert [each.member_id for each in alive.joined.members] == [alive.id]
    assert frozen.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_syncs_is_removed(node: SimulatedNode) -> None:
    one, two = Member(node), Member(node)
    answers = [one.join(), two.join()]
    node.clock.advance(GATHERED_MS)
    assert all(answer.done for answer in answers)
    leader, follower = (one, two) if one.joined.leader == one.id else (two, one)
    waiting = follower.post_sync()
    for _ in range(REBALANCE_MS // 5000):
        assert not waiting.done
        node.clock.advance(5000)
        leader.heartbeat()
    assert waiting.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert follower.join_now().leader == follower.id


def test_waiting_members_need_no_heartbeat(node: SimulatedNode) -> None:
    old, new = Member(node), Member(node)
    stable(node, old)
    answer = new.join()
    for _ in range(4):
        node.clock.advance(SESSION_MS)
        if old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID:
            break
    else:
        pytest.fail("the old member was never given up")
    assert not new.heartbeat(), "it waited all the time and is in the new generation"
    assert answer.value.error_code == 0


def test_an_id_that_is_not_used_is_forgotten(node: SimulatedNode) -> None:
    member, lost = Member(node), Member(node)
    stable(node, member)
    assert lost.post_join().value.error_code == ErrorCode.MEMBER_ID_REQUIRED
    third = Member(node)
    third.join()
    answer = member.join()
    assert not answer.done, "somebody with a fresh id may still come"
    node.clock.advance(SESSION_MS)
    assert answer.done
    assert lost.post_join().value.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_may_leave(node: SimulatedNode) -> None:
    member, other = Member(node), Member(node)
    stable(node, member)
    assert other.post_join().value.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert other.leave().members[0].error_code == 0
    assert other.post_join().value.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_may_ask_for_a_rebalance(node: SimulatedNode) -> None:
    member, other = Member(node), Member(node)
    stable(node, member, other)
    leader, follower = (member, other) if member.joined.leader == member.id else (other, member)
    again = follower.join_now()
    assert again.generation_id == 1, "a follower with nothing new is told what it knows"
    answer = leader.join()
    assert not answer.done
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_new_metadata_makes_a_rebalance(node: SimulatedNode) -> None:
    member, other = Member(node), Member(node)
    stable(node, member, other)
    follower = other if member.joined.leader == member.id else member
    follower.protocols = (("range", b"more topics"),)
    assert not follower.join().done


def test_a_lost_answer_is_given_again(node: SimulatedNode) -> None:
    one, two = Member(node), Member(node)
    answers = [one.join(), two.join()]
    node.clock.advance(GATHERED_MS)
    assert all(answer.done for answer in answers)
    again = one.post_join()
    assert again.done, "the generation goes on"
    assert again.value.generation_id == 1
    assert bool(again.value.members) == (again.value.leader == one.id)


def test_leaving_while_syncing_begins_anew(node: SimulatedNode) -> None:
    one, two = Member(node), Member(node)
    answers = [one.join(), two.join()]
    node.clock.advance(GATHERED_MS)
    assert all(answer.done for answer in answers)
    leader, follower = (one, two) if one.joined.leader == one.id else (two, one)
    waiting = follower.post_sync()
    leader.leave()
    assert waiting.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.join_now().leader == follower.id


def test_the_last_one_leaves_the_group_empty(node: SimulatedNode) -> None:
    member = Member(node)
    stable(node, member)
    member.leave()
    shard = node.broker.group_coordinator().host(0).shard
    assert shard.count_by_state() == {("classic", "Empty"): 1}
    again = Member(node, protocol_type="connect", protocols=(("any", b""),))
    assert again.join_now().generation_id == 3, "one generation without anybody, then the next"


def test_votes_decide_the_protocol(node: SimulatedNode) -> None:
    common = (("range", b"r"), ("sticky", b"s"))
    one = Member(node, protocols=common)
    two = Member(node, protocols=(*reversed(common), ("other", b"o")))
    three = Member(node, protocols=tuple(reversed(common)))
    answers = [member.join() for member in (one, two, three)]
    node.clock.advance(GATHERED_MS)
    assert {answer.value.protocol_name for answer in answers} == {"sticky"}
    leader = next(member for member in (one, two, three) if member.joined.members)
    assert {each.metadata for each in leader.joined.members} == {b"s"}


def test_a_repeated_join_does_not_leave_anybody_waiting(node: SimulatedNode) -> None:
    """A client that lost its connection asks again; the first request must not be held for ever."""
    old, new = Member(node), Member(node)
    stable(node, old)
    first = new.join()
    second = new.post_join()
    assert first.done
    assert not second.done
    old.join_now()
    assert second.value.error_code == 0


def test_a_thousand_members_at_once(node: SimulatedNode) -> None:
    protocols = [JoinGroupRequestProtocol("range", b"metadata")]
    members = [Member(node) for _ in range(1000)]
    for member in members:
        request = JoinGroupRequest("group", SESSION_MS, REBALANCE_MS, "", None, "consumer", protocols)
        member.id = node.client.send(request, 9).member_id
    stable(node, *members)
    assert {member.generation for member in members} == {1}
    assert {member.joined.leader for member in members} == {members[0].joined.leader}
    assert all(member.heartbeat() == 0 for member in members)
