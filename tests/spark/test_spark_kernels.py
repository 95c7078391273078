"""The compiled loops against the room `records`, which reads and writes the same bytes one record at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from moldau.client.errors import MoldauError
from moldau.records.batch import HEADER_SIZE, BatchHeader
from moldau.records.builder import build_batch
from moldau.records.compression import LZ4, NONE, ZSTD
from moldau.records.record import Record, read_records
from moldau.spark import kernels
from moldau.spark.columns import ColumnBuilder
from moldau.spark.encoding import ProducerIdentity, RowEncoder
from moldau.spark.write_settings import EncodingSettings
from tests.spark.world import HEADER, SCHEMA_WITH_HEADERS

some_bytes = st.none() | st.binary(max_size=300)
some_headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)
some_records = st.lists(
    st.tuples(some_bytes, some_bytes, some_headers, st.integers(0, 1 << 40)), min_size=1, max_size=20
)


def parse(batch: bytes, first: int = 0, end: int = 1 << 62) -> pa.RecordBatch:
    header = BatchHeader(batch)
    appended = header.max_timestamp if header.is_log_append_time else -1
    table = [(HEADER_SIZE, len(batch), header.record_count, header.base_offset, header.base_timestamp, appended)]
    return ColumnBuilder(SCHEMA_WITH_HEADERS, "täglich", 7).build(batch, table, first, end)


@settings(max_examples=60)
@given(some_records, st.integers(0, 1 << 50))
def test_columns_hold_what_the_records_hold(entries: list[tuple], base: int) -> None:
    records = [
        Record(base + index, timestamp, key, value, tuple((name, text) for name, text in headers))
        for index, (key, value, headers, timestamp) in enumerate(entries)
    ]
    found = parse(build_batch(records))
    found.validate(full=True)
    assert found.column("key").to_pylist() == [each.key for each in records]
    assert found.column("value").to_pylist() == [each.value for each in records]
    assert found.column("offset").to_pylist() == [each.offset for each in records]
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [each.timestamp * 1000 for each in records]
    assert set(found.column("topic").to_pylist()) == {"täglich"}
    assert set(found.column("partition").to_pylist()) == {7}
    assert found.column("timestampType").to_pylist() == [0] * len(records)
    expected = [[{"key": name, "value": text} for name, text in headers] or None for _, _, headers, _ in entries]
    assert found.column("headers").to_pylist() == expected


def test_only_offsets_in_the_range_are_taken_and_the_append_time_wins() -> None:
    records = [Record(offset, 5, None, b"%d" % offset) for offset in range(10, 20)]
    found = parse(build_batch(records, log_append_time=99), 13, 16)
    assert found.column("value").to_pylist() == [b"13", b"14", b"15"]
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [99_000] * 3
    assert found.column("timestampType").to_pylist() == [1] * 3


@settings(max_examples=200)
@given(st.integers(1, 6), st.data())
def test_damaged_records_are_refused_or_read_but_never_overrun(count: int, data: st.DataObject) -> None:
    batch = bytearray(build_batch([Record(i, i, b"k" * i, b"v" * 20, (("h", b"x"),)) for i in range(count)]))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = parse(bytes(batch))
    except MoldauError:
        return
    assert found.num_rows <= count


@given(st.binary(max_size=70))
def test_murmur2_is_kafkas(key: bytes) -> None:
    data = np.frombuffer(b"##" + key, dtype=np.uint8)
    assert kernels.murmur2(data, 2, len(key)) == kafka_murmur2(key)


def encode(table: pa.Table, codec: int = NONE, limit: int = 100_000, partitions: int = 4) -> list:
    encoder = RowEncoder(
        EncodingSettings(None if "topic" in table.column_names else "t", codec, None, limit),
        ProducerIdentity(9, 3, transactional=True),
        lambda _: partitions,
        first_sticky=2,
    )
    reached, batches = encoder.encode(table)
    made = list(batches)
    assert sorted(reached) == sorted({(each.topic, each.partition) for each in made})
    return made


@settings(max_examples=60)
@given(some_records, st.sampled_from([NONE, LZ4, ZSTD]), st.sampled_from([60, 100_000]))
def test_encoded_rows_read_back_as_they_were(entries: list[tuple], codec: int, limit: int) -> None:
    table = pa.table(
        {
            "key": pa.array([each[0] for each in entries], pa.binary()),
            "value": pa.array([each[1] for each in entries], pa.binary()),
            "headers": pa.array(
                [[{"key": k, "value": v} for k, v in each[2]] or None for each in entries], pa.list_(HEADER)
            ),
        }
    )
    found: dict[int, list[tuple]] = {}
    sequences: dict[int, int] = {}
    for batch in encode(table, codec, limit):
        header = BatchHeader(batch.records)
        assert header.checksum_matches(batch.records)
        assert (header.producer_id, header.producer_epoch, header.is_transactional) == (9, 3, True)
        assert header.base_sequence == sequences.get(batch.partition, 0)
        sequences[batch.partition] = header.base_sequence + batch.count
        read = list(read_records(batch.records))
        assert len(read) == batch.count == header.record_count
        found.setdefault(batch.partition, []).extend((each.key, each.value, each.headers) for each in read)
    expected: dict[int, list[tuple]] = {}
    for key, value, headers, _ in entries:
        partition = 2 if key is None else (kafka_murmur2(key) & 0x7FFFFFFF) % 4
        row = (key, value, tuple((name, text) for name, text in headers))
        expected.setdefault(partition, []).append(row)
    assert found == expected


def test_rows_go_to_their_own_topic_and_partition() -> None:
    table = pa.table({"value": ["a", "b", "c", "d"], "topic": ["x", "y", "x", "y"], "partition": [1, 0, None, 3]})
    found = {(each.topic, each.partition): [r.value for r in read_records(each.records)] for each in encode(table)}
    assert found == {("x", 1): [b"a"], ("x", 2): [b"c"], ("y", 0): [b"b"], ("y", 3): [b"d"]}


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"value": ["a"], "partition": [4]}, "has only 4 partitions"),
        ({"value": ["a"], "partition": [-1]}, "negative"),
        ({"value": ["a"], "topic": pa.array([None], pa.string())}, "topic column is null"),
    ],
)
def test_rows_that_fit_nowhere_are_refused(columns: dict, complaint: str) -> None:
    with pytest.raises(MoldauError, match=complaint):
        encode(pa.table(columns))


def test_a_fingerprint_tells_rows_apart_but_not_their_order() -> None:
    from moldau.spark.task_writing import _fingerprint

    one = pa.table({"key": ["a", "b", None], "value": ["1" * 30, None, "3"]})
    other = pa.table({"key": ["a", "b", None], "value": ["1" * 29 + "2", None, "3"]})
    assert _fingerprint(one) == _fingerprint(one.take([2, 0, 1]))
    assert _fingerprint(one) != _fingerprint(other)


@given(st.binary(min_size=1, max_size=120), st.data())
def test_a_fingerprint_sees_every_byte_wherever_it_stands(value: bytes, data: st.DataObject) -> None:
    from moldau.spark.task_writing import _fingerprint

    at = data.draw(st.integers(0, len(value) - 1))
    changed = bytearray(value)
    changed[at] ^= data.draw(st.integers(1, 255))
    turned = value[8:] + value[:8]
    prints = {_fingerprint(pa.table({"value": pa.array([each], pa.binary())})) for each in (value, changed, turned)}
    assert len(prints) == len({value, bytes(changed), turned})
