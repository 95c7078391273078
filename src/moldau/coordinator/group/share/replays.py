"""Share groups as they come back from the log, one record at a time, in whatever order compaction has left them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from moldau.coordinator.decision import Transaction
from moldau.coordinator.group.modern.assignment import NOTHING
from moldau.coordinator.group.share import records
from moldau.coordinator.group.share.group import NO_TIME, ShareGroup
from moldau.coordinator.group.share.member import LEFT, ShareMember
from moldau.protocol.coordinator_records import decode_key, decode_value

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.group.share.groups import ShareGroups

log = logging.getLogger("moldau.coordinator")

NO_ASSIGNMENT_EPOCH = -1


class Replays:
    def __init__(self, shard: GroupShard, groups: ShareGroups) -> None:
        self._shard = shard
        self._groups = groups
        # By type of record: what a value does, and what a tombstone does.
        self._take_over: Mapping[int, tuple[Callable[[Any, Any], None], Callable[[Any, ShareGroup], None]]] = {
            records.GROUP_METADATA: (self._epoch, self._no_group),
            records.MEMBER_METADATA: (self._member, self._no_member),
            records.TARGET_METADATA: (self._target_epoch, self._no_target_epoch),
            records.TARGET_MEMBER: (self._target, self._no_target),
            records.CURRENT_ASSIGNMENT: (self._current, self._no_current),
            records.STATE_PARTITIONS: (self._topics, self._no_topics),
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

    def _group(self, group_id: str) -> ShareGroup:
        group = self._shard.groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is not None:
            log.warning("group %s is of another type; its records make it a share group", group_id)
        created = self._shard.groups[group_id] = ShareGroup(group_id)
        return created

    # ---- the group

    def _epoch(self, key: Any, value: Any) -> None:
        group = self._group(key.group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash

    def _no_group(self, key: Any, group: ShareGroup) -> None:
        self._groups.forget(group)

    def _target_epoch(self, key: Any, value: Any) -> None:
        group = self._group(key.group_id)
        group.assignment_epoch, group.assignment_time_ms = value.assignment_epoch, value.assignment_timestamp

    def _no_target_epoch(self, key: Any, group: ShareGroup) -> None:
        group.assignment_epoch, group.assignment_time_ms = NO_ASSIGNMENT_EPOCH, NO_TIME

    def _topics(self, key: Any, value: Any) -> None:
        self._group(key.group_id).topics = records.topics_of(value, self._shard.clock.monotonic_ms())

    def _no_topics(self, key: Any, group: ShareGroup) -> None:
        group.topics = None

    # ---- members

    def _member(self, key: Any, value: Any) -> None:
        group = self._group(key.group_id)
        known = group.members.get(key.member_id) or ShareMember(key.member_id)
        group.put(
            replace(
                known,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topics=frozenset(value.subscribed_topic_names),
            )
        )

    def _no_member(self, key: Any, group: ShareGroup) -> None:
        group.remove(key.member_id)

    def _target(self, key: Any, value: Any) -> None:
        self._group(key.group_id).targets[key.member_id] = records.target_of(value)

    def _no_target(self, key: Any, group: ShareGroup) -> None:
        group.targets.pop(key.member_id, None)

    def _current(self, key: Any, value: Any) -> None:
        group = self._group(key.group_id)
        known = group.members.get(key.member_id) or ShareMember(key.member_id)
        group.put(
            replace(
                known,
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=records.assigned_of(value),
            )
        )

    def _no_current(self, key: Any, group: ShareGroup) -> None:
        known = group.members.get(key.member_id)
        if known is not None:
            group.put(replace(known, epoch=LEFT, previous_epoch=LEFT, assigned=NOTHING))
