"""Building batches, reading them back, and making new batches out of old ones."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.records.batch import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_LEADER_CHANGE,
    CONTROL_SNAPSHOT_FOOTER,
    BatchHeader,
    iter_batches,
)
from moldau.records.builder import (
    BatchBuilder,
    build_batch,
    build_control_batch,
    build_end_transaction_marker,
    empty_batch,
    encode_varint,
    filter_batch,
    recompress,
)
from moldau.records.compression import Codec
from moldau.records.record import (
    CorruptRecords,
    Record,
    header_of,
    read_control_records,
    read_records,
    scan_keys,
    unpack_body,
)

optional_bytes = st.none() | st.binary(max_size=12) | st.integers(0, 300).map(bytes)
headers = st.lists(
    st.tuples(st.text(alphabet="abé漢", max_size=6), st.none() | st.binary(max_size=20)), max_size=3
).map(tuple)
timestamps = st.integers(0, 2**50) | st.just(-1)
gaps = st.integers(1, 5) | st.integers(1, 20_000)
codecs = st.sampled_from(list(Codec))


@st.composite
def record_lists(draw: st.DrawFn, min_size: int = 0) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(min_size, 8))):
        records.append(Record(offset, draw(timestamps), draw(optional_bytes), draw(optional_bytes), draw(headers)))
        offset += draw(gaps)
    return records


@given(records=record_lists(), codec=codecs)
@settings(max_examples=150)
def test_records_read_back_as_they_were_given(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, codec=codec)
    assert list(read_records(batch)) == records
    assert list(read_records(memoryview(batch))) == records
    header = header_of(batch)
    assert header.checksum_matches(batch)
    assert header.record_count == len(records)
    assert header.max_timestamp == max((record.timestamp for record in records), default=-1)
    if records:
        assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)


@given(records=record_lists(), codec=codecs)
@settings(max_examples=80)
def test_a_scan_for_keys_sees_what_reading_sees(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, codec=codec)
    header = header_of(batch)
    body = unpack_body(batch, header)
    scanned = scan_keys(body, header.record_count)
    assert [(header.base_offset + delta, key, has_value) for delta, key, has_value, _, _ in scanned] == [
        (record.offset, record.key, record.value is not None) for record in records
    ]
    assert b"".join(body[start:end] for _, _, _, start, end in scanned) == body


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
    ],
)
def test_varints_are_zigzag(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def test_the_producer_and_the_attributes_are_carried() -> None:
    batch = build_batch(
        [Record(7, 100, b"k", b"v")],
        codec=Codec.ZSTD,
        leader_epoch=3,
        producer_id=2**40,
        producer_epoch=5,
        base_sequence=2**31 - 1,
        transactional=True,
    )
    header = BatchHeader(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 5, 2**31 - 1)
    assert header.partition_leader_epoch == 3
    assert header.is_transactional
    assert not header.is_control
    assert header.codec == Codec.ZSTD


def test_append_time_replaces_the_records_own() -> None:
    batch = build_batch([Record(0, 100, None, b"a"), Record(1, 200, None, b"b")], log_append_time=555)
    header = BatchHeader(batch)
    assert header.is_log_append_time
    assert header.max_timestamp == 555
    assert [record.timestamp for record in read_records(batch)] == [555, 555]


def test_a_builder_counts_offsets_and_knows_its_size() -> None:
    builder = BatchBuilder(base_offset=10)
    assert builder.append(b"a", b"1", timestamp=5) == 10
    before = builder.size
    assert builder.append(b"b", None, timestamp=3, headers=[("h", b"x")]) == 11
    assert builder.size > before
    assert builder.count == 2
    assert builder.next_offset == 12
    batch = builder.build(last_offset=20)
    assert len(batch) == builder.size
    header = BatchHeader(batch)
    assert (header.base_timestamp, header.max_timestamp, header.last_offset) == (5, 5, 20)
    assert list(read_records(batch)) == [Record(10, 5, b"a", b"1"), Record(11, 3, b"b", None, (("h", b"x"),))]


def test_an_empty_batch_can_be_built_and_read() -> None:
    batch = BatchBuilder(base_offset=5).build(last_offset=9)
    assert header_of(batch).record_count == 0
    assert list(read_records(batch)) == []


@pytest.mark.parametrize(("committed", "kind"), [(True, CONTROL_COMMIT), (False, CONTROL_ABORT)])
def test_end_transaction_markers(committed: bool, kind: int) -> None:
    batch = build_end_transaction_marker(
        committed=committed, producer_id=9, producer_epoch=2, coordinator_epoch=77, timestamp=1234, base_offset=50
    )
    header = BatchHeader(batch)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    (marker,) = read_control_records(batch)
    assert (marker.type, marker.version, marker.offset, marker.timestamp) == (kind, 0, 50, 1234)
    assert marker.value == struct.pack(">hi", 0, 77)


def test_a_control_batch_of_several_records() -> None:
    batch = build_control_batch(
        [(CONTROL_LEADER_CHANGE, b"who leads"), (CONTROL_SNAPSHOT_FOOTER, b"")], timestamp=1, leader_epoch=4
    )
    assert [(record.type, record.value) for record in read_control_records(batch)] == [(2, b"who leads"), (4, b"")]
    assert not BatchHeader(batch).is_transactional


def test_control_records_are_only_read_from_control_batches() -> None:
    with pytest.raises(CorruptRecords):
        read_control_records(build_batch([Record(0, 0, b"\x00\x00\x00\x01", b"")]))


def test_a_control_record_with_a_short_key_is_corrupt() -> None:
    builder = BatchBuilder(control=True)
    builder.append(b"\x00", b"", timestamp=0)
    with pytest.raises(CorruptRecords):
        read_control_records(builder.build())


@given(records=record_lists(), source=codecs, target=codecs)
@settings(max_examples=80)
def test_recompressing_changes_nothing_but_the_codec(records: list[Record], source: Codec, target: Codec) -> None:
    batch = build_batch(records, codec=source, producer_id=4, producer_epoch=1, base_sequence=8, leader_epoch=6)
    again = recompress(batch, target)
    before, after = header_of(batch), header_of(again)
    assert after.codec == target
    assert after.checksum_matches(again)
    assert list(read_records(again)) == records
    for field in ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id"):
        assert getattr(before, field) == getattr(after, field)
    for field in ("producer_epoch", "base_sequence", "record_count", "partition_leader_epoch"):
        assert getattr(before, field) == getattr(after, field)


@given(data=st.data(), records=record_lists(min_size=1), codec=codecs, horizon=st.none() | st.integers(0, 2**42))
@settings(max_examples=150)
def test_filtering_keeps_the_records_and_the_offset_range(
    data: st.DataObject, records: list[Record], codec: Codec, horizon: int | None
) -> None:
    batch = build_batch(records, codec=codec, producer_id=4, producer_epoch=1, base_sequence=8)
    header = header_of(batch)
    body = unpack_body(batch, header)
    scanned = scan_keys(body, header.record_count)
    keep = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    kept = [each for each, wanted in zip(scanned, keep, strict=True) if wanted]
    filtered = filter_batch(header, body, kept, delete_horizon=horizon)
    after = header_of(filtered)
    expected = [record for record, wanted in zip(records, keep, strict=True) if wanted]
    assert list(read_records(filtered)) == expected
    assert after.checksum_matches(filtered)
    assert (after.base_offset, after.last_offset) == (header.base_offset, header.last_offset)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (4, 1, 8)
    assert after.max_timestamp == max((record.timestamp for record in expected), default=-1)
    assert after.has_delete_horizon == (horizon is not None)
    if horizon is not None:
        assert after.base_timestamp == horizon


def test_filtering_keeps_the_append_time() -> None:
    batch = build_batch([Record(0, 1, b"a", b""), Record(1, 2, b"b", b"")], log_append_time=900)
    header = header_of(batch)
    body = unpack_body(batch, header)
    filtered = filter_batch(header, body, scan_keys(body, 2)[:1], delete_horizon=10_000)
    assert list(read_records(filtered)) == [Record(0, 900, b"a", b"")]


def test_what_is_left_of_an_emptied_batch_remembers_its_producer() -> None:
    batch = build_batch(
        [Record(3, 50, b"a", b""), Record(4, 60, b"b", b"")],
        codec=Codec.GZIP,
        producer_id=11,
        producer_epoch=2,
        base_sequence=30,
        transactional=True,
        leader_epoch=7,
    )
    left = empty_batch(header_of(batch))
    header = header_of(left)
    assert len(left) == 61
    assert header.checksum_matches(left)
    assert (header.base_offset, header.last_offset, header.record_count) == (3, 4, 0)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (11, 2, 31)
    assert header.is_transactional
    assert header.codec == 0
    assert header.max_timestamp == 60
    assert list(read_records(left)) == []


def test_batches_one_after_the_other_are_walked() -> None:
    first = build_batch([Record(0, 0, b"a", b"b")])
    second = build_batch([Record(1, 0, b"c", b"d")])
    buffer = first + second
    found = [list(read_records(buffer, header)) for header in iter_batches(buffer)]
    assert found == [[Record(0, 0, b"a", b"b")], [Record(1, 0, b"c", b"d")]]
