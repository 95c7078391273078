"""Transactions as producers see them: AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), and InitProducerId
(22) with a transactional id.

Decides what may be asked and how the answer looks in the version that was asked in. What happens to a transaction is
the coordinator's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.coordinators import GROUP_KEY
from moldau.broker.gathering import after, chain, gather
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import CONSUMER_OFFSETS, is_internal
from moldau.broker.transaction_coordinator import TransactionCoordinator
from moldau.coordinator.hashing import partition_for
from moldau.coordinator.transaction.metadata import EPOCH_BUMP_VERSION, ProducerIdAndEpoch, TopicPartition
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from moldau.protocol.generated.wire.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from moldau.protocol.generated.wire.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.generated.wire.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from moldau.protocol.generated.wire.end_txn_request import EndTxnRequest
from moldau.protocol.generated.wire.end_txn_response import EndTxnResponse
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.init_producer_id_response import InitProducerIdResponse

# Before these versions a client does not know PRODUCER_FENCED and is told INVALID_PRODUCER_EPOCH instead.
_INIT_KNOWS_FENCED: Final = 4
_OTHERS_KNOW_FENCED: Final = 2
# AddPartitionsToTxn comes from brokers, for several transactions at once, since this version.
_BATCHED: Final = 4
# EndTxn bumps the epoch since this version.
_END_BUMPS: Final = 5


class TransactionHandlers:
    def __init__(self, services: BrokerServices, coordinator: TransactionCoordinator) -> None:
        self._services = services
        self._coordinator = coordinator

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets_to_txn,
            ApiKey.END_TXN: self.end_txn,
        }

    # ---- InitProducerId

    def init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> object:
        """The ids and the timeout were checked to make sense."""
        assert request.transactional_id is not None
        transactional_id = request.transactional_id
        expected = None
        if request.producer_id >= 0:
            expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return _answered(
            lambda: self._coordinator.init_producer(transactional_id, request.transaction_timeout_ms, expected),
            lambda producer: InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch),
            knows_fenced=caller.api_version >= _INIT_KNOWS_FENCED,
        )

    # ---- AddPartitionsToTxn

    def add_partitions_to_txn(self, request: AddPartitionsToTxnRequest, caller: Caller) -> object:
        if caller.api_version >= _BATCHED:
            guard = self._services.guard
            if guard is not None and not guard.allows(caller, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER):
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            parts = [self._add(transaction, caller) for transaction in request.transactions]
            return gather(parts, lambda results: AddPartitionsToTxnResponse(results_by_transaction=results))
        only = AddPartitionsToTxnTransaction(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return gather(
            [self._add(only, caller)],
            lambda results: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results),
        )

    def _add(
        self, asked: AddPartitionsToTxnTransaction, caller: Caller
    ) -> AddPartitionsToTxnResult | Pending[AddPartitionsToTxnResult]:
        places = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
        outcome = self._partition_codes(asked, places, caller)

        def result(codes: Mapping[TopicPartition, ErrorCode] | ApiError) -> AddPartitionsToTxnResult:
            if isinstance(codes, ApiError):
                codes = dict.fromkeys(places, _known(codes.code, caller.api_version >= _OTHERS_KNOW_FENCED))
            return AddPartitionsToTxnResult(
                asked.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        [
                            AddPartitionsToTxnPartitionResult(index, codes[topic.name, index])
                            for index in topic.partitions
                        ],
                    )
                    for topic in asked.topics
                ],
            )

        return after(outcome, result)

    def _partition_codes(
        self, asked: AddPartitionsToTxnTransaction, places: Sequence[TopicPartition], caller: Caller
    ) -> Any:
        """The error of each partition, an ApiError for all of them, or a promise of either."""
        guard = self._services.guard
        version = caller.api_version
        transactional_id = asked.transactional_id
        if (
            version < _BATCHED
            and guard is not None
            and not guard.allows(caller, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id)
        ):
            return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        refused = self._refused(places, caller)
        if refused:
            # All or nothing: a transaction never gets only some of the partitions it asked for.
            return {place: refused.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}
        if not transactional_id:
            return ApiError(ErrorCode.INVALID_REQUEST)
        producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
        try:
            if asked.verify_only:
                return self._coordinator.verify_partitions(transactional_id, producer, places)
            client_version = EPOCH_BUMP_VERSION if version >= _BATCHED else 0
            outcome = self._coordinator.add_partitions(transactional_id, producer, places, client_version)
        except ApiError as error:
            return error
        return after(outcome, lambda code: code if isinstance(code, ApiError) else dict.fromkeys(places, code))

    def _refused(self, places: Sequence[TopicPartition], caller: Caller) -> dict[TopicPartition, ErrorCode]:
        guard = self._services.guard
        image = self._services.image
        from_client = caller.api_version < _BATCHED
        refused: dict[TopicPartition, ErrorCode] = {}
        for topic, index in places:
            if from_client and (
                is_internal(topic)
                or (guard is not None and not guard.allows(caller, Operation.WRITE, ResourceKind.TOPIC, topic))
            ):
                refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            known = image.topic(topic)
            if known is None or index not in known.partitions:
                refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    # ---- AddOffsetsToTxn

    def add_offsets_to_txn(self, request: AddOffsetsToTxnRequest, caller: Caller) -> object:
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        coordinators = self._services.coordinators
        # The group may be the cluster's first: its topic comes into being now, and the client need not ask again.
        missing: Pending[Any] | None = None
        if coordinators is not None:
            missing = coordinators.wait_for_topic(GROUP_KEY, caller.principal)
        if missing is None:
            return self._add_offsets(request, caller)
        return chain(missing, lambda _: self._add_offsets(request, caller))

    def _add_offsets(self, request: AddOffsetsToTxnRequest, caller: Caller) -> object:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        place = offsets_partition(self._services, request.group_id)
        return _answered(
            lambda: self._coordinator.add_partitions(request.transactional_id, producer, (place,), 0),
            lambda _: AddOffsetsToTxnResponse(),
            knows_fenced=caller.api_version >= _OTHERS_KNOW_FENCED,
        )

    # ---- EndTxn

    def end_txn(self, request: EndTxnRequest, caller: Caller) -> object:
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        version = caller.api_version
        return _answered(
            lambda: self._coordinator.end(
                request.transactional_id,
                ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                commit=request.committed,
                client_version=EPOCH_BUMP_VERSION if version >= _END_BUMPS else 0,
            ),
            lambda producer: (
                EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
                if version >= _END_BUMPS
                else EndTxnResponse()
            ),
            knows_fenced=version >= _OTHERS_KNOW_FENCED,
        )


def offsets_partition(services: BrokerServices, group_id: str) -> TopicPartition:
    """Where a group's offsets are kept, as a partition that a transaction may write to."""
    topic = services.image.topic(CONSUMER_OFFSETS)
    if topic is None or not topic.partitions:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return CONSUMER_OFFSETS, partition_for(group_id, len(topic.partitions))


def _answered(ask: Callable[[], Any], respond: Callable[[Any], object], *, knows_fenced: bool) -> object:
    """The coordinator's outcome as a response; an error as the client's version knows it."""

    def answer(outcome: Any) -> object:
        if isinstance(outcome, ApiError):
            return ApiError(_known(outcome.code, knows_fenced), outcome.message)
        return respond(outcome)

    try:
        return after(ask(), answer)
    except ApiError as error:
        return answer(error)


def _known(code: ErrorCode, knows_fenced: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
