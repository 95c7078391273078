"""The listening socket of a TLS listener: accepts, and makes a connection of it once the handshake is through.

Decides how many strangers may be in a handshake at once and how long that may take: until it is through, nobody knows
who they are, and no connection of ours stands behind them that the usual limits would count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

log = logging.getLogger("moldau.network")

BACKLOG: Final = 1024
HANDSHAKE_SECONDS_MAX: Final = 10.0
HANDSHAKES_MAX: Final = 512
ACCEPT_AT_ONCE: Final = 32
# The process has no descriptors left: those who wait are let in when some came free.
REST_SECONDS: Final = 0.2


class TlsDoor:
    """One address that speaks TLS."""

    def __init__(
        self,
        context: ssl.SSLContext,
        connection: Callable[[], asyncio.BaseProtocol],
        *,
        room: Callable[[], int],
        failed: Callable[[str, str], None],
    ) -> None:
        """`room` tells how many more descriptors may be taken; `failed` is told (host, reason)."""
        self.context = context
        """Of the next handshakes; a new one takes nothing from connections that are open."""
        self._connection = connection
        self._room = room
        self._failed = failed
        self._sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._rests: dict[socket.socket, asyncio.TimerHandle] = {}
        self._open = False

    async def bind(self, host: str, port: int) -> int:
        """Bind the address; the port that it is, should the system have chosen it."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                sock = socket.socket(family, kind, protocol)
                self._sockets.append(sock)
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((address[0], port, *address[2:]))
                sock.listen(BACKLOG)
                port = sock.getsockname()[1]
        except OSError:
            self.close()
            raise
        return port

    def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._open = True
        for sock in self._sockets:
            loop.add_reader(sock, self._accept, sock)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            if len(self._handshakes) >= HANDSHAKES_MAX:
                self._rest(listening)
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept connections: %s", error.strerror)
                self._rest(listening)
                return
            if self._room() <= len(self._handshakes):
                sock.close()
                self._failed(str(address[0]), "the node has no file descriptors left")
                continue
            sock.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._shake_hands(sock, str(address[0])))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _rest(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._rests[listening] = loop.call_later(REST_SECONDS, self._go_on, listening)

    def _go_on(self, listening: socket.socket) -> None:
        del self._rests[listening]
        if self._open:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def _shake_hands(self, sock: socket.socket, host: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connection, sock, ssl=self.context, ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX
            )
        except OSError as error:
            # Whoever only looks whether somebody listens says nothing at all, which is nobody's fault.
            if isinstance(error, ssl.SSLError):
                self._failed(host, f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}")
            with contextlib.suppress(OSError):
                sock.close()

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for timer in self._rests.values():
            timer.cancel()
        for sock in self._sockets:
            if self._open:
                loop.remove_reader(sock)
            sock.close()
        self._open = False
        self._sockets.clear()
        for task in self._handshakes:
            task.cancel()
