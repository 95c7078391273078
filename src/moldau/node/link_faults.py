"""Faults of this node's surroundings, for tests: connections to other nodes that are held, late or broken, and a clock
that jumps; steered over a Unix socket.

Decides what becomes of the bytes that travel on a connection to a peer. It must never be there in a node that was not
started for a test: the socket exists only when the environment variable names it, only its owner may open it, and
without it connections are not touched at all.

A cut behaves as one in a network does: nothing is refused and nobody is told. Bytes wait, new connections hang, and
what waited arrives when the link is healed, unless somebody has given the connection up by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from moldau.node.clock import LoopClock
from moldau.ports import Address, Timer

log = logging.getLogger("moldau.network")

_LINE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LinkRule:
    """What happens on the way to one peer (`out`) and on the way back (`back`)."""

    hold_out: bool = False
    hold_back: bool = False
    delay_ms: float = 0.0


_CLEAR: Final = LinkRule()


def _rules(rows: Any) -> dict[Address, LinkRule]:
    return {Address(host, port): LinkRule(out, back, delay_ms) for host, port, out, back, delay_ms in rows}


class ShiftedClock:
    """A clock that is wrong by so much; what has passed is measured rightly all the same."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._right = LoopClock(loop)
        self.shift_ms = 0

    def now_ms(self) -> int:
        return self._right.now_ms() + self.shift_ms

    def monotonic_ms(self) -> int:
        return self._right.monotonic_ms()

    def call_later(self, delay_ms: int, run: Callable[[], None]) -> Timer:
        return self._right.call_later(delay_ms, run)


class LinkFaults:
    """The rules of this node's links, and the connections they apply to."""

    def __init__(self, clock: ShiftedClock) -> None:
        self._clock = clock
        self._rules: dict[Address, LinkRule] = {}
        self._links: set[_FaultyLink] = set()
        self._changed = asyncio.Event()
        self._server: asyncio.AbstractServer | None = None

    # ---- steering

    async def listen(self, path: str) -> None:
        """Take orders at this socket; the one to begin with is in a file beside it."""
        with contextlib.suppress(FileNotFoundError), open(path + ".order") as file:
            self._follow(json.load(file))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._server = await asyncio.start_unix_server(self._serve, path, limit=_LINE_BYTES_MAX)
        os.chmod(path, 0o600)
        log.warning("this node was started for tests: its links to other nodes can be broken over %s", path)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._follow(json.loads(line))
                writer.write(b"done\n")
                await writer.drain()
        except (ValueError, TypeError, LookupError, ConnectionError) as error:
            log.warning("an order about faults cannot be followed: %s", error)
        finally:
            writer.close()

    def _follow(self, order: Any) -> None:
        """An order: {"rules": [[host, port, hold out, hold back, delay]], "clock_ms": 0, "reset": [[host, port]]}"""
        self.set_rules(_rules(order["rules"]))
        self._clock.shift_ms = int(order["clock_ms"])
        self.reset({Address(host, port) for host, port in order.get("reset", ())})

    def set_rules(self, rules: dict[Address, LinkRule]) -> None:
        """All rules there are from now on; a link without one is a good one."""
        self._rules = rules
        self._changed.set()
        self._changed = asyncio.Event()
        for link in list(self._links):
            link.take_rule(self.rule(link.peer))

    def reset(self, peers: set[Address]) -> None:
        """Break the connections to these peers, as a reset from the network does."""
        for link in [each for each in self._links if each.peer in peers]:
            link.abort()

    def rule(self, peer: Address) -> LinkRule:
        return self._rules.get(peer, _CLEAR)

    # ---- connections

    async def until_reachable(self, peer: Address) -> None:
        """A connection is only made over a link that is open in both directions."""
        while (rule := self.rule(peer)).hold_out or rule.hold_back:
            await self._changed.wait()

    def over(self, peer: Address, protocol: asyncio.Protocol) -> asyncio.Protocol:
        """The protocol, with the link's faults between it and the socket."""
        return _FaultyLink(self, peer, protocol)

    def opened(self, link: _FaultyLink) -> None:
        self._links.add(link)
        link.take_rule(self.rule(link.peer))

    def closed(self, link: _FaultyLink) -> None:
        self._links.discard(link)


class _Pipe:
    """One direction: bytes in order, held while the link is cut, late while it is slow."""

    __slots__ = ("_deliver", "_loop", "_timer", "_waiting", "delay_ms", "held")

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[bytes], None]) -> None:
        self._loop = loop
        self._deliver = deliver
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.held = False
        self.delay_ms = 0.0

    def push(self, data: bytes) -> None:
        if not (self.held or self.delay_ms or self._waiting):
            self._deliver(data)
            return
        self._waiting.append((self._loop.time() + self.delay_ms / 1000, bytes(data)))
        self.flow()

    def flow(self) -> None:
        """Deliver what is due, and come back for the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and not self.held:
            due, data = self._waiting[0]
            if due > self._loop.time():
                self._timer = self._loop.call_at(due, self.flow)
                return
            self._waiting.popleft()
            self._deliver(data)

    def close(self) -> None:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _FaultyLink(asyncio.Protocol):
    """Stands between a connection's protocol and its socket, on both ways."""

    def __init__(self, faults: LinkFaults, peer: Address, protocol: asyncio.Protocol) -> None:
        self._faults = faults
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None
        self._broken = False
        self._ended = False
        self._why_broken: Exception | None = None
        self.peer = peer
        loop = asyncio.get_running_loop()
        self._out = _Pipe(loop, self._send)
        self._back = _Pipe(loop, protocol.data_received)

    # ---- the event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._faults.opened(self)
        self._protocol.connection_made(cast(asyncio.BaseTransport, _FaultyTransport(self, self._transport)))

    def data_received(self, data: bytes) -> None:
        self._back.push(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._broken, self._why_broken = True, exc
        if not self._back.held:
            self._end()

    def _end(self) -> None:
        """The end of a connection does not get through a cut link either: it is told when the link is healed, or when
        this side gives the connection up."""
        if not self._ended:
            self._ended = True
            self._faults.closed(self)
            self._out.close()
            self._back.close()
            self._protocol.connection_lost(self._why_broken)

    # ---- steering

    def take_rule(self, rule: LinkRule) -> None:
        for pipe, held in ((self._out, rule.hold_out), (self._back, rule.hold_back)):
            pipe.held = held
            pipe.delay_ms = rule.delay_ms
            pipe.flow()
        if self._broken and not rule.hold_back:
            self._end()

    def write(self, data: bytes) -> None:
        self._out.push(data)

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def abort(self) -> None:
        if self._broken:
            asyncio.get_running_loop().call_soon(self._end)
        elif self._transport is not None:
            self._back.held = False
            self._back.close()
            self._transport.abort()


class _FaultyTransport:
    """What the protocol takes for its transport: writes go through the link's faults, the rest straight on."""

    __slots__ = ("_link", "_transport")

    def __init__(self, link: _FaultyLink, transport: asyncio.Transport) -> None:
        self._link = link
        self._transport = transport

    def write(self, data: bytes) -> None:
        self._link.write(data)

    def abort(self) -> None:
        self._link.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
