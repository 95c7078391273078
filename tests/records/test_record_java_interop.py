"""Every codec and level against Kafka's own Java classes: they read ours, and we read what they write."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.record import Record, header_of, read_records
from moldau.records.validation import validate_records

RECODE = Path(__file__).parent / "java" / "Recode.java"

RECORDS = [
    Record(0, 1_700_000_000_000, b"first", b"v" * 100),
    Record(1, 1_700_000_000_500, None, b"no key"),
    Record(2, 1_699_999_999_000, b"tombstone", None),
    Record(3, 1_700_000_100_000, b"", b"", (("header", b"value"), ("empty", b""), ("null", None), ("é", b"\x00"))),
    # More than one block of every codec.
    *[
        Record(
            offset, 1_700_000_000_000 + offset, b"%d" % offset, bytes((offset * 31 + i * i) % 256 for i in range(900))
        )
        for offset in range(4, 400)
    ],
]

LEVELS: list[tuple[Codec, int | None]] = [
    *[(codec, None) for codec in Codec],
    (Codec.GZIP, 1),
    (Codec.GZIP, 9),
    (Codec.LZ4, 1),
    (Codec.LZ4, 17),
    (Codec.ZSTD, -5),
    (Codec.ZSTD, 22),
]


def as_kafka_prints(record: Record) -> str:
    def hexed(data: bytes | None) -> str:
        return "null" if data is None else "x" + data.hex()

    fields = [str(record.offset), str(record.timestamp), hexed(record.key), hexed(record.value)]
    fields += [f"{hexed(name.encode())}={hexed(value)}" for name, value in record.headers]
    return " ".join(fields)


@pytest.mark.java
def test_kafkas_java_classes_and_ours_read_each_others_batches(tmp_path: Path) -> None:
    kafka_jars = pytest.importorskip("codegen.kafka_jars")
    if not kafka_jars.can_fetch():
        pytest.skip("no Java runtime, or no way to fetch Kafka's jars")
    for codec, level in LEVELS:
        batch = build_batch(RECORDS, codec=codec, level=level, producer_id=5, producer_epoch=1, base_sequence=9)
        (tmp_path / f"{codec.name}{level}.batch").write_bytes(batch)
    subprocess.run(["java", "-cp", kafka_jars.classpath(), str(RECODE), str(tmp_path)], check=True, timeout=100)
    expected = "".join(as_kafka_prints(record) + "\n" for record in RECORDS)
    for codec, level in LEVELS:
        assert (tmp_path / f"{codec.name}{level}.txt").read_text() == expected
        theirs = (tmp_path / f"{codec.name}{level}.java").read_bytes()
        header = header_of(theirs)
        assert header.codec == codec
        assert header.checksum_matches(theirs)
        assert list(read_records(theirs)) == RECORDS
        validate_records(theirs)
        if codec is Codec.NONE:
            ours = build_batch(RECORDS, producer_id=5, producer_epoch=1, base_sequence=9)
            assert theirs == ours
