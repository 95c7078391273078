"""`kafka-dump-log` and `moldau log` on files made by hand; Apache's tool judges the same files in another test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.kafka._record_json import control_record, coordinator_record, metadata_record
from moldau.cli.kafka.dump_log import main
from tests.cli import segment_zoo as zoo
from tests.cli.conftest import Done

Call = Callable[..., Done]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return zoo.write_data_log(tmp_path / "t-0")


def test_batches(call: Call, log: Path) -> None:
    done = call(main, "--files", log)
    assert done.code == 0
    assert done.lines[:2] == [f"Dumping {log}", "Log starting offset: 0"]
    assert len(done.lines) == 2 + 10
    assert done.lines[2].startswith(
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: -1 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: 0 CreateTime: 1700000000002 size: "
    )
    assert [line.partition("compresscodec: ")[2].split()[0] for line in done.lines[3:7]] == [
        "gzip",
        "snappy",
        "lz4",
        "zstd",
    ]
    assert all(line.endswith("isvalid: true") for line in done.lines[2:])
    assert "deleteHorizonMs: OptionalLong[1700000009000]" in done.lines[-1]


def test_records(call: Call, log: Path) -> None:
    done = call(main, "--files", log, "--print-data-log")
    records = [line for line in done.lines if line.startswith("| ")]
    assert records[0] == (
        "| offset: 0 CreateTime: 1700000000000 keySize: 2 valueSize: 2 sequence: -1 headerKeys: [h,none] "
        "key: k0 payload: v0"
    )
    assert records[1].endswith("keySize: 4 valueSize: -1 sequence: -1 headerKeys: [] key: gone")
    assert records[2].endswith("headerKeys: [] payload: grün")
    assert any("LogAppendTime: 1800000000000 " in line for line in records)
    assert any(line.endswith("endTxnMarker: COMMIT coordinatorEpoch: 9") for line in records)
    assert any(line.endswith("endTxnMarker: ABORT coordinatorEpoch: 9") for line in records)
    assert done.err.splitlines()[-1] == "  14 is followed by 17"
    bare = call(main, "--files", log, "--print-data-log", "--skip-record-metadata")
    assert [line for line in bare.lines if line.startswith("| ")][:2] == ["| key: k0 payload: v0", "| key: gone"]


def test_indexes_that_fit(call: Call, log: Path) -> None:
    at = zoo.batch_positions(log.read_bytes())
    names = [log.with_suffix(suffix) for suffix in (".index", ".timeindex", ".txnindex")]
    done = call(main, "--files", ",".join(map(str, names)))
    assert done.err == ""
    assert [line for line in done.lines if not line.startswith("Dumping")] == [
        f"offset: 4 position: {at[3]}",
        f"offset: 11 position: {at[11]}",
        "timestamp: 1700000000004 offset: 4",
        "timestamp: 1800000000000 offset: 11",
        "version: 0 producerId: 5 firstOffset: 12 lastOffset: 14 lastStableOffset: 12",
    ]
    quiet = call(main, "--files", names[0], "--verify-index-only")
    assert quiet == Done(0, f"Dumping {names[0]}\n", "")
    assert call(main, "--files", names[0], "--index-sanity-check").lines[-1] == f"{names[0]} passed sanity check."


def test_indexes_that_do_not_fit(call: Call, log: Path) -> None:
    index = log.with_suffix(".index")
    index.write_bytes(Struct(">ii").pack(5, zoo.batch_positions(log.read_bytes())[3]))
    done = call(main, "--files", index)
    assert done.err == f"Mismatches in :{index}\n  Index offset: 5, log offset: 4\n"
    times = log.with_suffix(".timeindex")
    times.write_bytes(Struct(">qi").pack(9, 4) + Struct(">qi").pack(3, 6) + Struct(">qi").pack(8, 9))
    lines = call(main, "--files", times).err.splitlines()
    assert lines == [
        f"Found timestamp mismatch in :{times}",
        "  Index timestamp: 9, log timestamp: 1700000000004",
        "  Index timestamp: 3, log timestamp: 1700000000006",
        f"Found out of order timestamp in :{times}",
        "  Index timestamp: 3, Previously indexed timestamp: 9",
        f"The following indexed offsets are not found in :{times}",
        "Indexed offset: 9, found log offset: 10",
    ]
    index.write_bytes(b"x" * 12)
    broken = call(main, "--files", index, "--index-sanity-check")
    assert broken.code == 1
    assert "found 12 bytes which is neither positive nor a multiple of 8" in broken.err


def test_producer_snapshots(call: Call, log: Path) -> None:
    snapshot = log.with_name("00000000000000000020.snapshot")
    assert call(main, "--files", snapshot).out.splitlines()[1:] == [
        "producerId: 5 producerEpoch: 1 coordinatorEpoch: 9 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1700000000012 firstSequence: 5 lastSequence: 7 lastOffset: 12 offsetDelta: 2 "
        "timestamp: 1700000000012",
        "producerId: 6 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[30] lastTimestamp: -1",
    ]
    data = bytearray(snapshot.read_bytes())
    data[-1] ^= 1
    snapshot.write_bytes(data)
    assert "its checksum does not fit" in call(main, "--files", snapshot).err


def test_damage(call: Call, log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:50])
    assert call(main, "--files", log).lines[-1] == f"Found 50 invalid bytes at the end of {log.name}"
    flipped = bytearray(whole)
    flipped[80] ^= 1
    log.write_bytes(flipped)
    assert call(main, "--files", log).lines[2].endswith("isvalid: false")
    log.write_bytes(whole + bytes(100))
    padded = call(main, "--files", log)
    assert (padded.code, "smaller than minimum record overhead (14)" in padded.err) == (1, True)
    assert call(main, "--files", log, "--max-bytes", 120).out.count("baseOffset") == 1


def test_unknown_files_and_missing_ones(call: Call, tmp_path: Path) -> None:
    assert call(main, "--files", tmp_path / "x.txt").err == f"Ignoring unknown file {tmp_path / 'x.txt'}\n"
    missing = call(main, "--files", tmp_path / f"{zoo.FIRST}.log")
    assert (missing.code, "No such file or directory" in missing.err) == (1, True)


def test_snapshots_of_the_metadata_log(call: Call, tmp_path: Path) -> None:
    path = zoo.write_checkpoint(tmp_path / "m-0")
    lines = call(main, "--files", path, "--cluster-metadata-decoder").lines
    assert lines[1] == "Snapshot end offset: 42, epoch: 7"
    shown = [line.partition("headerKeys: [] ")[2] for line in lines if line.startswith("| ")]
    assert shown == [
        'SnapshotHeader {"version":0,"lastContainedLogTimestamp":5}',
        'KRaftVersion {"version":0,"kRaftVersion":1}',
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}',
        'SnapshotFooter {"version":0}',
    ]


@pytest.mark.parametrize(
    ("package", "option"),
    [("group", "offsets"), ("transaction", "transaction-log"), ("share", "share-group-state")],
)
def test_records_of_internal_topics(call: Call, tmp_path: Path, package: str, option: str) -> None:
    records = zoo.coordinator_records(package)
    path = zoo.write_records(tmp_path / "i-0", records)
    lines = call(main, "--files", path, f"--{option}-decoder").lines[3:]
    assert len(lines) == len(records)
    for line in lines:
        key, _, value = line.partition(" key: ")[2].partition(" payload: ")
        assert set(json.loads(key)) == {"type", "data"}
        assert value == "<DELETE>" or set(json.loads(value)) == {"version", "data"}


def test_records_of_the_metadata_log(call: Call, tmp_path: Path) -> None:
    path = zoo.write_records(tmp_path / "m-0", zoo.metadata_records())
    payloads = [
        line.partition(" payload: ")[2] for line in call(main, "--files", path, "--cluster-metadata-decoder").lines
    ]
    kinds = {json.loads(payload)["type"] for payload in payloads if payload}
    assert {"TOPIC_RECORD", "PARTITION_CHANGE_RECORD", "NO_OP_RECORD", "ZK_MIGRATION_STATE_RECORD"} <= kinds


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_records_that_make_no_sense_are_told_not_raised(key: bytes, value: bytes) -> None:
    for package in ("group", "transaction", "share"):
        assert isinstance(coordinator_record(package, 1, key, value)[0], str)
    assert isinstance(metadata_record(1, value), str)
    assert isinstance(control_record(key, value), str)


def test_verifying_logs(moldau: Call, log: Path, tmp_path: Path) -> None:
    good = moldau("log", "verify", tmp_path, "-o", "json")
    assert good.code == 0
    (report,) = json.loads(good.out)
    assert (report["batches"], report["records"], report["lastOffset"], report["state"]) == (10, 16, 19, "ok")
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])
    assert json.loads(moldau("log", "verify", log.parent, "-o", "json").out)[0]["state"] == "torn tail"
    flipped = bytearray(whole)
    flipped[80] ^= 1
    log.write_bytes(flipped)
    bad = moldau("log", "verify", log.parent, "--shallow")
    assert bad.code == 1
    assert "batch at position 0 has a wrong checksum" in bad.err
    log.write_bytes(whole)
    log.with_suffix(".index").write_bytes(Struct(">ii").pack(5, zoo.batch_positions(whole)[3]))
    assert "1 entries do not fit the segment" in moldau("log", "verify", log.parent).err


def test_dumping_as_people_do(moldau: Call, log: Path, tmp_path: Path) -> None:
    assert "payload: v0" in moldau("log", "dump", log.parent, "--records").out
    offsets = zoo.write_records(tmp_path / "__consumer_offsets-3", zoo.coordinator_records("group"))
    assert '"type":"1"' in moldau("log", "dump", offsets, "--records").out
