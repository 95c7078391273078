"""Random lives of share partitions: whatever is written, in whatever order, and however often the node restarts or
shortens its log, what is read is what a model that knows every single offset says."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from share_state_client import StateClient, with_share_state
from txn_client import restart

from moldau.protocol.errors import ErrorCode

PARTITIONS = 2
WHERE = st.integers(0, PARTITIONS - 1)
BATCHES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 6), st.sampled_from([0, 2, 4]), st.integers(1, 4)), max_size=3
)


@dataclass
class Model:
    start: int
    state_epoch: int
    # For each offset, how often it was delivered and its state.
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)


class ShareStates(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = with_share_state(
            **{
                "share.coordinator.snapshot.update.records.per.snapshot": "3",
                # So that what is gone stays gone.
                "log.flush.start.offset.checkpoint.interval.ms": "50",
                "share.coordinator.state.topic.prune.interval.ms": "1000",
                "share.coordinator.cold.partition.snapshot.interval.ms": "3000",
            }
        )
        self.client = StateClient(self.node, self.node.create_topic("orders", PARTITIONS))
        self.node.logs.start()
        self.models: dict[int, Model] = {}
        self.state_epochs: dict[int, int] = {}
        self.leader_epochs: dict[int, int] = {}

    @rule(where=WHERE, start=st.integers(-1, 10), epoch=st.integers(0, 3))
    def initialize(self, where: int, start: int, epoch: int) -> None:
        answer = self.client.initialize(where, start=start, state_epoch=epoch)
        if epoch < self.state_epochs.get(where, 0):
            assert answer.error_code == ErrorCode.FENCED_STATE_EPOCH
            return
        assert answer.error_code == 0
        self.state_epochs[where] = epoch
        if start == -1 and where in self.models:
            # It asks for a state, and there is one.
            self.models[where].state_epoch = epoch
        else:
            self.models[where] = Model(start, epoch)

    @rule(where=WHERE, batches=BATCHES, start=st.one_of(st.just(-1), st.integers(0, 20)), epoch=st.integers(-1, 3))
    def write_some(self, where: int, batches: list[tuple[int, int, int, int]], start: int, epoch: int) -> None:
        self.write(where, batches, start, epoch)

    def write(self, where: int, batches: list[tuple[int, int, int, int]], start: int, epoch: int) -> None:
        runs = [(first, first + length, state, count) for first, length, state, count in batches]
        answer = self.client.write(*runs, partition=where, start=start, leader_epoch=epoch)
        model = self.models.get(where)
        if model is None:
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            return
        if -1 < epoch < self.leader_epochs.get(where, 0):
            assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
            return
        assert answer.error_code == 0
        model.start = max(model.start, start)
        for first, last, state, count in runs:
            for offset in range(first, last + 1):
                model.offsets[offset] = max(model.offsets.get(offset, (0, 0)), (count, state))
        model.offsets = {offset: each for offset, each in model.offsets.items() if offset >= model.start}

    @rule(where=WHERE, first=st.integers(0, 20))
    def write_often(self, where: int, first: int) -> None:
        for offset in range(first, first + 5):
            self.write(where, [(offset, 0, 2, 1)], -1, -1)

    @rule(where=WHERE, epoch=st.integers(0, 3))
    def lead(self, where: int, epoch: int) -> None:
        answer = self.client.read(where, leader_epoch=epoch)
        if where not in self.models:
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        elif epoch < self.leader_epochs.get(where, 0):
            assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
        else:
            assert answer.error_code == 0
            self.leader_epochs[where] = epoch

    @rule(where=WHERE)
    def delete(self, where: int) -> None:
        assert self.client.delete(where).error_code == 0
        for known in (self.models, self.state_epochs, self.leader_epochs):
            known.pop(where, None)

    @rule()
    def restart(self) -> None:
        restart(self.node)
        self.node.logs.start()

    @rule()
    def shorten_the_log_and_restart(self) -> None:
        self.node.clock.advance(1100)
        self.restart()

    @rule(milliseconds=st.sampled_from([500, 1100, 3500]))
    def time_passes(self, milliseconds: int) -> None:
        self.node.clock.advance(milliseconds)

    @invariant()
    def what_is_read_is_what_was_written(self) -> None:
        for where in range(PARTITIONS):
            found = self.client.read(where)
            model = self.models.get(where)
            if model is None:
                assert found.error_code == ErrorCode.INVALID_REQUEST
                continue
            assert (found.error_code, found.start_offset, found.state_epoch) == (0, model.start, model.state_epoch)
            read = {
                offset: (batch.delivery_count, batch.delivery_state)
                for batch in found.state_batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
            }
            assert read == model.offsets


TestShareStates = ShareStates.TestCase
TestShareStates.settings = settings(
    max_examples=12, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
