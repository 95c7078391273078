"""Apache's own code reads our files, and we read Apache's: the dump tool, and the log class of its broker."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from log_helpers import TOPIC_ID, client_batch, produced

from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.node.disk import OsDisk
from moldau.records.batch import iter_batches
from moldau.records.builder import build_end_transaction_marker
from moldau.records.compression import Codec
from moldau.testing.clock import VirtualClock

pytestmark = [pytest.mark.java, pytest.mark.slow]
OPEN_LOG = Path(__file__).parent / "java" / "OpenLog.java"
CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=300, transaction_verification=False)
NOW = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def java() -> Callable[..., str]:
    kafka_jars = pytest.importorskip("codegen.kafka_jars")
    if not kafka_jars.can_fetch():
        pytest.skip("no Java runtime, or no way to fetch Kafka's jars")
    classpath = kafka_jars.classpath()

    def run(*arguments: object) -> str:
        command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", classpath, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def open_log(directory: Path, *, clean: bool) -> PartitionLog:
    clock = VirtualClock(NOW)
    # Nobody runs the completions of syncs here: closing syncs for itself.
    disk = OsDisk(lambda done: None)
    return PartitionLog.open(disk, clock, str(directory), "orders", 0, TOPIC_ID, CONFIG, clean_shutdown=clean)


def write_everything(log: PartitionLog) -> None:
    """Batches of every codec, of three epochs, idempotent and transactional, over several segments."""
    sequence = 0
    for i in range(40):
        log.append_as_leader(produced(5, sequence, 2, timestamp=NOW + 10 * i), i // 15)
        sequence += 2
        codec = list(Codec)[i % len(Codec)]
        log.append_as_leader(client_batch(5, timestamp=NOW + 10 * i - 3, codec=codec), i // 15)
        transactional = produced(6, 2 * i, 2, timestamp=NOW + 10 * i, transactional=True)
        log.append_as_leader(transactional, i // 15)
        log.append_own(
            build_end_transaction_marker(
                committed=i % 3 > 0, producer_id=6, producer_epoch=0, coordinator_epoch=1, timestamp=NOW + 10 * i
            ),
            i // 15,
        )
    log.append_as_leader(produced(8, 0, 3, timestamp=NOW + 400, transactional=True), 3)


def described(log: PartitionLog) -> list[str]:
    """What `OpenLog.java` prints, as our log has it."""
    log.high_watermark = log.log_end_offset
    lines = [f"end {log.log_end_offset}", f"stable {log.last_stable_offset}"]
    lines.append("epochs " + ",".join(f"{epoch}@{start}" for epoch, start in log.epochs.entries()))
    lines += [
        f"producer {entry.producer_id} {entry.epoch} {entry.last_sequence} {entry.coordinator_epoch} "
        f"{entry.transaction_start}"
        for entry in log.active_producers()
    ]
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        data = log.read(offset, 10_000, max_offset=log.last_stable_offset)
        lines += [
            f"batch {header.base_offset} {header.last_offset} {header.partition_leader_epoch} "
            f"{header.max_timestamp} {header.crc}"
            for header in iter_batches(data.records)
        ]
        offset = data.next_offset
    lines += [f"aborted {each[0]} {each[1]}" for each in log.collect_aborted(0, log.last_stable_offset)]
    return sorted(set(lines))


def test_the_dump_tool_accepts_our_files(tmp_path: Path, java: Callable[..., str]) -> None:
    log = open_log(tmp_path / "orders-0", clean=True)
    write_everything(log)
    log.close()
    names = sorted((tmp_path / "orders-0").iterdir())
    assert {name.suffix for name in names} >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    files = ",".join(str(name) for name in names if name.suffix in (".log", ".index", ".timeindex", ".txnindex"))
    dumped = java("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", files)
    checked = java("org.apache.kafka.tools.DumpLogSegments", "--index-sanity-check", "--files", files)
    snapshots = ",".join(str(name) for name in names if name.suffix == ".snapshot")
    producers = java("org.apache.kafka.tools.DumpLogSegments", "--files", snapshots)
    for complaint in ("Mismatch", "mismatch", "out of order", "not found", "Non-consecutive", "isvalid: false"):
        assert complaint not in dumped + checked
    assert "passed sanity check" in checked
    assert dumped.count("| offset:") == log.log_end_offset
    assert "producerId: 8 producerEpoch: 0" in producers


@pytest.mark.parametrize("clean", [True, False])
def test_apaches_log_opens_ours(tmp_path: Path, java: Callable[..., str], clean: bool) -> None:
    directory = tmp_path / "orders-0"
    log = open_log(directory, clean=True)
    write_everything(log)
    log.close(clean=clean)
    printed = java(OPEN_LOG, directory, "clean" if clean else "crashed", 0, "close")
    assert sorted(set(printed.splitlines())) == described(open_log(directory, clean=False))


@pytest.mark.parametrize(("clean", "end"), [(True, "close"), (False, "kill")])
def test_ours_opens_what_apaches_log_wrote(tmp_path: Path, java: Callable[..., str], clean: bool, end: str) -> None:
    directory = tmp_path / "orders-0"
    log = open_log(directory, clean=True)
    write_everything(log)
    log.close()
    printed = java(OPEN_LOG, directory, "clean", 30, end)
    if end == "kill":
        # Apache's indexes of an active segment are preallocated and end in zeros.
        assert max(file.stat().st_size for file in directory.glob("*.index")) > 1_000_000
    ours = open_log(directory, clean=clean)
    assert described(ours) == sorted(set(printed.splitlines()))
    info = ours.append_as_leader(produced(900, 90, 2, epoch=2, timestamp=NOW), 8)
    assert info.first_offset == ours.log_end_offset - 2
    again = ours.append_as_leader(produced(900, 90, 2, epoch=2, timestamp=NOW), 8)
    assert again.duplicate
