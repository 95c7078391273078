"""Offsets as part of a transaction: TxnOffsetCommit (28).

Decides which topics of a request exist and may be used. The transaction coordinator is asked whether the transaction
is open before the group coordinator decides whether the member may commit (KIP-447).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.gathering import after, chain
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.transaction_gate import TransactionGate, Verdict, Write, client_of
from moldau.coordinator.decision import Transaction
from moldau.coordinator.group.offset_commits import Committer, OffsetToCommit
from moldau.coordinator.transaction.metadata import ProducerIdAndEpoch
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.txn_offset_commit_request import TxnOffsetCommitRequest
from moldau.protocol.generated.wire.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

_NO_SEQUENCE: Final = -1
# Before this version producers stop for good when they are told that the coordinator is loading.
_KNOWS_LOADING: Final = 2


class TransactionOffsetHandlers:
    def __init__(self, services: BrokerServices, groups: CoordinatorRuntime[GroupShard], gate: TransactionGate) -> None:
        self._services = services
        self._groups = groups
        self._gate = gate

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.TXN_OFFSET_COMMIT: self.commit}

    def commit(self, request: TxnOffsetCommitRequest, caller: Caller) -> object:
        response = TxnOffsetCommitResponse()
        offsets = self._offsets_to_commit(request, response, caller)
        if not offsets:
            return response

        def finished(outcome: Any) -> object:
            if isinstance(outcome, ApiError):
                code = outcome.code
                if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and caller.api_version < _KNOWS_LOADING:
                    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                for each in offsets:
                    each.result.error_code = code
            return response

        try:
            return after(self._commit(request, offsets, response, caller.api_version), finished)
        except ApiError as error:
            return finished(error)

    def _commit(
        self,
        request: TxnOffsetCommitRequest,
        offsets: list[OffsetToCommit],
        response: TxnOffsetCommitResponse,
        version: int,
    ) -> Any:
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        host = self._groups.host_of(request.group_id)
        who = Committer(request.group_id, request.member_id, request.group_instance_id, request.generation_id, version)
        transaction = Transaction(request.producer_id, request.producer_epoch)

        def admitted(verdicts: list[Verdict]) -> Any:
            verdict = verdicts[0]
            if isinstance(verdict, ApiError):
                return verdict
            return self._groups.write(
                host, lambda shard: shard.commits.commit_transactional(who, offsets, response), transaction, verdict
            )

        write = Write(host.partition, ProducerIdAndEpoch(*transaction), _NO_SEQUENCE)
        verdicts = self._gate.admit(
            request.transactional_id, [write], client_of("offsets", version), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
        return chain(verdicts, admitted)

    def _offsets_to_commit(
        self, request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse, caller: Caller
    ) -> list[OffsetToCommit]:
        """The offsets the coordinator is asked about; the others are refused in the response right away."""
        guard = self._services.guard
        offsets: list[OffsetToCommit] = []
        for asked in request.topics:
            topic = self._services.image.topic(asked.name)
            results: list[TxnOffsetCommitResponsePartition] = []
            response.topics.append(TxnOffsetCommitResponseTopic(asked.name, results))
            allowed = guard is None or guard.allows(caller, Operation.READ, ResourceKind.TOPIC, asked.name)
            for each in asked.partitions:
                index = each.partition_index
                result = TxnOffsetCommitResponsePartition(index)
                results.append(result)
                if not allowed:
                    result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif topic is None or index not in topic.partitions:
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    offsets.append(
                        OffsetToCommit(
                            asked.name,
                            topic.id,
                            index,
                            each.committed_offset,
                            each.committed_leader_epoch,
                            each.committed_metadata,
                            result,
                        )
                    )
        return offsets
