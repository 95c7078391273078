"""Readers of single partitions, from the beginning or from where they stopped, of everything or of what is stable.

They carry leader epochs as Kafka's consumers do (KIP-320): every fetch names the epoch it is meant for, and whoever
finds a new leader asks it first whether what was read is still there. Now and then a reader names another epoch than
it knows, as one with old metadata would: that must be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.ports import Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.protocol.generated.wire.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.records.batch import iter_batches
from moldau.records.record import read_control_records, read_records
from moldau.testing.simulation.client import LOOK_AGAIN, Client, Script
from moldau.testing.simulation.history import Place, Reading
from moldau.testing.simulation.ledger import Broken

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

FETCH_VERSION = 17
READ_COMMITTED = 1
FETCH_BYTES = 4000
WAIT_MS = 200
EPOCH_VERSION = 4
CONSUMER = -1
# How often a fetch is meant for another epoch than the one its reader knows.
OTHER_EPOCH = 0.04


class FetchedValue:
    """One record as a consumer hands it on."""

    __slots__ = ("offset", "value")

    def __init__(self, offset: int, value: bytes) -> None:
        self.offset = offset
        self.value = value


def fetch_request(topic_id: bytes, index: int, epoch: int, offset: int, *, committed_only: bool) -> FetchRequest:
    asked = FetchPartition(
        partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=-1),
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED if committed_only else 0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[asked])],
    )


def read_answer(data: Any, offset: int, *, committed_only: bool) -> tuple[list[FetchedValue], int]:
    """(values from `offset` on, the offset after all that was given), as Kafka's consumer reads an answer."""
    records = data.records or b""
    aborted = sorted(((each.first_offset, each.producer_id) for each in data.aborted_transactions or ()), reverse=True)
    open_aborted: set[int] = set()
    found: list[FetchedValue] = []
    for header in iter_batches(records):
        while aborted and aborted[-1][0] <= header.last_offset:
            open_aborted.add(aborted.pop()[1])
        if header.is_control:
            for control in read_control_records(records, header):
                if control.type == 0:
                    open_aborted.discard(header.producer_id)
        elif not (committed_only and header.is_transactional and header.producer_id in open_aborted):
            start = offset
            found.extend(
                FetchedValue(record.offset, record.value)
                for record in read_records(records, header)
                if record.offset >= start and record.value is not None
            )
        offset = max(offset, header.next_offset)
    return found, offset


class FetchingClient(Client):
    def fetch(self, place: Place, offset: int, *, committed_only: bool) -> Script:
        """(values, next offset), or None when there was no use in asking."""
        topic, index = place
        address, epoch = yield from self.leader_of(topic, index)
        if self.random.random() < OTHER_EPOCH:
            epoch = max(epoch + (1 if self.random.random() < 0.5 else -1), 0)
        request = fetch_request(self.topic_ids[topic], index, epoch, offset, committed_only=committed_only)
        answer = yield from self.ask(address, request, FETCH_VERSION, lane="fetch")
        if isinstance(answer, Unreachable):
            self.forget_leader(topic, index)
            return None
        if not answer.responses:
            return None
        data = answer.responses[0].partitions[0]
        code = error_code(data.error_code)
        if code in LOOK_AGAIN:
            self.forget_leader(topic, index)
            return None
        if code is not ErrorCode.NONE:
            raise Broken(f"{self.name}: fetching {topic}-{index} from {offset} gives {code.name}")
        if data.last_stable_offset > data.high_watermark >= 0:
            raise Broken(f"{topic}-{index} is stable up to {data.last_stable_offset}, committed {data.high_watermark}")
        values, following = read_answer(data, offset, committed_only=committed_only)
        self.world.rules.answered(address.host, (self.topic_ids[topic], index), epoch, following)
        return values, following


class Reader(FetchingClient):
    """Reads a partition from its beginning, for ever; begins anew when it crashes."""

    def __init__(self, world: Simulation, name: str, place: Place, *, committed_only: bool) -> None:
        super().__init__(world, name)
        self.place = place
        self.committed_only = committed_only
        self.position = 0
        # The leader epoch that the position was last checked in.
        self._checked_epoch = -1

    def _check_position(self) -> Script:
        """Ask a leader that is new to this reader whether the epoch of what was read last reaches so far with it."""
        topic, index = self.place
        address, epoch = yield from self.leader_of(topic, index)
        if epoch == self._checked_epoch:
            return
        read_epoch = self.world.rules.epoch_of(self.topic_ids[topic], index, self.position - 1)
        if read_epoch >= 0:
            asked = OffsetForLeaderPartition(index, current_leader_epoch=epoch, leader_epoch=read_epoch)
            request = OffsetForLeaderEpochRequest(CONSUMER, [OffsetForLeaderTopic(topic, [asked])])
            answer = yield from self.ask(address, request, EPOCH_VERSION)
            if isinstance(answer, Unreachable) or answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
                self.forget_leader(topic, index)
                return
            told = answer.topics[0].partitions[0]
            if told.end_offset < self.position:
                raise Broken(
                    f"{self.name} read {topic}-{index} up to {self.position} in epoch {read_epoch}, which ends at "
                    f"{told.end_offset} (epoch {told.leader_epoch}) for {address.host}, the leader of epoch {epoch}"
                )
        self._checked_epoch = epoch

    def run(self) -> Script:
        self.position = 0
        self._checked_epoch = -1
        reading = Reading(self.name, self.place, self.committed_only, 0, 0)
        self.world.history.readings.append(reading)
        while not self.world.ending:
            yield from self._check_position()
            got = yield from self.fetch(self.place, self.position, committed_only=self.committed_only)
            if got is None:
                yield from self.rest()
                continue
            values, position = got
            for each in values:
                self.world.history.read(reading, each.offset, each.value)
                reading.position = each.offset + 1
            self.position = reading.position = position
            if self.random.random() < 0.3:
                yield from self.sleep(int(self.random.random() * 50))
