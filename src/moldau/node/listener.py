"""One listening address: accepts connections, enforces the connection limits, closes the idle.

Decides who may connect at all (per address and in total) and when a silent connection is closed. What a connection
says is `connection.py`'s business.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from moldau.broker.context import ClientConnection
from moldau.broker.router import Outcome
from moldau.config.node_config import NodeConfig
from moldau.node.alertness import Alertness
from moldau.node.buffers import BufferPool
from moldau.node.connection import KafkaConnection
from moldau.node.protection import OPEN, ListenerSecurity
from moldau.node.unread import UnreadAnswers
from moldau.protocol.wire import ProtocolError
from moldau.security.refusal import LoginRefused

if TYPE_CHECKING:
    from moldau.node.tls_door import TlsDoor

log = logging.getLogger("moldau.network")

BACKLOG = 1024
IDLE_CHECK_SECONDS = 5.0
# A connection that was closed and whose client does not read what is left.
CLOSING_SECONDS_MAX = 5.0
# A client that sends nonsense again and again must not fill the log.
BAD_CLIENT_LOG_SECONDS = 1.0

_connection_ids = itertools.count(1)


class Service(Protocol):
    """What answers the requests of a listener."""

    def dispatch(self, frame: memoryview, connection: ClientConnection) -> Outcome: ...

    def after_requests(self) -> None: ...

    def disconnected(self, connection: ClientConnection) -> None: ...


@dataclass(slots=True)
class ConnectionLimits:
    """Kafka's max.connections family, as it stands now; shared by all listeners of a node."""

    max_connections: int
    max_per_ip: int
    per_ip_overrides: Mapping[str, int]
    idle_ms: int
    max_frame_bytes: int
    # File descriptors that connections may take in all: the logs need theirs, or a disk would seem to fail.
    descriptors: int

    @classmethod
    def of(cls, config: NodeConfig, descriptors: int) -> ConnectionLimits:
        limits = cls(0, 0, {}, 0, 0, descriptors)
        limits.take(config)
        return limits

    def take(self, config: NodeConfig) -> None:
        """Take over changed settings; they hold for the next connection."""
        self.max_connections = config.integer("max.connections")
        self.max_per_ip = config.integer("max.connections.per.ip")
        pairs = (entry.rpartition(":") for entry in config.text("max.connections.per.ip.overrides").split(",") if entry)
        self.per_ip_overrides = {host.strip(): int(count) for host, _, count in pairs}
        self.idle_ms = config.integer("connections.max.idle.ms")
        self.max_frame_bytes = config.integer("socket.request.max.bytes")


class ConnectionCounts:
    """How many connections the listeners of one kind have, by address and in all, and who waits for a place."""

    __slots__ = ("by_host", "descriptors", "total", "waiting")

    def __init__(self) -> None:
        self.total = 0
        self.by_host: Counter[str] = Counter()
        # Open sockets, also of those that wait or are about to be refused.
        self.descriptors = 0
        self.waiting: deque[tuple[Listener, KafkaConnection]] = deque()


class Listener:
    """A named listener and its connections."""

    def __init__(
        self,
        name: str,
        service: Service,
        pool: BufferPool,
        unread: UnreadAnswers,
        limits: ConnectionLimits,
        counts: ConnectionCounts,
        alertness: Alertness,
        security: ListenerSecurity = OPEN,
    ) -> None:
        self.name = name
        self.port = 0
        self._service = service
        self._pool = pool
        self._unread = unread
        self._limits = limits
        self._counts = counts
        self._alertness = alertness
        self._security = security
        self._connections: dict[KafkaConnection, ClientConnection] = {}
        self._server: asyncio.AbstractServer | None = None
        self._door: TlsDoor | None = None
        self._idle_check: asyncio.TimerHandle | None = None
        self._last_complaint = 0.0
        self.accepted = 0
        self.rejected = 0
        self.closed_idle = 0
        self.bad_requests = 0
        self.logins = 0
        self.refused_logins = 0

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def secure_with(self, security: ListenerSecurity) -> None:
        """Certificates or settings have changed: they hold for the next connection."""
        self._security = security
        if self._door is not None:
            assert security.tls is not None, "the protocol of a listener does not change"
            self._door.context = security.tls

    @property
    def max_frame_bytes(self) -> int:
        return self._limits.max_frame_bytes

    async def bind(self, host: str, port: int) -> None:
        """Bind the address; connections queue in the kernel until `accept` is called."""
        if self._security.tls is not None:
            from moldau.node.tls_door import TlsDoor

            self._door = TlsDoor(
                self._security.tls,
                self._connection,
                room=lambda: self._limits.descriptors - self._counts.descriptors,
                failed=self._handshake_failed,
            )
            self.port = await self._door.bind(host, port)
            return
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connection, host or None, port, backlog=BACKLOG, reuse_address=True, start_serving=False
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def accept(self) -> None:
        if self._door is not None:
            self._door.open()
        else:
            assert self._server is not None
            await self._server.start_serving()
        self._schedule_idle_check()

    def _connection(self) -> KafkaConnection:
        return KafkaConnection(
            self, self._service, self._pool, self._unread, self._alertness, self._limits.max_frame_bytes
        )

    # ---- calls from connections

    def soon(self, call: Callable[[], None]) -> None:
        """Call after the other connections had their turn."""
        asyncio.get_running_loop().call_soon(call)

    def arrived(self, connection: KafkaConnection) -> None:
        """A new connection: let it in, let it wait for a place as Kafka does, or turn it away."""
        limits, counts = self._limits, self._counts
        counts.descriptors += 1
        if counts.descriptors > limits.descriptors:
            self._turn_away(connection, "the node has no file descriptors left for more than %d", limits.descriptors)
        elif counts.total >= limits.max_connections:
            self._complain("%d connections (max.connections): new ones wait for a place", counts.total)
            connection.wait_outside()
            counts.waiting.append((self, connection))
        else:
            self._let_in(connection)

    def _let_in(self, connection: KafkaConnection) -> None:
        transport, limits, counts = connection.transport, self._limits, self._counts
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        host, port = str(peer[0]), int(peer[1])
        if counts.by_host[host] >= limits.per_ip_overrides.get(host, limits.max_per_ip):
            self._turn_away(connection, "%s has %d already (max.connections.per.ip)", host, counts.by_host[host])
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        counts.total += 1
        counts.by_host[host] += 1
        self.accepted += 1
        client = ClientConnection(next(_connection_ids), self.name, host, port, connected_at_ms=int(time.time() * 1000))
        self._connections[connection] = client
        if self._security is OPEN or self._secure(connection, client):
            connection.admit(client)

    def _secure(self, connection: KafkaConnection, client: ClientConnection) -> bool:
        """Before anything the client says is looked at: who is it, and what must it prove? Whether it may stay."""
        security = self._security
        if security.user_of_certificate is not None:
            from moldau.node.tls import subject_of

            subject = subject_of(connection.transport.get_extra_info)
            if subject is not None:
                try:
                    client.principal = f"User:{security.user_of_certificate(subject)}"
                except LoginRefused as refusal:
                    self.login_refused(client, str(refusal))
                    connection.give_up()
                    return False
        if security.entrance is not None:
            security.entrance.guard(connection, self._service, self)
        return True

    def _turn_away(self, connection: KafkaConnection, reason: str, *facts: object) -> None:
        self.rejected += 1
        self._complain("refused a connection: " + reason, *facts)
        connection.give_up()

    def forget(self, connection: KafkaConnection) -> None:
        counts = self._counts
        counts.descriptors -= 1
        client = self._connections.pop(connection, None)
        if client is None:
            return
        counts.total -= 1
        counts.by_host[client.host] -= 1
        if counts.by_host[client.host] <= 0:
            del counts.by_host[client.host]
        while counts.waiting and counts.total < self._limits.max_connections:
            listener, next_one = counts.waiting.popleft()
            if not next_one.is_closing:
                listener._let_in(next_one)

    def bad_client(self, connection: KafkaConnection, error: ProtocolError) -> None:
        self.bad_requests += 1
        client = self._connections.get(connection)
        self._complain("closing the connection from %s: %s", client.host if client else "unknown", error)

    def logged_in(self, client: ClientConnection) -> None:
        self.logins += 1

    def login_refused(self, client: ClientConnection, reason: str) -> None:
        self.refused_logins += 1
        self._complain("refused a login from %s: %s", client.host, reason)

    def _handshake_failed(self, host: str, reason: str) -> None:
        self.refused_logins += 1
        self._complain("closing the connection from %s: %s", host, reason)

    def _complain(self, text: str, *args: object) -> None:
        now = time.monotonic()
        if now - self._last_complaint >= BAD_CLIENT_LOG_SECONDS:
            self._last_complaint = now
            log.warning(text, *args)

    # ---- idle connections and the end

    def _schedule_idle_check(self) -> None:
        idle_ms = self._limits.idle_ms
        often = min(IDLE_CHECK_SECONDS, idle_ms / 4000) if idle_ms > 0 else IDLE_CHECK_SECONDS
        self._idle_check = asyncio.get_running_loop().call_later(max(often, 0.05), self._close_idle)

    def _close_idle(self) -> None:
        now = time.monotonic()
        idle_ms = self._limits.idle_ms
        idle_since = now - idle_ms / 1000 if idle_ms > 0 else 0.0
        for connection in list(self._connections):
            if connection.is_closing:
                if connection.closing_since < now - CLOSING_SECONDS_MAX:
                    connection.give_up()
            elif connection.is_idle(idle_since):
                self.closed_idle += 1
                # Whoever has not read anything for so long will not read the rest either.
                connection.give_up()
        self._schedule_idle_check()

    async def close(self) -> None:
        if self._idle_check is not None:
            self._idle_check.cancel()
        if self._server is not None:
            self._server.close()
        if self._door is not None:
            self._door.close()
        self._counts.waiting.clear()
        for connection in list(self._connections):
            connection.close()
        if self._server is not None or self._door is not None:
            await asyncio.sleep(0)
            for connection in list(self._connections):
                connection.give_up()
