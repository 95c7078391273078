"""How coordinators write their state into internal topics: a typed key, and a value with its version in front.

The first two bytes of a key say what kind of record it is, the first two of a value which version of that kind. The
three coordinators number their kinds independently, so every lookup names its coordinator: "group" for
__consumer_offsets, "transaction" for __transaction_state, "share" for __share_group_state.
"""

from __future__ import annotations

from struct import Struct
from typing import Literal, TypeAlias

from moldau.ports import Buffer
from moldau.protocol.api import message_class
from moldau.protocol.generated.api_table import COORDINATOR_RECORDS
from moldau.protocol.metadata_records import UnknownRecordType
from moldau.protocol.wire import ProtocolError, Reader, WireMessage, Writer

__all__ = [
    "Coordinator",
    "UnknownRecordType",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
    "key_class",
    "record_types",
    "value_class",
]

Coordinator: TypeAlias = Literal["group", "transaction", "share"]

_PREFIX = Struct(">h")
KEY_VERSION = 0


def record_types(coordinator: Coordinator) -> list[int]:
    return list(COORDINATOR_RECORDS[coordinator])


def key_class(coordinator: Coordinator, record_type: int) -> type[WireMessage]:
    return _class(coordinator, record_type, 0)


def value_class(coordinator: Coordinator, record_type: int) -> type[WireMessage]:
    return _class(coordinator, record_type, 1)


def _class(coordinator: Coordinator, record_type: int, which: Literal[0, 1]) -> type[WireMessage]:
    places = COORDINATOR_RECORDS[coordinator].get(record_type)
    if places is None:
        raise UnknownRecordType(f"the {coordinator} coordinator has no record of type {record_type}")
    return message_class(coordinator, *places[which])


def encode_key(key: WireMessage) -> bytes:
    assert key.API_KEY is not None, f"{type(key).__name__} is not a coordinator's key"
    return _encode(key.API_KEY, key, KEY_VERSION)


def encode_value(value: WireMessage, version: int) -> bytes:
    return _encode(version, value, version)


def decode_key(coordinator: Coordinator, data: Buffer) -> WireMessage:
    """The key; its class (or API_KEY) tells the type of the record. UnknownRecordType when a newer release wrote it."""
    reader = Reader(data)
    return _decode(key_class(coordinator, reader.int16()), reader, KEY_VERSION)


def decode_value(coordinator: Coordinator, record_type: int, data: Buffer) -> tuple[WireMessage, int]:
    """(value, its version) of the record whose key has this type."""
    reader = Reader(data)
    version = reader.int16()
    return _decode(value_class(coordinator, record_type), reader, version), version


def _encode(prefix: int, message: WireMessage, version: int) -> bytes:
    writer = Writer()
    writer.buf += _PREFIX.pack(prefix)
    message.write(writer, version)
    return bytes(writer.buf)


def _decode(cls: type[WireMessage], reader: Reader, version: int) -> WireMessage:
    message = cls.read(reader, version)
    if reader.pos != reader.end:
        raise ProtocolError(f"{reader.end - reader.pos} bytes left over after {cls.__name__}")
    return message
