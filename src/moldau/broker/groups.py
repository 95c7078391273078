"""Classic groups, and groups of any kind as tools see them: JoinGroup (11), Heartbeat (12), LeaveGroup (13),
SyncGroup (14), DescribeGroups (15), ListGroups (16), DeleteGroups (42).

Checks what can be checked without the group, finds its coordinator, and shapes the answers for older versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.authorization import Operation, ResourceKind, authorized_operations
from moldau.broker.context import Caller
from moldau.broker.gathering import after, chain, gather
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.coordinator.group.classic.joins import Joining
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.delete_groups_request import DeleteGroupsRequest
from moldau.protocol.generated.wire.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from moldau.protocol.generated.wire.describe_groups_request import DescribeGroupsRequest
from moldau.protocol.generated.wire.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from moldau.protocol.generated.wire.heartbeat_request import HeartbeatRequest
from moldau.protocol.generated.wire.heartbeat_response import HeartbeatResponse
from moldau.protocol.generated.wire.join_group_request import JoinGroupRequest
from moldau.protocol.generated.wire.join_group_response import JoinGroupResponse
from moldau.protocol.generated.wire.leave_group_request import LeaveGroupRequest, MemberIdentity
from moldau.protocol.generated.wire.leave_group_response import LeaveGroupResponse, MemberResponse
from moldau.protocol.generated.wire.list_groups_request import ListGroupsRequest
from moldau.protocol.generated.wire.list_groups_response import ListedGroup, ListGroupsResponse
from moldau.protocol.generated.wire.sync_group_request import SyncGroupRequest
from moldau.protocol.generated.wire.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from moldau.broker.share_groups import ShareGroupStates
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

# From these versions on: a rebalance timeout of its own; no protocol at all instead of an empty name; several members
# leave at once; the operations a caller may perform on a group.
_REBALANCE_TIMEOUT: Final = 1
_NULL_PROTOCOL: Final = 7
_SEVERAL_MEMBERS: Final = 3
_OPERATIONS: Final = 3


class GroupHandlers:
    def __init__(
        self, services: BrokerServices, runtime: CoordinatorRuntime[GroupShard], states: ShareGroupStates
    ) -> None:
        self._services = services
        self._runtime = runtime
        self._states = states

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.JOIN_GROUP: self.join,
            ApiKey.SYNC_GROUP: self.sync,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave,
            ApiKey.DESCRIBE_GROUPS: self.describe,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.DELETE_GROUPS: self.delete,
        }

    # ---- membership

    def join(self, request: JoinGroupRequest, caller: Caller) -> object:
        _check_group_id(request.group_id)
        config = self._services.config
        least, most = (config.integer(f"group.{end}.session.timeout.ms") for end in ("min", "max"))
        if not least <= request.session_timeout_ms <= most:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if caller.api_version < _REBALANCE_TIMEOUT:
            request.rebalance_timeout_ms = request.session_timeout_ms
        answer: Pending[JoinGroupResponse] = Pending()
        joined: Pending[JoinGroupResponse] = Pending()
        answer.then(lambda response: joined.resolve(_for_older(response, caller.api_version)))
        joining = Joining(
            request,
            tuple((each.name, each.metadata) for each in request.protocols),
            caller.client_id or "",
            f"/{caller.host}",
            caller.api_version,
            answer,
        )
        host = self._runtime.host_of(request.group_id)
        try:
            self._runtime.write(host, lambda shard: shard.classic.joins.join(joining))
        except ApiError:
            if not answer.done:
                raise
        return joined

    def sync(self, request: SyncGroupRequest, _: Caller) -> object:
        _check_group_id(request.group_id)
        answer: Pending[SyncGroupResponse] = Pending()
        host = self._runtime.host_of(request.group_id)
        try:
            self._runtime.write(host, lambda shard: shard.classic.syncs.sync(request, answer))
        except ApiError:
            if not answer.done:
                raise
        return answer

    def heartbeat(self, request: HeartbeatRequest, _: Caller) -> object:
        _check_group_id(request.group_id)
        try:
            host = self._runtime.host_of(request.group_id)
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The member will be found when everything is loaded; nothing is wrong with it.
                return HeartbeatResponse()
            raise
        return HeartbeatResponse(error_code=host.shard.classic.leaves.heartbeat(request))

    def leave(self, request: LeaveGroupRequest, caller: Caller) -> object:
        _check_group_id(request.group_id)
        version = caller.api_version
        members = request.members
        if version < _SEVERAL_MEMBERS:
            members = [MemberIdentity(member_id=request.member_id)]
        host = self._runtime.host_of(request.group_id)
        try:
            outcome = self._runtime.write(host, lambda shard: shard.classic.leaves.leave(request.group_id, members))
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            outcome = [MemberResponse(who.member_id, who.group_instance_id, error.code) for who in members]

        def finished(results: list[MemberResponse] | ApiError) -> LeaveGroupResponse | ApiError:
            if isinstance(results, ApiError):
                return results
            if version < _SEVERAL_MEMBERS:
                return LeaveGroupResponse(error_code=results[0].error_code)
            return LeaveGroupResponse(members=results)

        return after(outcome, finished)

    # ---- tools

    def describe(self, request: DescribeGroupsRequest, caller: Caller) -> object:
        parts = [self._describe_one(group_id, caller) for group_id in request.groups]

        def finished(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
            if request.include_authorized_operations and caller.api_version >= _OPERATIONS:
                for group in groups:
                    if not group.error_code:
                        group.authorized_operations = authorized_operations(
                            self._services.guard, caller, ResourceKind.GROUP, group.group_id
                        )
            return DescribeGroupsResponse(groups=groups)

        return gather(parts, finished)

    def _describe_one(self, group_id: str, caller: Caller) -> DescribedGroup | Pending[DescribedGroup]:
        if not self._may(Operation.DESCRIBE, group_id, caller):
            return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            host = self._runtime.host_of(group_id)
        except ApiError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        found = self._runtime.read(host, lambda shard: shard.overview.describe_classic(group_id, caller.api_version))
        return after(
            found,
            lambda group: (
                DescribedGroup(group_id=group_id, error_code=group.code) if isinstance(group, ApiError) else group
            ),
        )

    def list_groups(self, request: ListGroupsRequest, caller: Caller) -> object:
        if self._runtime.any_loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states, types = _small(request.states_filter), _small(request.types_filter)
        runtime = self._runtime

        def found_in(found: list[ListedGroup] | ApiError) -> list[ListedGroup]:
            return [] if isinstance(found, ApiError) else found

        parts = [
            after(runtime.read(host, lambda shard: shard.overview.list_groups(states, types)), found_in)
            for host in runtime.hosts()
        ]
        guard = self._services.guard
        sees_all = guard is None or guard.allows(caller, Operation.DESCRIBE, ResourceKind.CLUSTER)

        def finished(found: list[list[ListedGroup]]) -> ListGroupsResponse:
            listed = [group for part in found for group in part]
            if not sees_all:
                listed = [group for group in listed if self._may(Operation.DESCRIBE, group.group_id, caller)]
            return ListGroupsResponse(groups=listed)

        return gather(parts, finished)

    def delete(self, request: DeleteGroupsRequest, caller: Caller) -> object:
        refused: list[DeletableGroupResult] = []
        by_index: dict[int | None, list[str]] = {}
        for group_id in dict.fromkeys(request.groups_names):
            if self._may(Operation.DELETE, group_id, caller):
                by_index.setdefault(self._runtime.index_of(group_id), []).append(group_id)
            else:
                refused.append(DeletableGroupResult(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        parts = [self._delete_some(index, group_ids) for index, group_ids in by_index.items()]
        return gather(
            parts,
            lambda found: DeleteGroupsResponse(results=[*refused, *(result for part in found for result in part)]),
        )

    def _delete_some(self, index: int | None, group_ids: list[str]) -> Any:
        """The groups of one partition go together, those of share groups after their state has gone."""

        def finished(outcome: list[DeletableGroupResult] | ApiError) -> list[DeletableGroupResult]:
            if isinstance(outcome, ApiError):
                return [DeletableGroupResult(group_id, outcome.code) for group_id in group_ids]
            return outcome

        def stateless(refused: Mapping[str, ErrorCode] | ApiError) -> Any:
            if isinstance(refused, ApiError):
                raise refused
            kept = [DeletableGroupResult(group_id, code) for group_id, code in refused.items()]
            left = [group_id for group_id in group_ids if group_id not in refused]
            outcome: Any = self._runtime.write(self._runtime.host(index), lambda shard: shard.overview.delete(left))
            return after(outcome, lambda done: done if isinstance(done, ApiError) else [*kept, *done])

        try:
            return after(chain(self._states.delete_all(index, group_ids), stateless), finished)
        except ApiError as error:
            return finished(error)

    def _may(self, operation: Operation, group_id: str, caller: Caller) -> bool:
        guard = self._services.guard
        return guard is None or guard.allows(caller, operation, ResourceKind.GROUP, group_id)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)


def _for_older(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if version < _NULL_PROTOCOL and response.protocol_name is None:
        response.protocol_name = ""
    return response


def _small(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in words)
