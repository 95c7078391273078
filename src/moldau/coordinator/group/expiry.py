"""Offsets that are no longer needed: of topics that are gone, and of groups that nobody has used for long.

Writes tombstones; the groups themselves go when their last offset has gone and nobody is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.offset_records import NO_TIME, offset_tombstone, read_offset_value
from moldau.metadata.image import TopicImage
from moldau.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard

_TIMER = "offset expiry"
_MS_PER_MINUTE = 60_000
# About a millisecond of work.
_OFFSETS_PER_STEP = 1000


class OffsetExpiry:
    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def start(self) -> None:
        host = self._shard.host
        interval = self._shard.config().integer("offsets.retention.check.interval.ms")

        def look() -> None:
            self.start()
            host.background.run(self._expire())

        host.timers.schedule(_TIMER, interval, look)

    def _expire(self) -> Iterator[None]:
        """Look at one group after the other, and let others work in between."""
        shard = self._shard
        looked_at = 0
        for group_id in list(shard.groups):
            if not shard.host.is_active:
                return
            group = shard.groups.get(group_id)
            if group is None:
                continue
            looked_at += 1 + sum(map(len, shard.offsets.of_group(group_id).values()))
            shard.host.perform(partial(self.expire, group))
            if looked_at >= _OFFSETS_PER_STEP:
                looked_at = 0
                yield

    def expire(self, group: Group) -> Decision[None]:
        """What of one group is over, the group itself included."""
        offsets = self._shard.offsets
        expired = list(self._expired(group))
        records = [offset_tombstone(group.group_id, topic, partition) for topic, partition in expired]
        left = sum(map(len, offsets.of_group(group.group_id).values())) - len(expired)
        if not left and group.is_empty and group.may_expire and not offsets.has_open_transactions(group.group_id):
            records += group.tombstones()
        return Decision(None, records, atomic=False)

    def _expired(self, group: Group) -> Iterator[tuple[str, int]]:
        age_from = group.offset_age_from()
        if age_from is None:
            return
        shard = self._shard
        now = shard.clock.now_ms()
        retention = shard.config().integer("offsets.retention.minutes") * _MS_PER_MINUTE
        for topic, partitions in shard.offsets.of_group(group.group_id).items():
            if group.is_subscribed_to(topic):
                continue
            for partition, value in partitions.items():
                offset = read_offset_value(value)
                if offset.expire_timestamp != NO_TIME:
                    over = now >= offset.expire_timestamp
                else:
                    over = now - age_from(offset) >= retention
                if over and not shard.offsets.is_unstable(group.group_id, topic, partition):
                    yield topic, partition

    def topics_deleted(self, topics: Iterable[TopicImage]) -> Decision[None]:
        """Forget what groups have committed for these topics, in transactions too."""
        shard = self._shard
        records: list[CoordinatorRecord] = []
        for topic in topics:
            for group in list(shard.offsets.groups()):
                for partition, value in shard.offsets.of_topic(group, topic.name).items():
                    if read_offset_value(value).topic_id in (ZERO_UUID, topic.id):
                        records.append(offset_tombstone(group, topic.name, partition))
            for group in list(shard.offsets.groups_with_pending()):
                records += [
                    offset_tombstone(group, topic.name, partition)
                    for name, partition in shard.offsets.pending(group)
                    if name == topic.name and not shard.offsets.has(group, name, partition)
                ]
        return Decision(None, records, atomic=False)
