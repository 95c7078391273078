"""Share groups as they come back from the log, one record at a time, in whatever order compaction has left them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from moldau.coordinator.group.modern.assignment import NOTHING, Assignment
from moldau.coordinator.group.modern.replays import EpochReplays
from moldau.coordinator.group.share import records
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.member import LEFT, ShareMember


class Replays(EpochReplays[ShareGroup]):
    def _take_over(self) -> Mapping[int, tuple[Callable[[Any, Any], None], Callable[[Any, ShareGroup], None]]]:
        return {
            records.GROUP_METADATA: (self._epoch, self._no_group),
            records.MEMBER_METADATA: (self._member, self._no_member),
            records.TARGET_METADATA: (self._target_epoch, self._no_target_epoch),
            records.TARGET_MEMBER: (self._target, self._no_target),
            records.CURRENT_ASSIGNMENT: (self._current, self._no_current),
            records.STATE_PARTITIONS: (self._topics, self._no_topics),
        }

    def _target_of(self, value: Any) -> Assignment:
        return records.target_of(value)

    # ---- the group

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
