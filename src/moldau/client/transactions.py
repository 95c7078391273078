"""Kafka's transactions, one request each: an id and its epoch, the partitions in it, and its end.

The second version of Kafka's transaction protocol gives a producer a new epoch with every end; the first one does not,
so that a commit can be repeated for as long as nobody else has taken the id. This client speaks the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moldau.client.admin.transactions import describe_transaction
from moldau.client.cluster import TRANSIENT, Cluster, TopicPartition, by_topic
from moldau.client.coordinators import GROUP, TRANSACTION, answer_of_coordinator, find_coordinators, forget_coordinator
from moldau.client.errors import Disconnected, FencedError, MoldauError, refusal
from moldau.protocol.errors import ApiError, ErrorCode
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
    answer = answer_of_coordinator(cluster, TRANSACTION, transactional_id, request, _own_code, doing)
    if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        raise MoldauError(
            f"The brokers allow no transaction timeout of {timeout_ms} ms (transaction.max.timeout.ms): "
            f"set {cluster.settings.prefix}transaction.timeout.ms lower"
        )
    _check(answer.error_code, doing)
    return Transaction(transactional_id, answer.producer_id, answer.producer_epoch)


def idempotent_producer(cluster: Cluster) -> tuple[int, int]:
    """A producer id and epoch of its own, outside any transaction."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    answer = cluster.ask(request, codes=lambda each: [each.error_code])
    if answer.error_code:
        raise refusal(answer.error_code, "Getting a producer id")
    return answer.producer_id, answer.producer_epoch


def look_up(cluster: Cluster, transactional_id: str) -> tuple[Transaction, str] | None:
    """Who holds an id and the state of its transaction; None when it has never been used or has expired."""
    try:
        found = describe_transaction(cluster, transactional_id)
    except ApiError as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise refusal(error.code, f"Looking up transactional id '{transactional_id}'", error.message) from None
    return Transaction(transactional_id, found.producer_id, found.producer_epoch), found.state


def add_partitions(cluster: Cluster, transaction: Transaction, partitions: Sequence[TopicPartition]) -> None:
    """Make partitions part of the transaction, before anything is written there."""
    key = transaction.transactional_id
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=key,
        v3_and_below_producer_id=transaction.producer_id,
        v3_and_below_producer_epoch=transaction.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in by_topic(partitions)
        ],
    )

    def worst(answer: Any) -> int:
        results = answer.results_by_topic_v3_and_below
        codes = [each.partition_error_code for topic in results for each in topic.results_by_partition]
        # One refused partition makes the others say only that they were not tried.
        meant = [code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)]
        return int(meant[0]) if meant else 0

    doing = f"Adding partitions to the transaction of '{key}'"
    _check(worst(answer_of_coordinator(cluster, TRANSACTION, key, request, worst, doing)), doing)


def add_group(cluster: Cluster, transaction: Transaction, group: str, doing: str) -> int:
    """Make a group's offsets part of the transaction; the error code of the answer, if it is not one that passes."""
    key = transaction.transactional_id
    request = AddOffsetsToTxnRequest(
        transactional_id=key, producer_id=transaction.producer_id, producer_epoch=transaction.epoch, group_id=group
    )
    return _own_code(answer_of_coordinator(cluster, TRANSACTION, key, request, _own_code, doing))


def commit_offsets(
    cluster: Cluster, transaction: Transaction, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
) -> None:
    """Make offsets of a group, with metadata, part of the transaction."""
    key = transaction.transactional_id
    doing = f"Recording the commit of '{key}' in group '{group}'"
    _check(add_group(cluster, transaction, group, doing), doing)
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

    def worst(answer: Any) -> int:
        codes = [each.error_code for topic in answer.topics for each in topic.partitions]
        return next((int(code) for code in codes if code), 0)

    _check(worst(answer_of_coordinator(cluster, GROUP, group, request, worst, doing)), doing)


def end(cluster: Cluster, transaction: Transaction, *, commit: bool) -> bool:
    """Commit or abort; repeating it is harmless. False when the id was taken by others or timed out before."""
    return not end_all(cluster, [transaction], commit=commit)


def end_all(cluster: Cluster, transactions: Sequence[Transaction], *, commit: bool) -> list[Transaction]:
    """End many transactions, those of one coordinator without waiting in between; those that were superseded."""
    deadline = cluster.deadline()
    superseded: list[Transaction] = []
    waiting = list(transactions)
    while waiting:
        again: list[Transaction] = []
        why = ""
        by_node: dict[int, list[Transaction]] = {}
        found = find_coordinators(cluster, [each.transactional_id for each in waiting], deadline, TRANSACTION)
        for each in waiting:
            coordinator = found[each.transactional_id]
            if not isinstance(coordinator, ApiError):
                by_node.setdefault(coordinator.node_id, []).append(each)
            elif coordinator.code in TRANSIENT:
                again.append(each)
                why = str(coordinator)
            else:
                doing = f"Finding the coordinator of transactional id '{each.transactional_id}'"
                raise refusal(coordinator.code, doing, coordinator.message)
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
                    why = why or ErrorCode(code).name
                    if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                        forget_coordinator(cluster, TRANSACTION, each.transactional_id)
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


def _own_code(answer: Any) -> int:
    return int(answer.error_code)


def _check(code: int, doing: str) -> None:
    if code in SUPERSEDED:
        raise FencedError(f"{doing} was refused: another run of this query has taken over ({ErrorCode(code).name})")
    if code:
        raise refusal(code, doing)
