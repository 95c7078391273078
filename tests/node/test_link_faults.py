"""Faults on links between nodes: bytes wait, come late, come in order, and nobody is told of a cut."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import pytest

from moldau.node.link_faults import LinkFaults, LinkRule, ShiftedClock
from moldau.ports import Address

PATIENCE_SECONDS = 10.0


class Peer(asyncio.Protocol):
    """The side that asks: keeps what comes back."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Echo(asyncio.Protocol):
    """The side that answers: sends back what it gets."""

    heard = bytearray()
    transports: ClassVar[list[asyncio.Transport]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        Echo.heard = bytearray()
        Echo.transports = [self._transport]

    def data_received(self, data: bytes) -> None:
        Echo.heard += data
        self._transport.write(data)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.001)


def over_a_link(scenario: Callable[[LinkFaults, Address, Peer, asyncio.Server], Awaitable[None]]) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        faults = LinkFaults(ShiftedClock(asyncio.get_running_loop()))
        peer = Peer()
        await loop.create_connection(lambda: faults.over(address, peer), *address)
        await scenario(faults, address, peer, server)
        peer.transport.abort()
        server.close()

    asyncio.run(run())


def test_a_good_link_passes_everything_on() -> None:
    async def scenario(faults: LinkFaults, at: Address, peer: Peer, server: asyncio.Server) -> None:
        peer.transport.write(b"hello")
        await until(lambda: peer.received == b"hello")

    over_a_link(scenario)


@pytest.mark.parametrize("rule", [LinkRule(hold_out=True), LinkRule(hold_back=True), LinkRule(True, True)])
def test_what_waits_at_a_cut_arrives_in_order_when_it_is_healed(rule: LinkRule) -> None:
    async def scenario(faults: LinkFaults, at: Address, peer: Peer, server: asyncio.Server) -> None:
        faults.set_rules({at: rule})
        for part in (b"one ", b"two ", b"three"):
            peer.transport.write(part)
        if not rule.hold_out:
            await until(lambda: Echo.heard == b"one two three")
        await asyncio.sleep(0.02)
        assert peer.received == b""
        assert rule.hold_out == (Echo.heard == b"")
        assert not peer.lost
        faults.set_rules({})
        await until(lambda: peer.received == b"one two three")

    over_a_link(scenario)


def test_a_slow_link_is_slow_and_keeps_the_order() -> None:
    async def scenario(faults: LinkFaults, at: Address, peer: Peer, server: asyncio.Server) -> None:
        faults.set_rules({at: LinkRule(delay_ms=30)})
        began = asyncio.get_running_loop().time()
        peer.transport.write(b"first ")
        peer.transport.write(b"second")
        await until(lambda: peer.received == b"first second")
        assert asyncio.get_running_loop().time() - began >= 0.06

    over_a_link(scenario)


def test_the_end_of_a_connection_does_not_get_through_a_cut() -> None:
    async def scenario(faults: LinkFaults, at: Address, peer: Peer, server: asyncio.Server) -> None:
        peer.transport.write(b"x")
        await until(lambda: bool(peer.received))
        faults.set_rules({at: LinkRule(True, True)})
        for transport in Echo.transports:
            transport.abort()
        await asyncio.sleep(0.02)
        assert not peer.lost
        faults.set_rules({})
        await until(lambda: peer.lost)

    over_a_link(scenario)


def test_giving_a_connection_up_ends_it_at_once_and_a_reset_breaks_it() -> None:
    async def scenario(faults: LinkFaults, at: Address, peer: Peer, server: asyncio.Server) -> None:
        faults.set_rules({at: LinkRule(True, True)})
        peer.transport.abort()
        await until(lambda: peer.lost)
        faults.set_rules({})
        other = Peer()
        await asyncio.get_running_loop().create_connection(lambda: faults.over(at, other), *at)
        faults.reset({Address("127.0.0.1", at.port + 1)})
        assert not other.lost
        faults.reset({at})
        await until(lambda: other.lost)

    over_a_link(scenario)


def test_a_connection_over_a_cut_link_is_made_when_it_is_healed() -> None:
    async def scenario(faults: LinkFaults, at: Address, peer: Peer, server: asyncio.Server) -> None:
        faults.set_rules({at: LinkRule(hold_back=True)})
        waiting = asyncio.create_task(faults.until_reachable(at))
        await asyncio.sleep(0.01)
        faults.set_rules({at: LinkRule(hold_out=True)})
        await asyncio.sleep(0.01)
        assert not waiting.done()
        faults.set_rules({})
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)

    over_a_link(scenario)


def test_orders_come_over_a_socket_that_only_its_owner_may_open(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = {"rules": [["10.0.0.1", 9, True, False, 0]], "clock_ms": -5000}
    (tmp_path / "s.order").write_text(json.dumps(first))

    async def run() -> None:
        clock = ShiftedClock(asyncio.get_running_loop())
        faults = LinkFaults(clock)
        await faults.listen(str(path))
        assert -6000 < clock.now_ms() - time.time() * 1000 < -4000
        assert faults.rule(Address("10.0.0.1", 9)) == LinkRule(hold_out=True), "the rules to begin with"
        assert path.stat().st_mode & 0o777 == 0o600
        reader, writer = await asyncio.open_unix_connection(str(path))
        order = {"rules": [["10.0.0.1", 9, False, False, 5]], "clock_ms": 60_000, "reset": []}
        writer.write(json.dumps(order).encode() + b"\n")
        assert await reader.readline() == b"done\n"
        assert clock.now_ms() - time.time() * 1000 > 59_000
        assert faults.rule(Address("10.0.0.1", 9)) == LinkRule(delay_ms=5)
        writer.write(b"nonsense\n")
        assert await reader.readline() == b"", "it is not answered"
        assert faults.rule(Address("10.0.0.1", 9)) == LinkRule(delay_ms=5)
        faults.close()

    asyncio.run(run())
