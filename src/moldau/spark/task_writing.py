"""What a task does with its rows: gather some, encode them, send them, and say what was sent.

Rows are gathered up to a size, so that partitions get batches worth compressing, and sent while the next ones are being
encoded. What a task keeps in memory is bounded by that size and by the requests on their way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from moldau.client.cluster import TopicPartition
from moldau.client.errors import MoldauError
from moldau.client.transactions import Transaction, add_partitions, begin, idempotent_producer
from moldau.spark import kernels
from moldau.spark.brokers import shared_cluster
from moldau.spark.encoding import ProducerIdentity, RowEncoder, key_and_value
from moldau.spark.exactly_once import CommitSettings, Plan, TaskWork, duty_of, take_task_id
from moldau.spark.producing import BatchSender
from moldau.spark.write_settings import WriteSettings

GATHER_BYTES = 8 * 1024 * 1024
_UINT64 = (1 << 64) - 1


class TaskWriter:
    """Writes the rows of one task."""

    def __init__(self, settings: WriteSettings, task: int) -> None:
        self._settings = settings
        self._task = task
        self._cluster = shared_cluster(settings.client)

    def write_at_least_once(self, rows: Iterator[pa.RecordBatch]) -> None:
        tables = _gather(rows)
        first = next(tables, None)
        if first is None:
            return
        identity = ProducerIdentity(*idempotent_producer(self._cluster), transactional=False)
        self._send(_and_then(first, tables), identity, None)

    def write_in_transaction(
        self, rows: Iterator[pa.RecordBatch], commits: CommitSettings, driver: Transaction | None
    ) -> TaskWork | None:
        """Write the rows and leave the transaction open; None when there are no rows."""
        tables = _gather(rows)
        first = next(tables, None)
        if first is None:
            return None
        if driver is None:
            transaction = begin(self._cluster, commits.task_id(self._task), commits.timeout_ms)
        else:
            transaction = take_task_id(commits, driver, self._task)
        identity = ProducerIdentity(transaction.producer_id, transaction.epoch, transactional=True)
        # Without a driver nothing is written down that the rows of a repetition could be compared with.
        kept = driver is not None
        count, print_ = self._send(_and_then(first, tables), identity, transaction, fingerprinted=kept)
        return TaskWork(self._task, transaction.producer_id, transaction.epoch, count, print_)

    def write_exactly_once(
        self, rows: Iterator[pa.RecordBatch], commits: CommitSettings, plan: Plan, query: str, batch: int
    ) -> tuple[TaskWork | None, bool]:
        """The work of this task, and whether the batch as a whole was committed before."""
        duty = duty_of(plan, commits, query, batch, self._task)
        if duty.write:
            return self.write_in_transaction(rows, commits, plan.driver), False
        if duty.verify is None:
            for _ in rows:
                pass
            return None, True
        count, print_ = 0, 0
        for table in _gather(rows):
            count += table.num_rows
            print_ = (print_ + _fingerprint(table)) & _UINT64
        if (count, print_) != (duty.verify.rows, duty.verify.fingerprint):
            raise MoldauError(
                f"Task {self._task} of batch {batch} has {count} rows that are not the {duty.verify.rows} it committed "
                "before the last failure, and others of its batch were lost: the query does not give the same rows "
                "when it is repeated, so this batch cannot be completed exactly once. Raise "
                "kafka.transaction.timeout.ms, and read the batch's rows back to see which are there"
            )
        return (duty.verify if count else None), False

    def _send(
        self,
        tables: Iterator[pa.Table],
        identity: ProducerIdentity,
        transaction: Transaction | None,
        *,
        fingerprinted: bool = False,
    ) -> tuple[int, int]:
        """Send all rows; how many there were and, if it is wanted, their fingerprint."""
        name = None if transaction is None else transaction.transactional_id
        sender = BatchSender(self._cluster, name, self._settings.delivery_timeout)
        encoder = RowEncoder(self._settings.encoding, identity, self._partition_count, self._task)
        known: set[TopicPartition] = set()
        count, print_ = 0, 0
        try:
            for table in tables:
                partitions, batches = encoder.encode(table)
                if transaction is not None:
                    self._add_partitions(transaction, partitions, known)
                sender.send(batches)
                if fingerprinted:
                    print_ = (print_ + _fingerprint(table)) & _UINT64
                count += table.num_rows
            sender.finish()
        finally:
            sender.close()
        return count, print_

    def _partition_count(self, topic: str) -> int:
        return self._cluster.partition_count(topic, self._cluster.deadline())

    def _add_partitions(
        self, transaction: Transaction, partitions: list[TopicPartition], known: set[TopicPartition]
    ) -> None:
        fresh = sorted(set(partitions) - known)
        if fresh:
            add_partitions(self._cluster, transaction, fresh)
            known.update(fresh)


def _fingerprint(table: pa.Table) -> int:
    key, value = key_and_value(table)
    return int(kernels.fingerprint(key.ends, key.valid, key.data, value.ends, value.valid, value.data))


def _gather(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows in pieces of about GATHER_BYTES, each column in one chunk; no empty ones."""
    gathered: list[Any] = []
    size = 0
    for batch in rows:
        if batch.num_rows == 0:
            continue
        gathered.append(batch)
        size += batch.nbytes
        if size >= GATHER_BYTES:
            yield _together(gathered)
            gathered, size = [], 0
    if gathered:
        yield _together(gathered)


def _together(batches: list[Any]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table if len(batches) == 1 else table.combine_chunks()


def _and_then(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest
