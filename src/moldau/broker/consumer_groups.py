"""Consumer groups: ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69).

Checks what can be checked without the group, and what the caller may see; everything else is the coordinator's
business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.group_descriptions import GroupDescriptions
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.coordinator.group.consumer.heartbeats import Beat
from moldau.coordinator.group.consumer.member import AWAY, JOINING, LEFT
from moldau.coordinator.group.modern.assignors import assignor_names
from moldau.metadata.features import GROUP_VERSION
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.consumer_group_describe_request import ConsumerGroupDescribeRequest
from moldau.protocol.generated.wire.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from moldau.protocol.generated.wire.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from moldau.protocol.generated.wire.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

# From this version on members choose their ids themselves.
_OWN_MEMBER_ID: Final = 1
_PROTOCOL: Final = "consumer"
# The level of the feature group.version that brings consumer groups.
_SUPPORTED_SINCE: Final = 1


class ConsumerGroupHandlers:
    def __init__(self, services: BrokerServices, runtime: CoordinatorRuntime[GroupShard]) -> None:
        self._services = services
        self._runtime = runtime
        self._descriptions = GroupDescriptions(
            services,
            runtime,
            blank=DescribedGroup,
            look_up=lambda shard, group_id: shard.consumer.describe(group_id),
            topics=_topics_in,
            hidden="The group has described topic(s) that the client is not authorized to describe.",
        )

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self.heartbeat,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.describe,
        }

    @property
    def _enabled(self) -> bool:
        services = self._services
        enabled = _PROTOCOL in services.config.words("group.coordinator.rebalance.protocols")
        return enabled and services.image.feature_level(GROUP_VERSION) >= _SUPPORTED_SINCE

    # ---- ConsumerGroupHeartbeat

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> object:
        if not self._enabled:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not all(self._may_describe(topic, caller) for topic in request.subscribed_topic_names or ()):
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        self._check(request, caller.api_version)
        beat = Beat(request, caller.client_id or "", f"/{caller.host}", lambda topic: self._may_describe(topic, caller))
        host = self._runtime.host_of(request.group_id)
        return self._runtime.write(host, lambda shard: shard.consumer.heartbeats.heartbeat(beat))

    def _check(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        epoch = request.member_epoch
        if version >= _OWN_MEMBER_ID or epoch > JOINING or epoch == LEFT:
            _check_not_blank("MemberId", request.member_id)
        _check_not_blank("GroupId", request.group_id)
        _check_not_blank("InstanceId", request.instance_id)
        _check_not_blank("RackId", request.rack_id)
        if epoch == JOINING:
            if request.rebalance_timeout_ms == -1:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif epoch == AWAY:
            if request.instance_id is None:
                raise _invalid("InstanceId can't be null.")
        elif epoch < AWAY:
            raise _invalid("MemberEpoch is invalid.")
        if request.server_assignor is not None:
            offered = assignor_names(self._services.config.words("group.consumer.assignors"))
            if request.server_assignor not in offered:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_ASSIGNOR,
                    f"ServerAssignor {request.server_assignor} is not supported. "
                    f"Supported assignors: {', '.join(offered)}.",
                )

    def _may_describe(self, topic: str, caller: Caller) -> bool:
        guard = self._services.guard
        return guard is None or guard.allows(caller, Operation.DESCRIBE, ResourceKind.TOPIC, topic)

    # ---- ConsumerGroupDescribe

    def describe(self, request: ConsumerGroupDescribeRequest, caller: Caller) -> object:
        if not self._enabled:
            refused = [self._descriptions.refused(each, ErrorCode.UNSUPPORTED_VERSION) for each in request.group_ids]
            return ConsumerGroupDescribeResponse(groups=refused)
        return self._descriptions.describe(
            request.group_ids,
            caller,
            lambda groups: ConsumerGroupDescribeResponse(groups=groups),
            with_operations=request.include_authorized_operations,
        )


def _check_not_blank(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _topics_in(group: DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
