"""One blocking connection to one broker: frames, API versions, authentication.

It sends one request at a time and waits for its answer. It decides which version of an API to use (the highest both
sides know) and nothing else: routing and repeating belong to the client above it.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from moldau.cli.admin import security
from moldau.cli.admin.settings import Address, Settings
from moldau.cli.errors import CliError, ConnectionFailed, Unsupported
from moldau.protocol.api import API_TABLE, ApiKey, request_header_version, response_header_version
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.wire import ProtocolError, Reader, Writer

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
_SIZE = struct.Struct(">i")


class Disconnected(Exception):
    """The connection broke or timed out; asking again, here or elsewhere, may work."""


class Connection:
    """A connected, negotiated and authenticated broker connection."""

    def __init__(self, address: Address, settings: Settings, connect_timeout: float) -> None:
        self.address = address
        self.settings = settings
        self.versions: dict[int, tuple[int, int]] = {}
        self.supported_features: dict[str, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        self.finalized_epoch = -1
        self._correlation = 0
        self._socket = self._open(connect_timeout)
        try:
            self._negotiate()
            if settings.uses_sasl:
                self._authenticate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def request(self, message: Any, *, timeout: float | None = None, max_version: int | None = None) -> Any:
        """Send one request in the highest version both sides know; its answer."""
        version = self.choose_version(message.API_KEY, max_version)
        return self._exchange(message, version, self.settings.request_timeout if timeout is None else timeout)

    def choose_version(self, api_key: int, max_version: int | None = None) -> int:
        spec = API_TABLE[api_key]
        low, high = self.versions.get(api_key, (0, -1))
        highest = min(high, spec.max_stable_version if max_version is None else max_version)
        if highest < max(low, spec.min_version):
            raise Unsupported(f"The broker at {self.address} does not support {spec.name}")
        return highest

    def supports(self, api_key: int) -> bool:
        try:
            self.choose_version(api_key)
        except Unsupported:
            return False
        return True

    def _open(self, timeout: float) -> socket.socket:
        try:
            raw = socket.create_connection((self.address.host, self.address.port), timeout=timeout)
        except OSError as error:
            raise Disconnected(_reason(error)) from None
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.settings.uses_tls:
            return raw
        import ssl

        try:
            return security.tls_context(self.settings.tls).wrap_socket(raw, server_hostname=self.address.host)
        except ssl.SSLError as error:
            raw.close()
            hint = f"Is {self.address} a TLS listener, and does the truststore hold its certificate authority?"
            raise CliError(f"TLS with {self.address} failed: {error.reason or error}", hint=hint) from None
        except OSError as error:
            raw.close()
            raise Disconnected(_reason(error)) from None

    def _negotiate(self) -> None:
        from moldau import __version__
        from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest

        request = ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
        version = API_TABLE[ApiKey.API_VERSIONS].max_stable_version
        timeout = self.settings.request_timeout
        answer = self._exchange(request, version, timeout)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = next((key.max_version for key in answer.api_keys if key.api_key == ApiKey.API_VERSIONS), 0)
            answer = self._exchange(request, min(version, offered), timeout)
        if answer.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(answer.error_code), f"{self.address} did not tell which APIs it serves")
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        self.supported_features = {
            each.name: (each.min_version, each.max_version) for each in answer.supported_features
        }
        self.finalized_features = {each.name: each.max_version_level for each in answer.finalized_features}
        self.finalized_epoch = answer.finalized_features_epoch

    def _authenticate(self) -> None:
        from moldau.protocol.generated.wire.sasl_authenticate_request import SaslAuthenticateRequest
        from moldau.protocol.generated.wire.sasl_handshake_request import SaslHandshakeRequest

        shaken = self.request(SaslHandshakeRequest(mechanism=self.settings.mechanism))
        if shaken.error_code != ErrorCode.NONE:
            offered = ", ".join(shaken.mechanisms) or "none"
            raise CliError(
                f"{self.address} does not accept SASL mechanism {self.settings.mechanism}",
                hint=f"It offers: {offered}.",
            )
        conversation = security.conversation(self.settings)
        message = next(conversation)
        while True:
            answer = self.request(SaslAuthenticateRequest(auth_bytes=message))
            if answer.error_code != ErrorCode.NONE:
                raise CliError(answer.error_message or "Authentication failed")
            try:
                message = conversation.send(answer.auth_bytes)
            except StopIteration:
                return

    def _exchange(self, message: Any, version: int, timeout: float) -> Any:
        self._correlation += 1
        deadline = time.monotonic() + timeout
        frame = self._frame(message, version)
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(frame)
            payload = self._read_frame(deadline)
        except OSError as error:
            raise Disconnected(_reason(error)) from None
        return self._decode(message.API_KEY, version, payload)

    def _frame(self, message: Any, version: int) -> bytes:
        writer = Writer()
        writer.int32(0)
        writer.int16(message.API_KEY)
        writer.int16(version)
        writer.int32(self._correlation)
        header_version = request_header_version(message.API_KEY, version)
        if header_version >= 1:
            writer.nullable_string(self.settings.client_id)
        if header_version >= 2:
            writer.uvarint(0)
        message.write(writer, version)
        _SIZE.pack_into(writer.buf, 0, len(writer.buf) - _SIZE.size)
        return bytes(writer.buf)

    def _read_frame(self, deadline: float) -> bytearray:
        (size,) = _SIZE.unpack(self._read_exactly(_SIZE.size, deadline))
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            hint = "Is this a Kafka listener, and is security.protocol right for it?"
            raise ConnectionFailed(f"{self.address} does not answer in Kafka's protocol", hint=hint)
        return self._read_exactly(size, deadline)

    def _read_exactly(self, size: int, deadline: float) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            received = self._socket.recv_into(view)
            if not received:
                raise ConnectionResetError("the broker closed the connection")
            view = view[received:]
        return data

    def _decode(self, api_key: int, version: int, payload: bytearray) -> Any:
        reader = Reader(payload)
        if reader.int32() != self._correlation:
            raise Disconnected(f"{self.address} answered another request than the one sent")
        if response_header_version(api_key, version) >= 1:
            reader.skip_tagged_fields()
        if api_key == ApiKey.API_VERSIONS and version > 0:
            # A broker that does not know our version answers in version 0, whatever was asked.
            code = int.from_bytes(payload[4:6], "big", signed=True)
            version = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
        try:
            return API_TABLE[api_key].response_class().read(reader, version)
        except ProtocolError as error:
            raise ConnectionFailed(f"{self.address} sent an answer that cannot be read: {error}") from None


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "host not found"
    return (error.strerror or str(error)).lower()
