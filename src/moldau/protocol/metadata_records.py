"""How a record of the cluster metadata log lies in the value of a record: frame version, type, version, body.

The caller decides which version of a record the cluster's metadata.version allows; this file only writes it down.
"""

from __future__ import annotations

from moldau.ports import Buffer
from moldau.protocol.api import message_class
from moldau.protocol.generated.api_table import METADATA_RECORDS
from moldau.protocol.wire import ProtocolError, Reader, WireMessage, Writer, put_uvarint

FRAME_VERSION = 1


class UnknownRecordType(ProtocolError):
    """A record whose type no release that we know has written; its bytes may be sound."""


def metadata_record_class(record_type: int) -> type[WireMessage]:
    place = METADATA_RECORDS.get(record_type)
    if place is None:
        raise UnknownRecordType(f"there is no metadata record of type {record_type}")
    return message_class("metadata", *place)


def encode_record(record: WireMessage, version: int) -> bytes:
    assert record.API_KEY is not None, f"{type(record).__name__} is not a metadata record"
    writer = Writer()
    buf = writer.buf
    buf.append(FRAME_VERSION)
    put_uvarint(buf, record.API_KEY)
    put_uvarint(buf, version)
    record.write(writer, version)
    return bytes(buf)


def decode_record(data: Buffer) -> tuple[WireMessage, int]:
    """(record, its version); ProtocolError when the bytes are not exactly one record."""
    reader = Reader(data)
    frame_version = reader.uvarint()
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"metadata record with frame version {frame_version}")
    cls = metadata_record_class(reader.uvarint())
    version = reader.uvarint()
    record = cls.read(reader, version)
    if reader.pos != reader.end:
        raise ProtocolError(f"{reader.end - reader.pos} bytes left over after {cls.__name__}")
    return record, version
