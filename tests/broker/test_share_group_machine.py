"""Random lives of one share group: whatever its members do, in the end everything they want to read is read.

Members join, beat, change their minds, leave and freeze in any order while time passes, topics come, grow and go, and
the node restarts.
"""

from __future__ import annotations

from typing import Any

from broker_node import Client
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from share_state_client import with_share_state
from test_share_groups import Member, described
from txn_client import restart

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest

TOPICS = ("orders", "payments", "returns")
SEATS = st.integers(0, 3)
WISHES = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)
GONE = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}


class ShareGroupLives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = with_share_state()
        self.topics: dict[str, int] = {}
        self.ids: dict[str, bytes] = {}
        self.members: dict[int, Member] = {}
        self.make_topic("orders")

    def _check(self, seat: int, answer: Any, epoch: int) -> None:
        if answer.error_code:
            assert answer.error_code in GONE, answer
            del self.members[seat]
        else:
            assert answer.member_epoch >= epoch, "a member's epoch never falls"

    @rule(name=st.sampled_from(TOPICS))
    def make_topic(self, name: str) -> None:
        if name not in self.topics:
            self.topics[name] = 2
            self.ids[name] = self.node.create_topic(name, 2)

    @rule(name=st.sampled_from(TOPICS))
    def grow_topic(self, name: str) -> None:
        if 0 < self.topics.get(name, 0) < 5:
            self.topics[name] += 1
            more = CreatePartitionsTopic(name, self.topics[name], None)
            assert self.node.client.send(CreatePartitionsRequest([more], 1000), 3).results[0].error_code == 0

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        if self.topics.pop(name, None):
            del self.ids[name]
            self.node.client.send(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 4)

    @rule(seat=SEATS, wishes=WISHES)
    def join(self, seat: int, wishes: list[str]) -> None:
        member = self.members.setdefault(seat, Member(self.node, f"m{seat}"))
        member.topics = wishes
        self._check(seat, member.join(), 0)

    @rule(seat=SEATS)
    def beat(self, seat: int) -> None:
        member = self.members.get(seat)
        if member is not None:
            self._check(seat, member.beat(), member.epoch)

    @rule(seat=SEATS, wishes=WISHES)
    def resubscribe(self, seat: int, wishes: list[str]) -> None:
        member = self.members.get(seat)
        if member is not None:
            member.topics = wishes
            self._check(seat, member.send(subscribed_topic_names=wishes), member.epoch)

    @rule(seat=SEATS)
    def leave(self, seat: int) -> None:
        member = self.members.pop(seat, None)
        if member is not None:
            assert member.leave().error_code in {0, *GONE}

    @rule(milliseconds=st.sampled_from([200, 1100, 20_000, 46_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.node.clock.advance(milliseconds)

    @rule()
    def restart(self) -> None:
        before = described(self.node)
        restart(self.node)
        after = described(self.node)
        for group in (before, after):
            group.members.sort(key=lambda member: member.member_id)
        assert after == before
        for member in self.members.values():
            member.client = Client(self.node, client_id=f"client-{member.id}")

    @rule()
    def settle(self) -> None:
        """Everybody beats on time for a while: then nothing that is wanted is left unread."""
        for _ in range(5):
            self.node.clock.advance(1100)
            for seat in list(self.members):
                self.beat(seat)
        # Who has been forgotten by all is still counted as a reader until its session ends.
        if len(described(self.node).members) != len(self.members):
            return
        wanted = {name for member in self.members.values() for name in member.topics if name in self.topics}
        read = {
            (topic_id, index)
            for member in self.members.values()
            for topic_id, indexes in member.has.items()
            for index in indexes
        }
        assert read == {(self.ids[name], index) for name in wanted for index in range(self.topics[name])}
        if wanted and len({frozenset(member.topics) for member in self.members.values()}) == 1:
            assert all(member.has for member in self.members.values()), "everybody has something to do"

    @invariant()
    def nobody_has_what_it_did_not_ask_for(self) -> None:
        for member in described(self.node).members:
            names = {topic.topic_name for topic in member.assignment.topic_partitions}
            assert names <= set(member.subscribed_topic_names)


TestShareGroupLives = ShareGroupLives.TestCase
TestShareGroupLives.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
