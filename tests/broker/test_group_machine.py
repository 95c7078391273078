"""Random lives of one classic group: whatever its members do, a generation has one leader and one protocol.

Clients join, sync, beat, leave, freeze, restart and change their minds in any order while time passes. What a client
is told must fit what the others were told in the same generation, and nobody is left waiting for ever.
"""

from __future__ import annotations

from typing import Any

from group_client import REBALANCE_MS, SESSION_MS, Member, with_groups
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from moldau.coordinator.group.classic.group import ClassicGroup, ClassicState
from moldau.ports import Pending
from moldau.protocol.errors import ErrorCode

PROTOCOLS = (
    (("range", b"r"), ("sticky", b"s")),
    (("sticky", b"s"), ("range", b"r")),
    (("range", b"other"),),
)
SEATS = st.integers(0, 4)
FORGIVEN = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
}


class LivesOfAGroup(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = with_groups(group_initial_rebalance_delay_ms="100")
        self.members = [self._new(seat) for seat in range(5)]
        self.waiting: list[Pending[Any]] = []
        self.last_generation = 0
        # By generation: the protocol, who was told to assign, and what was assigned.
        self.protocol: dict[int, str] = {}
        self.assigning: dict[int, set[str]] = {}
        self.assigned: dict[int, dict[str, bytes]] = {}

    def _new(self, seat: int) -> Member:
        # The first two seats are static members: they come back under their name.
        return Member(self.node, instance=f"static-{seat}" if seat < 2 else None, protocols=PROTOCOLS[0])

    def _watch(self, answer: Pending[Any], check: Any) -> None:
        self.waiting.append(answer)
        answer.then(check)

    # ---- what clients do

    @rule(seat=SEATS, protocols=st.sampled_from(PROTOCOLS))
    def join(self, seat: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        member = self.members[seat]
        member.protocols = protocols
        self._watch(member.join(), lambda response: self._check_joined(member, response))

    def _check_joined(self, member: Member, response: Any) -> None:
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            member.id, member.generation = "", -1
        if code is not ErrorCode.NONE:
            assert code in FORGIVEN | {ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.MEMBER_ID_REQUIRED}
            return
        generation = response.generation_id
        assert generation >= self.last_generation, "a generation that is over was begun again"
        self.last_generation = generation
        assert self.protocol.setdefault(generation, response.protocol_name) == response.protocol_name
        if response.members and not response.skip_assignment:
            assert response.leader == response.member_id
            self.assigning.setdefault(generation, set()).add(member.instance or response.member_id)
            assert len(self.assigning[generation]) == 1, "two members were told to assign"
            listed = [each.member_id for each in response.members]
            assert len(set(listed)) == len(listed)
            assert response.member_id in listed

    @rule(seat=SEATS)
    def sync(self, seat: int) -> None:
        member = self.members[seat]
        if member.joined is None or member.generation < 0:
            return
        assignments = {
            each.member_id: f"{member.generation}/{each.member_id}".encode() for each in member.joined.members
        }
        generation, member_id = member.generation, member.id
        self._watch(member.post_sync(assignments), lambda response: self._check_synced(generation, member_id, response))

    def _check_synced(self, generation: int, member_id: str, response: Any) -> None:
        assert ErrorCode(response.error_code) in FORGIVEN
        if response.error_code or not response.assignment:
            return
        given, _, _ = response.assignment.decode().partition("/")
        assert int(given) <= generation, "an assignment of a generation to come"
        known = self.assigned.setdefault(generation, {}).setdefault(member_id, response.assignment)
        assert known == response.assignment, "another assignment in the same generation"

    @rule(seat=SEATS)
    def heartbeat(self, seat: int) -> None:
        member = self.members[seat]
        if member.generation >= 0:
            assert ErrorCode(member.heartbeat()) in FORGIVEN

    @rule(seat=SEATS)
    def leave(self, seat: int) -> None:
        member = self.members[seat]
        if member.id:
            assert ErrorCode(member.leave().members[0].error_code) in FORGIVEN
            self.members[seat] = self._new(seat)

    @rule(seat=SEATS)
    def freeze_and_start_again(self, seat: int) -> None:
        self.members[seat] = self._new(seat)

    @rule(milliseconds=st.sampled_from([0, 1, 100, 1_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.node.clock.advance(milliseconds)

    # ---- what always holds

    @property
    def group(self) -> ClassicGroup | None:
        group = self.node.broker.group_coordinator().host(0).shard.groups.get("group")
        assert group is None or isinstance(group, ClassicGroup)
        return group

    @invariant()
    def the_group_is_sound(self) -> None:
        group = self.group
        if group is None:
            return
        members = group.members
        assert group.generation >= self.last_generation
        assert (group.leader_id in members) if members else (group.leader_id is None)
        assert group.awaiting_join_count == sum(member.awaiting_join is not None for member in members.values())
        assert group.static_members == {m.instance_id: m.member_id for m in members.values() if m.instance_id}
        assert not group.pending_members & members.keys()
        assert group.pending_syncs <= members.keys()
        if group.state is ClassicState.EMPTY:
            assert not members
        if group.state is not ClassicState.PREPARING_REBALANCE:
            assert all(member.awaiting_join is None for member in members.values())
        if group.state in (ClassicState.EMPTY, ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            assert all(member.awaiting_sync is None for member in members.values())
        if members and group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            assert group.protocol_name in group.supported
            assert group.supported[group.protocol_name] == len(members), "a protocol that not everybody knows"

    @invariant()
    def a_successor_would_know_as_much(self) -> None:
        """What is in the log and what is in memory agree whenever the group is stable."""
        group = self.group
        if group is None or group.state is not ClassicState.STABLE:
            return
        runtime = self.node.broker.group_coordinator()
        loaded = stored(self.node, runtime.host(0))
        assert loaded.generation == group.generation
        assert loaded.leader_id == group.leader_id
        assert {id_: m.assignment for id_, m in loaded.members.items()} == {
            id_: m.assignment for id_, m in group.members.items()
        }
        assert loaded.static_members == group.static_members

    def teardown(self) -> None:
        # Longer than any rebalance and any session: nobody may wait now.
        self.node.clock.advance(2 * REBALANCE_MS + 2 * SESSION_MS + 5 * 60 * 1000)
        assert all(answer.done for answer in self.waiting)
        group = self.group
        assert group is None or group.is_empty, "everybody was silent for long"


def stored(node: Any, host: Any) -> ClassicGroup:
    """The group as another coordinator would load it."""
    from moldau.coordinator.group.shard import GroupShard
    from moldau.records.batch import iter_batches
    from moldau.records.record import read_records

    shard = GroupShard(host, node.clock, lambda: node.services.config, node.random)
    data = host.partition.log.read(0, 1 << 24).records
    for header in iter_batches(data):
        for record in read_records(data, header):
            assert record.key is not None
            shard.replay(record.offset, None, record.key, record.value)
    group = shard.groups["group"]
    assert isinstance(group, ClassicGroup)
    return group


TestLivesOfAGroup = LivesOfAGroup.TestCase
TestLivesOfAGroup.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
