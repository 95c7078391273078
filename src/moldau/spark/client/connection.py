"""One blocking connection to one broker: frames, API versions, authentication, several requests on their way.

It decides which version of an API is spoken: the highest that both sides know and the caller allows. Answers come back
in the order of the requests, which is what Kafka promises. Routing and repeating belong to the cluster above it.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from typing import Any

from moldau import __version__
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.sasl_authenticate_request import SaslAuthenticateRequest
from moldau.protocol.generated.wire.sasl_handshake_request import SaslHandshakeRequest
from moldau.protocol.wire import ProtocolError
from moldau.spark.buffers import POOL
from moldau.spark.client import security
from moldau.spark.client.settings import Address, ClientSettings
from moldau.spark.errors import MoldauError, refusal

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
CONNECT_TIMEOUT = 10.0
# Understood by every broker since Kafka 2.4, so there is nothing to negotiate about the negotiation.
API_VERSIONS_VERSION = 3
_SIZE = struct.Struct(">i")

# The newest versions this client is written for. Later ones name topics by id, or (EndTxn 5, Produce 12) end a
# transaction with a new epoch, which would make the answer to a repeated commit depend on what happened since.
NEWEST_VERSIONS = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}


class Disconnected(Exception):
    """The connection broke or timed out; asking again, here or elsewhere, may work."""


class Connection:
    """A connected, negotiated and authenticated connection to a broker."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self._settings = settings
        self._versions: dict[int, tuple[int, int]] = {}
        self.closed = False
        self._correlation = 0
        # (API key, version, correlation id) of every request that has not been answered yet.
        self._unanswered: deque[tuple[int, int, int]] = deque()
        self._socket = self._open()
        try:
            self._negotiate()
            if settings.uses_sasl:
                self._authenticate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.closed = True
        self._unanswered.clear()
        self._socket.close()

    @property
    def in_flight(self) -> int:
        return len(self._unanswered)

    def request(self, message: Any, timeout: float | None = None) -> Any:
        """Send one request and wait for its answer; nothing else may be on its way."""
        assert not self._unanswered, "earlier requests have not been answered"
        self.send(message)
        return self.receive(timeout)

    def send(self, message: Any) -> None:
        """Send a request whose answer `receive` will return after those of earlier requests."""
        key = message.API_KEY
        version = self._choose_version(key)
        self._transmit(message, key, version)

    def receive(self, timeout: float | None = None) -> Any:
        """The answer to the oldest request that has none yet."""
        key, version, correlation = self._unanswered[0]
        self._socket.settimeout(self._settings.request_timeout if timeout is None else timeout)
        try:
            (size,) = _SIZE.unpack(self._read(_SIZE.size))
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                raise MoldauError(f"{self.address} sent a frame of {size} bytes: is it a Kafka broker's port?")
            frame = self._read(size)
        except OSError as error:
            self.close()
            raise Disconnected(_reason(error)) from None
        self._unanswered.popleft()
        try:
            answered, message = decode_response(key, version, frame)
        except ProtocolError as error:
            self.close()
            raise MoldauError(f"{self.address} sent an answer that cannot be read: {error}") from None
        if answered != correlation:
            self.close()
            raise MoldauError(f"{self.address} answered request {answered} where {correlation} was due")
        return message

    def _transmit(self, message: Any, key: int, version: int) -> None:
        self._correlation += 1
        frame = encode_request(key, version, self._correlation, self._settings.client_id, message)
        self._socket.settimeout(self._settings.request_timeout)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise Disconnected(_reason(error)) from None
        self._unanswered.append((key, version, self._correlation))

    def _read(self, size: int) -> memoryview:
        # Not a bytearray: clearing megabytes that are overwritten at once is felt.
        received = memoryview(POOL.take(size))
        done = 0
        while done < size:
            count = self._socket.recv_into(received[done:])
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            done += count
        return received

    def _choose_version(self, key: int) -> int:
        spec = API_TABLE[key]
        low, high = self._versions.get(key, (0, -1))
        version = min(high, spec.max_stable_version, NEWEST_VERSIONS.get(ApiKey(key), spec.max_stable_version))
        if version < max(low, spec.min_version):
            raise MoldauError(f"The broker at {self.address} does not support {spec.name}, which is needed here")
        return version

    def _open(self) -> socket.socket:
        try:
            raw = socket.create_connection((self.address.host, self.address.port), timeout=CONNECT_TIMEOUT)
        except OSError as error:
            raise Disconnected(_reason(error)) from None
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        if not self._settings.uses_tls:
            return raw
        try:
            context = security.tls_context(self._settings.tls)
            return context.wrap_socket(raw, server_hostname=self.address.host)
        except ssl.SSLError as error:
            raw.close()
            raise MoldauError(
                f"TLS with {self.address} failed: {error.reason or error}; "
                "is it a TLS listener, and does kafka.ssl.truststore.location hold its certificate authority?"
            ) from None
        except OSError as error:
            raw.close()
            raise Disconnected(_reason(error)) from None

    def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name="moldau-spark", client_software_version=__version__)
        self._transmit(request, ApiKey.API_VERSIONS, API_VERSIONS_VERSION)
        answer = self.receive()
        if answer.error_code:
            raise refusal(answer.error_code, f"Asking {self.address} which APIs it serves")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _authenticate(self) -> None:
        shaken = self.request(SaslHandshakeRequest(mechanism=self._settings.mechanism))
        if shaken.error_code:
            raise MoldauError(
                f"{self.address} does not accept kafka.sasl.mechanism={self._settings.mechanism}; "
                f"it offers {', '.join(shaken.mechanisms) or 'none'}"
            )
        conversation = security.conversation(self._settings)
        message = next(conversation)
        while True:
            answer = self.request(SaslAuthenticateRequest(auth_bytes=message))
            if answer.error_code:
                raise MoldauError(
                    f"{self.address} refused the credentials of '{self._settings.username}': "
                    f"{answer.error_message or 'authentication failed'}; check kafka.sasl.jaas.config"
                )
            try:
                message = conversation.send(bytes(answer.auth_bytes))
            except StopIteration:
                return


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "host not found"
    return (error.strerror or str(error)).lower()
