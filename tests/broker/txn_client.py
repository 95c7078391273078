"""A transactional producer and a reader of committed records, written against the requests themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker_node import Client, SimulatedNode, batch, fetch_request, produce_request

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from moldau.protocol.generated.wire.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.generated.wire.describe_transactions_request import DescribeTransactionsRequest
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

READ_COMMITTED = 1


def coordinator_ready(client: Client, key: str = "any", key_type: int = 1) -> None:
    """Have the internal topic created, as every client does with its first question."""
    found = client.post(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
    for _ in range(50):
        if found.done:
            break
        client.node.clock.advance(10)
    assert found.value.coordinators[0].error_code == 0, found.value


@dataclass
class Versions:
    """The versions of one kind of client."""

    init: int
    add: int
    end: int
    produce: int
    offsets: int
    add_offsets: int

    @property
    def bumps(self) -> bool:
        return self.end >= 5


# aiokafka's, librdkafka's, a Java client's before and with transactions v2.
OLDEST = Versions(init=0, add=0, end=0, produce=3, offsets=0, add_offsets=0)
LIBRDKAFKA = Versions(init=4, add=0, end=1, produce=10, offsets=3, add_offsets=0)
JAVA_V1 = Versions(init=5, add=3, end=4, produce=11, offsets=4, add_offsets=4)
JAVA_V2 = Versions(init=5, add=3, end=5, produce=12, offsets=5, add_offsets=4)
FLOWS = {"oldest": OLDEST, "librdkafka": LIBRDKAFKA, "java-v1": JAVA_V1, "java-v2": JAVA_V2}


class Producer:
    """One transactional producer, which does what it is told and reports error codes."""

    def __init__(
        self, node: SimulatedNode, transactional_id: str, versions: Versions = JAVA_V2, timeout_ms: int = 60_000
    ) -> None:
        self.node = node
        self.client = Client(node)
        self.transactional_id = transactional_id
        self.versions = versions
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.added: set[tuple[str, int]] = set()

    def init(self, *, keep: bool = False) -> ErrorCode:
        """`keep` bumps the epoch of the producer it is already (KIP-360)."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.producer_id if keep else -1,
            producer_epoch=self.epoch if keep else -1,
        )
        answer = self.client.send(request, self.versions.init)
        if not answer.error_code:
            self._became(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def begin_anew(self) -> None:
        """Ask until an older transaction is out of the way, as clients do."""
        for _ in range(5):
            code = self.init()
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        assert code is ErrorCode.NONE, code.name

    def _became(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch
        self.added.clear()

    def add(self, topic: str, *indexes: int) -> list[ErrorCode]:
        answer = self.client.send(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(topic, list(indexes))],
            ),
            self.versions.add,
        )
        return [
            ErrorCode(each.partition_error_code)
            for each in answer.results_by_topic_v3_and_below[0].results_by_partition
        ]

    def batch_request(self, topic: str, index: int, *values: bytes, sequence: int | None = None) -> ProduceRequest:
        at = self.sequences.get((topic, index), 0) if sequence is None else sequence
        records = batch(
            *values,
            timestamp=self.node.clock.now_ms(),
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=at,
            transactional=True,
        )
        request = produce_request(topic, records, version=self.versions.produce, first=index)
        request.transactional_id = self.transactional_id
        return request

    def send_batch(self, topic: str, index: int, *values: bytes, sequence: int | None = None) -> Any:
        """Only the Produce request; gives the partition's part of the response."""
        at = self.sequences.get((topic, index), 0) if sequence is None else sequence
        answer = self.client.send(self.batch_request(topic, index, *values, sequence=at), self.versions.produce)
        result = answer.responses[0].partition_responses[0]
        if not result.error_code:
            self.sequences[topic, index] = at + len(values)
        return result

    def write(self, topic: str, index: int, *values: bytes) -> ErrorCode:
        """A batch as the client of these versions sends it: the old ones add the partition first."""
        if not self.versions.bumps and (topic, index) not in self.added:
            (code,) = self.add(topic, index)
            if code is not ErrorCode.NONE:
                return code
            self.added.add((topic, index))
        return ErrorCode(self.send_batch(topic, index, *values).error_code)

    def commit_offsets(
        self, group: str, topic: str, offsets: dict[int, int], *, generation: int = -1, member: str = ""
    ) -> list[ErrorCode]:
        if not self.versions.bumps:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            code = ErrorCode(self.client.send(request, self.versions.add_offsets).error_code)
            if code is not ErrorCode.NONE:
                return [code]
        return self.send_offsets(group, topic, offsets, generation=generation, member=member)

    def send_offsets(
        self, group: str, topic: str, offsets: dict[int, int], *, generation: int = -1, member: str = ""
    ) -> list[ErrorCode]:
        """Only the TxnOffsetCommit request."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=generation,
            member_id=member,
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic,
                    [TxnOffsetCommitRequestPartition(index, offset) for index, offset in offsets.items()],
                )
            ],
        )
        answer = self.client.send(request, self.versions.offsets)
        return [ErrorCode(each.error_code) for each in answer.topics[0].partitions]

    def end(self, *, commit: bool, epoch: int | None = None, producer_id: int | None = None) -> ErrorCode:
        answer = self.client.send(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id if producer_id is None else producer_id,
                producer_epoch=self.epoch if epoch is None else epoch,
                committed=commit,
            ),
            self.versions.end,
        )
        if not answer.error_code:
            self.added.clear()
            if self.versions.bumps and epoch is None:
                self._became(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def commit(self) -> ErrorCode:
        return self.end(commit=True)

    def abort(self) -> ErrorCode:
        return self.end(commit=False)


def verify(
    client: Client, producer: Producer, topic: str, *indexes: int, verify_only: bool = True, version: int = 5
) -> Any:
    """What a partition's leader on another broker asks the coordinator."""
    answer = client.send(
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    producer.transactional_id,
                    producer.producer_id,
                    producer.epoch,
                    verify_only,
                    [AddPartitionsToTxnTopic(topic, list(indexes))],
                )
            ]
        ),
        version,
    )
    assert answer.error_code == 0
    return [
        ErrorCode(each.partition_error_code)
        for each in answer.results_by_transaction[0].topic_results[0].results_by_partition
    ]


def state_of(client: Client, transactional_id: str) -> Any:
    return client.send(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states[0]


def committed_values(client: Client, topic: str, index: int = 0) -> list[bytes]:
    """What a consumer with isolation.level=read_committed sees: aborted records are left out by the client."""
    values: list[bytes] = []
    offset = 0
    while True:
        request = fetch_request(topic, offset, version=12, isolation_level=READ_COMMITTED, first=index)
        part = client.send(request, 12).responses[0].partitions[0]
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


def last_stable_offset(client: Client, topic: str, index: int = 0) -> int:
    request = fetch_request(topic, 0, version=12, isolation_level=READ_COMMITTED, first=index)
    return int(client.send(request, 12).responses[0].partitions[0].last_stable_offset)


def group_offset(client: Client, group: str, topic: str, index: int = 0, *, stable: bool = False) -> tuple[int, int]:
    """(error code, committed offset)."""
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[index])])
        ],
        require_stable=stable,
    )
    part = client.send(request, 9).groups[0].topics[0].partitions[0]
    return part.error_code, part.committed_offset


def restart(node: SimulatedNode) -> None:
    """Kill the node, with everything it had planned, and start it on what is on disk."""
    node.clock.forget_timers()
    node.restart()
