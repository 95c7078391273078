"""The simulated world: time, nodes, clients, the story of what happened, and its fingerprint.

Decides the order of events (the clock's, then the order they were planned in) and looks at the rules after each one.
All chance comes from one seed; who needs chance of its own gets a generator made from it, so that one more draw here
does not change what happens there.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from moldau.testing.clock import VirtualClock
from moldau.testing.simulation.history import History, Place
from moldau.testing.simulation.ledger import Broken, Ledger, batches_of
from moldau.testing.simulation.network import SimulatedNetwork
from moldau.testing.simulation.node import SimulatedNode
from moldau.testing.simulation.rules import Rules
from moldau.testing.simulation.voters import initial_voter

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog
    from moldau.testing.simulation.client import Client

EVENTS_MAX = 30_000
EVENTS_PER_LOOK = 10


class Simulation:
    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        brokers: int = 0,
        dynamic: bool = False,
        overrides: dict[str, str] | None = None,
    ) -> None:
        """`voters` combined nodes, and `brokers` that are only that, or, in a `dynamic` quorum, may become voters."""
        self.seed = seed
        self.clock = VirtualClock()
        self.network = SimulatedNetwork(self.clock, Random(f"{seed} network"), self._arrived)
        self.history = History()
        self.rules = Rules(self)
        self.nodes: dict[int, SimulatedNode] = {}
        self.clients: list[Client] = []
        self.events = 0
        # Clients that write rest for up to so long between two writes.
        self.pace_ms = 60
        # Topics whose replicas may have less than was committed.
        self.compacted: frozenset[str] = frozenset()
        # Nothing more is begun: scripts come to their end.
        self.ending = False
        self.story: list[tuple[int, str]] = []
        # Exceptions that a node could only log.
        self.logged: list[str] = []
        self._arrivals = array("Q")
        # Nodes whose latest life has ended, until they are in sync everywhere again; and those that lost data by it.
        self._ended: set[int] = set()
        self._lost_data: set[int] = set()
        ids = tuple(range(1, voters + 1))
        for node_id in range(1, voters + brokers + 1):
            role = "broker,controller" if node_id <= voters or dynamic else "broker"
            node = SimulatedNode(self, node_id, role, ids, overrides or {}, dynamic=dynamic)
            self.nodes[node_id] = node
            self.network.attach(node)
        if dynamic:
            initial = {node_id: initial_voter(self.nodes[node_id]) for node_id in ids}
            for node in self.nodes.values():
                node.format(initial)

    # ---- time

    def run(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    def run_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Let time pass until something is so; whether that came to be in time."""
        clock = self.clock
        until = clock.monotonic + limit_ms
        while not condition():
            # Looking costs more than most events do.
            for _ in range(EVENTS_PER_LOOK):
                if clock.monotonic > until or not clock.run_next():
                    return condition()
        return True

    # ---- what happened

    @property
    def now(self) -> int:
        return self.clock.monotonic

    def tell(self, text: str) -> None:
        self.story.append((self.now, text))
        self._arrivals.append(self.now)
        self._arrivals.append(crc32(text.encode()))

    def _arrived(self, connection: int, checksum: int) -> None:
        self._arrivals.extend((self.clock.monotonic, connection, checksum))

    @property
    def trace(self) -> str:
        """The same for two runs in which the same things arrived at the same times, and the same was told."""
        return blake2b(self._arrivals, digest_size=16).hexdigest()

    def happened(self, node: SimulatedNode) -> None:
        """One event on a node is over."""
        self.events += 1
        if self.events > EVENTS_MAX:
            raise Broken(f"more than {EVENTS_MAX} events: something goes round in circles")
        if self.logged:
            raise Broken(f"{node.host} met an error that it could only log: {self.logged[0]}")
        if node.alive:
            self.rules.look(node)

    def unexpected(self, error: BaseException) -> None:
        raise Broken(f"an unexpected {type(error).__name__}: {error}") from error

    # ---- nodes

    @property
    def alive(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.alive]

    def ended(self, node: SimulatedNode, *, lost_data: bool) -> None:
        self._ended.add(node.id)
        self.rules.forget(node, lost_data=lost_data)
        if lost_data:
            self.loses_data(node)

    def loses_data(self, node: SimulatedNode) -> None:
        """What could still go wrong on other nodes' disks would now be too much."""
        self._lost_data.add(node.id)
        for other in self.nodes.values():
            if other is not node:
                other.disk.heal()
                other.disk.stops_after = other.dies_after = None

    def could_not_start(self, node: SimulatedNode, error: Exception) -> None:
        """Only a disk that fails at that very moment is an excuse."""
        if not isinstance(error, OSError) and "Errno" not in str(error):
            raise Broken(f"{node.host} cannot start: {error}") from error

    def may_end(self, node: SimulatedNode) -> bool:
        """Whether this node may end without closing its logs: not while another that lost data has not caught up.

        Kafka promises no more: with two in-sync replicas demanded, one may fail without notice at a time. Who fails
        so is no longer trusted to have everything, and with two of them nobody is left."""
        self._forget_recovered()
        return not self._lost_data - {node.id}

    def may_lose_data(self, node: SimulatedNode) -> bool:
        """Whether this node may lose what it has not synced: only while all others are in sync."""
        self._forget_recovered()
        return not self._ended - {node.id}

    def _forget_recovered(self) -> None:
        if self._ended:
            self._ended = {each for each in self._ended if not self._is_in_sync(self.nodes[each])}
            self._lost_data &= self._ended

    def _is_in_sync(self, node: SimulatedNode) -> bool:
        if not node.joined or node.rooms is None or node.rooms.lifecycle is None:
            return False
        truth = self.rules.truth
        broker = truth.brokers.get(node.id)
        if broker is None or broker.fenced or broker.epoch != node.rooms.lifecycle.epoch:
            return False
        return all(
            node.id in each.isr
            for topic in truth.topics_by_name.values()
            for each in topic.partitions.values()
            if node.id in each.replicas
        )

    def is_healthy(self) -> bool:
        """Every node takes part, every partition is led and has all its replicas in sync."""
        truth = self.rules.truth
        if not all(node.joined for node in self.nodes.values()):
            return False
        for topic in truth.topics_by_name.values():
            for each in topic.partitions.values():
                if (
                    each.leader < 0
                    or set(each.isr) != set(each.replicas)
                    or each.adding_replicas
                    or each.removing_replicas
                ):
                    return False
        return all(node.rooms is not None and node.rooms.loader.image.offset == truth.offset for node in self.alive)

    # ---- the end

    def ledgers(self) -> dict[Place, Ledger]:
        """What is committed of the topics that exist, by name."""
        return {
            (topic.name, index): self.rules.ledgers.get((topic.id, index)) or Ledger(f"{topic.name}-{index}", 0)
            for topic in self.rules.truth.topics_by_name.values()
            for index in topic.partitions
        }

    def differing_copies(self) -> str | None:
        """When all is calm every replica has the whole committed log, and nothing else; which one does not."""
        for where, copies in self._copies():
            ends = {host: (log.log_end_offset, log.high_watermark) for host, log in copies.items()}
            if len(set(ends.values())) > 1:
                return f"{where}: {ends}"
        return None

    def forgotten_epoch(self) -> str | None:
        """Every replica knows the leader epoch of whatever it has; which one does not."""
        for where, copies in self._copies():
            for host, log in copies.items():
                for header, _ in batches_of(log, log.log_start_offset, log.log_end_offset):
                    offset = max(header.base_offset, log.log_start_offset)
                    known, epoch = log.epochs.epoch_at(offset), header.partition_leader_epoch
                    if known != epoch:
                        return f"{where}: {host} believes that offset {offset} is of epoch {known}, not {epoch}"
        return None

    def _copies(self) -> Iterator[tuple[str, dict[str, PartitionLog]]]:
        """Every partition with the logs of its replicas, as far as they are opened."""
        for topic in self.rules.truth.topics_by_name.values():
            for index, registration in topic.partitions.items():
                logs = {}
                for replica in registration.replicas:
                    rooms = self.nodes[replica].rooms
                    copy = None if rooms is None else rooms.partitions.find(topic.name, index)
                    if copy is not None and copy.opened:
                        logs[self.nodes[replica].host] = copy.log
                yield f"{topic.name}-{index}", logs
