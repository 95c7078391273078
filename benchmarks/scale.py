"""How Moldau carries size: ten thousand partitions, a topic of 50 GB beside one of 50 MB, a million committed offsets.

    python -m benchmarks.scale [partitions] [topic] [groups] [--check] [--record]

Prints a table; with --check ends with 1 when a bar is missed. Apache Kafka has no part in it: the bars are absolute.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine, process
from benchmarks.brokers import BrokerFailed, MoldauBroker, compile_moldau
from benchmarks.report import figure
from benchmarks.results import round_figure
from benchmarks.rows import clients
from benchmarks.scale_groups import many_groups
from benchmarks.sparse_log import SECOND_MS, SparseLog, write_sparse_log
from benchmarks.target import Target, wait_for_topic
from benchmarks.wire import Connection
from benchmarks.workspace import REPOSITORY, workspace

TOPICS, PARTITIONS_PER_TOPIC = 10, 1000
RECORDS_PER_PARTITION = 10
RECORD_BYTES = 100
SMALL_BYTES, LARGE_BYTES = 50 * 10**6, 50 * 10**9
STARTS = 3
READS = 150

READY_SECONDS_MAX = 5.0
RESIDENT_MB_MAX = 500.0
# "Costs no more": medians of single reads of a fraction of a millisecond still differ by this much from run to run.
SAME_COST_RATIO = 1.3
SAME_COST_SECONDS = 0.1


@dataclass(slots=True)
class Finding:
    """One line of the report."""

    title: str
    value: float
    unit: str
    bar: float | None = None

    @property
    def is_met(self) -> bool | None:
        return None if self.bar is None else self.value <= self.bar


@dataclass(slots=True)
class Findings:
    """Collected line by line, each shown as soon as it is known."""

    lines: list[Finding] = field(default_factory=list)

    def add(self, title: str, value: float, unit: str, bar: float | None = None) -> None:
        self.lines.append(Finding(title, value, unit, bar))
        print(f"{title}: {figure(value)} {unit}", file=sys.stderr, flush=True)


def many_partitions(findings: Findings, directory: Path) -> None:
    """Create, produce to, read and restart ten thousand partitions."""
    broker = MoldauBroker(directory / "partitions")
    try:
        broker.start()
        target = Target(broker, 1.0, machine.Reservoir())
        began = time.perf_counter()
        topics = [target.new_topic("scale", PARTITIONS_PER_TOPIC) for _ in range(TOPICS)]
        findings.add("10,000 partitions: created", time.perf_counter() - began, "s")
        findings.add("10,000 partitions: produced to", _each_topic(target, topics, clients.produce), "s")
        findings.add("10,000 partitions: read", _each_topic(target, topics, clients.consume), "s")
        findings.add("10,000 partitions: resident memory", broker.resident_bytes() / 1e6, "MB", RESIDENT_MB_MAX)
        _restart(broker, "10,000 partitions: start to ready after a clean stop", findings, topics)
        findings.add("10,000 partitions: read after it", _each_topic(target, topics, clients.consume), "s")
        findings.add("10,000 partitions: resident after it", broker.resident_bytes() / 1e6, "MB", RESIDENT_MB_MAX)
        _restart(broker, "10,000 partitions: start to ready after kill -9", findings, topics, kill=True)
        findings.add("10,000 partitions: read after it", _each_topic(target, topics, clients.consume), "s")
    finally:
        broker.remove()


def _each_topic(target: Target, topics: list[str], client: Callable[..., Any]) -> float:
    """Seconds of a client doing all partitions of each topic, one topic after the other."""
    seconds = 0.0
    for topic in topics:
        task = {
            "topic": topic,
            "partitions": PARTITIONS_PER_TOPIC,
            "messages": PARTITIONS_PER_TOPIC * RECORDS_PER_PARTITION,
            "size_bytes": RECORD_BYTES,
        }
        (result,), _ = target.run((client, task))
        seconds += result["seconds"]
    return seconds


def _restart(broker: MoldauBroker, title: str, findings: Findings, topics: list[str], *, kill: bool = False) -> None:
    """Ready means: it answers, and every partition of every topic has a leader."""
    began = time.perf_counter()
    if kill:
        broker.kill()
    else:
        broker.stop()
        findings.add("10,000 partitions: clean stop", time.perf_counter() - began, "s")
    began = time.perf_counter()
    broker.start()
    admin = Target(broker, 1.0, machine.Reservoir()).admin
    for topic in topics:
        wait_for_topic(admin, topic, PARTITIONS_PER_TOPIC)
    findings.add(title, time.perf_counter() - began, "s", READY_SECONDS_MAX)


@dataclass(slots=True)
class SizedTopic:
    """A node with a topic of some size, and what was measured of it."""

    title: str
    broker: MoldauBroker
    topic: str
    log: SparseLog
    taken: dict[str, list[float]] = field(default_factory=dict)

    def note(self, what: str, value: float) -> None:
        self.taken.setdefault(what, []).append(value)


def large_topic(findings: Findings, directory: Path) -> None:
    """The same measurements on 50 MB and on 50 GB, one after the other each time, so that noise falls on both."""
    topics: list[SizedTopic] = []
    try:
        for title, size_bytes in (("50 MB", SMALL_BYTES), ("50 GB", LARGE_BYTES)):
            topics.append(_sized_topic(title, directory / title.replace(" ", "-"), size_bytes))
        for _ in range(STARTS):
            for each in topics:
                each.note("start to first read, s", _start_to_read(each))
        for each in topics:
            _forget_pages(each)
        # The first time, the kernel has to find pages, and most reads of the large topic open a segment.
        for time_round in (", first time, ms", ", ms"):
            _read_in_turns(topics, "read at random offsets" + time_round, _read_at)
            _read_in_turns(topics, "find random timestamps" + time_round, _find)
        for each in topics:
            each.note("resident memory after reading, MB", each.broker.resident_bytes() / 1e6)
        for _ in range(STARTS):
            for each in topics:
                each.broker.kill()
                each.note("start to first read after kill -9, s", _start_to_read(each))
    finally:
        for each in topics:
            each.broker.remove()
    _compare(findings, *topics)


def _compare(findings: Findings, small: SizedTopic, large: SizedTopic) -> None:
    for what, values in small.taken.items():
        measure = statistics.median(values)
        value = statistics.median(large.taken[what])
        title, _, unit = what.rpartition(", ")
        slack = SAME_COST_SECONDS if unit == "s" else 0.0
        judged = "first time" not in what and unit != "MB"
        findings.add(f"{small.title}: {title}", measure, unit)
        findings.add(f"{large.title}: {title}", value, unit, measure * SAME_COST_RATIO + slack if judged else None)


def _sized_topic(title: str, directory: Path, size_bytes: int) -> SizedTopic:
    broker = MoldauBroker(directory, "log.retention.ms=-1\n")
    try:
        broker.start()
        topic = Target(broker, 1.0, machine.Reservoir()).new_topic("sized")
        broker.stop()
        return SizedTopic(title, broker, topic, write_sparse_log(broker.data_directory, topic, size_bytes))
    except BaseException:
        broker.remove()
        raise


def _start_to_read(each: SizedTopic) -> float:
    """Seconds from the process's start until the topic's last record has been read."""
    each.broker.stop()
    began = time.perf_counter()
    each.broker.start()
    last = each.log.batches - 1
    connection = Connection(each.broker.port)
    while time.perf_counter() - began < READY_SECONDS_MAX * 10:
        try:
            offset, _ = connection.fetch(each.topic, last)
        except RuntimeError:
            continue
        assert offset == last, "the end of the log is not where it was written"
        connection.close()
        return time.perf_counter() - began
    raise BrokerFailed(f"the last record of {each.topic} could not be read\n{each.broker.last_output()}")


def _read_at(connection: Connection, each: SizedTopic, offset: int) -> int:
    return connection.fetch(each.topic, offset)[0]


def _find(connection: Connection, each: SizedTopic, offset: int) -> int:
    return connection.offset_at(each.topic, each.log.first_ms + offset * SECOND_MS - SECOND_MS // 2)


def _read_in_turns(topics: list[SizedTopic], what: str, read: Callable[[Connection, SizedTopic, int], int]) -> None:
    """Milliseconds of single reads at the same distinct random offsets every time."""
    connections = [Connection(each.broker.port) for each in topics]
    offsets = [random.Random(1).sample(range(each.log.batches), READS) for each in topics]
    for number in range(READS):
        for each, connection, wanted in zip(topics, connections, offsets, strict=True):
            began = time.perf_counter()
            found = read(connection, each, wanted[number])
            each.note(what, (time.perf_counter() - began) * 1e3)
            assert found == wanted[number], f"offset {found} came for {wanted[number]}"
    for connection in connections:
        connection.close()


def _forget_pages(each: SizedTopic) -> None:
    """Ask the kernel to drop a topic's cached pages, so that both sizes are equally cold at first."""
    for path in (each.broker.data_directory / f"{each.topic}-0").glob("*.log"):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


PARTS = {"partitions": many_partitions, "topic": large_topic, "groups": many_groups}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts (default all)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--record", action="store_true", help="keep the figures in history/ and SCALE.md")
    parser.add_argument("--nice", type=int, default=0, help="niceness of the node and clients, on a busy machine")
    arguments = parser.parse_args()
    compile_moldau()
    process.set_niceness(arguments.nice)
    findings = Findings()
    with workspace() as directory:
        for part in arguments.parts or PARTS:
            PARTS[part](findings, directory)
    show(findings)
    if arguments.record:
        record(findings)
    return 1 if arguments.check and any(line.is_met is False for line in findings.lines) else 0


def show(findings: Findings) -> None:
    table = Table(title="Moldau at scale")
    for column in ("what", "figure", "bar", ""):
        table.add_column(column, justify="left" if column == "what" else "right")
    for line in findings.lines:
        bar = "" if line.bar is None else f"≤ {figure(line.bar)} {line.unit}"
        verdict = {True: "[green]ok[/]", False: "[bold red]MISS[/]", None: ""}[line.is_met]
        table.add_row(line.title, f"{figure(line.value)} {line.unit}", bar, verdict)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def record(findings: Findings) -> None:
    commit, dirty = machine.commit(REPOSITORY)
    moment = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    kept = {
        "date": moment,
        "commit": commit,
        "uncommitted_changes": dirty,
        "machine": machine.facts(),
        "findings": [
            {"title": line.title, "value": round_figure(line.value), "unit": line.unit, "met": line.is_met}
            for line in findings.lines
        ],
    }
    here = Path(__file__).parent
    (here / "history").mkdir(exist_ok=True)
    path = here / "history" / f"scale-{moment}-{commit}.json"
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    (here / "SCALE.md").write_text(markdown(findings, kept), encoding="utf-8")


def markdown(findings: Findings, record: dict[str, Any]) -> str:
    facts = record["machine"]
    rows = [
        (
            line.title,
            f"{figure(line.value)} {line.unit}",
            "" if line.bar is None else f"≤ {figure(line.bar)} {line.unit}",
            {True: "ok", False: "MISS", None: ""}[line.is_met],
        )
        for line in findings.lines
    ]
    lines = [
        "# How Moldau carries size",
        "",
        f"{record['date'][:10]}: {record['commit']}; {facts['cores']} cores ({facts['processor']}), "
        f"{facts['memory_gb']} GB, Linux {facts['kernel']}, Python {facts['python']}. "
        "`python -m benchmarks.scale --record` repeats it.",
        "",
        "| what | figure | bar | |",
        "|---|--:|--:|---|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
