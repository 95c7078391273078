"""Streams groups as they come back from the log, one record at a time, in whatever order compaction has left them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from moldau.coordinator.decision import Transaction
from moldau.coordinator.group import streams as types
from moldau.coordinator.group.streams import records
from moldau.coordinator.group.streams.group import NO_TIME, StreamsGroup
from moldau.coordinator.group.streams.member import StreamsMember, UserEndpoint
from moldau.coordinator.group.streams.topology import Topology
from moldau.protocol.coordinator_records import decode_key, decode_value

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.group.streams.groups import StreamsGroups

log = logging.getLogger("moldau.coordinator")

NO_ASSIGNMENT_EPOCH = -1


class Replays:
    def __init__(self, shard: GroupShard, groups: StreamsGroups) -> None:
        self._shard = shard
        self._groups = groups
        # By type of record: what a value does, and what a tombstone does.
        self._take_over: Mapping[int, tuple[Callable[[Any, Any], None], Callable[[Any, StreamsGroup], None]]] = {
            types.GROUP_METADATA: (self._epoch, self._no_group),
            types.TOPOLOGY: (self._topology, self._no_topology),
            types.MEMBER_METADATA: (self._member, self._no_member),
            types.TARGET_METADATA: (self._target_epoch, self._no_target_epoch),
            types.TARGET_MEMBER: (self._target, self._no_target),
            types.CURRENT_ASSIGNMENT: (self._current, self._no_current),
        }

    def replay(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        kind = int.from_bytes(key[:2], "big")
        put, remove = self._take_over[kind]
        key_message: Any = decode_key("group", key)
        if value is not None:
            put(key_message, decode_value("group", kind, value)[0])
            return
        group = self._groups.get(key_message.group_id)
        if group is not None:
            remove(key_message, group)

    def _group(self, group_id: str) -> StreamsGroup:
        group = self._shard.groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if group is not None and not group.is_empty:
            log.warning("group %s has members and is of another type; its records make it a streams group", group_id)
        # Offsets alone make an empty classic group, which is taken over.
        created = self._shard.groups[group_id] = StreamsGroup(group_id)
        return created

    # ---- the group

    def _epoch(self, key: Any, value: Any) -> None:
        settings = {each.key: each.value for each in value.last_assignment_configs or ()}
        group = self._group(key.group_id)
        group.set_epoch(value.epoch, value.metadata_hash, value.validated_topology_epoch, settings)

    def _no_group(self, key: Any, group: StreamsGroup) -> None:
        self._groups.forget(group)

    def _topology(self, key: Any, value: Any) -> None:
        self._group(key.group_id).set_topology(Topology(value))

    def _no_topology(self, key: Any, group: StreamsGroup) -> None:
        group.set_topology(None)

    def _target_epoch(self, key: Any, value: Any) -> None:
        self._group(key.group_id).set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)

    def _no_target_epoch(self, key: Any, group: StreamsGroup) -> None:
        group.set_assignment_epoch(NO_ASSIGNMENT_EPOCH, NO_TIME)

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

    def _no_member(self, key: Any, group: StreamsGroup) -> None:
        group.remove(key.member_id)

    def _target(self, key: Any, value: Any) -> None:
        self._group(key.group_id).targets[key.member_id] = records.target_of(value)

    def _no_target(self, key: Any, group: StreamsGroup) -> None:
        group.targets.pop(key.member_id, None)

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
