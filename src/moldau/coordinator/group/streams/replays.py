"""Streams groups as they come back from the log, one record at a time, in whatever order compaction has left them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from moldau.coordinator.group import streams as types
from moldau.coordinator.group.modern.replays import EpochReplays
from moldau.coordinator.group.streams import records
from moldau.coordinator.group.streams.group import StreamsGroup
from moldau.coordinator.group.streams.member import StreamsMember, UserEndpoint
from moldau.coordinator.group.streams.tasks import Tasks
from moldau.coordinator.group.streams.topology import Topology


class Replays(EpochReplays[StreamsGroup]):
    def _take_over(self) -> Mapping[int, tuple[Callable[[Any, Any], None], Callable[[Any, StreamsGroup], None]]]:
        return {
            types.GROUP_METADATA: (self._epoch, self._no_group),
            types.TOPOLOGY: (self._topology, self._no_topology),
            types.MEMBER_METADATA: (self._member, self._no_member),
            types.TARGET_METADATA: (self._target_epoch, self._no_target_epoch),
            types.TARGET_MEMBER: (self._target, self._no_target),
            types.CURRENT_ASSIGNMENT: (self._current, self._no_current),
        }

    def _target_of(self, value: Any) -> Tasks:
        return records.target_of(value)

    # ---- the group

    def _epoch(self, key: Any, value: Any) -> None:
        super()._epoch(key, value)
        settings = {each.key: each.value for each in value.last_assignment_configs or ()}
        self._group(key.group_id).set_validated(value.validated_topology_epoch, settings)

    def _topology(self, key: Any, value: Any) -> None:
        self._group(key.group_id).set_topology(Topology(value))

    def _no_topology(self, key: Any, group: StreamsGroup) -> None:
        group.set_topology(None)

    # ---- members

    def _member(self, key: Any, value: Any) -> None:
        group = self._group(key.group_id)
        known = group.members.get(key.member_id) or StreamsMember(key.member_id)
        endpoint = value.user_endpoint
        group.put(
            replace(
                known,
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                topology_epoch=value.topology_epoch,
                process_id=value.process_id,
                user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
                client_tags={each.key: each.value for each in value.client_tags},
            )
        )

    def _current(self, key: Any, value: Any) -> None:
        group = self._group(key.group_id)
        known = group.members.get(key.member_id) or StreamsMember(key.member_id)
        group.put(
            replace(
                known,
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=records.state_of(value.state),
                assigned=records.assigned_of(value),
                revoking=records.revoking_of(value),
            )
        )

    def _no_current(self, key: Any, group: StreamsGroup) -> None:
        known = group.members.get(key.member_id)
        if known is not None:
            group.put(known.gone())
