"""One range of offsets of one partition, from raw fetch responses to Arrow batches.

It decides what of a response is data: batches inside the range, not control batches, not those of aborted transactions
when only committed records are wanted. Gaps that compaction and transactions leave are not data loss; a beginning of
the log that moved past the range is. The next fetch is on its way while the last answer is parsed. What it keeps in
memory is one response and the Arrow batch made of it, whatever the length of the range.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from moldau.client.cluster import TRANSIENT, Cluster
from moldau.client.connection import Connection
from moldau.client.errors import Disconnected, MoldauError, UnknownTopicError, refusal
from moldau.client.offsets import EARLIEST, READ_COMMITTED, list_offsets
from moldau.client.settings import ClientSettings
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.records.batch import CONTROL_ABORT, HEADER_SIZE, BatchError, BatchHeader, iter_batches
from moldau.records.compression import DEFAULT_MAX_SIZE, CorruptRecords, RecordsTooLarge, decompress_into
from moldau.records.record import read_control_records
from moldau.spark.brokers import shared_cluster
from moldau.spark.buffers import POOL
from moldau.spark.errors import DataLossError

FETCH_WAIT_MS = 500
# A length of one byte, then attributes, two deltas, two lengths and a count of a byte each.
SMALLEST_RECORD_BYTES = 7
# Unpacked bytes after which an Arrow batch is handed on, so that well compressed batches do not pile up.
ARROW_BATCH_BYTES = 1024 * 1024

_log = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class OffsetRange:
    """Offsets [start, end) of one partition of a topic."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets [{self.start}, {self.end})"


@dataclass(slots=True, frozen=True)
class FetchSettings:
    """How ranges are read; the same for all ranges of a query."""

    client: ClientSettings
    isolation: int
    fetch_bytes: int
    poll_timeout: float
    check_crcs: bool
    fail_on_data_loss: bool
    # Batches without a record at or after this time (in ms) need not be opened.
    min_timestamp: int | None = None


def read_range(wanted: OffsetRange, settings: FetchSettings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches."""
    return _RangeReader(wanted, settings, schema).read()


class _Unpacked:
    """Bodies of compressed batches, one behind the other."""

    __slots__ = ("data", "used")

    def __init__(self) -> None:
        self.data: Any = b""
        self.used = 0

    def add(self, codec: int, body: memoryview) -> bool:
        """Unpack a body behind the others; False when there is no room beside them. Alone it gets all it needs."""
        if not len(self.data):
            self.data = POOL.take(2 * ARROW_BATCH_BYTES)
        while True:
            try:
                self.used += decompress_into(codec, body, memoryview(self.data)[self.used :])
                return True
            except RecordsTooLarge:
                if self.used:
                    return False
                if len(self.data) >= DEFAULT_MAX_SIZE:
                    raise
                self.data = POOL.take(min(4 * len(self.data), DEFAULT_MAX_SIZE))


class _RangeReader:
    def __init__(self, wanted: OffsetRange, settings: FetchSettings, schema: pa.Schema) -> None:
        # Here and not above: the processes that plan have no use for the compiled loops.
        from moldau.spark.columns import ColumnBuilder

        self._wanted = wanted
        self._settings = settings
        self._cluster: Cluster = shared_cluster(settings.client)
        self._columns = ColumnBuilder(schema, wanted.topic, wanted.partition)
        self._position = wanted.start
        self._connection: Connection | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        wanted = self._wanted
        try:
            last_progress = time.monotonic()
            deadline = self._cluster.deadline(self._settings.poll_timeout)
            while self._position < wanted.end:
                answer = self._next_answer()
                before = self._position
                batches: list[BatchHeader] = []
                if answer is not None:
                    batches = self._batches(answer)
                    self._position = max(self._position, batches[-1].next_offset if batches else 0)
                if self._position > before:
                    last_progress = time.monotonic()
                    if self._position < wanted.end:
                        self._ask()
                    yield from self._arrow_batches(batches, answer, before)
                elif time.monotonic() - last_progress > self._settings.poll_timeout:
                    raise MoldauError(
                        f"{wanted}: nothing could be read at offset {self._position} for "
                        f"{self._settings.poll_timeout:.0f} s (kafkaConsumer.pollTimeoutMs); is the leader up?"
                    )
                elif answer is None:
                    deadline.pause()
        finally:
            if self._connection is not None:
                self._cluster.give_back(self._connection)
                self._connection = None

    # ---- asking

    def _ask(self) -> None:
        """Send the fetch that reads on from the present position."""
        if self._connection is None:
            wanted = self._wanted
            leader = self._cluster.leader(wanted.topic, wanted.partition, self._cluster.deadline())
            self._connection = self._cluster.take(leader)
        partition = FetchPartition(
            partition=self._wanted.partition,
            fetch_offset=self._position,
            partition_max_bytes=self._settings.fetch_bytes,
        )
        self._connection.send(
            FetchRequest(
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=self._settings.fetch_bytes,
                isolation_level=self._settings.isolation,
                session_epoch=-1,  # no session: each fetch stands for itself
                topics=[FetchTopic(topic=self._wanted.topic, partitions=[partition])],
            )
        )

    def _next_answer(self) -> Any:
        """What the leader says about the partition; None when there is reason to ask again."""
        try:
            if self._connection is None or not self._connection.in_flight:
                self._ask()
            assert self._connection is not None
            answer = self._connection.receive(self._settings.client.request_timeout + FETCH_WAIT_MS / 1000)
        except Disconnected:
            self._start_over()
            return None
        except UnknownTopicError as error:
            self._lost(f"{self._wanted}: {error}")
            self._position = self._wanted.end
            return None
        if answer.error_code:
            raise refusal(answer.error_code, f"Reading {self._wanted}")
        data = answer.responses[0].partitions[0]
        if not data.error_code:
            return data
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_what_is_gone()
        elif data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._start_over()
            self._lost(f"{self._wanted}: the topic or the partition does not exist any more")
            self._position = self._wanted.end
        elif data.error_code in TRANSIENT:
            self._start_over()
        else:
            raise refusal(data.error_code, f"Reading {self._wanted}")
        return None

    def _start_over(self) -> None:
        """The next fetch looks the leader up again."""
        self._cluster.forget_leader(self._wanted.topic)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _skip_what_is_gone(self) -> None:
        partition = (self._wanted.topic, self._wanted.partition)
        beginning = list_offsets(self._cluster, {partition: EARLIEST})[partition]
        if beginning > self._position:
            self._lost(
                f"{self._wanted}: records before offset {beginning} are gone (retention, or deleted by somebody)"
            )
            self._position = min(beginning, self._wanted.end)
        else:
            self._lost(
                f"{self._wanted}: the partition now ends before offset {self._position}; was the topic recreated?"
            )
            self._position = self._wanted.end

    def _lost(self, what: str) -> None:
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Some data may have been lost. To go on without it, set the option failOnDataLoss=false"
            )
        _log.warning("%s; going on because failOnDataLoss is false", what)

    # ---- understanding

    def _batches(self, answer: Any) -> list[BatchHeader]:
        """The whole batches of an answer that are not past the range."""
        if answer.records is None:
            return []
        found = []
        try:
            for header in iter_batches(answer.records):
                found.append(header)
                if header.base_offset >= self._wanted.end:
                    break  # the range ends in a gap: its end is passed, which is what this batch tells
        except BatchError as error:
            raise self._corrupt(self._position, str(error)) from None
        return found

    def _arrow_batches(self, batches: Sequence[BatchHeader], answer: Any, first: int) -> Iterator[pa.RecordBatch]:
        """Arrow batches of bounded size. Plain batches are read where they stand, packed ones are unpacked side by
        side; the two kinds do not mix in one Arrow batch."""
        records = answer.records
        table: list[tuple[int, ...]] = []
        unpacked = _Unpacked()
        size = 0
        for header in self._data_batches(batches, answer):
            if self._settings.check_crcs and not header.checksum_matches(records):
                raise self._corrupt(header.base_offset, "its checksum does not match")
            packed = bool(header.codec)
            if table and (size >= ARROW_BATCH_BYTES or packed != bool(unpacked.used)):
                yield self._arrow(unpacked.data if unpacked.used else records, table, first)
                table, size, unpacked.used = [], 0, 0
            start, end = header.position + HEADER_SIZE, header.end
            if packed:
                try:
                    fits = unpacked.add(header.codec, records[start:end])
                    if not fits:
                        # What is there goes on its way first: then all of the room is for this one.
                        yield self._arrow(unpacked.data, table, first)
                        table, size, unpacked.used = [], 0, 0
                        unpacked.add(header.codec, records[start:end])
                except CorruptRecords as error:
                    raise self._corrupt(header.base_offset, str(error)) from None
                start, end = size, unpacked.used
            if not 0 <= header.record_count <= (end - start) // SMALLEST_RECORD_BYTES:
                raise self._corrupt(header.base_offset, f"it says it has {header.record_count} records")
            append_time = header.max_timestamp if header.is_log_append_time else -1
            table.append((start, end, header.record_count, header.base_offset, header.base_timestamp, append_time))
            size += end - start
        if table:
            yield self._arrow(unpacked.data if unpacked.used else records, table, first)

    def _data_batches(self, batches: Sequence[BatchHeader], answer: Any) -> Iterator[BatchHeader]:
        """Those batches whose records are to be seen: KIP-98's rules for a reader."""
        committed_only = self._settings.isolation == READ_COMMITTED
        aborted = sorted(
            ((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()), reverse=True
        )
        aborting: set[int] = set()
        for header in batches:
            if header.base_offset >= self._wanted.end:
                return
            while aborted and aborted[-1][0] <= header.last_offset:
                aborting.add(aborted.pop()[1])
            if header.is_control:
                marker = read_control_records(answer.records[header.position : header.end])
                if marker and marker[0].type == CONTROL_ABORT:
                    aborting.discard(header.producer_id)
                continue
            if committed_only and header.is_transactional and header.producer_id in aborting:
                continue
            oldest = self._settings.min_timestamp
            if oldest is not None and header.max_timestamp < oldest:
                continue
            if header.record_count:
                yield header

    def _arrow(self, data: Any, table: list[tuple[int, ...]], first: int) -> pa.RecordBatch:
        try:
            return self._columns.build(data, table, max(first, self._wanted.start), self._wanted.end)
        except MoldauError as error:
            raise self._corrupt(table[0][3], str(error)) from None

    def _corrupt(self, offset: int, reason: str) -> MoldauError:
        return MoldauError(
            f"{self._wanted}: the record batch at or after offset {offset} is corrupt: {reason}. Nothing was skipped; "
            f"repair or replace that replica, or set starting offsets after the batch"
        )
