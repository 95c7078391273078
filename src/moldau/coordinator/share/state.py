"""What the share coordinator knows of one share partition, and how that stands in the log.

Only values and formats: ShareSnapshot records hold all of it, ShareUpdate records what changed since, a snapshot
without a value says that there is nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast

from moldau.coordinator.decision import CoordinatorRecord, record
from moldau.coordinator.hashing import partition_for
from moldau.coordinator.share.batches import NO_START_OFFSET, StateBatch, combine
from moldau.protocol.coordinator_records import UnknownRecordType, decode_key, decode_value
from moldau.protocol.generated.share.share_snapshot_key import ShareSnapshotKey
from moldau.protocol.generated.share.share_snapshot_value import ShareSnapshotValue
from moldau.protocol.generated.share.share_snapshot_value import StateBatch as SnapshotBatch
from moldau.protocol.generated.share.share_update_key import ShareUpdateKey
from moldau.protocol.generated.share.share_update_value import ShareUpdateValue
from moldau.protocol.generated.share.share_update_value import StateBatch as UpdateBatch
from moldau.protocol.uuids import uuid_to_string

NO_LEADER_EPOCH = -1
NO_COUNT = -1


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """What a share coordinator is found by."""
        return f"{self.group_id}:{uuid_to_string(self.topic_id)}:{self.partition}"


@lru_cache(maxsize=1 << 14)
def coordinating_partition(key: SharePartitionKey, partitions: int) -> int:
    """The partition of the share-state topic that a share partition belongs to; asked for with every write."""
    return partition_for(key.coordinator_key, partitions)


@dataclass(slots=True, frozen=True)
class ShareState:
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]
    created_at: int
    written_at: int

    def updated(self, update: ShareUpdateValue) -> ShareState:
        start_offset = self.start_offset if update.start_offset == NO_START_OFFSET else update.start_offset
        return ShareState(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch if update.leader_epoch == NO_LEADER_EPOCH else update.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            batches=combine(self.batches, _batches(update.state_batches), start_offset),
            created_at=self.created_at,
            written_at=self.written_at,
        )


def _batches(listed: Sequence[SnapshotBatch] | Sequence[UpdateBatch]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_count, each.delivery_state) for each in listed
    ]


def snapshot_record(key: SharePartitionKey, state: ShareState) -> CoordinatorRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_at,
        write_timestamp=state.written_at,
        state_batches=[
            SnapshotBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in state.batches
        ],
    )
    return record(ShareSnapshotKey(*key), value)


def update_value(
    *,
    snapshot_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
) -> ShareUpdateValue:
    return ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        state_batches=[
            UpdateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in batches
        ],
    )


def update_record(key: SharePartitionKey, value: ShareUpdateValue) -> CoordinatorRecord:
    return record(ShareUpdateKey(*key), value)


def tombstone_record(key: SharePartitionKey) -> CoordinatorRecord:
    return record(ShareSnapshotKey(*key), None)


def state_of(value: ShareSnapshotValue) -> ShareState:
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=_batches(value.state_batches),
        created_at=value.create_timestamp,
        written_at=value.write_timestamp,
    )


def state_of_update(value: ShareUpdateValue) -> ShareState:
    """What is known of a partition whose snapshot is not there any more."""
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=0,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=_batches(value.state_batches),
        created_at=0,
        written_at=0,
    )


def read_record(
    key: bytes, value: bytes | None
) -> tuple[SharePartitionKey, ShareSnapshotValue | ShareUpdateValue | None] | None:
    """The partition a record is about and what it says (None: it is gone); None for a kind of a later release."""
    try:
        decoded = decode_key("share", key)
    except UnknownRecordType:
        return None
    about = cast("ShareSnapshotKey | ShareUpdateKey", decoded)
    where = SharePartitionKey(about.group_id, about.topic_id, about.partition)
    if value is None:
        return (where, None) if isinstance(decoded, ShareSnapshotKey) else None
    assert decoded.API_KEY is not None
    said, _ = decode_value("share", decoded.API_KEY, value)
    return where, cast("ShareSnapshotValue | ShareUpdateValue", said)
