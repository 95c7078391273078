"""Health and metrics over HTTP, for probes and for Prometheus.

Answers GET /health (is the process alive), /ready (does the broker serve) and /metrics. Deliberately tiny: no
keep-alive, no request bodies, a bounded request line; nothing here can change the node.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping

log = logging.getLogger("moldau.http")

REQUEST_BYTES_MAX = 8192
REQUEST_SECONDS_MAX = 5.0
# Probes at the same time; more are turned away, or they would take the descriptors that logs and clients need.
PROBES_MAX = 32

Page = Callable[[], tuple[int, str, bytes]]


class HttpServer:
    """Serves a fixed set of pages."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._probes = 0
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._probes >= PROBES_MAX:
            writer.transport.abort()
            return
        self._probes += 1
        try:
            # Asking and reading the answer together: a probe that does not read must not keep a page in memory.
            await asyncio.wait_for(self._exchange(reader, writer), REQUEST_SECONDS_MAX)
            writer.close()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            # A probe that went away, does not speak HTTP or does not read: nothing to answer.
            writer.transport.abort()
        finally:
            self._probes -= 1

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # `drain` is to wait until everything is out, not only until little is left.
        writer.transport.set_write_buffer_limits(0)
        head = await reader.readuntil(b"\r\n\r\n")
        status, kind, body = self._answer(head)
        writer.write(
            f"HTTP/1.1 {status} {_REASON.get(status, 'OK')}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n".encode()
        )
        if not head.startswith(b"HEAD "):
            writer.write(body)
        await writer.drain()

    def _answer(self, head: bytes) -> tuple[int, str, bytes]:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
            return 405, "text/plain", b"only GET is served\n"
        page = self._pages.get(words[1].split(b"?", 1)[0].decode("latin-1"))
        if page is None:
            return 404, "text/plain", ("try " + " ".join(sorted(self._pages)) + "\n").encode()
        try:
            return page()
        except Exception:
            log.exception("the page could not be made")
            return 500, "text/plain", b"the page could not be made; see the node's log\n"


_REASON = {
    200: "OK",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def json_page(status: int, content: Mapping[str, object]) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(content).encode() + b"\n"
