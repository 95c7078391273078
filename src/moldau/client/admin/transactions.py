"""Transactions of a cluster: listing and describing them, who produces to a partition, and ending what hangs (KIP-664).

Each coordinator knows only its own transactions, so listing asks every broker; everything else goes to the one broker
that coordinates the id or leads the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from moldau.client.admin.client import Admin
from moldau.client.cluster import Cluster, Coordinator, TopicPartition, ask_leaders, by_topic
from moldau.client.coordinators import TRANSACTION, ask_coordinator, ask_coordinators
from moldau.client.errors import failure, raise_for
from moldau.protocol.errors import ApiError, ErrorCode


@dataclass(slots=True, frozen=True)
class TransactionListing:
    coordinator: int
    transactional_id: str
    producer_id: int
    state: str


@dataclass(slots=True, frozen=True)
class TransactionDescription:
    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    # None when no transaction is open.
    started_ms: int | None
    partitions: list[TopicPartition] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class ProducerDescription:
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    # None when the producer has no transaction open in this partition.
    transaction_start: int | None


def list_transactions(
    admin: Admin,
    *,
    states: Sequence[str] = (),
    producer_ids: Iterable[int] = (),
    duration_ms: int | None = None,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """The transactions of all coordinators, as far as they match."""
    from moldau.protocol.generated.wire.list_transactions_request import ListTransactionsRequest

    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if duration_ms is None else duration_ms,
        transactional_id_pattern=pattern or None,
    )
    admin.refresh()
    found: list[TransactionListing] = []
    for node_id in sorted(admin.nodes):
        answer = admin.ask_node(node_id, request, codes=_own_code)
        raise_for(answer.error_code)
        if answer.unknown_state_filters:
            raise failure(ErrorCode.INVALID_REQUEST, f"unknown states: {', '.join(answer.unknown_state_filters)}")
        found += [
            TransactionListing(node_id, each.transactional_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
        ]
    return found


def _own_code(answer: Any) -> list[int]:
    return [answer.error_code]


def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """What the coordinator of an id knows about it; ApiError when that is nothing."""
    from moldau.protocol.generated.wire.describe_transactions_request import DescribeTransactionsRequest

    def read(answer: Any, coordinator: Coordinator) -> dict[str, TransactionDescription | ApiError]:
        return {each.transactional_id: _described(each, coordinator) for each in answer.transaction_states}

    found = ask_coordinators(
        cluster,
        [transactional_id],
        lambda ids: DescribeTransactionsRequest(transactional_ids=ids),
        read,
        kind=TRANSACTION,
    )[transactional_id]
    if isinstance(found, ApiError):
        raise found
    described: TransactionDescription = found
    return described


def _described(found: Any, coordinator: Coordinator) -> TransactionDescription | ApiError:
    if found.error_code != ErrorCode.NONE:
        return failure(found.error_code)
    return TransactionDescription(
        coordinator.node_id,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        [(topic.topic, index) for topic in found.topics for index in topic.partitions],
    )


def describe_producers(
    admin: Admin, partitions: Sequence[TopicPartition], broker: int | None = None
) -> dict[TopicPartition, list[ProducerDescription] | ApiError]:
    """The producers each partition remembers, on its leader or on one broker."""
    from moldau.protocol.generated.wire.describe_producers_request import DescribeProducersRequest, TopicRequest

    def build(some: list[TopicPartition]) -> DescribeProducersRequest:
        return DescribeProducersRequest(topics=[TopicRequest(topic, indexes) for topic, indexes in by_topic(some)])

    def read(answer: Any) -> dict[TopicPartition, list[ProducerDescription] | ApiError]:
        return {
            (topic.name, each.partition_index): failure(each.error_code, each.error_message)
            if each.error_code != ErrorCode.NONE
            else [_producer(one) for one in each.active_producers]
            for topic in answer.topics
            for each in topic.partitions
        }

    if broker is not None:
        return read(admin.ask_node(broker, build(list(partitions))))
    return ask_leaders(admin, list(partitions), build, read)


def _producer(found: Any) -> ProducerDescription:
    return ProducerDescription(
        found.producer_id,
        found.producer_epoch,
        found.coordinator_epoch,
        found.last_sequence,
        found.last_timestamp,
        found.current_txn_start_offset if found.current_txn_start_offset >= 0 else None,
    )


def abort_in_partition(
    admin: Admin, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """End a transaction in one partition with an ABORT marker, whatever its coordinator knows about it."""
    from moldau.protocol.generated.wire.write_txn_markers_request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    topic, index = partition
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(topic, [index])],
    )

    def read(answer: Any) -> dict[TopicPartition, ApiError | None]:
        code = answer.markers[0].topics[0].partitions[0].error_code
        return {partition: None if code == ErrorCode.NONE else failure(code)}

    result = ask_leaders(admin, [partition], lambda _: WriteTxnMarkersRequest(markers=[marker]), read)[partition]
    if isinstance(result, ApiError):
        raise result


def fence_producer(admin: Admin, transactional_id: str) -> tuple[int, int]:
    """Abort whatever the id has open and void its producer's epoch; (producer id, epoch) from here on."""
    from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest

    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=int(admin.settings.request_timeout * 1000),
        producer_id=-1,
        producer_epoch=-1,
    )

    def read(answer: Any) -> tuple[int, int] | ApiError:
        if answer.error_code != ErrorCode.NONE:
            return failure(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    taken: tuple[int, int] = ask_coordinator(admin, transactional_id, request, read, kind=TRANSACTION)
    return taken


@dataclass(slots=True, frozen=True)
class OpenTransaction:
    partition: TopicPartition
    producer: ProducerDescription


def find_hanging(
    admin: Admin, partitions: Sequence[TopicPartition], *, now_ms: int, max_timeout_ms: int, broker: int | None = None
) -> list[OpenTransaction]:
    """Transactions open in a partition for longer than any may be, of which no coordinator knows."""
    old: list[OpenTransaction] = []
    for partition, found in describe_producers(admin, partitions, broker).items() if partitions else ():
        if isinstance(found, ApiError):
            raise found
        old += [
            OpenTransaction(partition, producer)
            for producer in found
            if producer.transaction_start is not None and now_ms - producer.last_timestamp > max_timeout_ms
        ]
    if not old:
        return []
    ids = {each.producer.producer_id for each in old}
    names = {each.producer_id: each.transactional_id for each in list_transactions(admin, producer_ids=sorted(ids))}
    known: dict[int, set[TopicPartition]] = {}
    for producer_id, name in names.items():
        try:
            known[producer_id] = set(describe_transaction(admin, name).partitions)
        except ApiError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return [each for each in old if each.partition not in known.get(each.producer.producer_id, ())]
