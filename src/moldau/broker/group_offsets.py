"""Committed offsets: OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).

Decides which topics of a request exist and may be used, and how the answer looks in the version that was asked in.
Everything about the group is the coordinator's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.gathering import after, gather
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.coordinator.group.offset_commits import Committer, OffsetToCommit
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.offset_commit_request import OffsetCommitRequest
from moldau.protocol.generated.wire.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.protocol.generated.wire.offset_delete_request import OffsetDeleteRequest
from moldau.protocol.generated.wire.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from moldau.protocol.generated.wire.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.generated.wire.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

# From these versions on: topics by id; several groups at once; one error for a whole group.
_TOPIC_IDS: Final = 10
_SEVERAL_GROUPS: Final = 8
_GROUP_ERROR: Final = 2


class GroupOffsetHandlers:
    def __init__(self, services: BrokerServices, runtime: CoordinatorRuntime[GroupShard]) -> None:
        self._services = services
        self._runtime = runtime

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.OFFSET_COMMIT: self.commit,
            ApiKey.OFFSET_FETCH: self.fetch,
            ApiKey.OFFSET_DELETE: self.delete,
        }

    # ---- OffsetCommit

    def commit(self, request: OffsetCommitRequest, caller: Caller) -> object:
        version = caller.api_version
        response = OffsetCommitResponse()
        offsets = self._offsets_to_commit(request, response, caller)
        if not offsets:
            return response
        who = Committer(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            version,
        )
        try:
            host = self._runtime.host_of(request.group_id)
            return self._runtime.write(
                host, lambda shard: shard.commits.commit(who, offsets, response, request.retention_time_ms)
            )
        except ApiError as error:
            for each in offsets:
                each.result.error_code = error.code
            return response

    def _offsets_to_commit(
        self, request: OffsetCommitRequest, response: OffsetCommitResponse, caller: Caller
    ) -> list[OffsetToCommit]:
        """The offsets the coordinator is asked about; the others are refused in the response right away."""
        image = self._services.image
        by_id = caller.api_version >= _TOPIC_IDS
        offsets: list[OffsetToCommit] = []
        for asked in request.topics:
            topic = image.topic_by_id(asked.topic_id) if by_id else image.topic(asked.name)
            name = asked.name if topic is None else topic.name
            results: list[OffsetCommitResponsePartition] = []
            response.topics.append(OffsetCommitResponseTopic(name=name, topic_id=asked.topic_id, partitions=results))
            refusal = 0
            if topic is None and by_id:
                refusal = ErrorCode.UNKNOWN_TOPIC_ID
            elif not self._may(Operation.READ, name, caller):
                refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None:
                refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for each in asked.partitions:
                index = each.partition_index
                result = OffsetCommitResponsePartition(index, refusal)
                results.append(result)
                if refusal or topic is None:
                    continue
                if index not in topic.partitions:
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                offsets.append(
                    OffsetToCommit(
                        name,
                        topic.id,
                        index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata,
                        result,
                    )
                )
        return offsets

    def _may(self, operation: Operation, topic: str, caller: Caller) -> bool:
        guard = self._services.guard
        return guard is None or guard.allows(caller, operation, ResourceKind.TOPIC, topic)

    # ---- OffsetFetch

    def fetch(self, request: OffsetFetchRequest, caller: Caller) -> object:
        version = caller.api_version
        if version >= _SEVERAL_GROUPS:
            parts = [self._fetch_group(group, request.require_stable, caller) for group in request.groups]
            return gather(parts, lambda groups: OffsetFetchResponse(groups=groups))
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in request.topics
            ]
        group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
        found = self._fetch_group(group, request.require_stable, caller)
        return gather([found], lambda groups: _single(groups[0], topics, version))

    def _fetch_group(
        self, group: OffsetFetchRequestGroup, require_stable: bool, caller: Caller
    ) -> OffsetFetchResponseGroup | Pending[OffsetFetchResponseGroup]:
        guard = self._services.guard
        if guard is not None and not guard.allows(caller, Operation.DESCRIBE, ResourceKind.GROUP, group.group_id):
            return OffsetFetchResponseGroup(group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        by_id = caller.api_version >= _TOPIC_IDS
        asked, refused = self._topics_to_fetch(group.topics, caller, by_id)

        def finished(outcome: OffsetFetchResponseGroup | ApiError) -> OffsetFetchResponseGroup:
            if isinstance(outcome, ApiError):
                return OffsetFetchResponseGroup(group.group_id, error_code=outcome.code)
            if asked is None:
                outcome.topics = self._seen(outcome.topics, caller, by_id)
            outcome.topics += refused
            return outcome

        try:
            host = self._runtime.host_of(group.group_id)
            found = self._runtime.read(
                host,
                lambda shard: shard.fetches.fetch(
                    group.group_id, group.member_id, group.member_epoch, asked, require_stable=require_stable
                ),
            )
        except ApiError as error:
            return finished(error)
        return after(found, finished)

    def _topics_to_fetch(
        self, topics: list[OffsetFetchRequestTopics] | None, caller: Caller, by_id: bool
    ) -> tuple[list[OffsetFetchRequestTopics] | None, list[OffsetFetchResponseTopics]]:
        """What the coordinator is asked about, and the answers to what it is not."""
        if topics is None:
            return None, []
        asked: list[OffsetFetchRequestTopics] = []
        refused: list[OffsetFetchResponseTopics] = []
        for topic in topics:
            name = topic.name
            code: ErrorCode | None = None
            if by_id:
                known = self._services.image.topic_by_id(topic.topic_id)
                if known is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                else:
                    name = known.name
            if code is None and not self._may(Operation.DESCRIBE, name, caller):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if code is None:
                asked.append(OffsetFetchRequestTopics(name, topic.topic_id, topic.partition_indexes))
            else:
                partitions = [
                    OffsetFetchResponsePartitions(index, -1, -1, "", code) for index in topic.partition_indexes
                ]
                refused.append(OffsetFetchResponseTopics(name, topic.topic_id, partitions))
        return asked, refused

    def _seen(
        self, topics: list[OffsetFetchResponseTopics], caller: Caller, by_id: bool
    ) -> list[OffsetFetchResponseTopics]:
        """Of everything that a group has committed, what this caller may see (and can be told by id)."""
        seen: list[OffsetFetchResponseTopics] = []
        for topic in topics:
            if not self._may(Operation.DESCRIBE, topic.name, caller):
                continue
            if by_id:
                known = self._services.image.topic(topic.name)
                if known is None:
                    continue
                topic.topic_id = known.id
            seen.append(topic)
        return seen

    # ---- OffsetDelete

    def delete(self, request: OffsetDeleteRequest, caller: Caller) -> object:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        image = self._services.image
        response = OffsetDeleteResponse()
        wanted: list[tuple[str, int, OffsetDeleteResponsePartition]] = []
        for asked in request.topics:
            topic = image.topic(asked.name)
            results: list[OffsetDeleteResponsePartition] = []
            response.topics.append(OffsetDeleteResponseTopic(asked.name, results))
            allowed = self._may(Operation.READ, asked.name, caller)
            for each in asked.partitions:
                result = OffsetDeleteResponsePartition(each.partition_index)
                results.append(result)
                if not allowed:
                    result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif topic is None or each.partition_index not in topic.partitions:
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    wanted.append((asked.name, each.partition_index, result))
        # Also when nothing is left to delete: a group that does not exist is worse than a topic that does not.
        host = self._runtime.host_of(request.group_id)
        outcome = self._runtime.write(host, lambda shard: shard.commits.delete(request.group_id, wanted))
        return after(outcome, lambda failed: failed if isinstance(failed, ApiError) else response)


def _single(
    group: OffsetFetchResponseGroup, asked: list[OffsetFetchRequestTopics] | None, version: int
) -> OffsetFetchResponse:
    """The answer for one group as clients knew it before they could ask for several."""
    if group.error_code:
        if version >= _GROUP_ERROR:
            return OffsetFetchResponse(error_code=group.error_code)
        # There is no other place for it than each partition.
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    topic.name,
                    [
                        OffsetFetchResponsePartition(index, -1, -1, "", group.error_code)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in asked or ()
            ]
        )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.metadata,
                        each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ]
    )
