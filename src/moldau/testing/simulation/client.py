"""Simulated clients: scripts that speak the real messages, one step at a time.

A script is a generator: it yields what it waits for (an answer, several answers, time) and is resumed with it. Only
what every client needs is here: who leads what, who coordinates whom, and how long to wait before trying again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from moldau.ports import Address, Unreachable
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from moldau.testing.simulation.network import Service

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

TIMEOUT_MS = 900
RETRY_MS = 60

Wait: TypeAlias = Callable[[Callable[[Any], None]], None]
"""Something to wait for: given the call to resume with."""
Script: TypeAlias = Generator[Wait, Any, Any]

LOOK_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
TRY_AGAIN = frozenset(
    {
        *LOOK_AGAIN,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
    }
)
NO_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
GROUP, TRANSACTION = 0, 1
NOBODY = -1


class Client(ABC):
    """One client process; `run` is its script."""

    def __init__(self, world: Simulation, name: str) -> None:
        self.world = world
        self.name = self.host = name
        self.random = Random(f"{world.seed} client {name}")
        self.life = 1
        self.is_up = True
        self.done = False
        self.network = world.network.of(self)
        self._script: Script | None = None
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}
        self._addresses: dict[int, Address] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        world.network.attach(self)

    # ---- life

    @abstractmethod
    def run(self) -> Script: ...

    def start(self) -> None:
        self.done = False
        self._script = self.run()
        self._advance(None)

    def crash(self) -> None:
        """Forget everything and begin anew, as another process."""
        self.life += 1
        self.world.network.process_ended(self.host, machine=False)
        self.network = self.world.network.of(self)
        if self._script is not None:
            self._script.close()
        self._leaders.clear()
        self._coordinators.clear()
        self.start()

    def service_at(self, port: int) -> Service | None:
        return None

    def execute(self, life: int, run: Callable[[], None]) -> None:
        if life == self.life:
            run()

    def _advance(self, value: Any) -> None:
        assert self._script is not None
        try:
            wait = self._script.send(value)
        except StopIteration:
            self.done = True
            return
        life = self.life
        wait(lambda answer: self._advance(answer) if life == self.life else None)

    # ---- what a script waits for

    def sleep(self, milliseconds: int) -> Script:
        clock, life = self.world.clock, self.life
        yield lambda resume: _ignore(clock.call_later(milliseconds, lambda: self.execute(life, lambda: resume(None))))

    def rest(self) -> Script:
        """A little, before something is tried again."""
        return self.sleep(RETRY_MS // 2 + int(self.random.random() * RETRY_MS))

    def ask(self, to: Address, request: Any, version: int, *, lane: str = "", timeout_ms: int = TIMEOUT_MS) -> Script:
        """The answer, or `Unreachable`."""
        answer = yield lambda resume: self.network.send(to, request, version, resume, timeout_ms=timeout_ms, lane=lane)
        return answer

    def ask_all(self, to: Address, requests: Sequence[Any], version: int) -> Script:
        """The answers to requests that are all under way at once, on one connection."""

        def wait(resume: Callable[[Any], None]) -> None:
            answers: list[Any] = [None] * len(requests)
            left = len(requests)

            def answered(index: int, answer: Any) -> None:
                nonlocal left
                answers[index] = answer
                left -= 1
                if not left:
                    resume(answers)

            for index, request in enumerate(requests):
                self.network.send(
                    to,
                    request,
                    version,
                    lambda answer, index=index: answered(index, answer),  # type: ignore[misc]
                    timeout_ms=TIMEOUT_MS,
                )

        answers = yield wait
        return answers

    # ---- who does what

    def any_broker(self) -> Address:
        nodes = list(self.world.nodes.values())
        return nodes[int(self.random.random() * len(nodes))].address

    def look(self, topics: Sequence[str]) -> Script:
        """Ask any broker about topics; whether there was an answer."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
        answer = yield from self.ask(self.any_broker(), request, 12)
        if isinstance(answer, Unreachable):
            return False
        self._addresses.update({each.node_id: Address(each.host, each.port) for each in answer.brokers})
        for topic in answer.topics:
            if topic.error_code == ErrorCode.NONE:
                self.topic_ids[topic.name] = topic.topic_id
                self.topic_names[topic.topic_id] = topic.name
                for each in topic.partitions:
                    known = self._leaders.get((topic.name, each.partition_index))
                    if known is None or known[1] <= each.leader_epoch:
                        self._leaders[topic.name, each.partition_index] = (each.leader_id, each.leader_epoch)
        return True

    def leader_of(self, topic: str, index: int) -> Script:
        """(address, epoch) of a partition's leader, looked for until there is one."""
        while True:
            known = self._leaders.get((topic, index))
            if known is not None and known[0] in self._addresses:
                return self._addresses[known[0]], known[1]
            yield from self.look([topic])
            known = self._leaders.get((topic, index))
            if known is None or known[0] not in self._addresses:
                yield from self.rest()

    def partition_count(self, topic: str) -> int:
        return sum(1 for name, _ in self._leaders if name == topic)

    def forget_leader(self, topic: str, index: int) -> None:
        """Look for it again. The epoch is kept, as Kafka's clients do: a broker that is behind must not lead back to a
        leader of the past, who lacks what its successor has acknowledged."""
        known = self._leaders.get((topic, index))
        if known is not None:
            self._leaders[topic, index] = (NOBODY, known[1])

    def coordinator_of(self, kind: int, key: str) -> Script:
        """The address of a coordinator, looked for until there is one."""
        while True:
            known = self._coordinators.get((kind, key))
            if known is not None:
                return known
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = yield from self.ask(self.any_broker(), request, 4)
            if not isinstance(answer, Unreachable) and answer.coordinators[0].error_code == ErrorCode.NONE:
                found = answer.coordinators[0]
                self._coordinators[kind, key] = Address(found.host, found.port)
            else:
                yield from self.rest()

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    def ask_coordinator(
        self, kind: int, key: str, request: Any, version: int, *, timeout_ms: int = TIMEOUT_MS
    ) -> Script:
        """The answer of whoever coordinates; `Unreachable` when it is not known whether there was one."""
        address = yield from self.coordinator_of(kind, key)
        answer = yield from self.ask(address, request, version, timeout_ms=timeout_ms)
        if isinstance(answer, Unreachable):
            self.forget_coordinator(kind, key)
        return answer


def _ignore(_: object) -> None:
    """Some calls give something back that nobody needs."""
