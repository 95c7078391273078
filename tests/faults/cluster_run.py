"""Break a cluster of three in every way, again and again: `python -m tests.faults.cluster_run --times 20`.

Idempotent and plain producers write all the time and a reader looks on. After each fault the cluster must go on within
`--progress` seconds, with every replica in sync; in the end nothing acknowledged may be lost, repeated or out of order,
and nothing that was read may be gone. Prints what each fault cost; ends with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from moldau.testing import Cluster
from tests.faults.cluster_faults import FAULTS, PARTITIONS
from tests.faults.kill_load import Onlooker, Stream, Verdict, Writer, judge

PROGRESS_SECONDS_MAX = 10.0
IN_SYNC_SECONDS_MAX = 60.0
LOADED = "orders"
NO_DISK = "no log directory is left"
# A node that was killed looks through its newest segments before it serves: small ones, as it happens often here.
SMALL_SEGMENTS = {"segment.bytes": "4194304"}
STREAMS = [
    Stream(LOADED, codec="lz4", partitions=PARTITIONS, config=SMALL_SEGMENTS),
    Stream("plain", codec="none", partitions=2, idempotent=False, in_order=False, config=SMALL_SEGMENTS),
]


@dataclass
class Cost:
    """What one kind of fault did to the producers."""

    times: int = 0
    longest_gap: float = 0.0
    slowest_progress: float = 0.0


@dataclass
class Report:
    seconds: float
    costs: dict[str, Cost]
    verdict: Verdict
    problems: list[str] = field(default_factory=list)


class Watch:
    """Notes the longest time in which no producer was told of anything new."""

    def __init__(self, writers: list[Writer]) -> None:
        self._writers = writers
        self._stop = threading.Event()
        self._longest = 0.0
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        known, since = acknowledged(self._writers), time.monotonic()
        while not self._stop.wait(0.005):
            now, count = time.monotonic(), acknowledged(self._writers)
            self._longest = max(self._longest, now - since)
            if count != known:
                known, since = count, now

    def longest_since_asked(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def acknowledged(writers: list[Writer]) -> int:
    return sum(len(acks) for writer in writers for acks in writer.history.acknowledged)


def each_partition(writers: list[Writer]) -> list[int]:
    return [len(acks) for writer in writers for acks in writer.history.acknowledged]


def seconds_to_progress(writers: list[Writer], limit: float) -> float:
    """How long until every partition has taken something new."""
    before, began = each_partition(writers), time.monotonic()
    while time.monotonic() - began < limit:
        if all(now > then for now, then in zip(each_partition(writers), before, strict=True)):
            return time.monotonic() - began
        time.sleep(0.01)
    stuck = [i for i, (now, then) in enumerate(zip(each_partition(writers), before, strict=True)) if now <= then]
    raise TimeoutError(f"no progress in partitions {stuck} within {limit:.0f} s of healing")


def run(
    faults: Iterable[str],
    *,
    seed: int,
    data_dir: Path,
    rate: float = 300,
    progress_seconds: float = PROGRESS_SECONDS_MAX,
    say: bool = False,
) -> Report:
    """Let the faults happen one after the other under load, and judge what is left."""
    chance = random.Random(seed)
    began = time.monotonic()
    costs: dict[str, Cost] = {}
    problems: list[str] = []
    with Cluster(nodes=3, data_dir=data_dir) as cluster:
        for stream in STREAMS:
            cluster.create_topic(stream.topic, stream.partitions, stream.config)
        writers = [Writer(cluster.bootstrap_servers, stream, rate, seed + i) for i, stream in enumerate(STREAMS)]
        onlooker = Onlooker(cluster.bootstrap_servers, STREAMS)
        for each in (*writers, onlooker):
            each.start()
        seconds_to_progress(writers, IN_SYNC_SECONDS_MAX)
        watch = Watch(writers)
        for name in faults:
            watch.longest_since_asked()
            FAULTS[name](cluster, LOADED, chance)
            try:
                progress = seconds_to_progress(writers, progress_seconds)
                cluster.wait_until_in_sync(*(stream.topic for stream in STREAMS), seconds=IN_SYNC_SECONDS_MAX)
            except (TimeoutError, AssertionError) as error:
                problems.append(f"after {name}: {error}")
                break
            cost = costs.setdefault(name, Cost())
            cost.times += 1
            cost.longest_gap = max(cost.longest_gap, gap := watch.longest_since_asked())
            cost.slowest_progress = max(cost.slowest_progress, progress)
            if say:
                count = acknowledged(writers)
                print(f"{name:20} gap {gap:5.2f} s, going on after {progress:5.2f} s; {count} records", flush=True)
        watch.stop()
        for writer in writers:
            writer.stop()
        time.sleep(0.5)
        onlooker.stop()
        verdict = judge(cluster, [writer.history for writer in writers], onlooker)
        problems += _errors(cluster)
    return Report(time.monotonic() - began, costs, verdict, problems)


def _errors(cluster: Cluster) -> list[str]:
    """What a node calls an error of its own, but for having no disk left when its disk was taken away."""
    return [
        f"node {node.id} complained: {line}"
        for node in cluster.nodes.values()
        for line in node.log().splitlines()
        if line.startswith(("Traceback", "Exception")) or (" CRITICAL" in line and NO_DISK not in line)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how often each fault happens, in a row")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which ones")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--progress", type=float, default=PROGRESS_SECONDS_MAX)
    arguments = parser.parse_args()
    data_dir = Path(tempfile.mkdtemp(prefix="moldau-faults-"))
    print(f"seed {arguments.seed}")
    faults = [name for name in arguments.faults.split(",") for _ in range(arguments.times)]
    report = run(faults, seed=arguments.seed, data_dir=data_dir, progress_seconds=arguments.progress, say=True)
    verdict = report.verdict
    for name, cost in report.costs.items():
        print(
            f"{name:20} {cost.times:3} times, longest gap between acknowledgements {cost.longest_gap:5.2f} s, "
            f"every partition goes on {cost.slowest_progress:5.2f} s after the end of it at the latest"
        )
    print(
        f"{report.seconds:.0f} s; {verdict.acknowledged} records acknowledged, {verdict.stored} stored, "
        f"{verdict.duplicates} repeated by the producer that may"
    )
    problems = [*report.problems, *verdict.problems]
    for problem in problems:
        print("PROBLEM:", problem)
    if problems:
        print("the data is in", data_dir)
    else:
        shutil.rmtree(data_dir)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
