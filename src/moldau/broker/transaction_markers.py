"""Markers that end transactions: writing them into the partitions led here, and WriteTxnMarkers (27).

Decides what a marker's failure means. It never decides how a transaction ends: that is written in the coordinator's
log before the first marker is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.gathering import gather
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import CONSUMER_OFFSETS
from moldau.coordinator.decision import Transaction
from moldau.coordinator.transaction.metadata import TopicPartition
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from moldau.protocol.generated.wire.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from moldau.records.builder import build_end_transaction_marker

log = logging.getLogger("moldau.broker")

Outcome: TypeAlias = ErrorCode | Pending[ErrorCode]

# What a group coordinator that cannot take a marker is to the sender: a partition whose leader must be looked for.
_LOOK_AGAIN: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


class Marker(NamedTuple):
    producer_id: int
    epoch: int
    coordinator_epoch: int
    committed: bool
    # The transaction version of the client, which says whether the marker's epoch is a bumped one.
    transaction_version: int
    # The control batch; the same bytes for every partition.
    batch: bytes


EndGroupTransaction: TypeAlias = Callable[[int, Transaction, Marker], ErrorCode | Pending[ErrorCode | ApiError]]
"""Writes a marker into a partition of the offsets topic and has its coordinator act on it."""


class MarkerWriter:
    """Writes markers into partitions that this node leads."""

    def __init__(self, services: BrokerServices, end_group_transaction: EndGroupTransaction) -> None:
        self._services = services
        self._end_group_transaction = end_group_transaction

    def marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, committed: bool, transaction_version: int
    ) -> Marker:
        batch = build_end_transaction_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._services.clock.now_ms(),
        )
        return Marker(producer_id, epoch, coordinator_epoch, committed, transaction_version, batch)

    def write(self, topic: str, index: int, marker: Marker) -> Outcome:
        """NONE once the marker is committed, or why there is none."""
        try:
            if topic == CONSUMER_OFFSETS:
                return self._write_to_group(index, marker)
            partition = self._services.partitions.get(topic, index)
            info = partition.append_own(marker.batch, transaction_version=marker.transaction_version)
        except ApiError as error:
            return error.code
        except Exception:
            log.exception("the marker of producer %d for %s-%d failed", marker.producer_id, topic, index)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if partition.log.high_watermark > info.last_offset:
            return ErrorCode.NONE
        committed: Pending[ErrorCode] = Pending()
        partition.when_committed(
            info.last_offset + 1, lambda: committed.resolve(ErrorCode.NONE), lambda code: committed.resolve(code)
        )
        return committed

    def _write_to_group(self, index: int, marker: Marker) -> Outcome:
        transaction = Transaction(marker.producer_id, marker.epoch)
        try:
            outcome = self._end_group_transaction(index, transaction, marker)
        except ApiError as error:
            return _for_sender(error)
        if not isinstance(outcome, Pending):
            return outcome
        answer: Pending[ErrorCode] = Pending()
        outcome.then(lambda code: answer.resolve(_for_sender(code) if isinstance(code, ApiError) else code))
        return answer


def _for_sender(error: ApiError) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _LOOK_AGAIN else error.code


class MarkerHandlers:
    """WriteTxnMarkers, as coordinators on other brokers and an administrator's abort send it."""

    def __init__(self, services: BrokerServices, writer: MarkerWriter) -> None:
        self._services = services
        self._writer = writer

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.WRITE_TXN_MARKERS: self.write_txn_markers}

    def write_txn_markers(self, request: WriteTxnMarkersRequest, caller: Caller) -> object:
        guard = self._services.guard
        if guard is not None and not (
            guard.allows(caller, Operation.ALTER, ResourceKind.CLUSTER)
            or guard.allows(caller, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
        ):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        parts = [self._write(marker) for marker in request.markers]
        return gather(parts, lambda results: WriteTxnMarkersResponse(markers=results))

    def _write(self, asked: WritableTxnMarker) -> WritableTxnMarkerResult | Pending[WritableTxnMarkerResult]:
        marker = self._writer.marker(
            asked.producer_id,
            asked.producer_epoch,
            asked.coordinator_epoch,
            committed=asked.transaction_result,
            transaction_version=asked.transaction_version,
        )
        places: list[TopicPartition] = [
            (topic.name, index) for topic in asked.topics for index in topic.partition_indexes
        ]
        outcomes = [self._write_one(topic, index, marker) for topic, index in places]

        def combine(codes: list[ErrorCode]) -> WritableTxnMarkerResult:
            by_place = dict(zip(places, codes, strict=True))
            return WritableTxnMarkerResult(
                producer_id=asked.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(index, by_place[topic.name, index])
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in asked.topics
                ],
            )

        return gather(outcomes, combine)

    def _write_one(self, topic: str, index: int, marker: Marker) -> Outcome:
        if self._services.partitions.find(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._writer.write(topic, index, marker)
