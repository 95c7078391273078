"""The same batches, written and read by other implementations: aiokafka (compiled and pure) and kafka-python.

kafka-python brings no snappy, lz4 or zstd of its own, so it checks the layout; the codecs are checked against
aiokafka here and against Kafka's own Java classes in `test_record_java_interop.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record._crecords.default_records import DefaultRecordBatch as CompiledReader
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder as CompiledWriter
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as PureWriter
from aiokafka.record.default_records import _DefaultRecordBatchPy as PureReader
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonReader
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonWriter

from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.record import Record, header_of, read_records
from moldau.records.validation import validate_records

RECORDS = [
    Record(0, 1_700_000_000_000, b"first", b"v" * 100),
    Record(1, 1_700_000_000_500, None, b"no key"),
    Record(2, 1_699_999_999_000, b"tombstone", None),
    Record(3, 1_700_000_100_000, b"", b"", (("header", b"value"), ("empty", b""), ("null", None), ("é", b"\x00"))),
    *[Record(offset, 1_700_000_000_000 + offset * 77, b"key %d" % offset, b"x" * offset) for offset in range(4, 400)],
]


def seen(records: Any) -> list[tuple[Any, ...]]:
    return [
        (each.offset, each.timestamp, each.key, each.value, tuple((name, value) for name, value in each.headers))
        for each in records
    ]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("reader", [CompiledReader, PureReader])
def test_aiokafka_reads_ours(codec: Codec, reader: Any) -> None:
    batch = reader(build_batch(RECORDS, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.compression_type) == (7, codec)
    assert seen(batch) == [tuple(record) for record in RECORDS]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("writer", [CompiledWriter, PureWriter])
def test_we_read_aiokafkas(codec: Codec, writer: Any) -> None:
    builder = writer(2, int(codec), True, 7, 1, 3, 10_000_000)
    for offset, timestamp, key, value, headers in RECORDS:
        builder.append(offset, timestamp, key, value, list(headers))
    batch = bytes(builder.build())
    header = header_of(batch)
    assert header.checksum_matches(batch)
    assert header.is_transactional
    assert header.producer_id == 7
    assert list(read_records(batch)) == RECORDS
    assert validate_records(batch).max_timestamp == max(record.timestamp for record in RECORDS)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=lambda codec: codec.name)
def test_kafka_python_reads_ours(codec: Codec) -> None:
    batch = KafkaPythonReader(build_batch(RECORDS, codec=codec))
    assert batch.validate_crc()
    assert seen(batch) == [tuple(record) for record in RECORDS]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=lambda codec: codec.name)
def test_we_read_kafka_pythons(codec: Codec) -> None:
    builder = KafkaPythonWriter(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        batch_size=10_000_000,
    )
    for offset, timestamp, key, value, headers in RECORDS:
        builder.append(offset, timestamp, key, value, list(headers))
    batch = bytes(builder.build())
    assert header_of(batch).checksum_matches(batch)
    assert list(read_records(batch)) == RECORDS


def test_an_uncompressed_batch_is_the_same_byte_for_byte() -> None:
    builder = PureWriter(2, 0, False, -1, -1, -1, 10_000_000)
    for offset, timestamp, key, value, headers in RECORDS:
        builder.append(offset, timestamp, key, value, list(headers))
    theirs = bytearray(builder.build())
    # A producer leaves the leader's epoch at 0, we mark it as not assigned; the checksum does not cover it.
    theirs[12:16] = b"\xff" * 4
    assert build_batch(RECORDS) == bytes(theirs)
