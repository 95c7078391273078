"""One message to bytes and back, without a frame around it: for records in logs, files, and tests."""

from __future__ import annotations

from typing import TypeVar

from moldau.ports import Buffer
from moldau.protocol.wire import ProtocolError, Reader, WireMessage, Writer

M = TypeVar("M", bound=WireMessage)


def encode(message: WireMessage, version: int) -> bytes:
    writer = Writer()
    message.write(writer, version)
    return bytes(writer.buf)


def decode(cls: type[M], data: Buffer, version: int) -> M:
    """The message that fills `data` exactly; ProtocolError when bytes are missing or left over."""
    reader = Reader(data)
    message = cls.read(reader, version)
    if reader.pos != reader.end:
        raise ProtocolError(f"{reader.end - reader.pos} bytes left over after {cls.__name__} version {version}")
    return message
