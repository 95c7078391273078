"""Consumer groups as they come back from the log, one record at a time, in whatever order compaction has left them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import LEFT, OWNS_NOTHING, ConsumerMember
from moldau.coordinator.group.modern.assignment import Assignment
from moldau.coordinator.group.modern.replays import EpochReplays


class Replays(EpochReplays[ConsumerGroup]):
    def _take_over(self) -> Mapping[int, tuple[Callable[[Any, Any], None], Callable[[Any, ConsumerGroup], None]]]:
        return {
            records.GROUP_METADATA: (self._epoch, self._no_group),
            records.PARTITION_METADATA: (self._partition_metadata, self._no_partition_metadata),
            records.MEMBER_METADATA: (self._member, self._no_member),
            records.TARGET_METADATA: (self._target_epoch, self._no_target_epoch),
            records.TARGET_MEMBER: (self._target, self._no_target),
            records.CURRENT_ASSIGNMENT: (self._current, self._no_current),
            records.REGULAR_EXPRESSION: (self._regex, self._no_regex),
        }

    def _target_of(self, value: Any) -> Assignment:
        return records.target_of(value)

    # ---- the group

    def _partition_metadata(self, key: Any, value: Any) -> None:
        self._group(key.group_id).has_partition_metadata = True

    def _no_partition_metadata(self, key: Any, group: ConsumerGroup) -> None:
        group.has_partition_metadata = False

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
