"""The simulated wire: connections as TCP makes them, in a network that delays, cuts, resets and forgets.

Decides when a frame arrives and what both ends of a connection are told. The bytes of one direction of a connection
arrive in order; connections overtake each other. What a cut holds back arrives when it heals, if the connection still
stands by then. A frame can reach a server although its sender has given up on it long ago. Nothing is ever delivered
twice: that is what clients do who send again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol
from zlib import crc32

from moldau.broker.context import ClientConnection
from moldau.broker.router import LongPoll, Outcome
from moldau.ports import Address, Pending, Timer, Unreachable
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.wire import ProtocolError
from moldau.testing.clock import VirtualClock

# What a client is told when the other machine says nothing at all for this long while connecting.
CONNECT_MS_MAX = 2000


@dataclass(slots=True)
class LinkQuality:
    """How bad the network is; probabilities between 0 and 1."""

    max_delay_ms: int = 1
    late: float = 0.0
    late_ms: int = 0
    reset: float = 0.0


class Service(Protocol):
    """What a listener leads to: the broker, or the controller."""

    def dispatch(self, frame: memoryview, connection: ClientConnection) -> Outcome: ...

    def after_requests(self) -> None: ...

    def disconnected(self, connection: ClientConnection) -> None: ...


class Machine(Protocol):
    """One end of connections: a node, or the machine of a client."""

    host: str
    # Counts the processes that have run there; what belonged to an earlier one is gone.
    life: int
    is_up: bool
    """Whether the machine itself answers, be it only to say that nobody listens."""

    def service_at(self, port: int) -> Service | None: ...

    def execute(self, life: int, run: Callable[[], None]) -> None:
        """Let something happen in that process, unless it is gone; later if it is frozen."""
        ...


class SimulatedNetwork:
    def __init__(self, clock: VirtualClock, random: Random, note: Callable[[int, int], None]) -> None:
        """`note` is told of everything that arrives: the number of its connection, and a checksum."""
        self.clock = clock
        self.random = random
        self.note = note
        self.quality = LinkQuality()
        self.machines: dict[str, Machine] = {}
        self._cuts: set[tuple[str, str]] = set()
        # What waits for a cut to heal, in the order it was sent.
        self._held: list[tuple[str, str, Callable[[], None]]] = []
        self._not_before: dict[tuple[str, str], int] = {}
        self._connections: dict[int, Connection] = {}
        self._numbers = 0

    # ---- the world's calls

    def attach(self, machine: Machine) -> None:
        self.machines[machine.host] = machine

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from the one to the other any more; the other way stays as it is."""
        self._cuts.add((source, target))

    def heal(self) -> None:
        self._cuts.clear()
        held, self._held = self._held, []
        for source, target, arrive in held:
            # What comes after it on the same way shall not overtake it.
            self._not_before[source, target] = self.carry(source, target, arrive)

    @property
    def is_cut(self) -> bool:
        return bool(self._cuts)

    def process_ended(self, host: str, *, machine: bool) -> None:
        """A process is gone. Its peers see their connections break, unless the machine went down without a word."""
        for connection in [each for each in self._connections.values() if host in (each.client.host, each.to.host)]:
            del self._connections[connection.number]
            if connection.client.host == host:
                if not machine:
                    self.carry(host, connection.to.host, connection.client_left)
            elif not machine:
                self.carry(host, connection.client.host, lambda c=connection: c.broke("the connection broke"))  # type: ignore[misc]

    # ---- messages

    def carry(self, source: str, target: str, arrive: Callable[[], None], not_before: int = 0) -> int:
        """Let something arrive some time later; when."""
        if self._cuts and (source, target) in self._cuts:
            self._held.append((source, target, arrive))
            return 0
        quality, random = self.quality, self.random
        delay = int(random.random() * (quality.max_delay_ms + 1)) if source != target else 0
        if quality.late and random.random() < quality.late:
            delay += int(random.random() * quality.late_ms)
        at = self.clock.monotonic + delay
        if self._not_before:
            at = max(at, self._not_before.get((source, target), 0))
        if at < not_before:
            at = not_before
        self.clock.plan(at, arrive)
        return at

    def connect(self, client: Machine, to: Address) -> Connection:
        self._numbers += 1
        connection = Connection(self, self._numbers, client, to)
        self._connections[connection.number] = connection
        return connection

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)

    def of(self, machine: Machine) -> MachineNetwork:
        return MachineNetwork(self, machine)


class _Request:
    __slots__ = ("done", "key", "reply", "timer", "version")

    def __init__(self, key: int, version: int, reply: Callable[[Any], None]) -> None:
        self.key = key
        self.version = version
        self.reply = reply
        self.timer: Timer | None = None
        self.done = False

    def finish(self, answer: Any) -> None:
        if not self.done:
            self.done = True
            if self.timer is not None:
                self.timer.cancel()
            self.reply(answer)


class Connection:
    """Both ends of one connection."""

    __slots__ = (
        "_back_at",
        "_correlation",
        "_life",
        "_network",
        "_server",
        "_there_at",
        "client",
        "is_open",
        "number",
        "requests",
        "to",
    )

    def __init__(self, network: SimulatedNetwork, number: int, client: Machine, to: Address) -> None:
        self._network = network
        self.number = number
        self.client = client
        self._life = client.life
        self.to = to
        self.is_open = True
        self.requests: dict[int, _Request] = {}
        self._correlation = 0
        self._server: _ServerSide | None = None
        # When the latest bytes of each direction arrive: later ones do not before.
        self._there_at = 0
        self._back_at = 0

    # ---- the client's end

    def send(self, request: _Request, message: Any, client_id: str) -> None:
        self._correlation += 1
        number = self._correlation
        frame = encode_request(request.key, request.version, number, client_id, message)[4:]
        self.requests[number] = request
        network, own, other = self._network, self.client.host, self.to.host
        quality = network.quality
        if quality.reset and own != other and network.random.random() < quality.reset:
            # The connection breaks under way: the request may have got through or not, and nobody knows.
            if network.random.random() < 0.5:
                self._there_at = network.carry(own, other, lambda: self._arrive(frame), self._there_at)
            network.carry(other, own, lambda: self.broke("the connection was reset"))
            return
        self._there_at = network.carry(own, other, lambda: self._arrive(frame), self._there_at)

    def abort(self) -> None:
        """The client gives up on it; the server is told by the network, if that gets there."""
        if self.is_open:
            self._network.forget(self)
            self._network.carry(self.client.host, self.to.host, self.client_left, self._there_at)
        self._end(Unreachable("the connection was given up"))

    def broke(self, reason: str, *, refused: bool = False) -> None:
        """Arrived at the client: there is no connection (any more)."""
        self._network.forget(self)
        self.client.execute(self._life, lambda: self._end(Unreachable(reason, nobody_listens=refused)))

    def _end(self, why: Unreachable) -> None:
        self.is_open = False
        requests, self.requests = self.requests, {}
        for request in requests.values():
            request.finish(why)

    # ---- the server's end

    def _arrive(self, frame: bytes) -> None:
        network, to = self._network, self.to
        machine = network.machines[to.host]
        network.note(self.number, crc32(frame))
        if not machine.is_up:
            return
        server = self._server
        if server is None:
            service = machine.service_at(to.port)
            if service is None:
                network.carry(to.host, self.client.host, lambda: self.broke("connection refused", refused=True))
                return
            server = self._server = _ServerSide(self, machine, service)
        if server.life != machine.life:
            network.carry(to.host, self.client.host, lambda: self.broke("the connection broke"))
            return
        machine.execute(server.life, lambda: server.take(frame))

    def client_left(self) -> None:
        """Arrived at the server: the client closed the connection, or its process ended."""
        server = self._server
        if server is not None:
            server.machine.execute(server.life, server.disconnected)

    def answer(self, frame: bytes) -> None:
        """From the server to the client."""
        own, other = self.to.host, self.client.host
        self._back_at = self._network.carry(own, other, lambda: self._answered(frame), self._back_at)

    def closed_by_server(self) -> None:
        self._network.carry(self.to.host, self.client.host, lambda: self.broke("closed by the server"))

    def _answered(self, frame: bytes) -> None:
        self._network.note(self.number, crc32(frame))
        if self.is_open:
            self.client.execute(self._life, lambda: self._take_answer(frame))

    def _take_answer(self, frame: bytes) -> None:
        request = self.requests.pop(int.from_bytes(frame[:4], "big"), None)
        if request is not None and not request.done:
            request.finish(decode_response(request.key, request.version, frame)[1])


class _ServerSide:
    """Requests of one connection: answered in order, one long poll at a time."""

    __slots__ = ("_answers", "_client", "_connection", "_waiting", "is_open", "life", "machine", "service")

    def __init__(self, connection: Connection, machine: Machine, service: Service) -> None:
        self._connection = connection
        self.machine = machine
        self.life = machine.life
        self.service = service
        self.is_open = True
        self._client = ClientConnection(connection.number, "PLAINTEXT", connection.client.host, connection.number)
        self._answers: deque[Pending[Any] | list[Any] | None] = deque()
        self._waiting: deque[bytes] = deque()

    def take(self, frame: bytes) -> None:
        if not self.is_open:
            return
        if self._waiting or (self._answers and type(self._answers[-1]) is LongPoll):
            self._waiting.append(frame)
            return
        self._dispatch(frame)
        self.service.after_requests()

    def _dispatch(self, frame: bytes) -> None:
        try:
            outcome = self.service.dispatch(memoryview(bytearray(frame)), self._client)
        except ProtocolError:
            self.disconnected()
            self._connection.closed_by_server()
            return
        if outcome is None:
            return
        self._answers.append(outcome)
        if isinstance(outcome, Pending) and not outcome.done:
            outcome.then(lambda _: self._flush())
        else:
            self._flush()

    def _flush(self) -> None:
        answers = self._answers
        while answers:
            first = answers[0]
            if isinstance(first, Pending):
                if not first.done:
                    return
                first = first.value
            answers.popleft()
            if first is not None and self.is_open and self.life == self.machine.life:
                self._connection.answer(b"".join(first)[4:])
        while self._waiting and not (self._answers and type(self._answers[-1]) is LongPoll):
            self._dispatch(self._waiting.popleft())

    def disconnected(self) -> None:
        if self.is_open:
            self.is_open = False
            self._waiting.clear()
            self.service.disconnected(self._client)


class MachineNetwork:
    """`ports.Network` of one process: a connection for each address and lane, made when it is first needed."""

    def __init__(self, network: SimulatedNetwork, machine: Machine) -> None:
        self._network = network
        self._machine = machine
        self._life = machine.life
        self._lanes: dict[tuple[Address, str], Connection] = {}

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
        asked = _Request(request.API_KEY, api_version, reply)
        connection = self._lanes.get((to, lane))
        if connection is None or not connection.is_open:
            connection = self._lanes[to, lane] = self._network.connect(self._machine, to)
        asked.timer = self._network.clock.call_later(
            timeout_ms, lambda: self._machine.execute(self._life, lambda: _time_is_up(asked, connection))
        )
        connection.send(asked, request, self._machine.host)


def _time_is_up(request: _Request, connection: Connection) -> None:
    """An answer that does not come holds up all behind it: the connection is given up."""
    if not request.done:
        request.finish(Unreachable("no answer in time"))
        connection.abort()
