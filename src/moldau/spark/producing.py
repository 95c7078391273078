"""Sends record batches to the leaders of their partitions, each exactly once in the log, in order.

It decides when a request is full, how many are on their way, and what is sent again after an error. Batches carry
sequence numbers, so sending one twice is harmless: a leader that has it answers with the old result. Whether the whole
counts is decided elsewhere, by committing a transaction or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from moldau.client.cluster import TRANSIENT, Cluster
from moldau.client.connection import Connection
from moldau.client.errors import Disconnected, FencedError, MoldauError, refusal
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.spark.encoding import EncodedBatch

ACKS_ALL = -1
# Kafka remembers the last five batches of a producer in each partition: with more on their way, a repetition could not
# be told from a new batch.
MAX_IN_FLIGHT = 5
REQUEST_BYTES = 4 * 1024 * 1024

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE})
_ALREADY_THERE = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class BatchSender:
    """The requests of one task on their way to one or several brokers."""

    def __init__(self, cluster: Cluster, transactional_id: str | None, timeout: float) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._timeout = timeout
        self._connections: dict[int, Connection] = {}
        # For each broker, what each request on its way carries.
        self._on_their_way: dict[int, deque[list[EncodedBatch]]] = {}
        self._failed: list[EncodedBatch] = []
        self._why = ""

    def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Send batches; returns before they are acknowledged, unless something has to be sent again."""
        waiting: dict[int, list[EncodedBatch]] = {}
        sizes: dict[int, int] = {}
        for batch in batches:
            leader = self._leader(batch)
            request = waiting.setdefault(leader, [])
            # A request may hold only one batch for a partition.
            repeated = any(each.topic == batch.topic and each.partition == batch.partition for each in request)
            if request and (repeated or sizes[leader] + len(batch.records) > REQUEST_BYTES):
                self._transmit(leader, request)
                request = waiting[leader] = []
                sizes[leader] = 0
            request.append(batch)
            sizes[leader] = sizes.get(leader, 0) + len(batch.records)
        for leader, request in waiting.items():
            self._transmit(leader, request)
        if self._failed:
            self._repeat()

    def finish(self) -> None:
        """Wait until every batch is acknowledged."""
        self._drain()
        if self._failed:
            self._repeat()

    def close(self) -> None:
        for connection in self._connections.values():
            self._cluster.give_back(connection)
        self._connections.clear()
        self._on_their_way.clear()

    def _leader(self, batch: EncodedBatch) -> int:
        return self._cluster.leader(batch.topic, batch.partition, self._cluster.deadline(self._timeout))

    def _transmit(self, leader: int, batches: list[EncodedBatch]) -> None:
        if self._failed:
            # Something before these has to be sent again first: keep the order.
            self._failed += batches
            return
        while len(self._on_their_way.get(leader, ())) >= MAX_IN_FLIGHT:
            self._receive(leader)
            if self._failed:
                self._failed += batches
                return
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            data = PartitionProduceData(index=batch.partition, records=batch.records)
            topics.setdefault(batch.topic, []).append(data)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ACKS_ALL,
            timeout_ms=int(self._cluster.settings.request_timeout * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        self._on_their_way.setdefault(leader, deque()).append(batches)
        try:
            connection = self._connections.get(leader)
            if connection is None:
                connection = self._connections[leader] = self._cluster.take(leader)
            connection.send(request)
        except Disconnected as error:
            self._broke(leader, str(error))

    def _receive(self, leader: int) -> None:
        """Take in the oldest answer of a broker."""
        try:
            answer = self._connections[leader].receive()
        except Disconnected as error:
            self._broke(leader, str(error))
            return
        batches = self._on_their_way[leader].popleft()
        codes = {
            (topic.name, each.index): (each.error_code, each.error_message)
            for topic in answer.responses
            for each in topic.partition_responses
        }
        for batch in batches:
            code, message = codes[batch.topic, batch.partition]
            if code not in _ALREADY_THERE:
                self._refused(batch, code, message)

    def _refused(self, batch: EncodedBatch, code: int, message: str | None) -> None:
        where = f"Writing to {batch.topic}-{batch.partition}"
        if code in _FENCED:
            raise FencedError(f"{where} was refused: another run of this query or task has taken over ({code})")
        follows_a_failure = any(
            each.topic == batch.topic and each.partition == batch.partition for each in self._failed
        )
        if code in TRANSIENT or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and follows_a_failure):
            self._cluster.forget_leader(batch.topic)
            self._failed.append(batch)
            self._why = ErrorCode(code).name
        elif code == ErrorCode.MESSAGE_TOO_LARGE:
            raise MoldauError(
                f"{where}: a batch of {batch.count} records and {len(batch.records)} bytes is larger than the topic's "
                "max.message.bytes; lower the option kafka.batch.size or raise that limit"
            )
        else:
            raise refusal(code, where, message)

    def _broke(self, leader: int, why: str) -> None:
        """A connection is gone: nobody knows which of its requests arrived, so all are sent again."""
        self._why = why
        connection = self._connections.pop(leader, None)
        if connection is not None:
            connection.close()
        for batches in self._on_their_way.pop(leader, ()):
            self._failed += batches
            for batch in batches:
                self._cluster.forget_leader(batch.topic)

    def _drain(self) -> None:
        for leader in list(self._on_their_way):
            while self._on_their_way.get(leader):
                self._receive(leader)

    def _repeat(self) -> None:
        """Send what failed again, in order, until it is there or time is up."""
        deadline = self._cluster.deadline(self._timeout)
        self._drain()
        while self._failed:
            if deadline.passed():
                batch = self._failed[0]
                raise MoldauError(
                    f"Writing to {batch.topic}-{batch.partition} did not succeed in {self._timeout:.0f} s "
                    f"(kafka.delivery.timeout.ms): {self._why}"
                )
            deadline.pause()
            again, self._failed = self._failed, []
            for batch in again:
                self._transmit(self._leader(batch), [batch])
                self._drain()
