"""One run of the comparison: start both brokers, warm them up, measure row by row in turns, stop and clean up.

Fairness is decided here. Both brokers run for the whole run, as Kafka needs its compiled code warm, but only one is
under load at a time. Rows alternate between the brokers, and which one goes first alternates by round, so neither
always finds the machine as the other left it. Medians count.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaException

from benchmarks import lifecycle, machine
from benchmarks.brokers import BROKERS, Broker, Cluster, compile_moldau
from benchmarks.client import ClientFailed
from benchmarks.results import FOREIGN_SHARE, MOLDAU, Results
from benchmarks.row import OVER_LIMIT, Row, Sample
from benchmarks.rows.java_tools import ToolFailed
from benchmarks.target import Target
from benchmarks.workspace import workspace

WARM_UP_SCALE = 0.4


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run does."""

    rows: tuple[Row, ...]
    brokers: tuple[str, ...]
    rounds: int
    scale: float
    warm_ups: int
    starts: int


def run(settings: Settings, say: Callable[[str], None]) -> Results:
    """First everything on one node, then everything on a cluster; each broker is there in one form at a time."""
    if MOLDAU in settings.brokers:
        compile_moldau()
    results, reservoir = Results(), machine.Reservoir()
    for nodes in sorted({row.nodes for row in settings.rows}):
        rows = tuple(row for row in settings.rows if row.nodes == nodes)
        _run_on(nodes, replace(settings, rows=rows), results, reservoir, say)
    return results


def _run_on(
    nodes: int, settings: Settings, results: Results, reservoir: machine.Reservoir, say: Callable[[str], None]
) -> None:
    with workspace() as directory, brokers(settings.brokers, directory, nodes) as started:
        starts = lifecycle.measure_starts(started, settings.starts if nodes == 1 else 1, say)
        idle_mb = lifecycle.start_and_rest(started)
        measurement = Measurement(
            settings, [Target(broker, settings.scale, reservoir) for broker in started], results, say
        )
        measurement.warm_up()
        measurement.measure()
        worked_mb = {broker.name: broker.resident_bytes() / 1e6 for broker in started}
    of_process = lifecycle.PROCESS[nodes]
    results.add_row(of_process.start, starts)
    memory = {name: [{"idle_mb": idle_mb[name], "worked_mb": worked_mb[name]}] for name in settings.brokers}
    results.add_row(of_process.memory, memory)


@contextlib.contextmanager
def brokers(names: Sequence[str], directory: Path, nodes: int = 1) -> Iterator[list[Broker]]:
    """Brokers with empty directories; whatever happens, they are stopped and their directories removed."""
    made: list[Broker] = []
    try:
        for name in names:
            kind = BROKERS[name]
            made.append(kind(directory / name) if nodes == 1 else Cluster(kind, directory / name))
        yield made
    finally:
        for broker in made:
            broker.remove()


class Measurement:
    """The rows of a run against its targets."""

    def __init__(self, settings: Settings, targets: list[Target], results: Results, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.targets = targets
        self.results = results
        self.say = say
        self.samples: dict[tuple[str, str], list[Sample]] = {}
        # Rows that share data are measured together, and their topics removed before the next group.
        self.groups = [list(rows) for _, rows in itertools.groupby(settings.rows, key=lambda row: row.data)]

    def warm_up(self) -> None:
        """The same work, unmeasured: Kafka's compiler, both brokers' buffers and the page cache get what they need."""
        for _ in range(self.settings.warm_ups):
            for target in self.targets:
                self.say(f"warming up {target.name}")
                target.scale = self.settings.scale * WARM_UP_SCALE
                for group in self.groups:
                    for row in group:
                        if row.warms_up:
                            self._take(row, target)
                    target.remove_topics()
                target.scale = self.settings.scale

    def measure(self) -> None:
        for number in range(self.settings.rounds):
            order = self.targets if number % 2 == 0 else self.targets[::-1]
            for group in self.groups:
                for row in group:
                    if number < row.rounds_max:
                        self._measure_row(row, order, number)
                for target in order:
                    target.remove_topics()
        for row in self.settings.rows:
            names = self.settings.brokers
            self.results.add_row(row, {name: self.samples.get((row.name, name), []) for name in names})

    def _measure_row(self, row: Row, order: list[Target], number: int) -> None:
        taken: dict[str, Sample] = {}
        for target in order:
            sample = self._take(row, target)
            if sample is not None:
                taken[target.name] = sample
                figures = ", ".join(
                    f"{sample[metric.key]:.4g} {metric.unit}"
                    for metric in row.metrics
                    if metric.shown and metric.key in sample
                )
                self.say(f"round {number + 1}: {row.name} on {target.name}: {figures}")
        limit = row.limit(order[0])
        if limit is not None:
            self.results.limits.setdefault(row.name, []).append(limit)
            for sample in taken.values():
                sample[OVER_LIMIT] = sample[limit.key] / limit.value
        for name, sample in taken.items():
            self.samples.setdefault((row.name, name), []).append(sample)

    def _take(self, row: Row, target: Target) -> Sample | None:
        """Do a row once; None, with the reason noted, when this broker does not have it or fails at it."""
        if not target.serves(row.needs):
            self.results.absent[row.name, target.name] = "not served yet"
            return None
        try:
            target.foreign_shares.clear()
            sample = row.measure(target)
            return {**sample, FOREIGN_SHARE: max(target.foreign_shares, default=0.0)}
        except (ClientFailed, ToolFailed, KafkaException, TimeoutError) as error:
            target.broker.check_alive()
            self.say(f"{row.name} on {target.name} failed: {error!r}")
            self.results.absent[row.name, target.name] = "failed"
            self.results.failed.add(f"{row.name} on {target.name}")
            return None
