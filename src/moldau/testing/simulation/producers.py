"""Producers: an idempotent one with several batches under way, and plain ones with acks 1 or all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.ports import Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.builder import BatchBuilder
from moldau.testing.simulation.client import TRY_AGAIN, Client, Script
from moldau.testing.simulation.history import Place, Sent
from moldau.testing.simulation.ledger import Broken

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

ALL = -1
PRODUCE_VERSION = 13
PRODUCE_MS_MAX = 700


def produce_request(
    topic: str, topic_id: bytes, index: int, batch: bytes, acks: int = ALL, transactional_id: str | None = None
) -> ProduceRequest:
    data = TopicProduceData(
        name=topic, topic_id=topic_id, partition_data=[PartitionProduceData(index=index, records=batch)]
    )
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=PRODUCE_MS_MAX, topic_data=[data])


class Producer(Client):
    """Writes numbered values to one partition; goes on until it is told to end."""

    def __init__(self, world: Simulation, name: str, place: Place, batches: int) -> None:
        super().__init__(world, name)
        self.place = place
        # How many batches are still to be written; more may be asked for at any time.
        self.wanted = batches
        self.acknowledged = 0
        self._number = 0

    def values(self, *, idempotent: bool) -> list[bytes]:
        found = []
        for _ in range(1 + int(self.random.random() * 2)):
            value = f"{self.name}:{self._number}".encode()
            self.world.history.sent[value] = Sent(self.name, self.place, self._number, idempotent)
            self._number += 1
            found.append(value)
        return found

    def noted(self, values: list[bytes], base_offset: int) -> None:
        self.acknowledged += 1
        for i, value in enumerate(values):
            self.note(value, base_offset + i if base_offset >= 0 else -1)

    def note(self, value: bytes, offset: int) -> None:
        self.world.history.acknowledged(value, offset)

    def batch(self, values: list[bytes], producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        now = self.world.clock.now_ms()
        for value in values:
            builder.append(None, value, timestamp=now)
        return builder.build()

    def pause(self) -> Script:
        return self.sleep(int(self.random.random() * self.world.pace_ms))


class IdempotentProducer(Producer):
    WINDOW = 3

    def run(self) -> Script:
        topic, index = self.place
        producer_id = yield from self._new_id()
        sequence = 0
        waiting: list[tuple[int, list[bytes]]] = []
        while self.wanted or waiting:
            # A leader that does not know a producer lets it begin with any sequence, as Kafka's do. So the first batch
            # travels alone: of two that meet a leader's first moment, only the second might be taken.
            window = self.WINDOW if self.acknowledged else 1
            while self.wanted and len(waiting) < window and (not waiting or self.random.random() < 0.6):
                values = self.values(idempotent=True)
                waiting.append((sequence, values))
                sequence += len(values)
                self.wanted -= 1
            address, _ = yield from self.leader_of(topic, index)
            requests = [
                produce_request(topic, self.topic_ids[topic], index, self.batch(values, producer_id, 0, first))
                for first, values in waiting
            ]
            answers = yield from self.ask_all(address, requests, PRODUCE_VERSION)
            failed = False
            left = []
            for batch, answer in zip(waiting, answers, strict=True):
                if self._is_written(batch, answer, first=not failed):
                    continue
                failed = True
                left.append(batch)
            waiting = left
            if failed:
                self.forget_leader(topic, index)
                yield from self.rest()
            else:
                yield from self.pause()

    def _is_written(self, batch: tuple[int, list[bytes]], answer: Any, *, first: bool) -> bool:
        if isinstance(answer, Unreachable):
            return False
        told = answer.responses[0].partition_responses[0]
        code = error_code(told.error_code)
        if code is ErrorCode.NONE:
            self.noted(batch[1], told.base_offset)
            return True
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.noted(batch[1], -1)
            return True
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not first:
            return False  # what it follows was not written
        if code not in TRY_AGAIN:
            raise Broken(
                f"{self.name}: batch {batch[0]} is refused with {code.name}, though nothing before it is missing"
            )
        return False

    def _new_id(self) -> Script:
        while True:
            answer = yield from self.ask(self.any_broker(), InitProducerIdRequest(transactional_id=None), 4)
            if not isinstance(answer, Unreachable) and answer.error_code == ErrorCode.NONE:
                return answer.producer_id
            yield from self.rest()


class PlainProducer(Producer):
    """Sends again what it is not sure of, so that values may be there twice; with acks=1 they may also be lost."""

    def __init__(self, world: Simulation, name: str, place: Place, batches: int, acks: int) -> None:
        super().__init__(world, name, place, batches)
        self._acks = acks

    def run(self) -> Script:
        topic, index = self.place
        while self.wanted:
            self.wanted -= 1
            values = self.values(idempotent=False)
            for _ in range(8):
                address, _ = yield from self.leader_of(topic, index)
                request = produce_request(topic, self.topic_ids[topic], index, self.batch(values), self._acks)
                answer = yield from self.ask(address, request, PRODUCE_VERSION)
                if not isinstance(answer, Unreachable):
                    told = answer.responses[0].partition_responses[0]
                    code = error_code(told.error_code)
                    if code is ErrorCode.NONE:
                        if self._acks == ALL:
                            self._noted_plain(values, told.base_offset)
                        else:
                            self.acknowledged += 1
                        break
                    if code not in TRY_AGAIN:
                        raise Broken(f"{self.name}: a plain batch is refused with {code.name}")
                self.forget_leader(topic, index)
                yield from self.rest()
            yield from self.pause()

    def _noted_plain(self, values: list[bytes], base_offset: int) -> None:
        """Sent again it may be at several offsets; the one that was acknowledged must be among them."""
        self.acknowledged += 1
        for i, value in enumerate(values):
            self.world.history.sent[value].offset = base_offset + i
