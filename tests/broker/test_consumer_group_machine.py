"""Random lives of one consumer group: whatever its members do, no partition has two owners, and all ends well.

Clients join, beat, give up, lose answers, leave, freeze and change their minds in any order while time passes and
topics grow. The node restarts, too: what it reads from its log must be what it had in memory.
"""

from __future__ import annotations

from typing import Any

from broker_node import Client, SimulatedNode
from consumer_group_client import NextMember, described
from group_client import with_groups
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from txn_client import restart

from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic

TOPICS = {"orders": 5, "payments": 3, "returns": 1}
SEATS = st.integers(0, 4)
SUBSCRIPTIONS = st.sampled_from(
    [
        (("orders",), None),
        (("orders", "payments"), None),
        ((), "orders|returns"),
        (("payments",), "ret.*"),
        ((), None),
    ]
)
FENCED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID}
REFUSED = {ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND}


class SlowMember(NextMember):
    """Takes its time: what it is told to give up it still uses until it gets around to it."""

    def __init__(self, node: SimulatedNode, name: str, instance: str | None) -> None:
        super().__init__(node, name, "orders", instance=instance)
        self.joined = False
        self.target: dict[bytes, set[int]] = {}

    def _take(self, answer: Any) -> Any:
        code = answer.error_code
        if code:
            assert code in FENCED | REFUSED, answer
            # A client that is fenced stops at once, gives everything up and may join again.
            self.joined = False
            self.owned = {}
            return answer
        assert answer.member_epoch >= self.epoch, "a member's epoch never falls"
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.target = {each.topic_id: set(each.partitions) for each in answer.assignment.topic_partitions}
        return answer

    def join(self) -> Any:
        self.epoch, self.owned, self.target = 0, {}, {}
        self.joined = True
        return self._take(self.send(self.full()))

    def give_up(self) -> None:
        kept = {topic: partitions & self.target.get(topic, set()) for topic, partitions in self.owned.items()}
        self.owned = {topic: partitions for topic, partitions in kept.items() if partitions}

    def take_over(self) -> None:
        self.give_up()
        self.owned = {topic: set(partitions) for topic, partitions in self.target.items() if partitions}


class LivesOfAConsumerGroup(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = with_groups()
        for name, partitions in TOPICS.items():
            self.node.create_topic(name, partitions)
        self.names = 0
        self.members = [self._new(seat) for seat in range(5)]
        self.last_epochs = (0, 0)

    def _new(self, seat: int) -> SlowMember:
        self.names += 1
        # The first two seats are static members.
        return SlowMember(self.node, f"m{self.names}", f"static-{seat}" if seat < 2 else None)

    # ---- what clients do

    @rule(seat=SEATS, subscription=SUBSCRIPTIONS)
    def join(self, seat: int, subscription: tuple[tuple[str, ...], str | None]) -> None:
        member = self.members[seat]
        if not member.joined:
            member.topics, member.regex = list(subscription[0]), subscription[1] or ""
            member.join()

    @rule(seat=SEATS)
    def beat(self, seat: int) -> None:
        if self.members[seat].joined:
            self.members[seat].beat()

    @rule(seat=SEATS)
    def give_up(self, seat: int) -> None:
        member = self.members[seat]
        if member.joined:
            member.give_up()
            member.acknowledge()

    @rule(seat=SEATS)
    def take_over(self, seat: int) -> None:
        member = self.members[seat]
        if member.joined:
            member.take_over()
            member.acknowledge()

    @rule(seat=SEATS)
    def lose_an_answer(self, seat: int) -> None:
        """The coordinator moves on, the client does not hear of it and asks again, in full."""
        member = self.members[seat]
        if member.joined:
            member.send(member.request(instance_id=member.instance))
            member._take(member.send(member.full()))

    @rule(seat=SEATS, subscription=SUBSCRIPTIONS)
    def subscribe(self, seat: int, subscription: tuple[tuple[str, ...], str | None]) -> None:
        member = self.members[seat]
        if member.joined:
            member.topics, member.regex = list(subscription[0]), subscription[1] or ""
            member._take(member.send(member.full()))

    @rule(seat=SEATS)
    def leave(self, seat: int) -> None:
        member = self.members[seat]
        if member.joined:
            member.leave()
            self.members[seat] = self._new(seat)

    @rule(seat=SEATS)
    def crash(self, seat: int) -> None:
        """The process is gone; a new one comes under another name."""
        self.members[seat] = self._new(seat)

    @rule(seat=st.integers(0, 1))
    def restart_static(self, seat: int) -> None:
        member = self.members[seat]
        if member.joined:
            member.leave(-2)
            self.members[seat] = again = self._new(seat)
            again.topics, again.regex = member.topics, member.regex
            again.join()

    # ---- what happens to them

    @rule(ms=st.sampled_from([100, 1000, 5000, 20_000, 50_000, 70_000]))
    def time_passes(self, ms: int) -> None:
        self.node.clock.advance(ms)

    @precondition(lambda self: self.partitions("orders") < 9)
    @rule()
    def a_topic_grows(self) -> None:
        count = self.partitions("orders") + 1
        topic = CreatePartitionsTopic("orders", count, assignments=None)
        self.node.client.send(CreatePartitionsRequest(topics=[topic]), 3)

    @rule()
    def the_node_restarts(self) -> None:
        """What is read from the log is what was in memory."""
        before = self.group
        restart(self.node)
        after = self.group
        for member in self.members:
            member.client = Client(self.node, client_id=member.client.client_id)
        if before is None or after is None:
            assert before is after
            return
        assert after.members == before.members
        assert after.targets == before.targets
        assert (after.owners, after.static_members) == (before.owners, before.static_members)
        assert (after.epoch, after.assignment_epoch) == (before.epoch, before.assignment_epoch)
        assert (after.regexes, after.regex_counts) == (before.regexes, before.regex_counts)

    def partitions(self, topic: str) -> int:
        known = self.node.services.image.topic(topic)
        assert known is not None
        return len(known.partitions)

    # ---- what must always hold

    @property
    def group(self) -> ConsumerGroup | None:
        assert self.node.broker.groups is not None
        (shard,) = self.node.broker.groups.shards()
        return shard.consumer.get("group")

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.group
        if group is None:
            return
        using: dict[tuple[bytes, int], str] = {}
        for member in self.members:
            # Whom the coordinator has given up uses nothing that counts: its commits are refused.
            if member.joined and member.id in group.members:
                for topic, partitions in member.owned.items():
                    for partition in partitions:
                        other = using.setdefault((topic, partition), member.id)
                        assert other == member.id, f"{other} and {member.id} both use {partition}"
        owned: set[tuple[bytes, int]] = set()
        for known in group.members.values():
            for each in (known.assigned, known.revoking):
                for topic, epochs in each.items():
                    for partition, epoch in epochs.items():
                        assert (topic, partition) not in owned
                        owned.add((topic, partition))
                        assert epoch <= max(known.epoch, 0), "assigned in an epoch that is yet to come"
        assert owned == {(topic, index) for topic, owners in group.owners.items() for index in owners}

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self.group
        if group is not None:
            assert group.epoch >= group.assignment_epoch
            epochs = (group.epoch, group.assignment_epoch)
            assert epochs[0] >= self.last_epochs[0]
            assert epochs[1] >= self.last_epochs[1]
            assert all(member.epoch <= group.assignment_epoch for member in group.members.values())
            self.last_epochs = epochs

    def teardown(self) -> None:
        self.the_node_restarts()
        self.all_ends_well()

    def all_ends_well(self) -> None:
        """When everybody behaves for a while, all is shared out and nobody has much more than the others."""
        for member in self.members:
            if not member.joined:
                member.topics, member.regex = ["orders"], ""
        # Whoever vanished is given up first, and a static member's name is free then.
        for _ in range(25):
            for member in self.members:
                if member.joined:
                    member.beat()
                    member.take_over()
                    if member.joined:
                        member.acknowledge()
                if not member.joined:
                    member.join()
            self.node.clock.advance(5000)
        group = self.group
        assert group is not None
        assert group.state_name == "Stable"
        assert len(group.members) == len(self.members)
        read = {name for member in self.members for name in self._reads(member)}
        used = [each for member in self.members for each in member.partitions]
        assert sorted(used) == sorted((name, index) for name in read for index in range(self.partitions(name)))
        for giver in self.members:
            for taker in self.members:
                if any(name in self._reads(taker) for name, _ in giver.partitions):
                    assert len(giver.partitions) - len(taker.partitions) <= 1
        assert described(self.node).error_code == 0

    def _reads(self, member: SlowMember) -> set[str]:
        matched = {"orders|returns": {"orders", "returns"}, "ret.*": {"returns"}}
        return set(member.topics) | matched.get(member.regex or "", set())


LivesOfAConsumerGroup.TestCase.settings = settings(
    max_examples=10, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLivesOfAConsumerGroup = LivesOfAConsumerGroup.TestCase
