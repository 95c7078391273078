"""A transactional client among several brokers: it finds leaders and coordinators, and asks again as clients do."""

from __future__ import annotations

from typing import Any

from tests.broker.broker_node import batch, fetch_request, produce_request
from tests.replication.replicated_world import TOPIC, ReplicatedWorld, WorldBroker

from moldau.broker.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from moldau.coordinator.hashing import partition_for
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from moldau.protocol.generated.wire.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.generated.wire.end_txn_request import EndTxnRequest
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.generated.wire.produce_request import ProduceRequest
from moldau.protocol.generated.wire.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.records.batch import iter_batches
from moldau.records.record import read_records

SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}
ASK_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
READ_COMMITTED = 1


def txn_world(seed: int, *, partitions: int = 3, **settings: str) -> ReplicatedWorld:
    world = ReplicatedWorld(
        seed, partitions=partitions, overrides={**SETTINGS, **{k.replace("_", "."): v for k, v in settings.items()}}
    )
    for key_type in (0, 1):
        world.until(world.brokers[1].ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]), 4))
    world.run(300)
    return world


class TxnProducer:
    """`v2` adds partitions by writing to them (KIP-890); the other kind adds them first."""

    def __init__(self, world: ReplicatedWorld, transactional_id: str, *, v2: bool = True) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.v2 = v2
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    # ---- whom to ask

    def coordinator(self, topic: str = TRANSACTION_STATE, key: str | None = None) -> WorldBroker:
        known = self.world.controller.loader.image.topic(topic)
        assert known is not None
        index = partition_for(self.transactional_id if key is None else key, len(known.partitions))
        return self.world.leader(index, topic)

    def patiently(self, whom: Any, request: Any, version: int, code_of: Any) -> Any:
        """Ask whoever is in charge until there is an answer that means something."""
        for _ in range(100):
            registered = whom()
            answer = self.world.until(registered.ask(request, version), 1500) if registered.alive else None
            if answer is not None and ErrorCode(code_of(answer)) not in ASK_AGAIN:
                return answer
            self.world.run(50)
        raise AssertionError(f"no answer to {type(request).__name__}: {answer}")

    # ---- requests

    def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = self.patiently(self.coordinator, request, 5, lambda each: each.error_code)
        assert answer.error_code == 0, answer
        self.became(answer.producer_id, answer.producer_epoch)

    def became(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, *indexes: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, list(indexes))],
        )

        def code(answer: Any) -> int:
            return max(
                each.partition_error_code for each in answer.results_by_topic_v3_and_below[0].results_by_partition
            )

        assert code(self.patiently(self.coordinator, request, 3, code)) == 0

    def batch_request(self, index: int, at: int, *values: bytes, version: int) -> ProduceRequest:
        records = batch(
            *values,
            timestamp=self.world.clock.now_ms(),
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=at,
            transactional=True,
        )
        request = produce_request(TOPIC, records, version=version, first=index)
        request.transactional_id = self.transactional_id
        return request

    def produce(self, index: int, *values: bytes, version: int | None = None) -> ErrorCode:
        """The Produce request alone."""
        at = self.sequences.get(index, 0)
        version = version or (12 if self.v2 else 11)
        request = self.batch_request(index, at, *values, version=version)

        def code(answer: Any) -> int:
            return int(answer.responses[0].partition_responses[0].error_code)

        found = ErrorCode(code(self.patiently(lambda: self.world.leader(index), request, version, code)))
        if found is ErrorCode.NONE:
            self.sequences[index] = at + len(values)
        return found

    def write(self, index: int, *values: bytes) -> ErrorCode:
        if not self.v2:
            self.add(index)
        return self.produce(index, *values)

    def commit_offset(self, group: str, offset: int) -> None:
        if not self.v2:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            assert self.patiently(self.coordinator, added, 3, lambda each: each.error_code).error_code == 0
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(TOPIC, [TxnOffsetCommitRequestPartition(0, offset)])],
        )

        def code(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        version = 5 if self.v2 else 4
        answer = self.patiently(lambda: self.coordinator(CONSUMER_OFFSETS, group), request, version, code)
        assert code(answer) == 0, answer

    def end(self, *, commit: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.patiently(self.coordinator, request, 5 if self.v2 else 4, lambda each: each.error_code)
        if not answer.error_code and self.v2:
            self.became(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)


# ---- looking


def committed_values(world: ReplicatedWorld, index: int) -> list[bytes]:
    """What a reader of committed records gets from the partition's leader."""
    values: list[bytes] = []
    offset = 0
    while True:
        request = fetch_request(TOPIC, offset, version=12, isolation_level=READ_COMMITTED, first=index)
        part = world.until(world.leader(index).ask(request, 12)).responses[0].partitions[0]
        assert part.error_code == 0, part
        data = bytes(part.records or b"")
        if not data:
            return values
        pending = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ())
        aborted: set[int] = set()
        for header in iter_batches(data):
            while pending and pending[0][0] <= header.last_offset:
                aborted.add(pending.pop(0)[1])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                values += [each.value or b"" for each in read_records(data[header.position : header.end])]
            offset = header.next_offset


def is_stable(world: ReplicatedWorld, index: int) -> bool:
    """Whether nothing in the partition waits for the end of a transaction."""
    partition = world.leader(index).partition(index)
    return partition is not None and partition.log.last_stable_offset == partition.log.log_end_offset


def group_offset(world: ReplicatedWorld, producer: TxnProducer, group: str) -> int:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])])
        ],
        require_stable=True,
    )
    answer = producer.patiently(
        lambda: producer.coordinator(CONSUMER_OFFSETS, group),
        request,
        9,
        lambda each: each.groups[0].error_code or each.groups[0].topics[0].partitions[0].error_code,
    )
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)
