"""Consumer groups as they come back from the log, one record at a time, in whatever order compaction has left them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from moldau.coordinator.decision import Transaction
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.group import NO_TIME, ConsumerGroup
from moldau.coordinator.group.consumer.member import LEFT, OWNS_NOTHING, ConsumerMember
from moldau.protocol.coordinator_records import decode_key, decode_value

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")

NO_ASSIGNMENT_EPOCH = -1


class Replays:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups
        # By type of record: what a value does, and what a tombstone does.
        self._take_over: Mapping[int, tuple[Callable[[Any, Any], None], Callable[[Any, ConsumerGroup], None]]] = {
            records.GROUP_METADATA: (self._epoch, self._no_group),
            records.PARTITION_METADATA: (self._partition_metadata, self._no_partition_metadata),
            records.MEMBER_METADATA: (self._member, self._no_member),
            records.TARGET_METADATA: (self._target_epoch, self._no_target_epoch),
            records.TARGET_MEMBER: (self._target, self._no_target),
            records.CURRENT_ASSIGNMENT: (self._current, self._no_current),
            records.REGULAR_EXPRESSION: (self._regex, self._no_regex),
        }

    @property
    def types(self) -> list[int]:
        return list(self._take_over)

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

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is not None and not group.is_empty:
            log.warning("group %s has members and is of another type; its records make it a consumer group", group_id)
        # Offsets alone make an empty classic group, which is taken over.
        created = self._shard.groups[group_id] = ConsumerGroup(group_id)
        return created

    # ---- the group

    def _epoch(self, key: Any, value: Any) -> None:
        self._group(key.group_id).set_epoch(value.epoch, value.metadata_hash)

    def _no_group(self, key: Any, group: ConsumerGroup) -> None:
        self._groups.forget(group)

    def _partition_metadata(self, key: Any, value: Any) -> None:
        self._group(key.group_id).has_partition_metadata = True

    def _no_partition_metadata(self, key: Any, group: ConsumerGroup) -> None:
        group.has_partition_metadata = False

    def _target_epoch(self, key: Any, value: Any) -> None:
        self._group(key.group_id).set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)

    def _no_target_epoch(self, key: Any, group: ConsumerGroup) -> None:
        group.set_assignment_epoch(NO_ASSIGNMENT_EPOCH, NO_TIME)

    def _regex(self, key: Any, value: Any) -> None:
        resolved = records.Resolved(frozenset(value.topics), value.version, value.timestamp)
        self._group(key.group_id).regexes[key.regular_expression] = resolved

    def _no_regex(self, key: Any, group: ConsumerGroup) -> None:
        group.regexes.pop(key.regular_expression, None)

    # ---- members

    def _member(self, key: Any, value: Any) -> None:
        group = self._group(key.group_id)
        known = group.members.get(key.member_id) or ConsumerMember(key.member_id)
        group.put(
            replace(
                known,
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topics=frozenset(value.subscribed_topic_names),
                regex=value.subscribed_topic_regex,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                assignor=value.server_assignor,
                classic=records.classic_side(value.classic_member_metadata),
            )
        )

    def _no_member(self, key: Any, group: ConsumerGroup) -> None:
        group.remove(key.member_id)

    def _target(self, key: Any, value: Any) -> None:
        self._group(key.group_id).targets[key.member_id] = records.target_of(value)

    def _no_target(self, key: Any, group: ConsumerGroup) -> None:
        group.targets.pop(key.member_id, None)

    def _current(self, key: Any, value: Any) -> None:
        group = self._group(key.group_id)
        known = group.members.get(key.member_id) or ConsumerMember(key.member_id)
        epoch = value.member_epoch
        group.put(
            replace(
                known,
                epoch=epoch,
                previous_epoch=value.previous_member_epoch,
                state=records.state_of(value.state),
                assigned=records.owned_of(value.assigned_partitions, epoch),
                revoking=records.owned_of(value.partitions_pending_revocation, epoch),
            )
        )

    def _no_current(self, key: Any, group: ConsumerGroup) -> None:
        known = group.members.get(key.member_id)
        if known is not None:
            group.put(replace(known, epoch=LEFT, previous_epoch=LEFT, assigned=OWNS_NOTHING, revoking=OWNS_NOTHING))
