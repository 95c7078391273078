"""`ports.Network` over real connections: one pipelined connection to each peer and lane, made when it is first needed.

Decides when a connection is made, given up and made again, which version of a request a peer gets, and that a peer
which asks who this node is hears that before anything else. Whoever waits is told at once when the connection breaks,
and whether anybody still listens there: that is how a dead process is noticed without a timeout. What is said is
nobody's business here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, cast

from moldau.node.alertness import Alertness
from moldau.node.protection import UNPROTECTED
from moldau.ports import Address, Unreachable
from moldau.protocol.api import API_TABLE
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from moldau.node.link_faults import LinkFaults
    from moldau.security.scram import Conversation

log: Final = logging.getLogger("moldau.network")

_LENGTH: Final = Struct(">i")
_CORRELATION: Final = Struct(">i")
CONNECT_SECONDS_MAX: Final = 2.0
# Between two attempts to connect, doubling; requests wait for the next attempt meanwhile.
BACKOFF_SECONDS_FIRST: Final = 0.01
BACKOFF_SECONDS_MAX: Final = 0.5
# An answer larger than this is not one.
MAX_FRAME_BYTES: Final = 256 << 20
API_VERSIONS_VERSION: Final = 4
# Names a Unix socket over which a test breaks this node's links (link_faults.py); not set, there is no such thing.
FAULTS_VARIABLE: Final = "MOLDAU_TEST_FAULTS"
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
# A login that expires is renewed when this share of its time is over.
RENEW_AFTER_SHARE: Final = 0.85


class _Request:
    __slots__ = ("done", "key", "message", "reply", "timer", "version")

    def __init__(self, message: Any, version: int, reply: Callable[[Any], None]) -> None:
        self.message = message
        self.key: int = message.API_KEY
        self.version = version
        self.reply = reply
        self.timer: asyncio.TimerHandle | None = None
        self.done = False

    def finish(self, answer: Any) -> None:
        if self.done:
            return
        self.done = True
        if self.timer is not None:
            self.timer.cancel()
        try:
            self.reply(answer)
        except Exception:
            log.exception("handling the answer to %s failed", API_TABLE[self.key].name)


class Peers:
    """All connections on which this node is the client."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, client_id: str, after: Callable[[], None], alertness: Alertness | None = None) -> None:
        """`after` is called when answers were handled, as after the requests of a connection; `alertness` keeps this
        node awake while it waits for answers, if they are worth it."""
        self.client_id = client_id
        self.after = after
        self.alertness = alertness
        self.closed = False
        self.faults: LinkFaults | None = None
        self.security = UNPROTECTED
        """What the listeners ask for that these connections go to."""
        self._lanes: dict[tuple[Address, str], _Lane] = {}

    def begin(self, loop: asyncio.AbstractEventLoop, faults: LinkFaults | None = None) -> None:
        """Before the first request. `faults` is what a test does to the links, in a node that a test started."""
        self.loop = loop
        self.faults = faults

    def send(
        self,
        to: Address,
        request: Any,
        api_version: int,
        reply: Callable[[Any], None],
        *,
        timeout_ms: int,
        lane: str = "",
    ) -> None:
        asked = _Request(request, api_version, reply)
        if self.closed:
            self.loop.call_soon(asked.finish, Unreachable("this node stops"))
            return
        peer = self._lanes.get((to, lane))
        if peer is None:
            peer = self._lanes[to, lane] = _Lane(self, to)
        asked.timer = self.loop.call_later(timeout_ms / 1000, peer.time_is_up, asked)
        peer.send(asked)

    def close(self) -> None:
        self.closed = True
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()
        if self.faults is not None:
            self.faults.close()


class _Lane:
    """Requests to one address that are answered in order, over one connection after the other."""

    def __init__(self, peers: Peers, address: Address) -> None:
        self._peers = peers
        self._address = address
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[_Request] = deque()
        self._backoff = 0.0
        self._retry: asyncio.TimerHandle | None = None

    def send(self, request: _Request) -> None:
        connection = self._connection
        if connection is not None and connection.ready:
            connection.write(request)
            return
        self._waiting.append(request)
        if connection is None and self._connecting is None and self._retry is None:
            self._connect()

    def _connect(self) -> None:
        self._retry = None
        self._connecting = self._peers.loop.create_task(self._open())

    async def _open(self) -> None:
        failure: Unreachable
        try:
            await asyncio.wait_for(self._reach(), CONNECT_SECONDS_MAX)
            return
        except TimeoutError:
            failure = Unreachable(f"{self._address} does not answer")
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError) or "Errno 111" in str(error)
            failure = Unreachable(f"{self._address}: {error.strerror or error}", nobody_listens=refused)
        finally:
            self._connecting = None
        self._failed(failure)

    async def _reach(self) -> None:
        host, port = self._address
        faults = self._peers.faults
        tls = self._peers.security.tls
        name = None if tls is None else host
        if faults is None:
            await self._peers.loop.create_connection(
                lambda: _Connection(self, self._peers), host, port, ssl=tls, server_hostname=name
            )
            return
        await faults.until_reachable(self._address)
        await self._peers.loop.create_connection(
            lambda: faults.over(self._address, _Connection(self, self._peers)),
            host,
            port,
            ssl=tls,
            server_hostname=name,
        )

    def _failed(self, why: Unreachable) -> None:
        """No connection: whoever waits is told, and the next attempt comes a little later."""
        self._backoff = min(max(2 * self._backoff, BACKOFF_SECONDS_FIRST), BACKOFF_SECONDS_MAX)
        self._rest()
        self._fail_waiting(why)

    def _rest(self) -> None:
        self._retry = self._peers.loop.call_later(self._backoff, self._rested)

    def _rested(self) -> None:
        self._retry = None
        if self._waiting and self._connection is None and self._connecting is None:
            self._connect()

    def _fail_waiting(self, why: Unreachable) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.finish(why)
        if waiting:
            self._peers.after()

    def opened(self, connection: _Connection) -> None:
        self._connection = connection

    def is_ready(self, connection: _Connection) -> None:
        """Versions are known, and the peer knows this node: send what waited for that."""
        self._backoff = 0.0
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if not request.done:
                connection.write(request)

    def refused(self, reason: str) -> None:
        """The other side does not let this node in; the next attempt comes after the longest rest."""
        log.warning("%s does not let this node in: %s", self._address, reason)
        self._backoff = BACKOFF_SECONDS_MAX
        self._rest()

    def lost(self, connection: _Connection, why: Unreachable) -> None:
        if self._connection is connection:
            self._connection = None
        for request in connection.unanswered():
            request.finish(why)
        self._fail_waiting(why)
        self._peers.after()

    def time_is_up(self, request: _Request) -> None:
        """An answer that does not come holds up all behind it: the connection is given up."""
        if request.done:
            return
        connection = self._connection
        request.finish(Unreachable(f"{self._address} did not answer in time"))
        if connection is not None:
            connection.abort()
        self._peers.after()

    def close(self) -> None:
        for handle in (self._retry, self._connecting):
            if handle is not None:
                handle.cancel()
        if self._connection is not None:
            self._connection.abort()
        self._fail_waiting(Unreachable("this node stops"))


class _Connection(asyncio.Protocol):
    """One connection: asks for the peer's versions first, says who this node is if it must, then matches answers to
    requests by their order."""

    def __init__(self, lane: _Lane, peers: Peers) -> None:
        self._lane = lane
        self._peers = peers
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._in_flight: dict[int, _Request] = {}
        self._next_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._renewal: asyncio.TimerHandle | None = None
        self.ready = False

    # ---- the event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._lane.opened(self)
        self._ask_versions(API_VERSIONS_VERSION)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ready = False
        if self._renewal is not None:
            self._renewal.cancel()
        reason = "the connection broke" if exc is None else f"the connection broke: {exc}"
        self._lane.lost(self, Unreachable(reason))

    def data_received(self, data: bytes) -> None:
        begun = self._buffer
        alertness = self._peers.alertness
        if alertness is not None:
            alertness.arrived()
        try:
            if begun:
                begun += data
                del begun[: self._take_answers(begun)]
            else:
                taken = self._take_answers(data)
                if taken < len(data):
                    begun += data[taken:]
        except ProtocolError as error:
            log.warning("a peer's answer cannot be read: %s", error)
            begun.clear()
            self.abort()
        self._peers.after()

    def _take_answers(self, buffer: bytes | bytearray) -> int:
        """Deal with every whole answer at the beginning; where the rest begins."""
        position = 0
        filled = len(buffer)
        while filled - position >= 4:
            size: int = _LENGTH.unpack_from(buffer, position)[0]
            if not 4 <= size <= MAX_FRAME_BYTES:
                raise ProtocolError(f"an answer of {size} bytes")
            start = position + 4
            end = start + size
            if filled < end:
                break
            # A copy: what is made of an answer may keep parts of it. (Of a buffer, one copy and not two.)
            self._answered(buffer[start:end] if isinstance(buffer, bytes) else bytes(memoryview(buffer)[start:end]))
            position = end
        return position

    # ---- requests and answers

    def write(self, request: _Request) -> None:
        version = request.version
        if request.key in self._versions:
            lowest, highest = self._versions[request.key]
            version = min(version, highest)
            if version < max(lowest, API_TABLE[request.key].min_version):
                request.finish(Unreachable(f"no version of {API_TABLE[request.key].name} that both sides know"))
                return
        elif self._versions:
            request.finish(Unreachable(f"the other side does not serve {API_TABLE[request.key].name}"))
            return
        request.version = version
        self._next_id = correlation_id = (self._next_id + 1) & 0x7FFFFFFF
        try:
            frame = encode_request(request.key, version, correlation_id, self._peers.client_id, request.message)
        except (ProtocolError, ValueError, TypeError) as error:
            log.exception("%s cannot be sent", API_TABLE[request.key].name)
            request.finish(Unreachable(f"the request cannot be written: {error}"))
            return
        self._in_flight[correlation_id] = request
        assert self._transport is not None
        self._transport.write(frame)
        alertness = self._peers.alertness
        if alertness is not None:
            alertness.expect()

    def _answered(self, frame: bytes) -> None:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        request = self._in_flight.pop(correlation_id, None)
        if request is None:
            raise ProtocolError(f"an answer to a request {correlation_id} that nobody sent")
        _, message = decode_response(request.key, request.version, frame)
        request.finish(message)

    def unanswered(self) -> list[_Request]:
        in_flight, self._in_flight = self._in_flight, {}
        return list(in_flight.values())

    def _ask_versions(self, version: int) -> None:
        ask = ApiVersionsRequest(client_software_name="moldau", client_software_version="1")

        def known(answer: Any) -> None:
            if isinstance(answer, Unreachable):
                self.abort()
            elif answer.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                self._ask_versions(0)
            elif answer.error_code:
                self.abort()
            else:
                self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
                if self._peers.security.mechanism is None:
                    self._be_ready()
                else:
                    self._log_in()

        self._ask(ask, version, known)

    def _ask(self, message: Any, version: int, reply: Callable[[Any], None]) -> None:
        """What must be answered before the connection can be used."""
        request = _Request(message, version, reply)
        request.timer = self._peers.loop.call_later(CONNECT_SECONDS_MAX, self._lane.time_is_up, request)
        self.write(request)

    def _be_ready(self) -> None:
        self.ready = True
        self._lane.is_ready(self)

    # ---- saying who this node is

    def _log_in(self) -> None:
        """Nothing else is sent meanwhile; also when a login is renewed."""
        from moldau.protocol.generated.wire.sasl_handshake_request import SaslHandshakeRequest

        self.ready = False
        mechanism, login = self._peers.security.mechanism, self._peers.security.login
        assert mechanism is not None, "a login without a mechanism"
        if login is None:
            self._refused(f"it asks for {mechanism}, and sasl.jaas.config gives this node no username and password")
            return

        def chosen(answer: Any) -> None:
            if isinstance(answer, Unreachable):
                return
            if answer.error_code:
                self._refused(f"it does not offer {mechanism}, but {', '.join(answer.mechanisms) or 'nothing'}")
                return
            conversation = login()
            self._send_token(conversation, next(conversation))

        self._ask(SaslHandshakeRequest(mechanism=mechanism), HANDSHAKE_VERSION, chosen)

    def _send_token(self, conversation: Conversation, token: bytes) -> None:
        from moldau.protocol.generated.wire.sasl_authenticate_request import SaslAuthenticateRequest
        from moldau.security.refusal import LoginRefused

        def answered(answer: Any) -> None:
            if isinstance(answer, Unreachable):
                return
            if answer.error_code:
                self._refused(answer.error_message or "it did not say why")
                return
            try:
                self._send_token(conversation, conversation.send(answer.auth_bytes))
            except StopIteration:
                self._logged_in(answer.session_lifetime_ms)
            except LoginRefused as error:
                self._refused(str(error))

        self._ask(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION, answered)

    def _logged_in(self, lifetime_ms: int) -> None:
        if lifetime_ms > 0:
            seconds = lifetime_ms / 1000 * RENEW_AFTER_SHARE
            self._renewal = self._peers.loop.call_later(seconds, self._log_in)
        self._be_ready()

    def _refused(self, reason: str) -> None:
        self._lane.refused(reason)
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
