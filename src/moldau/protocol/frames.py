"""Frames: what stands around a message on a connection.

A request is a 4-byte length, a header and a body; so is its response. This file reads and writes headers (it is on the
path of every request, so it does that with one `struct` call and a table) and puts the length in front. It never
decides whether a version is served: an unknown API is a ProtocolError, an unknown version is the router's business.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final

from moldau.ports import Buffer
from moldau.protocol.api import API_TABLE, ApiKey, ApiSpec
from moldau.protocol.wire import ProtocolError, Reader, WireMessage, Writer, skip_tags

# Record batches at least this large are handed to the socket as they are, not copied into the response.
SPLICE_FROM_BYTES: Final = 4096

_LENGTH: Final = Struct(">i")
_REQUEST_HEAD: Final = Struct(">hhih")  # key, version, correlation id, length of the client id
_RESPONSE_HEAD: Final = Struct(">ii")  # length of the frame, correlation id
_CORRELATION: Final = Struct(">i")
_NEVER: Final = 1 << 15

_FLEXIBLE_FROM: Final[dict[int, int]] = {
    key: _NEVER if spec.flexible_from is None else spec.flexible_from for key, spec in API_TABLE.items()
}
# The same for responses, where ApiVersions always has the oldest header.
_FLEXIBLE_RESPONSE_FROM: Final[dict[int, int]] = {**_FLEXIBLE_FROM, ApiKey.API_VERSIONS.value: _NEVER}


def parse_request_header(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    """(API key, version, correlation id, client id, position of the body) of a frame without its length."""
    try:
        key, version, correlation_id, length = _REQUEST_HEAD.unpack_from(frame)
        pos = _REQUEST_HEAD.size
        if length < 0:
            client_id = None
        else:
            stop = pos + length
            if stop > len(frame):
                raise ProtocolError("client id longer than the frame")
            client_id = str(frame[pos:stop], "utf-8")
            pos = stop
        flexible_from = _FLEXIBLE_FROM.get(key)
        if flexible_from is None:
            raise ProtocolError(f"there is no API with key {key}")
        if version >= flexible_from:
            if frame[pos]:
                pos = skip_tags(frame, pos, len(frame))
            else:
                pos += 1
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError("malformed request header") from error
    return key, version, correlation_id, client_id, pos


def encode_response(api: ApiSpec | int, version: int, correlation_id: int, message: WireMessage) -> bytes:
    """A whole response frame, length included."""
    writer = Writer()
    _write_response(writer, api, version, correlation_id, message)
    return bytes(writer.buf)


def encode_response_chunks(api: ApiSpec | int, version: int, correlation_id: int, message: WireMessage) -> list[Buffer]:
    """The same in pieces, with large record batches by reference: for a gathering write."""
    writer = Writer(splice_from=SPLICE_FROM_BYTES)
    _write_response(writer, api, version, correlation_id, message)
    return writer.chunks()


def _write_response(
    writer: Writer, api: ApiSpec | int, version: int, correlation_id: int, message: WireMessage
) -> None:
    key = api.key if isinstance(api, ApiSpec) else api
    head = writer.buf
    head += _RESPONSE_HEAD.pack(0, correlation_id)
    if version >= _FLEXIBLE_RESPONSE_FROM[key]:
        head.append(0)
    message.write(writer, version)
    size = len(writer.buf) + sum(len(chunk) for chunk in writer.done)
    _LENGTH.pack_into(head, 0, size - _LENGTH.size)


def encode_request(
    api: ApiSpec | int, version: int, correlation_id: int, client_id: str | None, message: WireMessage
) -> bytes:
    """A whole request frame, length included, for the connections on which a node is the client."""
    key = api.key if isinstance(api, ApiSpec) else api
    writer = Writer()
    name = b"" if client_id is None else client_id.encode()
    buf = writer.buf
    buf += bytes(_LENGTH.size)
    buf += _REQUEST_HEAD.pack(key, version, correlation_id, -1 if client_id is None else len(name))
    buf += name
    if version >= _FLEXIBLE_FROM[key]:
        buf.append(0)
    message.write(writer, version)
    _LENGTH.pack_into(buf, 0, len(buf) - _LENGTH.size)
    return bytes(buf)


def parse_response_header(frame: Buffer, key: int, version: int) -> tuple[int, int]:
    """(correlation id, position of the body) of a response frame without its length."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        pos = _CORRELATION.size
        if version >= _FLEXIBLE_RESPONSE_FROM[key]:
            pos = skip_tags(frame, pos, len(frame))
    except (struct_error, IndexError) as error:
        raise ProtocolError("malformed response header") from error
    return correlation_id, pos


def decode_response(api: ApiSpec | int, version: int, frame: Buffer) -> tuple[int, WireMessage]:
    """(correlation id, message) of a response frame without its length."""
    spec = api if isinstance(api, ApiSpec) else API_TABLE[api]
    correlation_id, pos = parse_response_header(frame, spec.key, version)
    reader = Reader(frame, pos)
    message = spec.response_class().read(reader, version)
    if reader.pos != reader.end:
        raise ProtocolError(f"{reader.end - reader.pos} bytes left over after the response")
    return correlation_id, message
