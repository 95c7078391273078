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
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from moldau.broker.context import ClientConnection
from moldau.broker.router import Outcome
from moldau.config.node_config import NodeConfig
from moldau.node.buffers import BufferPool
from moldau.node.connection import KafkaConnection
from moldau.protocol.wire import ProtocolError

log = logging.getLogger("moldau.network")

BACKLOG = 1024
IDLE_CHECK_SECONDS = 5.0
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

    @classmethod
    def of(cls, config: NodeConfig) -> ConnectionLimits:
        limits = cls(0, 0, {}, 0, 0)
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
    """How many connections the whole node has, by address and in all."""

    __slots__ = ("by_host", "rejected", "total")

    def __init__(self) -> None:
        self.total = 0
        self.by_host: Counter[str] = Counter()
        self.rejected = 0


class Listener:
    """A named listener and its connections."""

    def __init__(
        self, name: str, service: Service, pool: BufferPool, limits: ConnectionLimits, counts: ConnectionCounts
    ) -> None:
        self.name = name
        self.port = 0
        self._service = service
        self._pool = pool
        self._limits = limits
        self._counts = counts
        self._connections: dict[KafkaConnection, ClientConnection] = {}
        self._server: asyncio.AbstractServer | None = None
        self._idle_check: asyncio.TimerHandle | None = None
        self._last_complaint = 0.0
        self.accepted = 0
        self.closed_idle = 0
        self.bad_requests = 0

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def bind(self, host: str, port: int) -> None:
        """Bind the address; connections queue in the kernel until `accept` is called."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connection, host or None, port, backlog=BACKLOG, reuse_address=True, start_serving=False
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def accept(self) -> None:
        assert self._server is not None
        await self._server.start_serving()
        self._schedule_idle_check()

    def _connection(self) -> KafkaConnection:
        return KafkaConnection(self, self._service, self._pool, self._limits.max_frame_bytes)

    def now(self) -> float:
        return time.monotonic()

    # ---- calls from connections

    def admit(self, connection: KafkaConnection) -> ClientConnection | None:
        """The connection's identity, or None when a limit is reached."""
        peer = connection.transport.get_extra_info("peername") or ("unknown", 0)
        host, port = str(peer[0]), int(peer[1])
        limits, counts = self._limits, self._counts
        allowed_here = limits.per_ip_overrides.get(host, limits.max_per_ip)
        if counts.total >= limits.max_connections or counts.by_host[host] >= allowed_here:
            counts.rejected += 1
            self._complain(
                "refused a connection from %s: it has %d of the node's %d", host, counts.by_host[host], counts.total
            )
            return None
        sock = connection.transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        counts.total += 1
        counts.by_host[host] += 1
        self.accepted += 1
        client = ClientConnection(next(_connection_ids), self.name, host, port, connected_at_ms=int(time.time() * 1000))
        self._connections[connection] = client
        connection.last_active = time.monotonic()
        return client

    def forget(self, connection: KafkaConnection) -> None:
        client = self._connections.pop(connection, None)
        if client is not None:
            counts = self._counts
            counts.total -= 1
            counts.by_host[client.host] -= 1
            if counts.by_host[client.host] <= 0:
                del counts.by_host[client.host]

    def bad_client(self, connection: KafkaConnection, error: ProtocolError) -> None:
        self.bad_requests += 1
        client = self._connections.get(connection)
        self._complain("closing the connection from %s: %s", client.host if client else "unknown", error)

    def _complain(self, text: str, *args: object) -> None:
        now = time.monotonic()
        if now - self._last_complaint >= BAD_CLIENT_LOG_SECONDS:
            self._last_complaint = now
            log.warning(text, *args)

    # ---- idle connections and the end

    def _schedule_idle_check(self) -> None:
        self._idle_check = asyncio.get_running_loop().call_later(IDLE_CHECK_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        if self._limits.idle_ms > 0:
            oldest = time.monotonic() - self._limits.idle_ms / 1000
            for connection in [c for c in self._connections if c.last_active < oldest and c.is_idle]:
                self.closed_idle += 1
                connection.close()
        self._schedule_idle_check()

    async def close(self) -> None:
        if self._idle_check is not None:
            self._idle_check.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        if self._server is not None:
            await asyncio.sleep(0)
            for connection in list(self._connections):
                connection.abort()
