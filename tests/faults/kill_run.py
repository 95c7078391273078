"""Kill a node under load, again and again: `python -m tests.faults.kill_run --kills 50`.

Prints what happened and ends with 1 if anything acknowledged was lost, changed, repeated (for an idempotent producer)
or out of order, or if anything was served that did not last. `--seed` repeats the moments of the kills (as far as a
real machine repeats anything), `--keep` keeps the data directory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from moldau.testing import Cluster
from tests.faults.kill_load import Onlooker, Stream, Verdict, Writer, judge, judge_files
from tests.security.wire_client import complaints

# One in so many kills comes while the node is still starting.
KILLS_WHILE_STARTING = 5
SMALL_SEGMENTS = {"segment.bytes": "1048576", "index.interval.bytes": "512"}

STREAMS = [
    Stream("plain", codec="none", config=SMALL_SEGMENTS),
    Stream("small", codec="lz4", partitions=6, config={"segment.ms": "300"}),
    Stream("synced", codec="zstd", partitions=2, config={"flush.messages": "1"}),
    # Batches large enough for a kill to find the node in the middle of writing one.
    Stream("large", codec="none", partitions=1, bytes_max=40_000, config=SMALL_SEGMENTS),
    Stream("simple", codec="gzip", idempotent=False),
    Stream("leader-only", codec="snappy", idempotent=False, acks="1", config=SMALL_SEGMENTS),
    Stream(
        "compacted",
        codec="none",
        keys=40,
        partitions=2,
        config={
            "cleanup.policy": "compact",
            "segment.ms": "200",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "1000",
        },
    ),
]
# Everything that is done now and then in a node is done all the time here.
NODE = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "metadata.log.max.snapshot.interval.ms": "1000",
}


@dataclass(frozen=True)
class Report:
    kills: int
    seconds: float
    slowest_start: float
    verdict: Verdict


def run(
    kills: int,
    *,
    seed: int,
    streams: list[Stream] | None = None,
    rate: float = 400,
    longest_life: float = 1.5,
    data_dir: Path,
    say: bool = False,
) -> Report:
    """Load the node, kill it `kills` times at random moments, and judge what is left."""
    streams = STREAMS if streams is None else streams
    chance = random.Random(seed)
    began = time.monotonic()
    slowest = 0.0
    cluster = Cluster(NODE, in_process=False, data_dir=data_dir)
    with cluster:
        for stream in streams:
            cluster.create_topic(stream.topic, stream.partitions, stream.config)
        writers = [Writer(cluster.bootstrap_servers, stream, rate, seed + i) for i, stream in enumerate(streams)]
        onlooker = Onlooker(cluster.bootstrap_servers, streams)
        for each in (*writers, onlooker):
            each.start()
        done = 0
        while done < kills:
            time.sleep(chance.uniform(0.02, longest_life))
            cluster.kill()
            done += 1
            while done < kills and chance.randrange(KILLS_WHILE_STARTING) == 0:
                if kill_while_starting(cluster, chance.uniform(0.05, 0.5)):
                    done += 1
                else:
                    cluster.kill()
                    done += 1
            started = time.monotonic()
            cluster.start()
            slowest = max(slowest, time.monotonic() - started)
            if say:
                sent = sum(len(acks) for writer in writers for acks in writer.history.acknowledged)
                print(f"{done:3} kills, {sent} records acknowledged", flush=True)
        for writer in writers:
            writer.stop()
        time.sleep(0.3)
        onlooker.stop()
        verdict = judge(cluster, [writer.history for writer in writers], onlooker)
        cluster.kill()
        judge_files(data_dir, streams, verdict)
    verdict.problems += [f"the node complained: {line}" for line in complaints(cluster)]
    return Report(done, time.monotonic() - began, slowest, verdict)


def kill_while_starting(cluster: Cluster, after: float) -> bool:
    """Start the node and kill it `after` seconds, ready or not; whether it died while starting."""
    failure: list[BaseException] = []

    def start() -> None:
        try:
            cluster.start()
        except RuntimeError as error:
            failure.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    time.sleep(after)
    if starting.is_alive():
        for pid in _node_processes(cluster.data_dir):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    starting.join(60)
    return bool(failure)


def _node_processes(data_dir: Path) -> list[int]:
    """The children of this process that run on that directory."""
    found = []
    wanted = os.fsencode(str(data_dir / "server.properties"))
    for task in Path("/proc/self/task").iterdir():
        # Threads and processes may end while they are listed.
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                found += [int(child)] if wanted in command else []
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rate", type=float, default=400, help="records a second and stream")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    data_dir = Path(tempfile.mkdtemp(prefix="moldau-kills-"))
    print(f"seed {arguments.seed}")
    report = run(arguments.kills, seed=arguments.seed, rate=arguments.rate, data_dir=data_dir, say=True)
    verdict = report.verdict
    print(
        f"{report.kills} kills in {report.seconds:.0f} s; {verdict.acknowledged} records acknowledged, "
        f"{verdict.stored} stored in topics that keep all, {verdict.duplicates} repeated by producers that may; "
        f"slowest start {report.slowest_start:.2f} s"
    )
    for problem in verdict.problems:
        print("PROBLEM:", problem)
    if arguments.keep or verdict.problems:
        print("the data is in", data_dir)
    else:
        shutil.rmtree(data_dir)
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
