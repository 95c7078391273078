"""The stored state of one share partition, behind the share coordinators.

Decides what a coordinator's refusal means to whoever reads or acknowledges: that this broker no longer leads, that the
group or the partition is gone, or that one should come again.
"""

from __future__ import annotations

from typing import Final, Protocol

from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire import read_share_group_state_request as reading
from moldau.protocol.generated.wire import write_share_group_state_request as writing
from moldau.protocol.generated.wire.read_share_group_state_response import ReadShareGroupStateResponse
from moldau.protocol.generated.wire.write_share_group_state_response import WriteShareGroupStateResponse
from moldau.share.sessions import PartitionKey
from moldau.share.store import StateBatch, StoredState

_MEANING: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class StatePersister(Protocol):
    """What is needed of `share_persister.SharePersister`."""

    def read(self, request: reading.ReadShareGroupStateRequest) -> Pending[ReadShareGroupStateResponse]: ...

    def write(self, request: writing.WriteShareGroupStateRequest) -> Pending[WriteShareGroupStateResponse]: ...


class PersistedState:
    """`share.store.StateStore` of one share partition."""

    __slots__ = ("_group_id", "_key", "_leader_epoch", "_persister")

    def __init__(self, persister: StatePersister, group_id: str, key: PartitionKey, leader_epoch: int) -> None:
        self._persister = persister
        self._group_id = group_id
        self._key = key
        self._leader_epoch = leader_epoch

    def read(self) -> Pending[StoredState | ApiError]:
        asked = reading.PartitionData(partition=self._key.partition, leader_epoch=self._leader_epoch)
        topic = reading.ReadStateData(topic_id=self._key.topic_id, partitions=[asked])
        outcome: Pending[StoredState | ApiError] = Pending()

        def arrived(response: ReadShareGroupStateResponse) -> None:
            result = response.results[0].partitions[0]
            refused = _refusal(result.error_code, result.error_message)
            if refused is not None:
                outcome.resolve(refused)
                return
            batches = [
                StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                for each in result.state_batches
            ]
            outcome.resolve(StoredState(result.state_epoch, result.start_offset, batches))

        self._persister.read(reading.ReadShareGroupStateRequest(group_id=self._group_id, topics=[topic])).then(arrived)
        return outcome

    def write(
        self, state_epoch: int, start_offset: int, delivery_complete: int, batches: list[StateBatch]
    ) -> Pending[ApiError | None]:
        told = writing.PartitionData(
            partition=self._key.partition,
            state_epoch=state_epoch,
            leader_epoch=self._leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete,
            state_batches=[writing.StateBatch(*batch) for batch in batches],
        )
        topic = writing.WriteStateData(topic_id=self._key.topic_id, partitions=[told])
        outcome: Pending[ApiError | None] = Pending()

        def arrived(response: WriteShareGroupStateResponse) -> None:
            result = response.results[0].partitions[0]
            outcome.resolve(_refusal(result.error_code, result.error_message))

        self._persister.write(writing.WriteShareGroupStateRequest(group_id=self._group_id, topics=[topic])).then(
            arrived
        )
        return outcome


def _refusal(code: int, message: str | None) -> ApiError | None:
    if not code:
        return None
    return ApiError(_MEANING.get(error_code(code), ErrorCode.UNKNOWN_SERVER_ERROR), message or "")
