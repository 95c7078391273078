"""Looking at transactions (KIP-664): DescribeTransactions (65) and ListTransactions (66)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.gathering import after, gather
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.transaction_coordinator import TransactionCoordinator
from moldau.coordinator.group.patterns.automaton import TopicPattern, topic_pattern
from moldau.coordinator.group.patterns.syntax import InvalidPattern
from moldau.coordinator.transaction.metadata import TransactionMetadata
from moldau.coordinator.transaction.states import BY_NAME, NAMES
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.describe_transactions_request import DescribeTransactionsRequest
from moldau.protocol.generated.wire.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from moldau.protocol.generated.wire.list_transactions_request import ListTransactionsRequest
from moldau.protocol.generated.wire.list_transactions_response import ListTransactionsResponse
from moldau.protocol.generated.wire.list_transactions_response import TransactionState as ListedTransaction


class TransactionQueryHandlers:
    def __init__(self, services: BrokerServices, coordinator: TransactionCoordinator) -> None:
        self._services = services
        self._coordinator = coordinator

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
            ApiKey.LIST_TRANSACTIONS: self.list_transactions,
        }

    def _may_see(self, caller: Caller, kind: ResourceKind, name: str) -> bool:
        guard = self._services.guard
        return guard is None or guard.allows(caller, Operation.DESCRIBE, kind, name)

    # ---- DescribeTransactions

    def describe_transactions(self, request: DescribeTransactionsRequest, caller: Caller) -> object:
        parts = [self._describe(each, caller) for each in request.transactional_ids]
        return gather(parts, lambda states: DescribeTransactionsResponse(transaction_states=states))

    def _describe(self, transactional_id: str, caller: Caller) -> TransactionState | Pending[TransactionState]:
        outcome: Any
        try:
            if not self._may_see(caller, ResourceKind.TRANSACTIONAL_ID, transactional_id):
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if not transactional_id:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            runtime = self._coordinator.runtime
            outcome = runtime.read(runtime.host_of(transactional_id), lambda shard: shard.ids.get(transactional_id))
        except ApiError as error:
            outcome = error

        def described(found: TransactionMetadata | ApiError | None) -> TransactionState:
            if isinstance(found, ApiError):
                return TransactionState(error_code=found.code, transactional_id=transactional_id)
            if found is None:
                return TransactionState(
                    error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
                )
            return self._state(transactional_id, found, caller)

        return after(outcome, described)

    def _state(self, transactional_id: str, metadata: TransactionMetadata, caller: Caller) -> TransactionState:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(metadata.partitions):
            by_topic.setdefault(topic, []).append(index)
        return TransactionState(
            transactional_id=transactional_id,
            transaction_state=NAMES[metadata.state],
            transaction_timeout_ms=metadata.timeout_ms,
            transaction_start_time_ms=metadata.started_ms,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.epoch,
            topics=[
                TopicData(topic, indexes)
                for topic, indexes in by_topic.items()
                if self._may_see(caller, ResourceKind.TOPIC, topic)
            ],
        )

    # ---- ListTransactions

    def list_transactions(self, request: ListTransactionsRequest, caller: Caller) -> object:
        runtime = self._coordinator.runtime
        if runtime.any_loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        unknown = [name for name in request.state_filters if name not in BY_NAME]
        states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
        producers = set(request.producer_id_filters)
        pattern = _pattern(request.transactional_id_pattern)
        now = self._services.clock.now_ms()

        def listed(transactional_id: str, metadata: TransactionMetadata) -> bool:
            return (
                (not producers or metadata.producer_id in producers)
                and (not request.state_filters or metadata.state in states)
                and (request.duration_filter < 0 or now - metadata.started_ms > request.duration_filter)
                and (pattern is None or pattern.matches(_as_ascii(transactional_id)))
                and self._may_see(caller, ResourceKind.TRANSACTIONAL_ID, transactional_id)
            )

        return ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[
                ListedTransaction(transactional_id, metadata.producer_id, NAMES[metadata.state])
                for shard in runtime.shards()
                for transactional_id, metadata in shard.ids.items()
                if listed(transactional_id, metadata)
            ],
        )


def _pattern(text: str | None) -> TopicPattern | None:
    if not text:
        return None
    try:
        return topic_pattern(text)
    except InvalidPattern as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"Transaction ID pattern `{text}` is not a valid regular expression: {error}.",
        ) from error


def _as_ascii(transactional_id: str) -> str:
    """Patterns know ASCII only, as topics are; any other character is one that no pattern names."""
    if transactional_id.isascii():
        return transactional_id
    return "".join(c if c < "\x80" else "\x01" for c in transactional_id)
