"""Members that go, of their own accord or because they were not heard of; one may take the whole application along."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from moldau.coordinator.decision import Decision
from moldau.coordinator.group.streams.group import StreamsGroup
from moldau.coordinator.group.streams.member import StreamsMember
from moldau.coordinator.group.streams.records import group_record, removal
from moldau.protocol.errors import ApiError
from moldau.protocol.generated.wire.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from moldau.protocol.generated.wire.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from moldau.coordinator.group.streams.groups import StreamsGroups

log = logging.getLogger("moldau.coordinator")

R = TypeVar("R")


class Leaves:
    def __init__(self, groups: StreamsGroups) -> None:
        self._groups = groups

    def leave(self, request: StreamsGroupHeartbeatRequest) -> Decision[StreamsGroupHeartbeatResponse]:
        group = self._groups.find(request.group_id)
        member = group.member(request.member_id)
        if request.shutdown_application:
            group.request_shutdown(request.member_id)
        log.info("group %s: member %s leaves", request.group_id, request.member_id)
        response = StreamsGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch, status=[]
        )
        return self.fence(group, member, response)

    def fence(self, group: StreamsGroup, member: StreamsMember, response: R) -> Decision[R]:
        """This member is in the group no longer."""
        groups, group_id = self._groups, group.group_id
        records = removal(group_id, member.member_id)
        records.append(
            group_record(
                group_id,
                group.epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_settings,
            )
        )
        groups.timeouts.forget(group_id, member.member_id)

        def written(error: ApiError | None) -> None:
            if error is not None:
                # It is a member still, and must not stay for ever.
                groups.timeouts.alive(group_id, member.member_id)

        return Decision(response, records, done=written)
