"""Producers, zombies, delayed requests, restarts and time in any order: a transaction counts as a whole or not at all.

The model knows who may write and how each transaction ended; what a reader of committed records sees is compared with
it after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_node import SimulatedNode
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)
from txn_client import JAVA_V1, JAVA_V2, Producer, Versions, committed_values, coordinator_ready, restart, state_of

from moldau.protocol.errors import ErrorCode

TOPIC = "orders"
PARTITIONS = 2
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@dataclass
class Written:
    """One transaction of the model: its values by partition, and how it ended (None while it is open)."""

    values: dict[int, list[bytes]] = field(default_factory=dict)
    committed: bool | None = None


@dataclass(eq=False)
class Actor:
    """One producer object and the transaction it believes to be in."""

    producer: Producer
    current: Written | None = None


@dataclass(frozen=True)
class Delayed:
    """An EndTxn that the network keeps back, of a transaction that has ended by another copy of it."""

    producer_id: int
    epoch: int
    commit: bool


class Transactions(RuleBasedStateMachine):
    """Clients without an epoch per transaction."""

    versions: Versions = JAVA_V1
    actors = Bundle("actors")
    delayed = Bundle("delayed")

    def __init__(self) -> None:
        super().__init__()
        self.node = SimulatedNode(
            transaction_state_log_num_partitions="1",
            transaction_abort_timed_out_transaction_cleanup_interval_ms="1000",
        )
        coordinator_ready(self.node.client)
        self.node.create_topic(TOPIC, PARTITIONS)
        self.order: dict[int, list[tuple[Written, bytes]]] = {index: [] for index in range(PARTITIONS)}
        # The transaction that the id has open, if any, and the actor that may write.
        self.open: Written | None = None
        self.owner: Actor | None = None
        # The actor whose transaction took too long; transactions v2 lets it go on once it has aborted it.
        self.late: Actor | None = None
        self.count = 0

    # ---- what happens

    @rule(target=actors)
    def successor(self) -> Actor:
        """Another producer of the same id: whatever was open is aborted, whoever was there is fenced."""
        producer = Producer(self.node, "tx", self.versions, timeout_ms=10_000)
        producer.client = self.node.client
        producer.begin_anew()
        self._ended(False)
        self.owner = actor = Actor(producer)
        self.late = None
        return actor

    @rule(actor=actors, index=st.integers(0, PARTITIONS - 1))
    def write(self, actor: Actor, index: int) -> None:
        self.count += 1
        value = b"%d" % self.count
        actor.producer.client = self.node.client
        code = actor.producer.write(TOPIC, index, value)
        if actor is not self.owner:
            assert code is not ErrorCode.NONE, "a zombie wrote"
            return
        assert code is ErrorCode.NONE, code.name
        if self.open is None:
            self.open = actor.current = Written()
        assert actor.current is self.open
        self.open.values.setdefault(index, []).append(value)
        self.order[index].append((self.open, value))

    @rule(target=delayed, actor=actors, commit=st.booleans())
    def end(self, actor: Actor, commit: bool) -> MultipleResults[Delayed]:
        producer = actor.producer
        producer.client = self.node.client
        request = Delayed(producer.producer_id, producer.epoch, commit)
        code = producer.end(commit=commit)
        if actor is self.late and self.versions.bumps:
            assert code is (ErrorCode.INVALID_TXN_STATE if commit else ErrorCode.NONE), code.name
            if not commit:
                self.owner, self.late = actor, None
        elif actor is not self.owner:
            assert code in FENCED, code.name
        elif self.open is not None:
            assert code is ErrorCode.NONE, code.name
            self._ended(commit)
        return multiple(request) if code is ErrorCode.NONE else multiple()

    @rule()
    def the_node_restarts(self) -> None:
        restart(self.node)
        self.node.clock.advance(200)

    @precondition(lambda self: self.open is not None)
    @rule()
    def time_runs_out(self) -> None:
        self.node.clock.advance(12_000)
        assert state_of(self.node.client, "tx").transaction_state == "CompleteAbort"
        self._ended(False)
        self.owner, self.late = None, self.owner

    @rule()
    def time_passes(self) -> None:
        if self.open is None:
            self.node.clock.advance(12_000)

    def _ended(self, committed: bool) -> None:
        if self.open is not None:
            self.open.committed = committed
            self.open = None

    # ---- what must be true

    @invariant()
    def readers_see_whole_transactions_in_order(self) -> None:
        for index in range(PARTITIONS):
            visible: list[bytes] = []
            for transaction, value in self.order[index]:
                if transaction is self.open:
                    # Nothing behind an open transaction is shown.
                    break
                if transaction.committed:
                    visible.append(value)
            assert committed_values(self.node.client, TOPIC, index) == visible


class TransactionsV2(Transactions):
    """Clients with an epoch per transaction: a request that comes late is recognised."""

    versions = JAVA_V2

    @rule(request=consumes(Transactions.delayed))
    def a_delayed_end_arrives(self, request: Delayed) -> None:
        """Whatever it is answered, no transaction ends by it."""
        before = state_of(self.node.client, "tx")
        probe = Producer(self.node, "tx", self.versions)
        probe.client = self.node.client
        probe.end(commit=request.commit, producer_id=request.producer_id, epoch=request.epoch)
        after = state_of(self.node.client, "tx")
        assert (after.transaction_state, after.producer_epoch) == (before.transaction_state, before.producer_epoch)


_SETTINGS = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestTransactionsV1 = Transactions.TestCase
TestTransactionsV1.settings = _SETTINGS
TestTransactionsV2 = TransactionsV2.TestCase
TestTransactionsV2.settings = _SETTINGS
