"""Plans: which replicas shall go where, so that a broker becomes empty or all brokers carry alike.

Pure arithmetic over what the cluster looks like; nothing is asked and nothing is moved here. A plan moves as little as
it can, never puts two replicas of a partition on one broker, and never spreads a partition over fewer racks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

Partition = tuple[str, int]
Assignment = Mapping[Partition, Sequence[int]]


class PlanError(Exception):
    """There is no such plan; the text says why."""


@dataclass(slots=True, frozen=True)
class Broker:
    id: int
    rack: str | None = None


@dataclass(slots=True, frozen=True)
class Load:
    """How many replicas a broker has, and how many partitions it leads when all is as preferred."""

    replicas: int
    leaders: int


def loads(assignment: Assignment, brokers: Iterable[int]) -> dict[int, Load]:
    replicas = Counter(broker for each in assignment.values() for broker in each)
    leaders = Counter(each[0] for each in assignment.values() if each)
    return {broker: Load(replicas[broker], leaders[broker]) for broker in brokers}


def drain_plan(
    assignment: Assignment, brokers: Collection[Broker], drained: Collection[int]
) -> dict[Partition, list[int]]:
    """New replicas for every partition that has one on a drained broker."""
    targets = [broker for broker in brokers if broker.id not in drained]
    state = _State(assignment, targets)
    changed = {}
    for partition, replicas in sorted(assignment.items()):
        for broker in [each for each in replicas if each in drained]:
            chosen = state.best_for(partition, instead_of=broker)
            if chosen is None:
                raise PlanError(
                    f"{partition[0]}-{partition[1]} has {len(replicas)} replicas, and only {len(targets)} brokers "
                    "would be left to hold them"
                )
            state.replace(partition, broker, chosen)
            changed[partition] = state.current[partition]
    state.balance_leaders(changed)
    return {partition: list(state.current[partition]) for partition in changed}


def rebalance_plan(assignment: Assignment, brokers: Collection[Broker]) -> dict[Partition, list[int]]:
    """New replicas (or a new order of them) so that brokers differ by one replica and about one leader at most."""
    state = _State(assignment, brokers)
    state.balance_replicas()
    state.balance_leaders(state.current)
    return {
        partition: list(replicas)
        for partition, replicas in state.current.items()
        if list(assignment[partition]) != replicas
    }


class _State:
    """An assignment under change, with its counts."""

    def __init__(self, assignment: Assignment, brokers: Collection[Broker]) -> None:
        self.current = {partition: list(replicas) for partition, replicas in assignment.items()}
        self._racks = {broker.id: broker.rack for broker in brokers}
        self._brokers = sorted(self._racks)
        counts = loads(assignment, self._brokers)
        self._replicas = {broker: counts[broker].replicas for broker in self._brokers}
        self._leaders = {broker: counts[broker].leaders for broker in self._brokers}
        # Insertion keeps the order: a plan is the same for the same cluster, whoever asks.
        self._on: dict[int, dict[Partition, None]] = {broker: {} for broker in self._brokers}
        for partition, replicas in sorted(self.current.items()):
            for broker in replicas:
                if broker in self._on:
                    self._on[broker][partition] = None

    # ---- replicas

    def best_for(self, partition: Partition, *, instead_of: int) -> int | None:
        """The least loaded broker that may take this replica: one in a rack of its own, if there is any."""
        staying = [each for each in self.current[partition] if each != instead_of]
        taken = {self._racks.get(each) for each in staying}
        free = [broker for broker in self._brokers if broker not in staying and broker != instead_of]
        return min(
            free,
            key=lambda broker: (
                self._racks[broker] is not None and self._racks[broker] in taken,
                self._replicas[broker],
            ),
            default=None,
        )

    def replace(self, partition: Partition, old: int, new: int) -> None:
        replicas = self.current[partition]
        position = replicas.index(old)
        replicas[position] = new
        for broker, change in ((old, -1), (new, 1)):
            if broker in self._replicas:
                self._replicas[broker] += change
                if position == 0:
                    self._leaders[broker] += change
                if change > 0:
                    self._on[broker][partition] = None
                else:
                    del self._on[broker][partition]

    def balance_replicas(self) -> None:
        while True:
            by_load = sorted(self._brokers, key=lambda broker: (self._replicas[broker], broker))
            if not any(self._move_one(fullest, by_load) for fullest in reversed(by_load)):
                return

    def _move_one(self, fullest: int, by_load: Sequence[int]) -> bool:
        for emptiest in by_load:
            if self._replicas[fullest] - self._replicas[emptiest] < 2:
                return False
            held = self._on[emptiest]
            for partition in self._on[fullest]:
                if partition not in held and self._keeps_racks(partition, fullest, emptiest):
                    break
            else:
                continue
            self.replace(partition, fullest, emptiest)
            return True
        return False

    def _keeps_racks(self, partition: Partition, old: int, new: int) -> bool:
        before = self.current[partition]
        after = [new if broker == old else broker for broker in before]
        return len({self._racks.get(each) for each in after}) >= len({self._racks.get(each) for each in before})

    # ---- leaders

    def balance_leaders(self, partitions: Iterable[Partition]) -> None:
        """Let another replica be the preferred one where that evens out who leads."""
        candidates = sorted(partitions)
        moved = True
        while moved:
            moved = False
            for partition in candidates:
                replicas = self.current[partition]
                first = replicas[0]
                if first not in self._leaders:
                    continue
                known = [broker for broker in replicas if broker in self._leaders]
                least = min(known, key=lambda broker: self._leaders[broker])
                if self._leaders[first] - self._leaders[least] >= 2:
                    position = replicas.index(least)
                    replicas[0], replicas[position] = least, first
                    self._leaders[first] -= 1
                    self._leaders[least] += 1
                    moved = True
