"""The control records of the metadata log: leader change, snapshot header and footer, kraft.version and voters.

This module decides which message goes with which control type and builds and reads batches of them. Their value is the
message alone, in the version that its own `version` field names. Transaction markers are `builder.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, TypeAlias

from moldau.protocol.codec import encode
from moldau.protocol.generated.wire.kraft_version_record import KRaftVersionRecord
from moldau.protocol.generated.wire.leader_change_message import LeaderChangeMessage
from moldau.protocol.generated.wire.snapshot_footer_record import SnapshotFooterRecord
from moldau.protocol.generated.wire.snapshot_header_record import SnapshotHeaderRecord
from moldau.protocol.generated.wire.voters_record import VotersRecord
from moldau.protocol.wire import ProtocolError, Reader
from moldau.records.batch import (
    CONTROL_KRAFT_VERSION,
    CONTROL_KRAFT_VOTERS,
    CONTROL_LEADER_CHANGE,
    CONTROL_SNAPSHOT_FOOTER,
    CONTROL_SNAPSHOT_HEADER,
    NO_LEADER_EPOCH,
)
from moldau.records.builder import build_control_batch
from moldau.records.compression import CorruptRecords
from moldau.records.record import ControlRecord

KRaftControl: TypeAlias = (
    LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
)

_TYPE_OF: Final[dict[type[KRaftControl], int]] = {
    LeaderChangeMessage: CONTROL_LEADER_CHANGE,
    SnapshotHeaderRecord: CONTROL_SNAPSHOT_HEADER,
    SnapshotFooterRecord: CONTROL_SNAPSHOT_FOOTER,
    KRaftVersionRecord: CONTROL_KRAFT_VERSION,
    VotersRecord: CONTROL_KRAFT_VOTERS,
}
_CLASS_OF: Final = {kind: message for message, kind in _TYPE_OF.items()}
_VERSION: Final = Struct(">h")


def build_kraft_control_batch(
    messages: Sequence[KRaftControl], *, timestamp: int, base_offset: int = 0, leader_epoch: int = NO_LEADER_EPOCH
) -> bytes:
    """One control batch of these messages, each in the version it names."""
    return build_control_batch(
        [(_TYPE_OF[type(message)], encode(message, message.version)) for message in messages],
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def decode_kraft_control(record: ControlRecord) -> KRaftControl | None:
    """The message of a control record; None for a type that is not KRaft's (or not known yet)."""
    message_class = _CLASS_OF.get(record.type)
    if message_class is None:
        return None
    if len(record.value) < _VERSION.size:
        raise CorruptRecords(f"control record at offset {record.offset} has no version")
    # A newer writer only adds tagged fields within a version; a newer version is read as the newest known.
    version = min(_VERSION.unpack_from(record.value)[0], message_class.MAX_VERSION)
    try:
        return message_class.read(Reader(record.value), version)
    except ProtocolError as error:
        raise CorruptRecords(f"control record at offset {record.offset} cannot be read: {error}") from None
