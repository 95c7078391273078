"""Ids for producers, and who produces to a partition: InitProducerId (22) and DescribeProducers (61).

Ids come in blocks from the controller, so that no two producers of the cluster ever have the same. A transactional id
is the transaction coordinator's business, which decides about epochs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from moldau.broker.context import Caller
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import validate
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire.allocate_producer_ids_request import AllocateProducerIdsRequest
from moldau.protocol.generated.wire.allocate_producer_ids_response import AllocateProducerIdsResponse
from moldau.protocol.generated.wire.describe_producers_request import DescribeProducersRequest
from moldau.protocol.generated.wire.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.init_producer_id_response import InitProducerIdResponse

log = logging.getLogger("moldau.broker")

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
_ALLOCATE_VERSION: Final = 0
# The next block is asked for when this much of the current one is used.
_PREFETCH_AT: Final = 0.9
_RETRY_AFTER_MS: Final = 50
# More requests than this do not wait for a block; they are told to come back.
_WAITING_MAX: Final = 1000


class TransactionalProducers(Protocol):
    """Knows transactional ids, their producers and epochs."""

    def init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> object: ...


class ProducerIds:
    """Hands out ids from blocks, and has the next block ready before the current one is used up."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: range | None = None
        self._asking = False
        self._retry_at_ms = 0
        self._waiting: deque[Pending[int | ApiError]] = deque()

    def take(self) -> Pending[int | ApiError]:
        if not self._waiting and self._available():
            return Pending.of(self._take_one())
        if len(self._waiting) >= _WAITING_MAX or self._backing_off:
            return Pending.of(_not_now())
        waiting: Pending[int | ApiError] = Pending()
        self._waiting.append(waiting)
        self._ask()
        return waiting

    def _available(self) -> bool:
        if self._next < self._end:
            return True
        following, self._following = self._following, None
        if following is None:
            return False
        self._next, self._end = following.start, following.stop
        self._prefetch_at = following.start + int(len(following) * _PREFETCH_AT)
        return True

    def _take_one(self) -> int:
        taken = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._following is None:
            self._ask()
        return taken

    @property
    def _backing_off(self) -> bool:
        return self._services.clock.monotonic_ms() < self._retry_at_ms

    def _ask(self) -> None:
        services = self._services
        if self._asking or self._backing_off:
            return
        self._asking = True
        broker = services.image.brokers.get(services.node_id)
        request = AllocateProducerIdsRequest(
            broker_id=services.node_id, broker_epoch=-1 if broker is None else broker.epoch
        )
        services.controller.ask(request, _ALLOCATE_VERSION, "").then(self._allocated)

    def _allocated(self, response: AllocateProducerIdsResponse | ApiError) -> None:
        self._asking = False
        if isinstance(response, ApiError):
            self._failed(response.code)
        elif response.error_code:
            self._failed(error_code(response.error_code))
        else:
            start = response.producer_id_start
            self._following = range(start, start + response.producer_id_len)
            self._serve_waiting()

    def _failed(self, code: ErrorCode) -> None:
        log.warning("the controller gave no producer ids: %s", code.name)
        self._retry_at_ms = self._services.clock.monotonic_ms() + _RETRY_AFTER_MS
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.resolve(_not_now())

    def _serve_waiting(self) -> None:
        waiting = self._waiting
        while waiting and self._available():
            waiting.popleft().resolve(self._take_one())
        if waiting:
            self._ask()


def _not_now() -> ApiError:
    return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block of producer ids is at hand; please try again")


class ProducerHandlers:
    def __init__(
        self, services: BrokerServices, ids: ProducerIds, transactions: Callable[[], TransactionalProducers]
    ) -> None:
        """`transactions` is asked for when the first transactional id comes."""
        self._services = services
        self._ids = ids
        self._transactions = transactions

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
        }

    # ---- InitProducerId

    def init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> Any:
        given = (request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_PRODUCER_EPOCH)
        if given[0] != given[1]:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id and an epoch are given together or not at all")
        if request.transactional_id is None:
            # An idempotent producer only ever starts afresh: it bumps its epoch by itself.
            return self._new_id()
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        limit = self._services.config.integer("transaction.max.timeout.ms")
        if not 0 < request.transaction_timeout_ms <= limit:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"transaction.max.timeout.ms allows 1 to {limit} ms")
        return self._transactions().init_producer_id(request, caller)

    def _new_id(self) -> Pending[Any]:
        answer: Pending[Any] = Pending()

        def taken(found: int | ApiError) -> None:
            if isinstance(found, ApiError):
                answer.resolve(found)
            else:
                answer.resolve(InitProducerIdResponse(producer_id=found, producer_epoch=0))

        self._ids.take().then(taken)
        return answer

    # ---- DescribeProducers

    def describe_producers(self, request: DescribeProducersRequest, caller: Caller) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[self._describe_partition(topic.name, index) for index in topic.partition_indexes],
                )
                for topic in request.topics
            ]
        )

    def _describe_partition(self, topic: str, index: int) -> PartitionResponse:
        try:
            validate(topic)
            if self._services.image.topic(topic) is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            producers = self._services.partitions.get(topic, index).log.producers.producers.values()
        except ApiError as error:
            return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
        return PartitionResponse(
            partition_index=index,
            active_producers=[
                ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.transaction_start,
                )
                for producer in producers
            ],
        )
