"""Share groups: ShareGroupHeartbeat (76), ShareGroupDescribe (77), and what share coordinators are asked for them.

Checks what can be checked without the group, and what the caller may see; who gets what is the coordinator's business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.gathering import after, chain, gather
from moldau.broker.group_descriptions import GroupDescriptions
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.coordinator.decision import Decision
from moldau.coordinator.group.share.heartbeats import Beaten
from moldau.coordinator.group.share.member import JOINING, LEFT
from moldau.coordinator.group.share.topics import Partitions
from moldau.metadata.features import SHARE_VERSION
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire import delete_share_group_state_request as delete_request
from moldau.protocol.generated.wire import initialize_share_group_state_request as initialize_request
from moldau.protocol.generated.wire.share_group_describe_request import ShareGroupDescribeRequest
from moldau.protocol.generated.wire.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse
from moldau.protocol.generated.wire.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from moldau.protocol.generated.wire.share_group_heartbeat_response import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from moldau.broker.share_persister import SharePersister
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

log = logging.getLogger("moldau.broker")

# The level of the feature share.version that brings share groups.
_SUPPORTED_SINCE: Final = 1
_MEMBER_ID_LENGTH_MAX: Final = 36
# Where the group begins to read is found out when a partition is first read.
_NOT_STARTED: Final = -1

Errors: TypeAlias = Mapping[tuple[bytes, int], tuple[ErrorCode, str | None]]
"""What went wrong with partitions, by topic id and index; those that are not here went well."""


def share_groups_enabled(services: BrokerServices) -> bool:
    return services.image.feature_level(SHARE_VERSION) >= _SUPPORTED_SINCE


class ShareGroupStates:
    """What a group coordinator asks of the share coordinators, and notes down when it is answered."""

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], persister: Callable[[], SharePersister]) -> None:
        self._runtime = runtime
        self._persister = persister

    def initialize(
        self, group_id: str, offsets: Mapping[bytes, Mapping[int, int]], state_epoch: int
    ) -> Errors | Pending[Errors]:
        """Give these partitions a state that starts at these offsets."""
        request = initialize_request.InitializeShareGroupStateRequest(
            group_id=group_id,
            topics=[
                initialize_request.InitializeStateData(
                    topic_id=topic_id,
                    partitions=[
                        initialize_request.PartitionData(partition, state_epoch, offset)
                        for partition, offset in sorted(partitions.items())
                    ],
                )
                for topic_id, partitions in offsets.items()
            ],
        )

        def answered(response: Any) -> Any:
            errors = _errors(response)
            good, bad = _split(response, errors)
            noted = [
                self._note(group_id, lambda shard: shard.share.initialization.finished(group_id, good)),
                self._note(group_id, lambda shard: shard.share.initialization.failed(group_id, bad)),
            ]
            if errors:
                log.warning("the state of %d partitions of group %s is not initialised", len(errors), group_id)
            return gather(noted, lambda _: errors)

        errors: Errors | Pending[Errors] = chain(self._persister().initialize(request), answered)
        return errors

    def delete(self, group_id: str, partitions: Partitions) -> Errors | Pending[Errors]:
        request = delete_request.DeleteShareGroupStateRequest(
            group_id=group_id,
            topics=[
                delete_request.DeleteStateData(topic_id, [delete_request.PartitionData(each) for each in sorted(found)])
                for topic_id, found in partitions.items()
            ],
        )
        errors: Errors | Pending[Errors] = chain(self._persister().delete(request), _errors)
        return errors

    def delete_all(self, index: int | None, group_ids: list[str]) -> Any:
        """Before groups are deleted: the error of each share group whose state could not be deleted."""
        runtime = self._runtime
        outcome: Any = runtime.write(runtime.host(index), lambda shard: shard.share.offsets.delete_all(group_ids))

        def decided(found: Mapping[str, Partitions | ErrorCode] | ApiError) -> Any:
            if isinstance(found, ApiError):
                return dict.fromkeys(group_ids, found.code)
            refused = {group_id: code for group_id, code in found.items() if isinstance(code, ErrorCode)}
            asked = {group_id: each for group_id, each in found.items() if not isinstance(each, ErrorCode)}
            parts = [self.delete(group_id, partitions) for group_id, partitions in asked.items()]

            def finished(errors: list[Errors]) -> dict[str, ErrorCode]:
                for group_id, failed in zip(asked, errors, strict=True):
                    if failed:
                        refused[group_id] = next(iter(failed.values()))[0]
                return refused

            return gather(parts, finished)

        return chain(outcome, decided)

    def _note(self, group_id: str, decide: Callable[[GroupShard], Decision[None]]) -> Any:
        """Write down what came of it. A coordinator that takes over asks again, so a failure is only worth a line."""
        runtime = self._runtime
        try:
            return runtime.write(runtime.host_of(group_id), decide)
        except ApiError as error:
            log.warning("the state of group %s is not noted down: %s", group_id, error)
            return None


def _errors(response: Any) -> Errors:
    return {
        (topic.topic_id, each.partition): (error_code(each.error_code), each.error_message)
        for topic in response.results
        for each in topic.partitions
        if each.error_code
    }


def _split(response: Any, errors: Errors) -> tuple[Partitions, Partitions]:
    """The partitions of a response that went well, and the others."""
    good: dict[bytes, frozenset[int]] = {}
    bad: dict[bytes, frozenset[int]] = {}
    for topic in response.results:
        failed = frozenset(each.partition for each in topic.partitions if (topic.topic_id, each.partition) in errors)
        well = frozenset(each.partition for each in topic.partitions) - failed
        for kind, found in ((good, well), (bad, failed)):
            if found:
                kind[topic.topic_id] = found
    return good, bad


class ShareGroupHandlers:
    def __init__(
        self, services: BrokerServices, runtime: CoordinatorRuntime[GroupShard], states: ShareGroupStates
    ) -> None:
        self._services = services
        self._runtime = runtime
        self._descriptions = GroupDescriptions(
            services,
            runtime,
            blank=DescribedGroup,
            look_up=lambda shard, group_id: shard.share.describe(group_id),
            topics=_topics_in,
            hidden="The group has described topic(s) that the client is not authorized to describe.",
        )
        self._states = states

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.SHARE_GROUP_HEARTBEAT: self.heartbeat,
            ApiKey.SHARE_GROUP_DESCRIBE: self.describe,
        }

    # ---- ShareGroupHeartbeat

    def heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller) -> object:
        if not share_groups_enabled(self._services):
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not 0 < len(request.member_id) <= _MEMBER_ID_LENGTH_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
        if not all(self._may_describe(topic, caller) for topic in request.subscribed_topic_names or ()):
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        _check(request)
        client_id, client_host = caller.client_id or "", f"/{caller.host}"
        outcome = self._runtime.write(
            self._runtime.host_of(request.group_id),
            lambda shard: shard.share.heartbeats.heartbeat(request, client_id, client_host),
        )
        return after(outcome, lambda beaten: self._beaten(request.group_id, beaten))

    def _beaten(self, group_id: str, beaten: Beaten | ApiError) -> ShareGroupHeartbeatResponse | ApiError:
        if isinstance(beaten, ApiError):
            return beaten
        if beaten.initialize:
            offsets = {
                topic_id: dict.fromkeys(partitions, _NOT_STARTED) for topic_id, partitions in beaten.initialize.items()
            }
            # The member does not wait for it: it hears of its partitions with a later heartbeat.
            self._states.initialize(group_id, offsets, beaten.state_epoch)
        return beaten.response

    def _may_describe(self, topic: str, caller: Caller) -> bool:
        guard = self._services.guard
        return guard is None or guard.allows(caller, Operation.DESCRIBE, ResourceKind.TOPIC, topic)

    # ---- ShareGroupDescribe

    def describe(self, request: ShareGroupDescribeRequest, caller: Caller) -> object:
        if not share_groups_enabled(self._services):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        return self._descriptions.describe(
            request.group_ids,
            caller,
            lambda groups: ShareGroupDescribeResponse(groups=groups),
            with_operations=request.include_authorized_operations,
        )


def _check(request: ShareGroupHeartbeatRequest) -> None:
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == JOINING:
        if not request.subscribed_topic_names:
            raise ApiError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEFT:
        raise ApiError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def _topics_in(group: DescribedGroup) -> set[str]:
    return {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}
