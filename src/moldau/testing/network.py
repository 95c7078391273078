"""A network in memory that fails as networks do: it delays, drops, repeats and reorders, and can be cut one way.

Requests and answers really are encoded and decoded, so that what does not fit a message's version shows. Everything
is deterministic: time comes from the virtual clock and chance from the caller's random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from moldau.ports import Address, Pending, Unreachable
from moldau.protocol.api import API_TABLE
from moldau.protocol.codec import decode, encode
from moldau.testing.clock import VirtualClock

Handler = Callable[[Any, int], Any]


@dataclass(slots=True)
class NetworkFaults:
    """How bad the network is; probabilities between 0 and 1."""

    min_delay_ms: int = 0
    max_delay_ms: int = 2
    drop: float = 0.0
    duplicate: float = 0.0
    # Now and then a message takes as long as this, and others overtake it.
    late: float = 0.0
    late_ms: int = 500


class VirtualNetwork:
    """All nodes of a simulated world. A node's own view of it is `VirtualNetwork.of(address)`."""

    def __init__(self, clock: VirtualClock, random: Random, faults: NetworkFaults | None = None) -> None:
        self.clock = clock
        self.random = random
        self.faults = faults or NetworkFaults()
        self._servers: dict[Address, Mapping[int, Handler]] = {}
        self._lives: dict[Address, int] = {}
        self._cuts: set[tuple[Address, Address]] = set()
        # Requests under way to each address: what to call when their connection breaks.
        self._open: dict[Address, dict[int, Callable[[], None]]] = {}
        self.sent = 0

    # ---- the world's calls

    def listen(self, address: Address, handlers: Mapping[int, Handler]) -> None:
        self._servers[address] = handlers

    def crash(self, address: Address, *, machine: bool = False) -> None:
        """Nobody listens there any more, and what the node had sent or was asked is forgotten with it. Whoever waits
        for an answer sees the connection break, unless the whole `machine` went down and cannot even say that."""
        self._servers.pop(address, None)
        self._lives[address] = self._lives.get(address, 0) + 1
        broken = self._open.pop(address, {})
        if not machine:
            for lost in broken.values():
                lost()

    def cut(self, source: Address, target: Address) -> None:
        """Nothing gets from the one to the other any more; the other way stays open."""
        self._cuts.add((source, target))

    def heal(self) -> None:
        self._cuts.clear()
        self.faults = NetworkFaults()

    def of(self, address: Address) -> NodeNetwork:
        return NodeNetwork(self, address)

    # ---- messages

    def transmit(self, source: Address, target: Address, deliver: Callable[[], None]) -> None:
        """Let a message arrive, or not, or twice, some time later."""
        faults, random = self.faults, self.random
        copies = 2 if faults.duplicate and random.random() < faults.duplicate else 1
        for _ in range(copies):
            if (source, target) in self._cuts or (faults.drop and random.random() < faults.drop):
                continue
            delay = random.randint(faults.min_delay_ms, faults.max_delay_ms)
            if faults.late and random.random() < faults.late:
                delay += random.randrange(faults.late_ms)
            self.clock.call_later(delay, deliver)

    def opened(self, to: Address, lost: Callable[[], None]) -> int:
        self.sent += 1
        self._open.setdefault(to, {})[self.sent] = lost
        return self.sent

    def ended(self, to: Address, number: int) -> None:
        self._open.get(to, {}).pop(number, None)

    def life_of(self, address: Address) -> int:
        return self._lives.get(address, 0)

    def handlers_of(self, address: Address) -> Mapping[int, Handler] | None:
        return self._servers.get(address)


class NodeNetwork:
    """`ports.Network` of one node in the world."""

    def __init__(self, world: VirtualNetwork, own: Address) -> None:
        self._world = world
        self._own = own
        self._life = world.life_of(own)

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
        world = self._world
        key = request.API_KEY
        data = encode(request, api_version)
        request_class, response_class = API_TABLE[key].request_class(), API_TABLE[key].response_class()
        answered = False

        def finish(answer: Any) -> None:
            nonlocal answered
            if not answered and world.life_of(self._own) == self._life:
                answered = True
                timer.cancel()
                world.ended(to, number)
                reply(answer)

        def refuse() -> None:
            finish(Unreachable("connection refused", nobody_listens=True))

        def lost() -> None:
            world.transmit(to, self._own, lambda: finish(Unreachable("the connection broke")))

        def arrive() -> None:
            handlers = world.handlers_of(to)
            if handlers is None:
                world.transmit(to, self._own, refuse)
                return
            life = world.life_of(to)
            response = handlers[key](decode(request_class, data, api_version), api_version)

            def respond(message: Any) -> None:
                if world.life_of(to) == life:
                    answer = encode(message, api_version)
                    world.transmit(to, self._own, lambda: finish(decode(response_class, answer, api_version)))

            if isinstance(response, Pending):
                response.then(respond)
            else:
                respond(response)

        number = world.opened(to, lost)
        timer = world.clock.call_later(timeout_ms, lambda: finish(Unreachable("no answer in time")))
        world.transmit(self._own, to, arrive)
