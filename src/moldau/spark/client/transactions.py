"""Kafka's transactions, one request each: an id and its epoch, the partitions in it, and its end.

The second version of Kafka's transaction protocol gives a producer a new epoch with every end; the first one does not,
so that a commit can be repeated for as long as nobody else has taken the id. This client speaks the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from moldau.protocol.generated.wire.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.generated.wire.describe_transactions_request import DescribeTransactionsRequest
from moldau.protocol.generated.wire.end_txn_request import EndTxnRequest
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.spark.client.cluster import GROUP, TRANSACTION, TRANSIENT, Cluster
from moldau.spark.client.connection import Disconnected
from moldau.spark.client.offsets import TopicPartition
from moldau.spark.errors import FencedError, MoldauError, refusal

NO_PRODUCER = -1

# Answers that mean: somebody else has taken the id since, or its transaction was ended by its time-out.
SUPERSEDED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


@dataclass(slots=True, frozen=True)
class Transaction:
    """A transactional id with the producer id and epoch that whoever holds it now was given."""

    transactional_id: str
    producer_id: int
    epoch: int


def begin(cluster: Cluster, transactional_id: str, timeout_ms: int, expected: Transaction | None = None) -> Transaction:
    """Take an id: an open transaction under it is aborted, and whoever held it is fenced.

    With `expected` only if nobody else has taken it since that was looked up.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=NO_PRODUCER if expected is None else expected.producer_id,
        producer_epoch=NO_PRODUCER if expected is None else expected.epoch,
    )
    doing = f"Beginning a transaction as '{transactional_id}'"
    answer = cluster.ask_coordinator(TRANSACTION, transactional_id, request, lambda each: int(each.error_code), doing)
    if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        raise MoldauError(
            f"The brokers allow no transaction timeout of {timeout_ms} ms (transaction.max.timeout.ms): "
            "set the option kafka.transaction.timeout.ms lower"
        )
    _check(answer.error_code, doing)
    return Transaction(transactional_id, answer.producer_id, answer.producer_epoch)


def idempotent_producer(cluster: Cluster) -> tuple[int, int]:
    """A producer id and epoch of its own, outside any transaction."""
    deadline = cluster.deadline()
    while True:
        answer = cluster.ask_any(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), deadline)
        if answer.error_code not in TRANSIENT or deadline.passed():
            break
        deadline.pause()
    if answer.error_code:
        raise refusal(answer.error_code, "Getting a producer id")
    return answer.producer_id, answer.producer_epoch


def look_up(cluster: Cluster, transactional_id: str) -> tuple[Transaction, str] | None:
    """Who holds an id and the state of its transaction; None when it has never been used or has expired."""
    doing = f"Looking up transactional id '{transactional_id}'"
    answer = cluster.ask_coordinator(
        TRANSACTION,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        lambda each: int(each.transaction_states[0].error_code),
        doing,
    )
    state = answer.transaction_states[0]
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    _check(state.error_code, doing)
    return Transaction(transactional_id, state.producer_id, state.producer_epoch), state.transaction_state


def add_partitions(cluster: Cluster, transaction: Transaction, partitions: Sequence[TopicPartition]) -> None:
    """Make partitions part of the transaction, before anything is written there."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transaction.transactional_id,
        v3_and_below_producer_id=transaction.producer_id,
        v3_and_below_producer_epoch=transaction.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )

    def worst(answer: object) -> int:
        results = answer.results_by_topic_v3_and_below  # type: ignore[attr-defined]
        codes = [each.partition_error_code for topic in results for each in topic.results_by_partition]
        # One refused partition makes the others say only that they were not tried.
        meant = [code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)]
        return int(meant[0]) if meant else 0

    key, doing = (
        transaction.transactional_id,
        f"Adding partitions to the transaction of '{transaction.transactional_id}'",
    )
    answer = cluster.ask_coordinator(TRANSACTION, key, request, worst, doing)
    _check(worst(answer), doing)


def commit_offsets(
    cluster: Cluster, transaction: Transaction, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
) -> None:
    """Make offsets of a group, with metadata, part of the transaction."""
    key = transaction.transactional_id
    doing = f"Recording the commit of '{key}' in group '{group}'"
    added = cluster.ask_coordinator(
        TRANSACTION,
        key,
        AddOffsetsToTxnRequest(
            transactional_id=key, producer_id=transaction.producer_id, producer_epoch=transaction.epoch, group_id=group
        ),
        lambda each: int(each.error_code),
        doing,
    )
    _check(added.error_code, doing)
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), (offset, metadata) in offsets.items():
        entry = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(entry)
    request = TxnOffsetCommitRequest(
        transactional_id=key,
        group_id=group,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        generation_id=-1,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )

    def worst(answer: object) -> int:
        results = answer.topics  # type: ignore[attr-defined]
        return next((int(each.error_code) for topic in results for each in topic.partitions if each.error_code), 0)

    answer = cluster.ask_coordinator(GROUP, group, request, worst, doing)
    _check(worst(answer), doing)


def end(cluster: Cluster, transaction: Transaction, *, commit: bool) -> bool:
    """Commit or abort; repeating it is harmless. False when the id was taken by others or timed out before."""
    return not end_all(cluster, [transaction], commit=commit)


def end_all(cluster: Cluster, transactions: Sequence[Transaction], *, commit: bool) -> list[Transaction]:
    """End many transactions, those of one coordinator without waiting in between; those that were superseded."""
    deadline = cluster.deadline()
    superseded: list[Transaction] = []
    waiting = list(transactions)
    why = ""
    while waiting:
        again: list[Transaction] = []
        by_node: dict[int, list[Transaction]] = {}
        for each in waiting:
            node = cluster.coordinator(TRANSACTION, each.transactional_id, deadline)
            by_node.setdefault(node, []).append(each)
        for node, theirs in by_node.items():
            try:
                codes = _end_at(cluster, node, theirs, commit)
            except Disconnected as error:
                why = str(error)
                codes = [ErrorCode.NOT_COORDINATOR] * len(theirs)
            for each, code in zip(theirs, codes, strict=True):
                if code in SUPERSEDED:
                    superseded.append(each)
                elif code in TRANSIENT:
                    again.append(each)
                    if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                        cluster.forget_coordinator(TRANSACTION, each.transactional_id)
                else:
                    _check(code, f"Ending the transaction of '{each.transactional_id}'")
        waiting = again
        if waiting:
            if deadline.passed():
                raise MoldauError(f"The transaction of '{waiting[0].transactional_id}' could not be ended: {why}")
            deadline.pause()
    return superseded


def _end_at(cluster: Cluster, node: int, transactions: Sequence[Transaction], commit: bool) -> list[int]:
    connection = cluster.take(node)
    try:
        for each in transactions:
            connection.send(
                EndTxnRequest(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    committed=commit,
                )
            )
        return [int(connection.receive().error_code) for _ in transactions]
    finally:
        cluster.give_back(connection)


def _check(code: int, doing: str) -> None:
    if code in SUPERSEDED:
        raise FencedError(f"{doing} was refused: another run of this query has taken over ({ErrorCode(code).name})")
    if code:
        raise refusal(code, doing)
