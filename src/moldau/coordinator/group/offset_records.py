"""The bytes of committed offsets: record keys and values, written and read without building messages.

Commits are the most frequent requests of a coordinator and a million of them may be in memory, so a committed offset
stays what it is in the log (the value's bytes) and is taken apart only when somebody asks for it. The formats are
those of OffsetCommitKey and OffsetCommitValue; `coordinator_records` reads the same bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from moldau.coordinator.decision import CoordinatorRecord
from moldau.protocol.coordinator_records import decode_value, encode_value
from moldau.protocol.generated.group.offset_commit_value import OffsetCommitValue
from moldau.protocol.uuids import ZERO_UUID

# Type of the records, as the first two bytes of their keys; the older one was written by very old releases.
LEGACY_OFFSET_COMMIT: Final = 0
OFFSET_COMMIT: Final = 1
# The version with a topic id, and the one with an own time of expiry.
VALUE_VERSION: Final = 4
EXPIRING_VALUE_VERSION: Final = 1

NO_TIME: Final = -1

_PREFIX: Final = Struct(">hh")
_LENGTH: Final = Struct(">h")
_PARTITION: Final = Struct(">i")
_HEAD: Final = Struct(">hqi")  # version, offset, leader epoch
_TIME: Final = Struct(">q")
_TOPIC_ID: Final = b"\x01\x00\x10"  # one tagged field: tag 0, 16 bytes
_SHORT: Final = 127


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes


def offset_key(group: bytes, topic: bytes, partition: int) -> bytes:
    return (
        _PREFIX.pack(OFFSET_COMMIT, len(group)) + group + _LENGTH.pack(len(topic)) + topic + _PARTITION.pack(partition)
    )


def read_offset_key(key: bytes) -> tuple[str, str, int]:
    """(group, topic, partition)"""
    end = 4 + _LENGTH.unpack_from(key, 2)[0]
    topic_end = end + 2 + _LENGTH.unpack_from(key, end)[0]
    partition: int = _PARTITION.unpack_from(key, topic_end)[0]
    return key[4:end].decode(), key[end + 2 : topic_end].decode(), partition


def offset_value(
    offset: int, leader_epoch: int, metadata: str, timestamp: int, expire_timestamp: int, topic_id: bytes
) -> bytes:
    if expire_timestamp != NO_TIME:
        value = OffsetCommitValue(offset, leader_epoch, metadata, timestamp, expire_timestamp)
        return encode_value(value, EXPIRING_VALUE_VERSION)
    text = metadata.encode()
    size = len(text) + 1
    if size > _SHORT:
        return encode_value(
            OffsetCommitValue(offset, leader_epoch, metadata, timestamp, topic_id=topic_id), VALUE_VERSION
        )
    head = _HEAD.pack(VALUE_VERSION, offset, leader_epoch)
    tail = b"\x00" if topic_id == ZERO_UUID else _TOPIC_ID + topic_id
    return head + size.to_bytes(1, "big") + text + _TIME.pack(timestamp) + tail


def read_offset_value(value: bytes) -> CommittedOffset:
    version, offset, leader_epoch = _HEAD.unpack_from(value)
    size = value[14] if version == VALUE_VERSION else 0
    if 0 < size <= _SHORT:
        end = 14 + size
        timestamp: int = _TIME.unpack_from(value, end)[0]
        tail = value[end + 8 :]
        if tail == b"\x00":
            return CommittedOffset(offset, leader_epoch, value[15:end].decode(), timestamp, NO_TIME, ZERO_UUID)
        if len(tail) == 19 and tail.startswith(_TOPIC_ID):
            return CommittedOffset(offset, leader_epoch, value[15:end].decode(), timestamp, NO_TIME, tail[3:])
    message, _ = decode_value("group", OFFSET_COMMIT, value)
    assert isinstance(message, OffsetCommitValue)
    return CommittedOffset(
        message.offset,
        message.leader_epoch,
        message.metadata,
        message.commit_timestamp,
        message.expire_timestamp,
        message.topic_id,
    )


def offset_tombstone(group: str, topic: str, partition: int) -> CoordinatorRecord:
    return offset_key(group.encode(), topic.encode(), partition), None
