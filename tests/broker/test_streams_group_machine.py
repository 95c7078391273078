"""Random lives of one streams group: whatever its members do, no task runs twice, and all ends well.

Members join, beat, give up, lose answers, leave and freeze in any order while time passes and the number of copies
changes. The node restarts, too: what it reads from its log must be what it had in memory.
"""

from __future__ import annotations

from typing import Any

from broker_node import Client, SimulatedNode
from group_client import with_groups
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from streams_group_client import StreamsMember, Task, counting
from test_streams_group_membership import configure
from txn_client import restart

from moldau.coordinator.group.streams.group import StreamsGroup
from moldau.protocol.errors import ErrorCode

# Members of the first two seats share a process.
PROCESSES = ("p", "p", "q", "r")
SEATS = st.integers(0, 3)
PARTITIONS = 4
FENCED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}


class SlowMember(StreamsMember):
    """Takes its time: what it is told to give up it still runs until it gets around to it."""

    def __init__(self, node: SimulatedNode, name: str, process: str) -> None:
        super().__init__(node, name, counting("orders"), process=process)
        self.joined = False
        self.target: tuple[set[Task], set[Task]] = (set(), set())

    def _take(self, answer: Any) -> Any:
        if answer.error_code:
            assert answer.error_code in FENCED, answer
            # Whoever is fenced stops at once, gives everything up and may join again.
            self.joined = False
            self.active, self.standby = set(), set()
            return answer
        kept = (self.active, self.standby)
        before = self.epoch
        super()._take(answer)
        assert self.epoch >= before, "a member's epoch never falls"
        if answer.active_tasks is not None:
            self.target = (self.active, self.standby)
        self.active, self.standby = kept
        return answer

    def join(self, **fields: Any) -> Any:
        self.target = (set(), set())
        self.joined = True
        return super().join(**fields)

    def give_up(self) -> None:
        self.active, self.standby = self.active & self.target[0], self.standby & self.target[1]

    def take_over(self) -> None:
        self.active, self.standby = set(self.target[0]), set(self.target[1])


class LivesOfAStreamsGroup(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = with_groups(group_streams_initial_rebalance_delay_ms="0", group_streams_assignment_interval_ms="0")
        for topic in ("orders", "app-by-word-repartition", "app-counts-changelog"):
            self.node.create_topic(topic, PARTITIONS)
        self.names = 0
        self.members = [self._new(seat) for seat in range(len(PROCESSES))]
        self.last_epochs = (0, 0)

    def _new(self, seat: int) -> SlowMember:
        self.names += 1
        return SlowMember(self.node, f"m{self.names}", PROCESSES[seat])

    # ---- what applications do

    @rule(seat=SEATS)
    def join(self, seat: int) -> None:
        member = self.members[seat]
        if not member.joined:
            member.join()
            member.take_over()

    @rule(seat=SEATS)
    def beat_and_take_over(self, seat: int) -> None:
        member = self.members[seat]
        if member.joined:
            member.beat()
            member.take_over()

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
            answer = member.send(member.request(**member.said()))
            if not answer.error_code and answer.active_tasks is not None:
                # Only a client that joins anew hears again what it missed.
                member.join()
            else:
                member._take(answer)

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

    # ---- what happens to them

    @rule(ms=st.sampled_from([100, 1000, 5000, 20_000, 50_000, 70_000]))
    def time_passes(self, ms: int) -> None:
        self.node.clock.advance(ms)

    @rule(copies=st.integers(0, 2))
    def copies_are_wanted(self, copies: int) -> None:
        configure(self.node, "app", streams_num_standby_replicas=str(copies))

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
        assert after.topology == before.topology
        assert (after.epoch, after.assignment_epoch) == (before.epoch, before.assignment_epoch)
        assert (after.metadata_hash, after.assignment_settings) == (before.metadata_hash, before.assignment_settings)
        assert after.state_name == before.state_name

    # ---- what must always hold

    @property
    def group(self) -> StreamsGroup | None:
        assert self.node.broker.groups is not None
        (shard,) = self.node.broker.groups.shards()
        return shard.streams.get("app")

    @invariant()
    def no_task_runs_twice(self) -> None:
        group = self.group
        if group is None:
            return
        running: dict[Task, str] = {}
        in_process: dict[tuple[str, Task], str] = {}
        for member in self.members:
            # Whom the coordinator has given up runs nothing that counts: its commits are refused.
            if not member.joined or member.id not in group.members:
                continue
            for task in member.active:
                other = running.setdefault(task, member.id)
                assert other == member.id, f"{other} and {member.id} both run {task}"
            for task in member.active | member.standby:
                other = in_process.setdefault((member.process, task), member.id)
                assert other == member.id, f"{other} and {member.id} of one process both have {task}"

    @invariant()
    def the_coordinator_counts_on_the_same(self) -> None:
        group = self.group
        if group is None:
            return
        for known in group.members.values():
            for each in (known.assigned, known.revoking):
                for name, epochs in each.active.items():
                    for partition, epoch in epochs.items():
                        assert group.runs_anywhere(name, partition)
                        assert epoch <= max(known.epoch, 0), "assigned in an epoch that is yet to come"
                for name, partitions in each.standby.items():
                    for partition in partitions:
                        assert group.is_copied_in(known.process_id, name, partition)

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self.group
        if group is not None:
            assert group.epoch >= group.assignment_epoch
            epochs = (group.epoch, group.assignment_epoch)
            assert epochs >= self.last_epochs
            assert all(member.epoch <= group.epoch for member in group.members.values())
            self.last_epochs = epochs

    def teardown(self) -> None:
        self.the_node_restarts()
        self.all_ends_well()

    def all_ends_well(self) -> None:
        """When everybody behaves for a while, all tasks run, and every task with state has its copies."""
        configure(self.node, "app", streams_num_standby_replicas="1")
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
        every = {(name, index) for name in "01" for index in range(PARTITIONS)}
        assert sorted(task for member in self.members for task in member.active) == sorted(every)
        copies = sorted(task for member in self.members for task in member.standby)
        assert copies == [("1", index) for index in range(PARTITIONS)]


LivesOfAStreamsGroup.TestCase.settings = settings(
    max_examples=10, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
TestLivesOfAStreamsGroup = LivesOfAStreamsGroup.TestCase
