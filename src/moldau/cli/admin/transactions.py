"""Transactions of a cluster: listing and describing them, who produces to a partition, and ending what hangs (KIP-664).

Each coordinator knows only its own transactions, so listing asks every broker; everything else goes to the one broker
that coordinates the id or leads the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from moldau.cli.admin.client import Admin
from moldau.cli.admin.failures import failure, raise_for
from moldau.cli.admin.offsets import Partition, ask_leaders, by_topic
from moldau.cli.admin.settings import Address
from moldau.protocol.errors import ApiError, ErrorCode

_TRANSACTION_KEY = 1
# The coordinator asks to come back while it aborts the open transaction.
_BUSY = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})


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
    partitions: list[Partition] = field(default_factory=list)


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
    admin.refresh(admin.deadline())
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


def describe_transaction(admin: Admin, transactional_id: str) -> TransactionDescription:
    from moldau.protocol.generated.wire.describe_transactions_request import DescribeTransactionsRequest

    node_id = _find_coordinator(admin, transactional_id)
    answer = admin.ask_node(
        node_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        codes=lambda answer: [each.error_code for each in answer.transaction_states],
    )
    (found,) = answer.transaction_states
    raise_for(found.error_code)
    return TransactionDescription(
        node_id,
        transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        [(topic.topic, index) for topic in found.topics for index in topic.partitions],
    )


def _find_coordinator(admin: Admin, transactional_id: str) -> int:
    from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest

    # A version for one key serves every broker there is.
    answer = admin.ask(
        FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION_KEY), codes=_own_code, max_version=3
    )
    raise_for(answer.error_code, answer.error_message)
    admin.nodes[answer.node_id] = Address(answer.host, answer.port)
    node_id: int = answer.node_id
    return node_id


def describe_producers(
    admin: Admin, partitions: Sequence[Partition], broker: int | None = None
) -> dict[Partition, list[ProducerDescription] | ApiError]:
    """The producers each partition remembers, on its leader or on one broker."""
    from moldau.protocol.generated.wire.describe_producers_request import DescribeProducersRequest, TopicRequest

    def build(some: list[Partition]) -> DescribeProducersRequest:
        return DescribeProducersRequest(topics=[TopicRequest(topic, indexes) for topic, indexes in by_topic(some)])

    def read(answer: Any) -> dict[Partition, list[ProducerDescription] | ApiError]:
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
    admin: Admin, partition: Partition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
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

    def read(answer: Any) -> dict[Partition, ApiError | None]:
        code = answer.markers[0].topics[0].partitions[0].error_code
        return {partition: None if code == ErrorCode.NONE else failure(code)}

    result = ask_leaders(admin, [partition], lambda _: WriteTxnMarkersRequest(markers=[marker]), read)[partition]
    if isinstance(result, ApiError):
        raise result


def fence_producer(admin: Admin, transactional_id: str) -> tuple[int, int]:
    """Abort whatever the id has open and void its producer's epoch; (producer id, epoch) from here on."""
    from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest

    node_id = _find_coordinator(admin, transactional_id)
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=int(admin.settings.request_timeout * 1000),
        producer_id=-1,
        producer_epoch=-1,
    )
    deadline = admin.deadline()
    while True:
        answer = admin.ask_node(node_id, request, codes=_own_code)
        if answer.error_code not in _BUSY or deadline.passed():
            break
        deadline.pause()
    raise_for(answer.error_code)
    return answer.producer_id, answer.producer_epoch


@dataclass(slots=True, frozen=True)
class OpenTransaction:
    partition: Partition
    producer: ProducerDescription


def find_hanging(
    admin: Admin, partitions: Sequence[Partition], *, now_ms: int, max_timeout_ms: int, broker: int | None = None
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
    known: dict[int, set[Partition]] = {}
    for producer_id, name in names.items():
        try:
            known[producer_id] = set(describe_transaction(admin, name).partitions)
        except ApiError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return [each for each in old if each.partition not in known.get(each.producer.producer_id, ())]
