"""Partitions of a transaction: adding them, and confirming to a partition's leader that it is one of them."""

from __future__ import annotations

from moldau.coordinator.transaction.metadata import ProducerIdAndEpoch, TopicPartition, TransactionMetadata
from moldau.coordinator.transaction.states import PREPARED, TransactionState
from moldau.protocol.errors import ApiError, ErrorCode


def add_partitions(
    current: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    partitions: frozenset[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> TransactionMetadata:
    """The transaction with these partitions; the very same value when it has them all. Opens one if none is open."""
    current = _check(current, producer)
    if current.state is TransactionState.ONGOING and partitions <= current.partitions:
        return current
    return current.with_partitions(partitions, client_version, now_ms)


def verify_partitions(
    current: TransactionMetadata | None, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """For each partition whether it belongs to the open transaction."""
    current = _check(current, producer)
    return {
        partition: ErrorCode.NONE if partition in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def _check(current: TransactionMetadata | None, producer: ProducerIdAndEpoch) -> TransactionMetadata:
    if current is None or current.producer_id != producer.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.epoch != producer.epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if current.state in PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return current
