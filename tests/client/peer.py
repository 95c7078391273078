"""A peer that speaks just enough of the protocol to be difficult: old versions, SASL, TLS, or no Kafka at all."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import ssl
import threading
from collections.abc import Callable
from struct import Struct
from types import TracebackType
from typing import Any

from moldau.protocol.api import API_TABLE, ApiKey, request_header_version, response_header_version
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.api_versions_response import ApiVersion, ApiVersionsResponse
from moldau.protocol.generated.wire.metadata_response import MetadataResponse, MetadataResponseBroker
from moldau.protocol.generated.wire.sasl_authenticate_response import SaslAuthenticateResponse
from moldau.protocol.generated.wire.sasl_handshake_response import SaslHandshakeResponse
from moldau.protocol.wire import Reader, Writer

_SIZE = Struct(">i")


class Peer:
    """Serves connections one after the other on a thread until it is closed."""

    def __init__(
        self,
        *,
        api_versions: int = 4,
        metadata_versions: tuple[int, int] = (0, 13),
        mechanisms: tuple[str, ...] = (),
        authenticate: Callable[[], Any] | None = None,
        tls: ssl.SSLContext | None = None,
        answer_with: bytes | None = None,
    ) -> None:
        self.api_versions = api_versions
        self.metadata_versions = metadata_versions
        self.mechanisms = mechanisms
        self.authenticate = authenticate
        self.tls = tls
        self.answer_with = answer_with
        self.seen: list[tuple[int, int]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"localhost:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Peer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self.tls is not None:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                self._talk(connection)
            except OSError:
                pass
            finally:
                connection.close()

    def _talk(self, connection: socket.socket) -> None:
        exchange = self.authenticate() if self.authenticate else None
        while head := connection.recv(4, socket.MSG_WAITALL) if self.tls is None else _exactly(connection, 4):
            (size,) = _SIZE.unpack(head)
            frame = _exactly(connection, size)
            if self.answer_with is not None:
                connection.sendall(self.answer_with)
                return
            reader = Reader(frame)
            key, version, correlation = reader.int16(), reader.int16(), reader.int32()
            self.seen.append((key, version))
            reader.nullable_string()
            if key == ApiKey.API_VERSIONS and version > self.api_versions:
                connection.sendall(_framed(key, 0, correlation, self._versions(ErrorCode.UNSUPPORTED_VERSION)))
                continue
            if request_header_version(key, version) >= 2:
                reader.skip_tagged_fields()
            request = API_TABLE[key].request_class().read(reader, version)
            answer = self._answer(key, request, exchange)
            connection.sendall(_framed(key, version, correlation, answer))
            if getattr(answer, "error_code", 0):
                return

    def _versions(self, error: int = ErrorCode.NONE) -> ApiVersionsResponse:
        offered = {ApiKey.API_VERSIONS: (0, self.api_versions), ApiKey.METADATA: self.metadata_versions}
        if self.mechanisms:
            offered |= {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in offered.items()]
        return ApiVersionsResponse(error_code=error, api_keys=keys)

    def _answer(self, key: int, request: Any, exchange: Any) -> Any:
        if key == ApiKey.API_VERSIONS:
            return self._versions()
        if key == ApiKey.SASL_HANDSHAKE:
            known = request.mechanism in self.mechanisms
            code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return SaslHandshakeResponse(error_code=code, mechanisms=list(self.mechanisms))
        if key == ApiKey.SASL_AUTHENTICATE:
            answer = exchange(request.auth_bytes)
            if answer is None:
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
                return SaslAuthenticateResponse(error_code=code, error_message="wrong credentials")
            return SaslAuthenticateResponse(auth_bytes=answer)
        broker = MetadataResponseBroker(node_id=7, host="localhost", port=self.port)
        return MetadataResponse(brokers=[broker], controller_id=7, topics=[])


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def _framed(key: int, version: int, correlation: int, message: Any) -> bytes:
    writer = Writer()
    writer.int32(correlation)
    if response_header_version(key, version) >= 1:
        writer.empty_tagged_fields()
    message.write(writer, version)
    return _SIZE.pack(len(writer.buf)) + bytes(writer.buf)


def plain_server(username: str, password: str) -> Callable[[bytes], bytes | None]:
    expected = f"\0{username}\0{password}".encode()
    return lambda message: b"" if message == expected else None


def scram_server(algorithm: str, password: str, *, knows_password: bool = True) -> Callable[[bytes], bytes | None]:
    """The server's side of RFC 5802. One that does not know the password accepts anybody, as an impostor would."""
    salt, iterations = b"some salt", 4096
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    state: dict[str, bytes] = {}

    def answer(message: bytes) -> bytes | None:
        if "first" not in state:
            state["bare"] = message.removeprefix(b"n,,")
            nonce = message.rpartition(b"r=")[2] + b"server"
            state["first"] = b"r=%s,s=%s,i=%d" % (nonce, base64.b64encode(salt), iterations)
            return state["first"]
        bare, _, proof = message.rpartition(b",p=")
        signed = b",".join([state["bare"], state["first"], bare])
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if knows_password and base64.b64decode(proof) != expected:
            return None
        server_key = hmac.digest(salted if knows_password else b"guess", b"Server Key", algorithm)
        return b"v=" + base64.b64encode(hmac.digest(server_key, signed, algorithm))

    return answer
