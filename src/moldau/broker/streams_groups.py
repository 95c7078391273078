"""Streams groups: StreamsGroupHeartbeat (88), StreamsGroupDescribe (89).

Checks what can be checked without the group, and what the caller may see and create; everything else is the
coordinator's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.gathering import after
from moldau.broker.group_descriptions import GroupDescriptions
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.streams_topics import StreamsTopics
from moldau.broker.topic_names import is_internal
from moldau.config.group_config import GroupConfig
from moldau.controller.topic_names import reason_against
from moldau.coordinator.group.streams.heartbeats import Beat, Beaten
from moldau.coordinator.group.streams.member import AWAY, JOINING
from moldau.coordinator.group.streams.statuses import Status
from moldau.metadata.features import STREAMS_VERSION
from moldau.metadata.image import GROUP_RESOURCE
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import MESSAGES, ApiError, ErrorCode
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic
from moldau.protocol.generated.wire.streams_group_describe_request import StreamsGroupDescribeRequest
from moldau.protocol.generated.wire.streams_group_describe_response import (
    DescribedGroup,
    StreamsGroupDescribeResponse,
)
from moldau.protocol.generated.wire.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from moldau.protocol.generated.wire.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

_PROTOCOL: Final = "streams"
# The level of the feature streams.version that brings streams groups.
_SUPPORTED_SINCE: Final = 1
# Topics named when they could not be created.
_NAMED: Final = 3


class StreamsGroupHandlers:
    def __init__(self, services: BrokerServices, runtime: CoordinatorRuntime[GroupShard]) -> None:
        self._services = services
        self._runtime = runtime
        self._descriptions = GroupDescriptions(
            services,
            runtime,
            blank=DescribedGroup,
            look_up=lambda shard, group_id: shard.streams.describe(group_id),
            topics=_topics_described,
            hidden="The described group uses topics that the client is not authorized to describe.",
        )
        self._topics = StreamsTopics(services)

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.STREAMS_GROUP_HEARTBEAT: self.heartbeat,
            ApiKey.STREAMS_GROUP_DESCRIBE: self.describe,
        }

    @property
    def _enabled(self) -> bool:
        services = self._services
        enabled = _PROTOCOL in services.config.words("group.coordinator.rebalance.protocols")
        return enabled and services.image.feature_level(STREAMS_VERSION) >= _SUPPORTED_SINCE

    # ---- StreamsGroupHeartbeat

    def heartbeat(self, request: StreamsGroupHeartbeatRequest, caller: Caller) -> object:
        if not self._enabled:
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        try:
            return self._beat(request, caller)
        except ApiError as error:
            return _refusal(error)

    def _beat(self, request: StreamsGroupHeartbeatRequest, caller: Caller) -> object:
        if request.topology is not None:
            self._check_topics(list(dict.fromkeys(_topics_of(request.topology.subtopologies))), caller)
        _check_supported(request)
        _check(request)
        beat = Beat(request, caller.client_id or "", f"/{caller.host}")
        host = self._runtime.host_of(request.group_id)
        outcome = self._runtime.write(host, lambda shard: shard.streams.heartbeats.heartbeat(beat))

        def finished(beaten: Beaten | ApiError) -> StreamsGroupHeartbeatResponse:
            if isinstance(beaten, ApiError):
                return _refusal(beaten)
            if beaten.missing_topics:
                self._create(beaten.missing_topics, request.group_id, beaten.response, caller)
            return beaten.response

        return after(outcome, finished)

    def _check_topics(self, topics: list[str], caller: Caller) -> None:
        prohibited = [topic for topic in topics if is_internal(topic)]
        if prohibited:
            raise ApiError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited.",
            )
        invalid = [topic for topic in topics if reason_against(topic) is not None]
        if invalid:
            raise ApiError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names."
            )
        if not all(self._may(Operation.DESCRIBE, topic, caller) for topic in topics):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _may(self, operation: Operation, topic: str, caller: Caller) -> bool:
        guard = self._services.guard
        return guard is None or guard.allows(caller, operation, ResourceKind.TOPIC, topic)

    # ---- topics that the group needs

    def _create(
        self,
        missing: Mapping[str, CreatableTopic],
        group_id: str,
        response: StreamsGroupHeartbeatResponse,
        caller: Caller,
    ) -> None:
        guard = self._services.guard
        if guard is not None and not guard.allows(caller, Operation.CREATE, ResourceKind.CLUSTER):
            unauthorized = [topic for topic in missing if not self._may(Operation.CREATE, topic, caller)]
            if unauthorized:
                _add_detail(response, f"Unauthorized to CREATE on topics {', '.join(unauthorized)}.")
                return
        overrides = self._services.image.config_overrides(GROUP_RESOURCE, group_id)
        interval = GroupConfig.effective(self._services.config, overrides).streams_heartbeat_interval_ms
        self._topics.create(missing, caller.principal, 2 * interval)
        refusals = self._topics.refusals(missing)
        if refusals:
            listed = ", ".join(f"{topic} ({reason})" for topic, reason in list(refusals.items())[:_NAMED])
            more = f" and {len(refusals) - _NAMED} more" if len(refusals) > _NAMED else ""
            _add_detail(response, f"Creation failed: {listed}{more}.")

    # ---- StreamsGroupDescribe

    def describe(self, request: StreamsGroupDescribeRequest, caller: Caller) -> object:
        if not self._enabled:
            refused = [self._descriptions.refused(each, ErrorCode.UNSUPPORTED_VERSION) for each in request.group_ids]
            return StreamsGroupDescribeResponse(groups=refused)
        return self._descriptions.describe(
            request.group_ids,
            caller,
            lambda groups: StreamsGroupDescribeResponse(groups=groups),
            with_operations=request.include_authorized_operations,
        )


def _refusal(error: ApiError) -> StreamsGroupHeartbeatResponse:
    """Only what is said about this very request is worth a sentence."""
    message = None if error.message == MESSAGES[error.code] else error.message
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=message)


def _topics_of(subtopologies: Iterable[Any]) -> Iterator[str]:
    """Every topic that subtopologies name, of a request or of a response."""
    for each in subtopologies:
        yield from each.source_topics
        yield from each.repartition_sink_topics
        for info in (*each.repartition_source_topics, *each.state_changelog_topics):
            yield info.name


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    for status in response.status or ():
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {detail}"
            return
    response.status = [*(response.status or ()), Status.MISSING_INTERNAL_TOPICS.saying(detail)]


# ---- requests that make no sense


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    if request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    for name, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    epoch = request.member_epoch
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if epoch == JOINING:
        _check_joining(request)
    elif epoch == AWAY:
        raise _invalid("InstanceId can't be null.")
    elif epoch < AWAY:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if any(each is not None for each in tasks) and any(each is None for each in tasks):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != JOINING and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _check_joining(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise _invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    for subtopology in request.topology.subtopologies:
        for info in subtopology.state_changelog_topics:
            if info.partitions:
                raise ApiError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {info.name} must have an undefined partition count, but it is set to "
                    f"{info.partitions}.",
                )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _topics_described(group: DescribedGroup) -> set[str]:
    return set() if group.topology is None else set(_topics_of(group.topology.subtopologies or ()))
