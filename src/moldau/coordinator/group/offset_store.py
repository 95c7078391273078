"""Committed offsets by group, topic and partition, and those that wait for their transaction to end.

Changes only by replaying records and transaction markers. An offset is kept as the bytes of its record's value. It
decides which of two commits is the later one; it never decides whether a commit is welcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import intern
from typing import Final, TypeAlias

from moldau.coordinator.decision import Transaction
from moldau.coordinator.group.offset_records import CommittedOffset, read_offset_key, read_offset_value

TopicOffsets: TypeAlias = dict[str, dict[int, bytes]]

_NOTHING: Final[Mapping[str, dict[int, bytes]]] = {}


class OffsetStore:
    __slots__ = ("_by_group", "_open", "_pending", "_since_open", "count")

    def __init__(self) -> None:
        self._by_group: dict[str, TopicOffsets] = {}
        # By producer id: the offsets of its open transaction, each with the offset of its record.
        self._pending: dict[int, dict[tuple[str, str, int], tuple[int, bytes]]] = {}
        # By group: the producers with open transactions.
        self._open: dict[str, set[int]] = {}
        # By group with open transactions: where commits that took effect meanwhile stand in the log. A transaction
        # that ends must not put an older offset over them.
        self._since_open: dict[str, dict[tuple[str, int], int]] = {}
        self.count = 0

    # ---- reading

    def get(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        value = self._by_group.get(group, _NOTHING).get(topic, {}).get(partition)
        return None if value is None else read_offset_value(value)

    def of_topic(self, group: str, topic: str) -> Mapping[int, bytes]:
        """The values of one topic's offsets, as in the log; `read_offset_value` takes them apart."""
        return self._by_group.get(group, _NOTHING).get(topic, {})

    def of_group(self, group: str) -> Mapping[str, dict[int, bytes]]:
        return self._by_group.get(group, _NOTHING)

    def groups(self) -> Iterator[str]:
        return iter(self._by_group)

    def has(self, group: str, topic: str, partition: int) -> bool:
        return partition in self._by_group.get(group, _NOTHING).get(topic, {})

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has an offset for this partition."""
        key = (group, topic, partition)
        return any(key in self._pending.get(producer_id, {}) for producer_id in self._open.get(group, ()))

    def has_open_transactions(self, group: str) -> bool:
        return group in self._open

    def pending(self, group: str) -> Iterator[tuple[str, int]]:
        """Partitions for which transactions hold offsets of the group."""
        for producer_id in self._open.get(group, ()):
            for owner, topic, partition in self._pending.get(producer_id, {}):
                if owner == group:
                    yield topic, partition

    def groups_with_pending(self) -> Iterator[str]:
        return iter(self._open)

    # ---- replaying

    def replay(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> str:
        """Take over one record; gives the group it belongs to."""
        group, topic, partition = read_offset_key(key)
        if value is None:
            self._remove(group, topic, partition)
        elif transaction is None:
            self._put(group, topic, partition, value)
            if group in self._open:
                self._since_open[group][topic, partition] = offset
        else:
            producer_id = transaction.producer_id
            self._pending.setdefault(producer_id, {})[group, topic, partition] = (offset, value)
            self._open.setdefault(group, set()).add(producer_id)
            self._since_open.setdefault(group, {})
        return group

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        offsets = self._pending.pop(producer_id, None)
        if offsets is None:
            return
        if committed:
            for (group, topic, partition), (at, value) in offsets.items():
                newest = self._since_open[group]
                if at > newest.get((topic, partition), -1):
                    newest[topic, partition] = at
                    self._put(group, topic, partition, value)
        for group in {group for group, _, _ in offsets}:
            self._close(group, producer_id)

    def _close(self, group: str, producer_id: int) -> None:
        producers = self._open.get(group)
        if producers is not None:
            producers.discard(producer_id)
            if not producers:
                del self._open[group]
                del self._since_open[group]

    def _put(self, group: str, topic: str, partition: int, value: bytes) -> None:
        topics = self._by_group.get(group)
        if topics is None:
            topics = self._by_group[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            # Many groups read the same topics: one copy of the name serves them all.
            partitions = topics[intern(topic)] = {}
        if partition not in partitions:
            self.count += 1
        partitions[partition] = value

    def _remove(self, group: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group)
        partitions = None if topics is None else topics.get(topic)
        if topics is not None and partitions is not None and partitions.pop(partition, None) is not None:
            self.count -= 1
            if not partitions:
                del topics[topic]
                if not topics:
                    del self._by_group[group]
        for producer_id in list(self._open.get(group, ())):
            offsets = self._pending[producer_id]
            offsets.pop((group, topic, partition), None)
            if not any(owner == group for owner, _, _ in offsets):
                self._close(group, producer_id)
