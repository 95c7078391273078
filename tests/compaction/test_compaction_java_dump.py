"""Kafka's own DumpLogSegments reads what compaction writes, and finds indexes and checksums in order."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from compaction_world import CompactedWorld, committed_records, raw_records

from moldau.records.compression import Codec


def compacted() -> CompactedWorld:
    world = CompactedWorld()
    for number in range(60):
        world.append((f"k{number % 9}", f"{number}" + "x" * 200), codec=list(Codec)[number % 5])
    world.append(("k0", None))
    world.append(("k1", "kept"), producer_id=5, sequence=0, transactional=True)
    world.append(("k2", "aborted"), producer_id=6, sequence=0, transactional=True)
    world.end_transaction(5, committed=True)
    world.end_transaction(6, committed=False)
    world.append(("k1", "newer"))
    world.roll()
    world.clean(2000)
    world.append(("last", "1"))
    world.logs.close(0)
    return world


@pytest.mark.java
def test_kafka_dumps_compacted_segments(tmp_path: Path) -> None:
    kafka_jars = pytest.importorskip("codegen.kafka_jars")
    if not kafka_jars.can_fetch():
        pytest.skip("no Java runtime, or no way to fetch Kafka's jars")
    world = compacted()
    world.restart()
    expected = {record.offset for record in raw_records(world.log)}
    assert len(committed_records(world.log)) == len(expected)
    files = []
    for name in world.disk.list_dir("/a/t-0"):
        if name.endswith((".log", ".index", ".timeindex", ".txnindex", ".snapshot")):
            (tmp_path / name).write_bytes(world.disk.read_bytes(f"/a/t-0/{name}"))
            files.append(str(tmp_path / name))
    assert any(name.endswith(".txnindex") for name in files)
    command = ["java", "-cp", kafka_jars.classpath(), "org.apache.kafka.tools.DumpLogSegments"]
    command += ["--print-data-log", "--deep-iteration", "--files", ",".join(files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    printed = done.stdout
    assert "isvalid: false" not in printed
    assert "mismatch" not in printed.lower(), printed
    assert "Found timestamp" not in printed, printed
    dumped = re.findall(r"^\| offset: (\d+) (.*)$", printed, re.MULTILINE)
    assert {int(offset) for offset, rest in dumped if "endTxnMarker" not in rest} == expected
    assert "deleteHorizonMs: OptionalLong[" in printed
    assert "endTxnMarker: ABORT" in printed
    assert "endTxnMarker: COMMIT" in printed
