"""How far share groups have read: DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91),
DeleteShareGroupOffsets (92).

The group coordinator knows which partitions a group has; where it is in them the share coordinators know, and how far
that is from the end the partitions' leaders. Decides what the caller may see and change, and puts the answers together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.end_offsets import EndOffset, TopicPartition, end_offsets
from moldau.broker.gathering import chain, gather
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.share_groups import Errors, ShareGroupStates, share_groups_enabled
from moldau.coordinator.group.share.offsets import Alteration, Deletion
from moldau.coordinator.group.share.topics import Partitions
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import MESSAGES, ApiError, ErrorCode
from moldau.protocol.generated.wire import read_share_group_state_summary_request as summary_request
from moldau.protocol.generated.wire import read_share_group_state_summary_response as summary_response
from moldau.protocol.generated.wire.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from moldau.protocol.generated.wire.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from moldau.protocol.generated.wire.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from moldau.protocol.generated.wire.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from moldau.protocol.generated.wire.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from moldau.protocol.generated.wire.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.broker.share_persister import SharePersister
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

_UNKNOWN: Final = -1


class ShareGroupOffsetHandlers:
    def __init__(
        self,
        services: BrokerServices,
        runtime: CoordinatorRuntime[GroupShard],
        states: ShareGroupStates,
        persister: Callable[[], SharePersister],
    ) -> None:
        self._services = services
        self._runtime = runtime
        self._states = states
        self._persister = persister

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: self.describe,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self.alter,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: self.delete,
        }

    def _may(self, operation: Operation, topic: str, caller: Caller) -> bool:
        guard = self._services.guard
        return guard is None or guard.allows(caller, operation, ResourceKind.TOPIC, topic)

    # ---- DescribeShareGroupOffsets

    def describe(self, request: DescribeShareGroupOffsetsRequest, caller: Caller) -> object:
        parts = [self._describe_one(group, caller) for group in request.groups]
        return gather(parts, lambda groups: DescribeShareGroupOffsetsResponse(groups=groups))

    def _describe_one(self, asked: DescribeShareGroupOffsetsRequestGroup, caller: Caller) -> Any:
        group_id = asked.group_id

        def answered(topics: list[DescribeShareGroupOffsetsResponseTopic] | ApiError) -> Any:
            if isinstance(topics, ApiError):
                return DescribeShareGroupOffsetsResponseGroup(
                    group_id=group_id, error_code=topics.code, error_message=topics.message
                )
            return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics)

        guard = self._services.guard
        if not share_groups_enabled(self._services):
            return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
        if guard is not None and not guard.allows(caller, Operation.DESCRIBE, ResourceKind.GROUP, group_id):
            return DescribeShareGroupOffsetsResponseGroup(
                group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
            )
        try:
            if asked.topics is None:
                return chain(self._describe_all(group_id, caller), answered)
            return chain(self._describe_some(asked, caller), answered)
        except ApiError as error:
            return answered(error)

    def _describe_all(self, group_id: str, caller: Caller) -> Any:
        host = self._runtime.host_of(group_id)
        partitions: Any = self._runtime.read(host, lambda shard: shard.share.offsets.initialized(group_id))

        def found(initialized: Partitions | ApiError) -> Any:
            if isinstance(initialized, ApiError):
                raise initialized
            seen: dict[bytes, list[int]] = {}
            for topic_id, each in initialized.items():
                topic = self._services.image.topic_by_id(topic_id)
                if topic is not None and self._may(Operation.DESCRIBE, topic.name, caller):
                    seen[topic_id] = sorted(each)
            return self._read(group_id, seen)

        return chain(partitions, found)

    def _describe_some(self, asked: DescribeShareGroupOffsetsRequestGroup, caller: Caller) -> Any:
        absent: list[DescribeShareGroupOffsetsResponseTopic] = []
        wanted: dict[bytes, list[int]] = {}
        for each in asked.topics or ():
            topic = self._services.image.topic(each.topic_name)
            code = ErrorCode.NONE
            if not self._may(Operation.DESCRIBE, each.topic_name, caller):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is not None:
                wanted.setdefault(topic.id, []).extend(each.partitions)
                continue
            message = MESSAGES[code] if code else None
            absent.append(
                DescribeShareGroupOffsetsResponseTopic(
                    topic_name=each.topic_name,
                    partitions=[
                        DescribeShareGroupOffsetsResponsePartition(
                            index, 0 if code else _UNKNOWN, error_code=code, error_message=message
                        )
                        for index in each.partitions
                    ],
                )
            )
        return chain(self._read(asked.group_id, wanted), lambda topics: [*topics, *absent])

    def _read(self, group_id: str, partitions: Mapping[bytes, Iterable[int]]) -> Any:
        """Where the group is in these partitions, and how far that is from their ends."""
        if not partitions:
            return []
        request = summary_request.ReadShareGroupStateSummaryRequest(
            group_id=group_id,
            topics=[
                summary_request.ReadStateSummaryData(
                    topic_id, [summary_request.PartitionData(partition=each) for each in found]
                )
                for topic_id, found in partitions.items()
            ],
        )

        def summarized(response: summary_response.ReadShareGroupStateSummaryResponse) -> Any:
            names = {topic_id: self._name(topic_id) for topic_id in partitions}
            ends = end_offsets(
                self._services,
                [
                    (names[topic.topic_id], each.partition)
                    for topic in response.results
                    for each in topic.partitions
                    if _has_lag(each)
                ],
            )
            return chain(
                ends,
                lambda found: [
                    DescribeShareGroupOffsetsResponseTopic(
                        topic_name=names[topic.topic_id],
                        topic_id=topic.topic_id,
                        partitions=[_described(names[topic.topic_id], each, found) for each in topic.partitions],
                    )
                    for topic in response.results
                ],
            )

        return chain(self._persister().read_summary(request), summarized)

    def _name(self, topic_id: bytes) -> str:
        topic = self._services.image.topic_by_id(topic_id)
        return "" if topic is None else topic.name

    # ---- AlterShareGroupOffsets

    def alter(self, request: AlterShareGroupOffsetsRequest, caller: Caller) -> object:
        self._check(request.group_id)
        refused: list[AlterShareGroupOffsetsResponseTopic] = []
        allowed: list[AlterShareGroupOffsetsRequestTopic] = []
        for asked in request.topics:
            topic = self._services.image.topic(asked.topic_name)
            if not self._may(Operation.READ, asked.topic_name, caller):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                allowed.append(asked)
                continue
            answer = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
            if topic is not None:
                answer.topic_id = topic.id
            answer.partitions = [
                AlterShareGroupOffsetsResponsePartition(each.partition_index, code, MESSAGES[code])
                for each in asked.partitions
            ]
            refused.append(answer)
        group_id = request.group_id
        outcome: Any = self._runtime.write(
            self._runtime.host_of(group_id), lambda shard: shard.share.offsets.alter(group_id, allowed)
        )

        def decided(alteration: Alteration | ApiError) -> Any:
            if isinstance(alteration, ApiError):
                return alteration
            errors: Any = {}
            if alteration.offsets:
                errors = self._states.initialize(group_id, alteration.offsets, alteration.state_epoch)
            return chain(
                errors,
                lambda failed: AlterShareGroupOffsetsResponse(
                    responses=[*refused, *_with_errors(alteration.response, failed)]
                ),
            )

        return chain(outcome, decided)

    # ---- DeleteShareGroupOffsets

    def delete(self, request: DeleteShareGroupOffsetsRequest, caller: Caller) -> object:
        self._check(request.group_id)
        refused: list[DeleteShareGroupOffsetsResponseTopic] = []
        allowed: list[str] = []
        for asked in request.topics:
            if self._may(Operation.READ, asked.topic_name, caller):
                allowed.append(asked.topic_name)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(
                    DeleteShareGroupOffsetsResponseTopic(
                        topic_name=asked.topic_name, error_code=code, error_message=MESSAGES[code]
                    )
                )
        group_id = request.group_id
        outcome: Any = self._runtime.write(
            self._runtime.host_of(group_id), lambda shard: shard.share.offsets.delete(group_id, allowed)
        )

        def decided(deletion: Deletion | ApiError) -> Any:
            if isinstance(deletion, ApiError):
                return deletion
            if not deletion.partitions:
                return DeleteShareGroupOffsetsResponse(responses=[*refused, *deletion.refused])
            return chain(
                self._states.delete(group_id, deletion.partitions),
                lambda errors: self._deleted(group_id, deletion, errors, refused),
            )

        return chain(outcome, decided)

    def _deleted(
        self, group_id: str, deletion: Deletion, errors: Errors, refused: list[DeleteShareGroupOffsetsResponseTopic]
    ) -> Any:
        failed: dict[bytes, ErrorCode] = {}
        for (topic_id, _), (code, _) in errors.items():
            failed.setdefault(topic_id, code)
        bad = [
            DeleteShareGroupOffsetsResponseTopic(self._name(topic_id), topic_id, code, MESSAGES[code])
            for topic_id, code in failed.items()
        ]
        good = [topic_id for topic_id in deletion.partitions if topic_id not in failed]
        response = DeleteShareGroupOffsetsResponse(
            responses=[
                *refused,
                *(DeleteShareGroupOffsetsResponseTopic(self._name(topic_id), topic_id) for topic_id in good),
                *deletion.refused,
                *bad,
            ]
        )
        if not good:
            return response
        noted = self._runtime.write(
            self._runtime.host_of(group_id), lambda shard: shard.share.offsets.deleted(group_id, good)
        )
        return chain(noted, lambda error: error if isinstance(error, ApiError) else response)

    def _check(self, group_id: str) -> None:
        if not share_groups_enabled(self._services):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)


def _has_lag(summary: summary_response.PartitionResult) -> bool:
    return not summary.error_code and summary.start_offset >= 0 and summary.delivery_complete_count >= 0


def _described(
    topic: str, summary: summary_response.PartitionResult, ends: Mapping[TopicPartition, EndOffset]
) -> DescribeShareGroupOffsetsResponsePartition:
    index = summary.partition
    if summary.error_code:
        return DescribeShareGroupOffsetsResponsePartition(index, _UNKNOWN)
    if not _has_lag(summary):
        return DescribeShareGroupOffsetsResponsePartition(index, summary.start_offset, summary.leader_epoch)
    end = ends[topic, index]
    if isinstance(end, ErrorCode):
        return DescribeShareGroupOffsetsResponsePartition(index, error_code=end, error_message=MESSAGES[end])
    return DescribeShareGroupOffsetsResponsePartition(
        index,
        summary.start_offset,
        summary.leader_epoch,
        end - summary.start_offset - summary.delivery_complete_count,
    )


def _with_errors(
    topics: list[AlterShareGroupOffsetsResponseTopic], errors: Errors
) -> list[AlterShareGroupOffsetsResponseTopic]:
    for topic in topics:
        for each in topic.partitions:
            failed = errors.get((topic.topic_id, each.partition_index))
            if failed is not None and not each.error_code:
                each.error_code, each.error_message = failed
    return topics
