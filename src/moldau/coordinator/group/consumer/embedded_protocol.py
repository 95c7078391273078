"""What consumers of the classic protocol say among themselves, which a group of both kinds must understand and speak.

A version stands in front of each message; a newer one than is known here is read as the newest that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import TYPE_CHECKING

from moldau.coordinator.group.modern.assignment import Assignment
from moldau.metadata.image import ClusterImage
from moldau.protocol.generated.wire.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from moldau.protocol.generated.wire.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.wire import ProtocolError, Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

_VERSION = Struct(">h")


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises ProtocolError when it is none."""
    reader = Reader(metadata)
    version = _version(reader, ConsumerProtocolSubscription.MAX_VERSION)
    return ConsumerProtocolSubscription.read(reader, version)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Raises ProtocolError when it is none."""
    reader = Reader(data)
    version = _version(reader, ConsumerProtocolAssignment.MAX_VERSION)
    return ConsumerProtocolAssignment.read(reader, version)


def write_assignment(topics: Mapping[bytes, Iterable[int]], metadata: bytes, image: ClusterImage) -> bytes:
    """For a member with this metadata, in the version it speaks; topics that are gone are left out."""
    version = min(int.from_bytes(metadata[:2], "big", signed=True), ConsumerProtocolAssignment.MAX_VERSION)
    message = ConsumerProtocolAssignment(user_data=None)
    for topic_id, partitions in topics.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            message.assigned_partitions.append(TopicPartition(topic.name, sorted(partitions)))
    writer = Writer()
    writer.buf += _VERSION.pack(version)
    message.write(writer, version)
    return bytes(writer.buf)


def assignment_by_id(message: ConsumerProtocolAssignment, image: ClusterImage) -> Assignment:
    found: dict[bytes, frozenset[int]] = {}
    for each in message.assigned_partitions:
        topic = image.topic(each.topic)
        if topic is not None and each.partitions:
            found[topic.id] = frozenset(each.partitions)
    return found


def _version(reader: Reader, newest: int) -> int:
    version = reader.int16()
    if version < 0:
        raise ProtocolError(f"version {version} of the consumers' own protocol")
    return min(version, newest)
