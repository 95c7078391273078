"""One blocking connection to one broker: frames, API versions, authentication, several requests on their way.

It decides which version of an API is spoken: the highest that both sides know and the caller allows. Answers come back
in the order of the requests, which is what Kafka promises. Routing and repeating belong to the cluster above it.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from moldau.client.errors import Disconnected, MoldauError, Unreachable, Unsupported, refusal
from moldau.client.settings import ClientSettings
from moldau.ports import Address, Buffer
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.wire import ProtocolError

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
CONNECT_TIMEOUT = 10.0
_SIZE = struct.Struct(">i")
# Where the error code of an ApiVersions answer stands, in every version: behind the correlation id.
_VERSIONS_ERROR = struct.Struct(">4xh")

# The newest versions this client is written for, where they are not the newest there are. Later ones name topics by id,
# or (EndTxn 5, Produce 12) end a transaction with a new epoch, which would make the answer to a repeated commit depend
# on what happened since.
NEWEST_VERSIONS: dict[int, int] = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}

Allocate = Callable[[int], Buffer]


class Connection:
    """A connected, negotiated and authenticated connection to a broker. Answers are received into what `allocate`
    gives, and may refer to it."""

    def __init__(
        self,
        address: Address,
        settings: ClientSettings,
        *,
        timeout: float = CONNECT_TIMEOUT,
        allocate: Allocate = bytearray,
    ) -> None:
        self.address = address
        self.settings = settings
        self.versions: dict[int, tuple[int, int]] = {}
        self.supported_features: dict[str, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        self.finalized_epoch = -1
        self.closed = False
        self._allocate = allocate
        self._correlation = 0
        # (API key, version, correlation id) of every request that has not been answered yet.
        self._unanswered: deque[tuple[int, int, int]] = deque()
        self._socket = self._open(timeout)
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

    def request(self, message: Any, timeout: float | None = None, *, max_version: int | None = None) -> Any:
        """Send one request and wait for its answer; nothing else may be on its way."""
        assert not self._unanswered, "earlier requests have not been answered"
        self.send(message, max_version=max_version)
        return self.receive(timeout)

    def send(self, message: Any, *, max_version: int | None = None) -> None:
        """Send a request whose answer `receive` will return after those of earlier requests."""
        self._transmit(message, self.choose_version(message.API_KEY, max_version))

    def receive(self, timeout: float | None = None) -> Any:
        """The answer to the oldest request that has none yet."""
        key, version, correlation = self._unanswered[0]
        deadline = time.monotonic() + (self.settings.request_timeout if timeout is None else timeout)
        try:
            frame = self._read_frame(deadline)
        except OSError as error:
            self.close()
            raise Disconnected(_reason(error)) from None
        self._unanswered.popleft()
        if key == ApiKey.API_VERSIONS and _VERSIONS_ERROR.unpack_from(frame)[0] == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # so a broker answers that does not know our version, whatever was asked
        try:
            answered, message = decode_response(key, version, frame)
        except ProtocolError as error:
            self.close()
            raise Unreachable(f"{self.address} sent an answer that cannot be read: {error}", answered=True) from None
        if answered != correlation:
            self.close()
            raise Disconnected(f"{self.address} answered request {answered} where {correlation} was due")
        return message

    def choose_version(self, key: int, max_version: int | None = None) -> int:
        """The version to speak; `max_version` is for callers who know an API better than this file does."""
        spec = API_TABLE[key]
        low, high = self.versions.get(key, (0, -1))
        newest = NEWEST_VERSIONS.get(key, spec.max_stable_version) if max_version is None else max_version
        version = min(high, newest)
        if version < max(low, spec.min_version):
            raise Unsupported(f"The broker at {self.address} does not support {spec.name}")
        return version

    def supports(self, key: int) -> bool:
        try:
            self.choose_version(key)
        except Unsupported:
            return False
        return True

    def _transmit(self, message: Any, version: int) -> None:
        self._correlation += 1
        key = message.API_KEY
        frame = encode_request(key, version, self._correlation, self.settings.client_id, message)
        try:
            self._socket.settimeout(self.settings.request_timeout)
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise Disconnected(_reason(error)) from None
        self._unanswered.append((key, version, self._correlation))

    def _read_frame(self, deadline: float) -> Buffer:
        head = bytearray(_SIZE.size)
        self._fill(memoryview(head), deadline)
        (size,) = _SIZE.unpack(head)
        # No answer is shorter than a correlation id and an error code.
        if not 6 <= size <= MAX_RESPONSE_BYTES:
            self.close()
            hint = f"Is this a Kafka listener, and is {self.settings.prefix}security.protocol right for it?"
            raise Unreachable(f"{self.address} does not answer in Kafka's protocol", hint, answered=True)
        frame = self._allocate(size)
        view = memoryview(frame)
        self._fill(view, deadline)
        return view

    def _fill(self, view: memoryview, deadline: float) -> None:
        done, size = 0, len(view)
        while done < size:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            count = self._socket.recv_into(view[done:])
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            done += count

    def _open(self, timeout: float) -> socket.socket:
        try:
            raw = socket.create_connection((self.address.host, self.address.port), timeout=timeout)
        except OSError as error:
            raise Disconnected(_reason(error)) from None
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        return self._encrypted(raw) if self.settings.uses_tls else raw

    def _encrypted(self, raw: socket.socket) -> socket.socket:
        import ssl

        from moldau.client.security import tls_context

        try:
            return tls_context(self.settings).wrap_socket(raw, server_hostname=self.address.host)
        except ssl.SSLError as error:
            raw.close()
            store = f"{self.settings.prefix}ssl.truststore.location"
            hint = f"Is {self.address} a TLS listener, and does {store} hold its certificate authority?"
            raise MoldauError(f"TLS with {self.address} failed: {error.reason or error}", hint) from None
        except OSError as error:
            raw.close()
            raise Disconnected(_reason(error)) from None
        except MoldauError:
            raw.close()
            raise

    def _negotiate(self) -> None:
        from moldau import __version__
        from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest

        request = ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
        version = API_TABLE[ApiKey.API_VERSIONS].max_stable_version
        self._transmit(request, version)
        answer = self.receive()
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = next((key.max_version for key in answer.api_keys if key.api_key == ApiKey.API_VERSIONS), 0)
            self._transmit(request, min(version, offered))
            answer = self.receive()
        if answer.error_code != ErrorCode.NONE:
            raise refusal(answer.error_code, f"Asking {self.address} which APIs it serves")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        self.supported_features = {
            each.name: (each.min_version, each.max_version) for each in answer.supported_features
        }
        self.finalized_features = {each.name: each.max_version_level for each in answer.finalized_features}
        self.finalized_epoch = answer.finalized_features_epoch

    def _authenticate(self) -> None:
        from moldau.client import security
        from moldau.protocol.generated.wire.sasl_authenticate_request import SaslAuthenticateRequest
        from moldau.protocol.generated.wire.sasl_handshake_request import SaslHandshakeRequest
        from moldau.security.refusal import LoginRefused

        settings = self.settings
        shaken = self.request(SaslHandshakeRequest(mechanism=settings.mechanism))
        if shaken.error_code != ErrorCode.NONE:
            raise MoldauError(
                f"{self.address} does not accept {settings.prefix}sasl.mechanism={settings.mechanism}",
                hint=f"It offers: {', '.join(shaken.mechanisms) or 'none'}.",
            )
        conversation = security.conversation(settings)
        message = next(conversation)
        while True:
            answer = self.request(SaslAuthenticateRequest(auth_bytes=message))
            if answer.error_code != ErrorCode.NONE:
                raise MoldauError(
                    f"{self.address} refused the credentials of '{settings.username}': "
                    f"{answer.error_message or 'Authentication failed'}",
                    hint=f"Check {settings.prefix}sasl.jaas.config.",
                )
            try:
                message = conversation.send(bytes(answer.auth_bytes))
            except StopIteration:
                return
            except LoginRefused as error:
                raise MoldauError(f"Authentication failed: {error}") from None


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "host not found"
    return (error.strerror or str(error)).lower()
