"""Transactional clients: one that writes to several partitions at once, and one that copies exactly once.

Both speak transactions v2, or the old way with every partition added by hand. They are careful where the protocol
leaves a hole: in the old way an end that was not answered is never asked for again with the same epoch, since the
delayed request could end the next transaction (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.ports import Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from moldau.protocol.generated.wire.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.generated.wire.end_txn_request import EndTxnRequest
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.records.builder import BatchBuilder
from moldau.testing.simulation.client import GROUP, NO_COORDINATOR, TRANSACTION, TRY_AGAIN, Script
from moldau.testing.simulation.groups import OffsetClient
from moldau.testing.simulation.history import Place, Sent, Transaction
from moldau.testing.simulation.producers import produce_request

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

TIMEOUT_MS = 4000
ATTEMPTS_MAX = 12
_RETRY = frozenset({*NO_COORDINATOR, *TRY_AGAIN, ErrorCode.CONCURRENT_TRANSACTIONS})


class TransactionalClient(OffsetClient):
    def __init__(self, world: Simulation, name: str, transactional_id: str, *, old: bool) -> None:
        super().__init__(world, name)
        self.transactional_id = transactional_id
        # Another process has taken over its id: once it notices, it ends.
        self.is_zombie = False
        self._old = old
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self._added: set[Place | str] = set()

    def begin_anew(self) -> Script:
        """A new epoch: whatever was open is aborted, whoever had the id before is fenced."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        while True:
            answer = yield from self.ask_coordinator(TRANSACTION, self.transactional_id, request, 4)
            if not isinstance(answer, Unreachable):
                if answer.error_code == ErrorCode.NONE:
                    self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                    self._sequences.clear()
                    self._added.clear()
                    return
                if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.forget_coordinator(TRANSACTION, self.transactional_id)
            yield from self.rest()

    def write(self, place: Place, values: list[bytes]) -> Script:
        """Write one batch in the open transaction; whether it is written."""
        topic, index = place
        if self._old and not (yield from self._add(place)):
            return False
        sequence = self._sequences.get(place, 0)
        builder = BatchBuilder(
            producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=sequence, transactional=True
        )
        now = self.world.clock.now_ms()
        for value in values:
            builder.append(None, value, timestamp=now)
        batch = builder.build()
        for _ in range(ATTEMPTS_MAX):
            address, _ = yield from self.leader_of(topic, index)
            request = produce_request(
                topic, self.topic_ids[topic], index, batch, transactional_id=self.transactional_id
            )
            answer = yield from self.ask(address, request, 11 if self._old else 13)
            if not isinstance(answer, Unreachable):
                code = error_code(answer.responses[0].partition_responses[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._sequences[place] = sequence + len(values)
                    return True
                if code not in _RETRY:
                    return False
            self.forget_leader(topic, index)
            yield from self.rest()
        return False

    def _add(self, place: Place) -> Script:
        if place in self._added:
            return True
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )
        added = yield from self._persist(
            TRANSACTION,
            self.transactional_id,
            request,
            3,
            lambda answer: _first_code(answer.results_by_topic_v3_and_below),
        )
        if added:
            self._added.add(place)
        return added

    def commit_offset(self, group: str, place: Place, offset: int) -> Script:
        """Make a group's offset part of the open transaction; whether it is."""
        if self._old:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=group,
            )
            added = yield from self._persist(
                TRANSACTION, self.transactional_id, adding, 3, lambda answer: answer.error_code
            )
            if not added:
                return False
        partition = TxnOffsetCommitRequestPartition(partition_index=place[1], committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=place[0], partitions=[partition])],
        )
        version = 3 if self._old else 5
        written = yield from self._persist(
            GROUP, group, request, version, lambda answer: answer.topics[0].partitions[0].error_code
        )
        return written

    def _persist(self, kind: int, key: str, request: Any, version: int, code_of: Any) -> Script:
        """Ask a coordinator until it says yes or a no that is meant."""
        for _ in range(ATTEMPTS_MAX):
            answer = yield from self.ask_coordinator(kind, key, request, version)
            if not isinstance(answer, Unreachable):
                code = error_code(code_of(answer))
                if code is ErrorCode.NONE:
                    return True
                if code not in _RETRY:
                    return False
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.forget_coordinator(kind, key)
            yield from self.rest()
        return False

    def end(self, *, commit: bool) -> Script:
        """End the transaction; whether it ended so. None: nobody knows, and the producer must begin anew."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        for _ in range(ATTEMPTS_MAX):
            answer = yield from self.ask_coordinator(TRANSACTION, self.transactional_id, request, 3 if self._old else 5)
            if isinstance(answer, Unreachable):
                if self._old:
                    return None
            else:
                code = error_code(answer.error_code)
                if code is ErrorCode.NONE:
                    self._added.clear()
                    if not self._old:
                        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                        self._sequences.clear()
                    return True
                if code not in _RETRY:
                    return None
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.forget_coordinator(TRANSACTION, self.transactional_id)
            yield from self.rest()
        return None


class TransactionalWriter(TransactionalClient):
    """Writes to several partitions in one transaction, and commits it or not."""

    def __init__(
        self,
        world: Simulation,
        name: str,
        places: list[Place],
        transactions: int,
        *,
        old: bool,
        transactional_id: str = "",
    ) -> None:
        super().__init__(world, name, transactional_id or name, old=old)
        self._places = places
        self.wanted = transactions
        self._number = 0

    def successor(self) -> TransactionalWriter:
        """Another process with the same id; this one does not know of it yet."""
        self.is_zombie = True
        return TransactionalWriter(
            self.world,
            f"{self.name}+",
            self._places,
            self.wanted,
            old=self._old,
            transactional_id=self.transactional_id,
        )

    def run(self) -> Script:
        yield from self.begin_anew()
        while self.wanted > 0:
            self.wanted -= 1
            if not (yield from self._transaction()):
                if self.is_zombie:
                    return
                yield from self.begin_anew()
            yield from self.sleep(int(self.random.random() * self.world.pace_ms))

    def _transaction(self) -> Script:
        """One transaction; whether the producer can go on with the next."""
        name = f"{self.name}:{self._number}"
        self._number += 1
        transaction = self.world.history.transactions[name] = Transaction()
        for place in self._places:
            value = f"{name}:{place[1]}".encode()
            self.world.history.sent[value] = Sent(self.name, place, self._number, idempotent=True, transaction=name)
            transaction.values.append(value)
            if not (yield from self.write(place, [value])):
                return False
        commit = self.random.random() < 0.7
        transaction.commit_asked = commit
        ended = yield from self.end(commit=commit)
        if ended is None:
            return False
        transaction.committed = commit
        return True


class Copier(TransactionalClient):
    """Copies what is stable of one partition into another; offset and copies are one transaction."""

    def __init__(
        self, world: Simulation, name: str, source: Place, target: Place, *, old: bool, transactional_id: str = ""
    ) -> None:
        super().__init__(world, name, transactional_id or name, old=old)
        self.source = source
        self.target = target
        self.group = f"{self.transactional_id}-group"
        # Where it may end; None while there is no end.
        self.until: int | None = None
        if name == self.transactional_id:
            world.history.copies.append((self.group, source, target))

    def successor(self) -> Copier:
        """Another process with the same id; this one does not know of it yet."""
        self.is_zombie = True
        name = f"{self.name}+"
        return Copier(self.world, name, self.source, self.target, old=self._old, transactional_id=self.transactional_id)

    def run(self) -> Script:
        while True:
            yield from self.begin_anew()
            if (yield from self._copy()) or self.is_zombie:
                return

    def _copy(self) -> Script:
        """Copy on; True at the end, False when the producer must begin anew."""
        while True:
            position = yield from self.fetch_offset(self.group, self.source)
            if self.until is not None and position >= self.until:
                return True
            got = yield from self.fetch(self.source, position, committed_only=True)
            if got is None or not got[0]:
                yield from self.rest()
                continue
            values, following = got
            copies = [b"copy of " + each.value for each in values]
            for copy in copies:
                self.world.history.sent[copy] = Sent(self.name, self.target, 0, idempotent=False)
            if not (yield from self.write(self.target, copies)):
                return False
            if not (yield from self.commit_offset(self.group, self.source, following)):
                return False
            commit = self.random.random() < 0.85
            ended = yield from self.end(commit=commit)
            if ended is None:
                return False
            if commit:
                self.world.history.offset_committed(self.group, self.source, following)
            yield from self.sleep(int(self.random.random() * self.world.pace_ms))


def _first_code(topics: Any) -> int:
    code: int = topics[0].results_by_partition[0].partition_error_code
    return code
