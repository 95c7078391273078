"""Copy a topic in transactions while nodes and copiers are killed: `python -m tests.faults.txn_run --records 100000`.

Copiers read in one group and write records and offsets in one transaction. At random the node is killed, a copier is
killed, or a copier is stopped for longer than its session lasts and wakes up as a zombie. In the end, what a reader of
committed records finds must be the input: nothing missing, nothing twice, in order. Ends with 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from moldau.testing import Cluster
from tests.faults.txn_copier import GROUP, SOURCE, TARGET

PARTITIONS = 4
NODE = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
ZOMBIE_SECONDS = 3.0
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}


@dataclass
class Report:
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Copiers:
    def __init__(self, servers: str, count: int) -> None:
        self._servers = servers
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._count = count

    def keep_running(self) -> None:
        """Start the ones that are not there, or not any more."""
        for number in range(self._count):
            process = self._running.get(number)
            if process is None or process.poll() is not None:
                command = [sys.executable, "-m", "tests.faults.txn_copier", self._servers, f"copier-{number}"]
                self._running[number] = subprocess.Popen(command)

    def pick(self, chance: random.Random) -> subprocess.Popen[bytes]:
        return self._running[chance.randrange(self._count)]

    def stop(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def run(
    records: int,
    faults: int,
    *,
    seed: int,
    data_dir: Path,
    copiers: int = 2,
    seconds_max: float = 600.0,
    say: bool = False,
) -> Report:
    chance = random.Random(seed)
    report = Report()
    started = time.monotonic()
    with Cluster(NODE, in_process=False, data_dir=data_dir) as cluster:
        servers = cluster.bootstrap_servers
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, PARTITIONS)
        expected = fill(servers, records)
        crew = Copiers(servers, copiers)
        try:
            while time.monotonic() - started < seconds_max:
                crew.keep_running()
                time.sleep(chance.uniform(0.2, 1.5))
                if sum(report.faults.values()) < faults:
                    kind = chance.choice(["node", "copier", "zombie"])
                    report.faults[kind] += 1
                    strike(kind, cluster, crew, chance)
                    if say:
                        print(f"{time.monotonic() - started:6.1f} s  {kind}", flush=True)
                elif copied(servers, expected):
                    break
        finally:
            crew.stop()
        report.problems = judge(servers, expected)
    report.seconds = time.monotonic() - started
    return report


def strike(kind: str, cluster: Cluster, crew: Copiers, chance: random.Random) -> None:
    if kind == "node":
        cluster.kill()
        time.sleep(chance.uniform(0, 0.5))
        cluster.start()
        return
    process = crew.pick(chance)
    if kind == "copier":
        process.kill()
        process.wait()
    elif process.poll() is None:
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(ZOMBIE_SECONDS)
        os.kill(process.pid, signal.SIGCONT)


def fill(servers: str, records: int) -> dict[int, list[bytes]]:
    expected: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})
    for number in range(records):
        index, value = number % PARTITIONS, b"%d" % number
        while True:
            try:
                producer.produce(SOURCE, value, partition=index)
                break
            except BufferError:
                producer.poll(0.1)
        expected[index].append(value)
    assert producer.flush(60) == 0, "the input could not be written"
    return expected


def copied(servers: str, expected: dict[int, list[bytes]]) -> bool:
    """Whether the group has read everything."""
    reader = Consumer({"bootstrap.servers": servers, "group.id": GROUP, **QUIET})
    try:
        places = [TopicPartition(SOURCE, index) for index in expected]
        committed = {place.partition: place.offset for place in reader.committed(places, 10)}
    except KafkaException:
        return False
    finally:
        reader.close()
    return all(committed[index] >= len(values) for index, values in expected.items())


def judge(servers: str, expected: dict[int, list[bytes]]) -> list[str]:
    found = {index: read_committed(servers, index) for index in expected}
    problems: list[str] = []
    for index, values in expected.items():
        got = found[index]
        if got == values:
            continue
        twice = len(got) - len(set(got))
        missing = set(values) - set(got)
        problems.append(
            f"partition {index}: {len(values)} records in, {len(got)} out; {len(missing)} missing, {twice} twice, "
            f"{'in' if got == sorted(got, key=int) else 'not in'} order"
        )
    return problems


def read_committed(servers: str, index: int) -> list[bytes]:
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    reader.assign([TopicPartition(TARGET, index, 0)])
    values: list[bytes] = []
    # An open transaction of the last copiers may hide the end until it is aborted.
    patience = time.monotonic() + 30
    try:
        while time.monotonic() < patience:
            message = reader.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value() or b"")
            elif _at_end(reader, index):
                break
    finally:
        reader.close()
    return values


def _at_end(reader: Consumer, index: int) -> bool:
    (position,) = reader.position([TopicPartition(TARGET, index)])
    _, end = reader.get_watermark_offsets(TopicPartition(TARGET, index), 5)
    return bool(position.offset >= end)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--copiers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="moldau-txn-") as directory:
        report = run(
            options.records,
            options.faults,
            seed=options.seed,
            data_dir=Path(directory),
            copiers=options.copiers,
            seconds_max=3600,
            say=True,
        )
    print(f"{options.records} records, {dict(report.faults)}, {report.seconds:.0f} s")
    for problem in report.problems:
        print(problem)
    return 1 if report.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
