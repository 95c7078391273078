"""A directory of segments, indexes and snapshots with one of everything a dump has to show."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from struct import Struct
from typing import Any

import crc32c

from moldau.protocol.codec import encode
from moldau.protocol.generated.wire.kraft_version_record import KRaftVersionRecord
from moldau.protocol.generated.wire.leader_change_message import LeaderChangeMessage, Voter
from moldau.protocol.generated.wire.snapshot_footer_record import SnapshotFooterRecord
from moldau.protocol.generated.wire.snapshot_header_record import SnapshotHeaderRecord
from moldau.protocol.wire import Writer
from moldau.records.builder import BatchBuilder, build_batch, build_end_transaction_marker
from moldau.records.control import build_kraft_control_batch
from moldau.records.record import Record

FIRST = "00000000000000000000"
SHAPES: dict[str, Any] = json.loads(
    Path(import_module("moldau.cli.kafka").__file__ or "").with_name("record_shapes.json").read_text()
)
INT16 = Struct(">h")
UUID = bytes(range(16))


def record(offset: int, value: bytes | None, key: bytes | None = None, **rest: Any) -> Record:
    return Record(offset, 1_700_000_000_000 + offset, key, value, **rest)


def data_segment() -> bytes:
    """Headers and nulls, all codecs, append time, a transaction with its markers, a batch compaction has been at."""
    named = record(0, b"v0", b"k0", headers=(("h", b"1"), ("none", None)))
    batches = [build_batch([named, record(1, None, b"gone"), record(2, "grün".encode())])]
    batches += [
        build_batch([record(at, b"x" * 20) for at in (offset, offset + 1)], codec=codec, leader_epoch=codec)
        for codec, offset in ((1, 3), (2, 5), (3, 7), (4, 9))
    ]
    batches.append(build_batch([record(11, b"late")], log_append_time=1_800_000_000_000))
    batches.append(
        build_batch([record(12, b"t")], producer_id=5, producer_epoch=1, base_sequence=2**31 - 1, transactional=True)
    )
    for offset, committed in ((13, True), (14, False)):
        batches.append(
            build_end_transaction_marker(
                committed=committed,
                producer_id=5,
                producer_epoch=1,
                coordinator_epoch=9,
                timestamp=1_700_000_000_000,
                base_offset=offset,
            )
        )
    compacted = BatchBuilder(base_offset=15, delete_horizon=1_700_000_009_000)
    compacted.append(b"k", None, timestamp=1_700_000_000_500, offset=17)
    batches.append(compacted.build(last_offset=19))
    return b"".join(batches)


def batch_positions(data: bytes) -> dict[int, int]:
    """Where each batch stands, by its base offset."""
    positions: dict[int, int] = {}
    position = 0
    while position < len(data):
        base, length = Struct(">qi").unpack_from(data, position)
        positions[base] = position
        position += 12 + length
    return positions


def write_data_log(directory: Path) -> Path:
    """A partition with indexes that fit: an entry for the second batch and for the one that holds offset 11."""
    directory.mkdir()
    log = directory / f"{FIRST}.log"
    data = data_segment()
    log.write_bytes(data)
    positions = batch_positions(data)
    (directory / f"{FIRST}.index").write_bytes(
        Struct(">ii").pack(4, positions[3]) + Struct(">ii").pack(11, positions[11]) + bytes(80)
    )
    (directory / f"{FIRST}.timeindex").write_bytes(
        Struct(">qi").pack(1_700_000_000_004, 4) + Struct(">qi").pack(1_800_000_000_000, 11) + bytes(120)
    )
    (directory / f"{FIRST}.txnindex").write_bytes(Struct(">hqqqq").pack(0, 5, 12, 14, 12))
    entry = Struct(">qhiqiqiq").pack(5, 1, 7, 12, 2, 1_700_000_000_012, 9, -1)
    idle = Struct(">qhiqiqiq").pack(6, 0, -1, -1, 0, -1, -1, 30)
    body = Struct(">i").pack(2) + entry + idle
    snapshot = INT16.pack(1) + Struct(">I").pack(crc32c.crc32c(body)) + body
    (directory / "00000000000000000020.snapshot").write_bytes(snapshot)
    return log


def filled(name: str, version: int) -> Any:
    """A message with something in every field the version has."""
    shape = SHAPES[name]
    module = import_module(f"moldau.protocol.generated.{shape['module']}")
    return _filled(module, shape["structs"], name, version)


def _filled(module: Any, structs: dict[str, Any], name: str, version: int) -> Any:
    values: dict[str, Any] = {}
    for field in structs[name]:
        low, high = field["versions"]
        if low <= version <= high:
            value = _value(module, structs, field["type"], version)
            values[field["attribute"]] = [value] if field.get("array") else value
    return getattr(module, name)(**values)


def _value(module: Any, structs: dict[str, Any], kind: str, version: int) -> Any:
    if kind in structs:
        return _filled(module, structs, kind, version)
    simple: dict[str, Any] = {"string": "grün", "bytes": b"\x00\xff", "uuid": UUID, "bool": True, "float64": 1.5}
    return simple.get(kind, 7)


def coordinator_records(package: str) -> list[Record]:
    """For every record type of an internal topic: every version of its value, filled and empty, and a deletion."""
    records: list[Record] = []

    def add(key: bytes, value: bytes | None) -> None:
        records.append(record(len(records), value, key))

    for name, shape in SHAPES.items():
        if not (shape["module"].startswith(f"{package}.") and name.endswith("Key")):
            continue
        key = INT16.pack(shape["type"]) + encode(filled(name, 0), 0)
        value_name = name.removesuffix("Key") + "Value"
        value_class = type(filled(value_name, 0)) if value_name in SHAPES else None
        if value_class is None:
            continue
        for version in range(value_class.MIN_VERSION, value_class.MAX_VERSION + 1):
            add(key, INT16.pack(version) + encode(filled(value_name, version), version))
            add(key, INT16.pack(version) + encode(value_class(), version))
        add(key, None)
    return records


def metadata_records() -> list[Record]:
    records: list[Record] = []
    for name, shape in SHAPES.items():
        if not shape["module"].startswith("metadata."):
            continue
        message_class = type(filled(name, 0))
        for version in range(message_class.MIN_VERSION, message_class.MAX_VERSION + 1):
            for message in (filled(name, version), message_class()):
                writer = Writer()
                for number in (1, shape["type"], version):
                    writer.uvarint(number)
                message.write(writer, version)
                records.append(record(len(records), bytes(writer.buf)))
    return records


def write_records(directory: Path, records: list[Record]) -> Path:
    directory.mkdir()
    log = directory / f"{FIRST}.log"
    log.write_bytes(build_batch(records))
    return log


def write_checkpoint(directory: Path) -> Path:
    """A snapshot of the metadata log with every kind of control record but the voters'."""
    directory.mkdir()
    path = directory / "00000000000000000042-0000000007.checkpoint"
    controls = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=5),
        KRaftVersionRecord(version=0, kraft_version=1),
        LeaderChangeMessage(version=0, leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[]),
        SnapshotFooterRecord(version=0),
    ]
    batches = [
        build_kraft_control_batch([message], timestamp=1_700_000_000_000, base_offset=offset)
        for offset, message in enumerate(controls)
    ]
    path.write_bytes(b"".join(batches))
    return path
