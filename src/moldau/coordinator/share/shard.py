"""One shard of the share coordinator: the share partitions behind one partition of the share-state topic.

Decides whose writes count: a leader or a group that was replaced is fenced by its epoch. It decides when a whole
snapshot is written instead of an update, and which records nobody needs any more. It never decides what is delivered
to whom; that is the share-partition leader's business, whose notes these are.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from moldau.coordinator.decision import CoordinatorRecord, Decision, Transaction
from moldau.coordinator.share.batches import NO_START_OFFSET, StateBatch, combine
from moldau.coordinator.share.state import (
    NO_COUNT,
    NO_LEADER_EPOCH,
    SharePartitionKey,
    ShareState,
    read_record,
    snapshot_record,
    state_of,
    state_of_update,
    tombstone_record,
    update_record,
    update_value,
)
from moldau.metadata.image import EMPTY_IMAGE
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.share.share_snapshot_value import ShareSnapshotValue
from moldau.protocol.generated.share.share_update_value import ShareUpdateValue
from moldau.protocol.generated.wire.initialize_share_group_state_request import PartitionData as Initialize
from moldau.protocol.generated.wire.write_share_group_state_request import PartitionData as Write

if TYPE_CHECKING:
    from moldau.config.node_config import NodeConfig
    from moldau.metadata.delta import ImageDelta
    from moldau.metadata.image import ClusterImage
    from moldau.ports import Clock

# An epoch that the caller does not know, so that it fences nobody.
NO_EPOCH = -1


class ShareShard:
    def __init__(self, clock: Clock, config: Callable[[], NodeConfig]) -> None:
        self.partitions: dict[SharePartitionKey, ShareState] = {}
        self._clock = clock
        self._config = config
        self._image: ClusterImage = EMPTY_IMAGE
        # The highest epochs seen; they outlive what a write of a later state may say.
        self._leader_epochs: dict[SharePartitionKey, int] = {}
        self._state_epochs: dict[SharePartitionKey, int] = {}
        self._updates: dict[SharePartitionKey, int] = {}
        # Where the latest snapshot of each partition is in the log, and the latest of those that ended one.
        self._snapshots: dict[SharePartitionKey, int] = {}
        self._last_snapshot = 0
        # What the latest decision wrote, to take it over without reading it back: the value's bytes and what they say.
        self._written: tuple[bytes | None, SharePartitionKey, ShareUpdateValue] | None = None

    # ---- requests

    def initialize(self, key: SharePartitionKey, asked: Initialize) -> Decision[None]:
        self._check_partition(key)
        self._check_state_epoch(key, asked.state_epoch)
        self._check_topic(key)
        known = self.partitions.get(key)
        if known is not None and asked.start_offset == NO_START_OFFSET:
            return self._initialize_again(key, known, asked.state_epoch)
        now = self._clock.now_ms()
        state = ShareState(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=asked.state_epoch,
            # Leaders that were fenced stay fenced, also when only this record is left of the log.
            leader_epoch=self._leader_epochs.get(key, 0),
            start_offset=asked.start_offset,
            delivery_complete_count=NO_COUNT if asked.start_offset == NO_START_OFFSET else 0,
            batches=(),
            created_at=now,
            written_at=now,
        )
        return Decision(None, (snapshot_record(key, state),))

    def _initialize_again(self, key: SharePartitionKey, known: ShareState, epoch: int) -> Decision[None]:
        """A group that wants a state, wherever it may begin, asks again when no answer comes. What arrives late must
        not undo what members have acknowledged since: they would be given it again."""
        if epoch <= known.state_epoch:
            return Decision(None)
        now = self._clock.now_ms()
        state = replace(
            known,
            snapshot_epoch=known.snapshot_epoch + 1,
            state_epoch=epoch,
            leader_epoch=self._leader_epochs.get(key, known.leader_epoch),
            created_at=now,
            written_at=now,
        )
        return Decision(None, (snapshot_record(key, state),))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Decision[ShareState]:
        """The state of a partition; a leader that reads it for the first time fences its predecessors."""
        self._check_partition(key)
        state = self.partitions.get(key)
        if state is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed.")
        self._check_leader_epoch(key, leader_epoch)
        self._check_topic(key)
        if leader_epoch in (NO_LEADER_EPOCH, self._leader_epochs.get(key)):
            return Decision(state)
        taken_over = self._change(
            key,
            state,
            leader_epoch=leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            batches=(),
        )
        return Decision(state, (taken_over,))

    def write(self, key: SharePartitionKey, asked: Write) -> Decision[None]:
        self._check_partition(key)
        state = self.partitions.get(key)
        if state is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed.")
        self._check_leader_epoch(key, asked.leader_epoch)
        self._check_state_epoch(key, asked.state_epoch)
        self._check_topic(key)
        changed = self._change(
            key,
            state,
            leader_epoch=state.leader_epoch,
            # A write that its leader gave up on and sent again may arrive after later ones: it moves nothing back.
            start_offset=NO_START_OFFSET if asked.start_offset < state.start_offset else asked.start_offset,
            delivery_complete_count=asked.delivery_complete_count,
            batches=[
                StateBatch(each.first_offset, each.last_offset, each.delivery_count, each.delivery_state)
                for each in asked.state_batches
            ],
        )
        return Decision(None, (changed,))

    def delete(self, key: SharePartitionKey) -> Decision[None]:
        self._check_partition(key)
        self._check_topic(key)
        if key not in self.partitions:
            return Decision(None)
        return Decision(None, (tombstone_record(key),))

    def summary(self, key: SharePartitionKey) -> ShareState | None:
        """The state of a partition, or None when nobody has initialised it."""
        self._check_partition(key)
        self._check_topic(key)
        return self.partitions.get(key)

    def _change(
        self,
        key: SharePartitionKey,
        state: ShareState,
        *,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> CoordinatorRecord:
        if self._updates.get(key, 0) < self._updates_per_snapshot:
            value = update_value(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                batches=combine((), batches, start_offset),
            )
            record = update_record(key, value)
            self._written = record[1], key, value
            return record
        now = self._clock.now_ms()
        start_offset = state.start_offset if start_offset == NO_START_OFFSET else start_offset
        return snapshot_record(
            key,
            ShareState(
                snapshot_epoch=state.snapshot_epoch + 1,
                state_epoch=state.state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                batches=combine(state.batches, batches, start_offset),
                created_at=now,
                written_at=now,
            ),
        )

    @property
    def _updates_per_snapshot(self) -> int:
        return self._config().integer("share.coordinator.snapshot.update.records.per.snapshot")

    # ---- who may not

    def _check_partition(self, key: SharePartitionKey) -> None:
        if key.partition < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")

    def _check_topic(self, key: SharePartitionKey) -> None:
        topic = self._image.topic_by_id(key.topic_id)
        if topic is None or key.partition not in topic.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _check_leader_epoch(self, key: SharePartitionKey, epoch: int) -> None:
        if epoch != NO_LEADER_EPOCH and self._leader_epochs.get(key, epoch) > epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)

    def _check_state_epoch(self, key: SharePartitionKey, epoch: int) -> None:
        if epoch != NO_EPOCH and self._state_epochs.get(key, epoch) > epoch:
            raise ApiError(ErrorCode.FENCED_STATE_EPOCH)

    # ---- keeping the log short

    def snapshot_cold(self) -> Decision[None]:
        """Write anew what has not been written for long, so that everything before it may go."""
        interval_ms = self._config().integer("share.coordinator.cold.partition.snapshot.interval.ms")
        if all(state.created_at != state.written_at for state in self.partitions.values()):
            # Each was written anew already and nobody has changed it since.
            return Decision(None)
        now = self._clock.now_ms()
        records = [
            snapshot_record(key, replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_at=now))
            for key, state in self.partitions.items()
            if now - state.written_at >= interval_ms
        ]
        return Decision(None, records, atomic=False)

    def redundant_before(self) -> int:
        """Records before this offset say nothing that later ones do not say again."""
        return min(self._snapshots.values(), default=self._last_snapshot)

    def forget_topics(self, topic_ids: Container[bytes]) -> Decision[None]:
        gone = [tombstone_record(key) for key in self.partitions if key.topic_id in topic_ids]
        return Decision(None, gone, atomic=False)

    # ---- the runtime's calls

    def replay(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        written, self._written = self._written, None
        where: SharePartitionKey
        said: ShareSnapshotValue | ShareUpdateValue | None
        if written is not None and written[0] is value:
            _, where, said = written
        else:
            found = read_record(key, value)
            if found is None:
                return
            where, said = found
        if said is None:
            self._forget(where, offset)
            return
        self._leader_epochs[where] = max(self._leader_epochs.get(where, said.leader_epoch), said.leader_epoch)
        known = self.partitions.get(where)
        if isinstance(said, ShareSnapshotValue):
            self._state_epochs[where] = max(self._state_epochs.get(where, said.state_epoch), said.state_epoch)
            self.partitions[where] = state_of(said)
            if self._updates.get(where, 0) >= self._updates_per_snapshot:
                self._updates[where] = 0
            self._snapshots[where] = offset
        else:
            self.partitions[where] = state_of_update(said) if known is None else known.updated(said)
            self._updates[where] = self._updates.get(where, 0) + 1

    def _forget(self, key: SharePartitionKey, offset: int) -> None:
        for kept in (self.partitions, self._leader_epochs, self._state_epochs, self._updates, self._snapshots):
            kept.pop(key, None)
        self._last_snapshot = offset

    def end_transaction(self, transaction: Transaction, committed: bool) -> None:
        return None

    def loaded(self, image: ClusterImage) -> None:
        self._image = image

    def unloaded(self) -> None:
        return None

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        self._image = image
