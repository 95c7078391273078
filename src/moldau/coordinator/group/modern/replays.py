"""Groups with epochs as they come back from the log, one record at a time, in whatever order compaction left them.

Here is what the kinds have in common. Each kind adds what its members and its own records say.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from moldau.coordinator.decision import Transaction
from moldau.coordinator.group.modern.group import NO_TIME, EpochGroup
from moldau.protocol.coordinator_records import decode_key, decode_value

if TYPE_CHECKING:
    from moldau.coordinator.group.modern.groups import EpochGroups
    from moldau.coordinator.group.shard import GroupShard

log = logging.getLogger("moldau.coordinator")

NO_ASSIGNMENT_EPOCH: Final = -1

GroupT = TypeVar("GroupT", bound=EpochGroup[Any, Any])


class EpochReplays(ABC, Generic[GroupT]):
    def __init__(self, shard: GroupShard, groups: EpochGroups[GroupT]) -> None:
        self._shard = shard
        self._groups = groups
        self._kinds = self._take_over()

    @abstractmethod
    def _take_over(self) -> Mapping[int, tuple[Callable[[Any, Any], None], Callable[[Any, GroupT], None]]]:
        """By type of record: what a value does, and what a tombstone does."""

    @property
    def types(self) -> list[int]:
        return list(self._kinds)

    def replay(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        kind = int.from_bytes(key[:2], "big")
        put, remove = self._kinds[kind]
        key_message: Any = decode_key("group", key)
        if value is not None:
            put(key_message, decode_value("group", kind, value)[0])
            return
        group = self._groups.get(key_message.group_id)
        if group is not None:
            remove(key_message, group)

    def _group(self, group_id: str) -> GroupT:
        kind = self._groups.kind
        group = self._shard.groups.get(group_id)
        if isinstance(group, kind):
            return group
        if group is not None and not group.is_empty:
            log.warning(
                "group %s has members and is of another type; its records make it a %s group", group_id, kind.type.value
            )
        # Offsets alone make an empty classic group, which is taken over.
        created = self._shard.groups[group_id] = kind(group_id)
        return created

    # ---- records that say the same for every kind

    def _epoch(self, key: Any, value: Any) -> None:
        self._group(key.group_id).set_epoch(value.epoch, value.metadata_hash)

    def _no_group(self, key: Any, group: GroupT) -> None:
        self._groups.forget(group)

    def _target_epoch(self, key: Any, value: Any) -> None:
        self._group(key.group_id).set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)

    def _no_target_epoch(self, key: Any, group: GroupT) -> None:
        group.set_assignment_epoch(NO_ASSIGNMENT_EPOCH, NO_TIME)

    def _no_member(self, key: Any, group: GroupT) -> None:
        group.remove(key.member_id)

    def _target(self, key: Any, value: Any) -> None:
        self._group(key.group_id).targets[key.member_id] = self._target_of(value)

    @abstractmethod
    def _target_of(self, value: Any) -> Any:
        """What the member is to have."""

    def _no_target(self, key: Any, group: GroupT) -> None:
        group.targets.pop(key.member_id, None)
