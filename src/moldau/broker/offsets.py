"""Offsets by time, by leader epoch, and the deletion of everything before one.

ListOffsets (2), OffsetForLeaderEpoch (23) and DeleteRecords (21). Decides what may be asked of whom and which of the
log's offsets a client is allowed to see (the committed ones); finding them is the log's business.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from moldau.broker.context import Caller
from moldau.broker.fetch import READ_COMMITTED
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import is_internal
from moldau.log.readable_log import TimestampedOffset
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from moldau.protocol.generated.wire.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from moldau.protocol.generated.wire.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from moldau.protocol.generated.wire.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.protocol.generated.wire.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from moldau.protocol.generated.wire.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from moldau.replication.leader_state import LeaderState
from moldau.replication.partition import Partition

log = logging.getLogger("moldau.broker")

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

# From which version on a special time may be asked for.
_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

CONSUMER_REPLICA: Final = -1
DEBUGGING_REPLICA: Final = -2
HIGH_WATERMARK: Final = -1
"""In DeleteRecords: everything that is committed."""

_NOT_FOUND: Final = TimestampedOffset(-1, -1, -1)

# Before this version of ListOffsets clients do not know OFFSET_NOT_AVAILABLE (KIP-207).
_KNOWS_NOT_AVAILABLE: Final = 5


def _not_known_yet(version: int) -> ApiError:
    """A new leader must not tell less than its predecessor did: the client asks again."""
    known = version >= _KNOWS_NOT_AVAILABLE
    return ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)


class OffsetHandlers:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
            ApiKey.DELETE_RECORDS: self.delete_records,
        }

    # ---- ListOffsets

    def list_offsets(self, request: ListOffsetsRequest, caller: Caller) -> ListOffsetsResponse:
        asked_for = Counter(
            (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
        )
        # A partition that is asked for twice is answered once, with an error.
        answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        for topic in request.topics:
            of_topic = answers.setdefault(topic.name, {})
            for partition in topic.partitions:
                index = partition.partition_index
                if index not in of_topic:
                    repeated = asked_for[topic.name, index] > 1
                    of_topic[index] = self._list_one(
                        request, topic.name, partition, caller.api_version, repeated=repeated
                    )
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name=name, partitions=list(of_topic.values()))
                for name, of_topic in answers.items()
            ]
        )

    def _list_one(
        self, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, version: int, *, repeated: bool
    ) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        try:
            if repeated:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            if asked.timestamp < 0 and version < _SINCE.get(asked.timestamp, 1 << 15):
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
            partition = self._services.partitions.get(topic, asked.partition_index)
            _check_epoch(partition, asked.current_leader_epoch, leader_only=request.replica_id != DEBUGGING_REPLICA)
            found = self._find(request, partition, asked.timestamp, version)
        except ApiError as error:
            answer.error_code = error.code
            return answer
        answer.timestamp = found.timestamp
        answer.offset = found.offset
        if version >= 4:
            answer.leader_epoch = found.leader_epoch
        return answer

    def _find(
        self, request: ListOffsetsRequest, partition: Partition, timestamp: int, version: int
    ) -> TimestampedOffset:
        log = partition.log
        from_client = request.replica_id == CONSUMER_REPLICA
        if not from_client:
            visible = log.log_end_offset
        elif request.isolation_level == READ_COMMITTED:
            visible = log.last_stable_offset
        else:
            visible = log.high_watermark
        if timestamp == LATEST:
            if from_client and partition.lags_behind_epoch:
                raise _not_known_yet(version)
            return TimestampedOffset(-1, visible, partition.leader_epoch)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            # Without tiered storage the whole log is local.
            return log.earliest_offset()
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            # Nothing is uploaded, nor ever will be.
            return _NOT_FOUND
        found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is None or found.offset >= visible:
            if from_client and partition.lags_behind_epoch:
                raise _not_known_yet(version)
            # What is not committed yet may still disappear: nobody is told about it.
            return _NOT_FOUND
        return found

    # ---- OffsetForLeaderEpoch

    def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest, caller: Caller
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[self._end_of_epoch(topic.topic, partition) for partition in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _end_of_epoch(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        answer = EpochEndOffset(partition=asked.partition)
        try:
            partition = self._services.partitions.get(topic, asked.partition)
            partition.require_leader(asked.current_leader_epoch)
            answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
        except ApiError as error:
            answer.error_code = error.code
        return answer

    # ---- DeleteRecords

    def delete_records(
        self, request: DeleteRecordsRequest, caller: Caller
    ) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
        deletion = _Deletion(self._services)
        response = DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[self._delete_before(topic.name, partition, deletion) for partition in topic.partitions],
                )
                for topic in request.topics
            ]
        )
        return deletion.when_done(response, request.timeout_ms)

    def _delete_before(
        self, topic: str, asked: DeleteRecordsPartition, deletion: _Deletion
    ) -> DeleteRecordsPartitionResult:
        answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
        try:
            if is_internal(topic):
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
            partition = self._services.partitions.get(topic, asked.partition_index)
            partition.require_leader()
            log = partition.log
            if not log.config.cleanup_delete:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"Records of partition {topic}-{asked.partition_index} can not be deleted due to the configured "
                    "policy",
                )
            offset = log.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
            if offset < 0 or offset > log.high_watermark:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"The specified offset {asked.offset} is higher than the high watermark {log.high_watermark}",
                )
            partition.delete_before(offset)
            deletion.add(partition, offset, answer)
        except ApiError as error:
            answer.error_code = error.code
        return answer


class _Deletion:
    """One DeleteRecords request: done when every replica that is alive has deleted, too."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._left: list[tuple[Partition, LeaderState, int, DeleteRecordsPartitionResult]] = []
        self._response: DeleteRecordsResponse | None = None
        self._answer: Pending[DeleteRecordsResponse] = Pending()

    def add(self, partition: Partition, offset: int, answer: DeleteRecordsPartitionResult) -> None:
        answer.low_watermark = partition.lowest_log_start
        if answer.low_watermark < offset and partition.leading is not None:
            self._left.append((partition, partition.leading, offset, answer))

    def when_done(
        self, response: DeleteRecordsResponse, timeout_ms: int
    ) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
        if not self._left:
            return response
        self._response = response
        for _, leading, _, _ in self._left:
            leading.start_watchers.append(self._look)
        self._timer = self._services.clock.call_later(max(timeout_ms, 0), self._time_is_up)
        return self._answer

    def _look(self) -> None:
        left = []
        for waiting in self._left:
            partition, leading, offset, answer = waiting
            answer.low_watermark = partition.lowest_log_start
            if answer.low_watermark < offset:
                left.append(waiting)
            elif self._look in leading.start_watchers:
                leading.start_watchers.remove(self._look)
        self._left = left
        if not left:
            self._finish()

    def _time_is_up(self) -> None:
        for partition, leading, _, answer in self._left:
            if self._look in leading.start_watchers:
                leading.start_watchers.remove(self._look)
            led = partition.leading is leading
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT if led else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._finish()

    def _finish(self) -> None:
        if not self._answer.done:
            self._timer.cancel()
            assert self._response is not None
            self._answer.resolve(self._response)


def _check_epoch(partition: Partition, asked_epoch: int, *, leader_only: bool) -> None:
    if leader_only or partition.is_leader:
        partition.require_leader(asked_epoch)
    elif asked_epoch >= 0 and asked_epoch != partition.leader_epoch:
        stale = asked_epoch < partition.leader_epoch
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if stale else ErrorCode.UNKNOWN_LEADER_EPOCH)
