"""Random lives of share groups on a node that is killed now and then: nothing accepted comes back, nothing is lost."""

from __future__ import annotations

from typing import Any

from broker_node import SimulatedNode
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from share_client import ShareMember, configure_group, prepare_group, produce

NAMES = ("a", "b", "c")
PARTITIONS = 2
LOCK_MS = 1000


class ShareGroupMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.node = SimulatedNode(
            group_share_min_record_lock_duration_ms=str(LOCK_MS),
            group_share_record_lock_duration_ms=str(LOCK_MS),
            # More than anything can be delivered in a run, so that nothing is given up.
            group_share_max_delivery_count_limit="25",
        )
        self.topic_id = self.node.create_topic("t", PARTITIONS)
        configure_group(self.node, share_delivery_count_limit="25")
        prepare_group(self.node, self.topic_id, PARTITIONS)
        self.members: dict[str, ShareMember] = {}
        # What each member was given and has not spoken of yet.
        self.held: dict[str, set[tuple[int, int]]] = {name: set() for name in NAMES}
        self.produced = [0] * PARTITIONS
        self.accepted: set[tuple[int, int]] = set()

    def member(self, name: str) -> ShareMember:
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = ShareMember(self.node, name, self.topic_id)
        return member

    def fetch(self, name: str, **more: Any) -> int:
        member = self.member(name)
        partitions = tuple(range(PARTITIONS)) if member.epoch == 0 else ()
        answer = member.fetch(*partitions, max_wait_ms=300, **more)
        assert answer.error_code == 0, answer
        count = 0
        for topic in answer.responses:
            for part in topic.partitions:
                assert part.error_code == 0, part
                for given in part.acquired_records:
                    for offset in range(given.first_offset, given.last_offset + 1):
                        where = (part.partition_index, offset)
                        assert where not in self.accepted, f"{where} was accepted"
                        self.held[name].add(where)
                        count += 1
        return count

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 5))
    def produce(self, partition: int, count: int) -> None:
        produce(self.node, "t", *([b"x"] * count), partition=partition)
        self.produced[partition] += count

    @rule(name=st.sampled_from(NAMES), most=st.integers(1, 10), mode=st.integers(0, 1))
    def take(self, name: str, most: int, mode: int) -> None:
        self.fetch(name, max_records=most, mode=mode)

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def speak(self, data: st.DataObject, name: str) -> None:
        held = sorted(self.held[name])
        if not held or name not in self.members:
            return
        spoken_of = data.draw(st.lists(st.sampled_from(held), min_size=1, unique=True))
        kinds = {where: data.draw(st.sampled_from((1, 2))) for where in spoken_of}
        self.acknowledge(name, kinds)

    def acknowledge(self, name: str, kinds: dict[tuple[int, int], int]) -> None:
        member = self.members[name]
        for partition in range(PARTITIONS):
            batches = [
                (offset, offset, [kind]) for (index, offset), kind in sorted(kinds.items()) if index == partition
            ]
            if not batches:
                continue
            answer = member.acknowledge({partition: batches})
            assert answer.error_code == 0, answer
            stored = answer.responses[0].partitions[0].error_code == 0
            for offset, _, kind in batches:
                self.held[name].discard((partition, offset))
                if stored and kind[0] == 1:
                    self.accepted.add((partition, offset))

    @rule(name=st.sampled_from(NAMES), politely=st.booleans())
    def leave(self, name: str, politely: bool) -> None:
        member = self.members.pop(name, None)
        self.held[name].clear()
        if member is None:
            return
        if politely and member.epoch > 0:
            assert member.fetch(epoch=-1).error_code == 0
        member.client.disconnect()

    @rule(milliseconds=st.sampled_from((1, 400, LOCK_MS)))
    def time_passes(self, milliseconds: int) -> None:
        self.node.clock.advance(milliseconds)

    @precondition(lambda self: len(self.accepted) > 2)
    @rule()
    def restart(self) -> None:
        self.node.restart()
        self.members.clear()
        for held in self.held.values():
            held.clear()

    def teardown(self) -> None:
        if not hasattr(self, "node"):
            return
        for name in NAMES:
            self.leave(name, politely=False)
        self.node.clock.advance(LOCK_MS)
        for _ in range(200):
            if self.fetch("a") == 0 and not self.missing():
                break
            self.acknowledge("a", dict.fromkeys(self.held["a"], 1))
        assert not self.missing(), f"nobody got {self.missing()}"

    def missing(self) -> set[tuple[int, int]]:
        everything = {(index, offset) for index, count in enumerate(self.produced) for offset in range(count)}
        return everything - self.accepted


TestShareGroups = ShareGroupMachine.TestCase
TestShareGroups.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
