"""`python -m benchmarks.spark`: both sources and sinks on the same topics, taking turns, and a table of what came out.

The node is Moldau by default, or any cluster with --servers. Each row is warmed up once and then measured in turns; the
figure is the best round of each, which is the one least disturbed by whatever else the machine does. `--record` keeps
the figures beside those of the other benchmarks, in history/.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.spark import stock_spark
from moldau.records.compression import CODEC_BY_NAME
from moldau.spark.brokers import client_settings
from moldau.spark.task_writing import TaskWriter
from moldau.spark.write_settings import EncodingSettings, WriteSettings
from moldau.testing import Cluster

OURS, STOCK = "moldau", "kafka"
REPOSITORY = Path(__file__).resolve().parents[2]
SESSION = Path(__file__).with_name("session.py")
BAR = 2.0
# Megabytes of values in each topic, so that rows of any size take about as long.
MEGABYTES = 200
FILL_ROWS = 20_000
# Rows of a micro-batch, and how many of them.
BATCH_ROWS = (100, 10_000)
BATCHES = 20
# How the files of a checkpoint are written: quickly or as Spark does by itself, and with checksums or without. The
# version of Spark that its own connector is measured with has no checksums.
CHECKPOINTS = {"run": (True, True), "quick": (True, False), "plain": (False, False)}


class Remote:
    """A Spark session in a process of its own."""

    def __init__(self, python: str, form: str, servers: str, jars: list[str]) -> None:
        command = [python, str(SESSION), form, servers, "--jars", ",".join(jars)]
        environment = {**os.environ, "PYSPARK_PYTHON": python}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        self.version = self._answer()["version"]

    def ask(self, do: str, **what: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the Spark session ended; run it by hand to see why")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


@contextmanager
def node(servers: str | None) -> Iterator[tuple[str, Any]]:
    """(addresses, function that creates a topic)."""
    if servers is None:
        with Cluster(in_process=False) as cluster:
            yield cluster.bootstrap_servers, cluster.create_topic
        return
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": servers})

    def create(name: str, partitions: int) -> None:
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)

    yield servers, create


def fill(servers: str, topic: str, rows: int, size: int, codec: str) -> None:
    """Rows with half random, half repeated bytes: they compress about as JSON does not quite."""
    client = client_settings({"bootstrap.servers": servers})
    settings = WriteSettings(client, EncodingSettings(topic, CODEC_BY_NAME[codec], None, 64 * 1024), 120.0)
    random = np.random.default_rng(1)

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, FILL_ROWS):
            count = min(FILL_ROWS, rows - first)
            data = random.integers(0, 256, (count, size), dtype=np.uint8)
            data[:, size // 2 :] = ord("x")
            ends = np.arange(0, (count + 1) * size, size, dtype=np.int32)
            values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
            keys = pa.array([str(number) for number in range(first, first + count)])
            yield pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])

    TaskWriter(settings, 0).write_at_least_once(batches())


def measure(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    with ExitStack() as stack:
        servers, create = stack.enter_context(node(arguments.servers))
        remotes = {OURS: Remote(sys.executable, OURS, servers, [])}
        stack.callback(remotes[OURS].close)
        if not arguments.only_ours:
            stock_spark.fetch()
            remotes[STOCK] = Remote(str(stock_spark.python()), STOCK, servers, stock_spark.jars())
            stack.callback(remotes[STOCK].close)
        console.print({name: f"Spark {remote.version}" for name, remote in remotes.items()})
        for size in arguments.sizes:
            for partitions in arguments.partitions:
                for codec in arguments.codecs:
                    rows = arguments.megabytes * 1_000_000 // size
                    topic = f"rows-{size}-{partitions}-{codec}"
                    create(topic, partitions)
                    fill(servers, topic, rows, size, codec)
                    shape = {"size": size, "partitions": partitions, "codec": codec, "rows": rows}
                    seconds = take_turns(remotes, arguments.rounds, "read", lambda _, name=topic: {"topic": name})
                    results.append({"what": "read", **shape, **rates(seconds, rows)})
                    if arguments.writes:
                        written = {name: f"{topic}-by-{name}" for name in remotes}
                        for name in written.values():
                            create(name, partitions)
                        asked = {"rows": rows // 2, "size": size, "codec": codec}
                        seconds = take_turns(
                            remotes,
                            arguments.rounds,
                            "write",
                            lambda name, to=written, what=asked: {
                                **what,
                                "topic": to[name],
                                "exactly_once": name == OURS,
                            },
                        )
                        results.append({"what": "write", **shape, **rates(seconds, rows // 2)})
                    console.print(results[-1] if not arguments.writes else results[-2:])
        if arguments.stream:
            for rows in BATCH_ROWS:
                results += stream(remotes, servers, create, rows, arguments.rounds)
    return results


def take_turns(remotes: dict[str, Remote], rounds: int, do: str, what: Any) -> dict[str, dict[str, float]]:
    """The best of some rounds for each, by the clock and by processor time, after one that does not count."""
    best: dict[str, dict[str, float]] = {}
    for turn in range(rounds + 1):
        for name, remote in remotes.items():
            took = remote.ask(do, **what(name))
            if turn:
                known = best.setdefault(name, took)
                best[name] = {unit: min(took[unit], known[unit]) for unit in took}
    return best


def rates(best: dict[str, dict[str, float]], rows: int) -> dict[str, Any]:
    """Rows per second, and nanoseconds of processor time for a row."""
    found: dict[str, Any] = {}
    for name, took in best.items():
        found[name] = round(rows / took["seconds"])
        found[f"{name} cpu"] = round(took["cpu"] / rows * 1e9)
    if STOCK in found:
        found["ratio"] = round(found[OURS] / found[STOCK], 2)
    return found


def stream(remotes: dict[str, Remote], servers: str, create: Any, rows: int, rounds: int) -> list[dict[str, Any]]:
    """Micro-batches of so many rows, the best round's median; of few rows, what a batch costs by itself is measured.

    Ours as `moldau run` sets Spark up against Spark's own as it comes, and both with the same settings.
    """
    topic = f"stream-{rows}"
    create(topic, 1)
    fill(servers, topic, rows * BATCHES, 100, "none")
    medians: dict[tuple[str, str], float] = {}
    # The first round is for the virtual machines to warm up.
    for turn in range(rounds + 1):
        for name, remote in remotes.items():
            for how, (quick, checksums) in CHECKPOINTS.items():
                target = f"{topic}-by-{name}-{how}-{turn}"
                create(target, 1)
                asked = {"topic": topic, "target": target, "per_batch": rows, "quick": quick, "checksums": checksums}
                median = statistics.median(remote.ask("stream", **asked)["milliseconds"])
                if turn:
                    medians[name, how] = min(medians.get((name, how), median), median)
    found = []
    for how, ours, stock in (
        ("as they come", "run", "plain"),
        ("both quick", "quick", "quick"),
        ("both plain", "plain", "plain"),
    ):
        row: dict[str, Any] = {"what": f"ms for {rows:,} rows, {how}", OURS: round(medians[OURS, ours])}
        if STOCK in remotes:
            row[STOCK] = round(medians[STOCK, stock])
            row["ratio"] = round(medians[OURS, ours] / medians[STOCK, stock], 2)
        found.append(row)
    return found


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="rows per second, best round")
    for column in ("what", "row", "partitions", "codec", "moldau", "spark's own", "times", "cpu ns/row", "its own"):
        table.add_column(column, justify="right")
    for each in results:
        stock, ratio = each.get(STOCK), each.get("ratio")
        table.add_row(
            each["what"],
            f"{each['size']} B" if "size" in each else "",
            str(each.get("partitions", "")),
            each.get("codec", ""),
            f"{each[OURS]:,}",
            "" if stock is None else f"{stock:,}",
            ""
            if ratio is None
            else f"{ratio:.2f}" + (" below the bar" if each["what"] == "read" and ratio < BAR else ""),
            str(each.get(f"{OURS} cpu", "")),
            str(each.get(f"{STOCK} cpu", "")),
        )
    console.print(table)


def record(results: list[dict[str, Any]]) -> None:
    commit, dirty = machine.commit(REPOSITORY)
    moment = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    kept = {
        "date": moment,
        "commit": commit,
        "uncommitted_changes": dirty,
        "machine": machine.facts(),
        "nice": os.nice(0),
        "load": round(os.getloadavg()[0], 1),
        "results": results,
    }
    path = REPOSITORY / "benchmarks" / "history" / f"spark-{moment}-{commit}.json"
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--servers", help="measure against this cluster instead of a node of its own")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="bytes of a row's value")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4"])
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only-ours", action="store_true", help="leave Spark's own connector out")
    parser.add_argument("--writes", action="store_true", help="measure the sinks too (ours exactly once)")
    parser.add_argument("--stream", action="store_true", help="measure what a micro-batch costs")
    parser.add_argument("--record", action="store_true", help="keep the figures in benchmarks/history/")
    parser.add_argument("--json", type=Path, help="write the results here")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    results = measure(arguments, console)
    show(results, console)
    if arguments.record:
        record(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
