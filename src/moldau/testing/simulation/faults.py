"""Trouble, one kind a function: crashes, power cuts, freezes, cuts, bad links, bad disks, wrong clocks.

Decides what happens to whom and keeps within what Kafka promises to survive: data that was not synced is lost on one
node at a time, and bits flip on one node at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from moldau.log.names import CLEAN_SHUTDOWN
from moldau.records.batch import LEADER_FIELDS_SIZE, BatchError, BatchHeader, iter_batches
from moldau.testing.simulation.network import LinkQuality
from moldau.testing.simulation.node import DATA, SimulatedNode
from moldau.testing.simulation.world import Simulation

STOP_MS_MAX: Final = 10_000

FAULTS: Final = (
    "kill",
    "power",
    "stop",
    "freeze",
    "cut",
    "network",
    "slow-disk",
    "bad-disk",
    "full-disk",
    "flip",
    "clock",
    "all",
    "resign",
)


class Faults:
    def __init__(self, world: Simulation, random: Random, chosen: frozenset[str]) -> None:
        self.world = world
        self.chosen = chosen
        self._random = random
        self._kinds: dict[str, Callable[[SimulatedNode], None]] = {
            "kill": self._kill,
            "power": self._power,
            "stop": self._stop,
            "freeze": self._freeze,
            "cut": self._cut,
            "network": self._network,
            "slow-disk": self._slow_disk,
            "bad-disk": self._bad_disk,
            "full-disk": self._full_disk,
            "flip": self._flip,
            "clock": self._clock,
            "all": self._kill_all,
            "resign": self._resign,
        }
        unknown = chosen - self._kinds.keys()
        assert not unknown, f"no such faults: {', '.join(sorted(unknown))}"
        self._names = sorted(chosen)

    def act(self) -> None:
        """One more trouble, or an end of one."""
        world, random = self.world, self._random
        node = world.nodes[random.choice(sorted(world.nodes))]
        if not node.alive:
            if random.random() < 0.7:
                self._start(node)
            return
        if node.frozen:
            if random.random() < 0.7:
                self._thaw(node)
            return
        if world.network.is_cut and random.random() < 0.35:
            world.tell("the network is whole again")
            world.network.heal()
            return
        if self._names:
            self._kinds[random.choice(self._names)](node)

    def heal(self) -> None:
        world = self.world
        world.network.quality = LinkQuality()
        world.network.heal()
        for node in world.nodes.values():
            node.disk.sync_ms_max = 1
            node.disk.stops_after = node.dies_after = None
            node.disk.heal()
            node.clock_error_ms = 0
            if node.frozen:
                self._thaw(node)
            if not node.alive:
                self._start(node)
        world.run_until(lambda: not any(node.stopping for node in world.nodes.values()), STOP_MS_MAX)
        for node in world.nodes.values():
            if not node.alive:
                self._start(node)

    # ---- processes

    def _start(self, node: SimulatedNode) -> None:
        node.disk.heal()
        self.world.tell(f"{node.host} starts")
        node.start()

    def _thaw(self, node: SimulatedNode) -> None:
        self.world.tell(f"{node.host} thaws")
        node.thaw()

    def _kill(self, node: SimulatedNode) -> None:
        """At this moment, or in the midst of what comes next."""
        if self._random.random() < 0.6:
            node.dies_after = self._random.randrange(50)
        elif self.world.may_end(node):
            self.world.tell(f"{node.host} is killed")
            node.crash()

    def _power(self, node: SimulatedNode) -> None:
        if not self.world.may_lose_data(node):
            return
        if self._random.random() < 0.5:
            # In the midst of whatever it does with its disk soon.
            node.disk.stops_after = self._random.randrange(60)
            return
        silent = self._random.random() < 0.5
        self.world.tell(f"{node.host} loses power{' without a word' if silent else ''}")
        node.crash(power=True, machine=silent)

    def _stop(self, node: SimulatedNode) -> None:
        self.world.tell(f"{node.host} is told to stop")
        node.stop()

    def _freeze(self, node: SimulatedNode) -> None:
        self.world.tell(f"{node.host} freezes")
        node.freeze()

    def _kill_all(self, node: SimulatedNode) -> None:
        if self._random.random() < 0.3 and all(self.world.may_end(each) for each in self.world.nodes.values()):
            self.world.tell("all nodes are killed at once")
            for each in self.world.alive:
                each.crash()

    def _resign(self, node: SimulatedNode) -> None:
        leaders = [each for each in self.world.alive if each.rooms is not None and each.rooms.quorum.is_leader]
        for each in leaders[:1]:
            rooms = each.rooms
            assert rooms is not None
            self.world.tell(f"{each.host} resigns as the active controller")
            each.execute(each.life, rooms.quorum.resign)

    # ---- the network

    def _cut(self, node: SimulatedNode) -> None:
        network, random = self.world.network, self._random
        network.heal()
        others = [each.host for each in self.world.nodes.values() if each is not node]
        clients = [each.host for each in self.world.clients]
        shape = random.choice(("node", "node", "in", "out", "bridge", "bridge", "clients"))
        if shape == "bridge" and len(others) >= 2:
            # Two halves that only one node sees both of.
            self.world.tell(f"{others[0]} and {others[1]} cannot reach each other any more")
            network.cut(others[0], others[1])
            network.cut(others[1], others[0])
            return
        hosts = clients if shape == "clients" else others
        if shape == "node" and random.random() < 0.4:
            hosts = others + clients
        way = {"in": "nothing gets to it", "out": "nothing gets out of it"}.get(shape, "both ways")
        self.world.tell(f"{node.host} is cut off from {'clients' if shape == 'clients' else 'the others'} ({way})")
        for host in hosts:
            if shape != "in":
                network.cut(node.host, host)
            if shape != "out":
                network.cut(host, node.host)

    def _network(self, node: SimulatedNode) -> None:
        random = self._random
        quality = LinkQuality(
            max_delay_ms=random.choice((1, 10, 40)),
            late=random.choice((0.0, 0.03, 0.15)),
            late_ms=random.choice((100, 700, 2000)),
            reset=random.choice((0.0, 0.01, 0.05)),
        )
        self.world.tell(
            f"the network is bad: up to {quality.max_delay_ms} ms, {quality.late:.0%} up to {quality.late_ms} ms late, "
            f"{quality.reset:.0%} of requests end their connection"
        )
        self.world.network.quality = quality

    # ---- disks and clocks

    def _slow_disk(self, node: SimulatedNode) -> None:
        node.disk.sync_ms_max = self._random.choice((5, 50, 300))
        self.world.tell(f"the disk of {node.host} takes up to {node.disk.sync_ms_max} ms for a sync")

    def _bad_disk(self, node: SimulatedNode) -> None:
        if not self.world.may_end(node):
            return
        operation = self._random.choice(("write", "sync", "read", "truncate", "atomic"))
        self.world.tell(f"the next {operation} of {node.host}'s disk fails")
        node.fail_disk(operation)

    def _full_disk(self, node: SimulatedNode) -> None:
        if not self.world.may_end(node):
            return
        self.world.tell(f"the disk of {node.host} is full")
        total, free = node.disk.free_bytes(DATA)
        node.disk.capacity = total - free + self._random.randrange(400)

    def _flip(self, node: SimulatedNode) -> None:
        """Bits change while the node is down after a crash: what recovery must find, before it counts on it."""
        if not self.world.may_lose_data(node):
            return
        node.crash()
        self.world.loses_data(node)
        disk, random = node.disk, self._random
        # Only where recovery looks, as in Kafka: in the last segment of a log, and not at all when the node has not
        # opened its logs since it stopped in good order.
        stopped_well = any(path.endswith(CLEAN_SHUTDOWN) for path in disk.paths())
        logs = [path for path in disk.paths() if path.endswith(".log") and "__cluster_metadata" not in path]
        last = {} if stopped_well else {path.rpartition("/")[0]: path for path in logs}
        batches = [(path, header) for path in last.values() for header in _whole_batches(disk.read_bytes(path))]
        self.world.tell(f"{node.host} is killed" + (", and a bit of its logs flips" if batches else ""))
        if batches:
            path, header = random.choice(batches)
            # The checksum does not cover what the leader fills in: offset, length and epoch.
            position = random.randrange(header.position + LEADER_FIELDS_SIZE, header.end)
            before = disk.read_bytes(path)[position]
            disk.corrupt(path, position, bytes([before ^ (1 << random.randrange(8))]))

    def _clock(self, node: SimulatedNode) -> None:
        node.clock_error_ms = self._random.choice((-600_000, -2_000, 2_000, 60_000, 86_400_000))
        self.world.tell(f"the clock of {node.host} jumps: it is {node.clock_error_ms} ms off")


def _whole_batches(data: bytes) -> list[BatchHeader]:
    """The batches of a log, up to where an earlier flip has hit one."""
    found: list[BatchHeader] = []
    with suppress(BatchError):
        found.extend(iter_batches(data))
    return found
