"""Reading records out of hostile bytes: a record, or CorruptRecords; never another exception, never more memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moldau.records.batch import HEADER_SIZE, RECORD_COUNT_AT, BatchHeader, seal
from moldau.records.builder import build_batch, build_control_batch, encode_varint
from moldau.records.compression import Codec, CorruptRecords
from moldau.records.record import Record, header_of, read_control_records, read_records, scan_keys

VALID = build_batch(
    [
        Record(0, 1000, b"key", b"value", (("name", b"x"), ("none", None))),
        Record(1, 2000, None, b"y" * 300),
        Record(2, 1500, b"gone", None),
    ]
)


def batch_around(body: bytes, count: int, codec: int = 0) -> bytes:
    """A sealed batch with any bytes as its body."""
    batch = bytearray(VALID[:HEADER_SIZE]) + body
    batch[RECORD_COUNT_AT : RECORD_COUNT_AT + 4] = (count & 0xFFFFFFFF).to_bytes(4, "big")
    batch[22] = codec
    seal(batch)
    return bytes(batch)


def read_every_way(batch: bytes) -> None:
    """Every reader of a body agrees on whether it parses."""
    outcomes = set()
    header = BatchHeader(batch)
    body = batch[HEADER_SIZE:]
    for read in (lambda: list(read_records(batch, header)), lambda: scan_keys(body, header.record_count)):
        try:
            read()
            outcomes.add("fine")
        except CorruptRecords:
            outcomes.add("corrupt")
    assert len(outcomes) == 1, "one reader accepts what the other refuses"


@given(body=st.binary(max_size=200), count=st.integers(0, 5) | st.integers(-(2**31), 2**31 - 1))
@settings(max_examples=300)
@example(body=b"", count=-1)
@example(body=b"", count=0)
@example(body=b"\x0e\x00\x00\x00\x01\x01\x00", count=1)
@example(body=b"\xff" * 30, count=1)
@example(body=b"\x80" * 30, count=1)
def test_arbitrary_bodies(body: bytes, count: int) -> None:
    read_every_way(batch_around(body, count))


@given(flips=st.lists(st.tuples(st.integers(HEADER_SIZE, len(VALID) - 1), st.integers(1, 255)), min_size=1, max_size=3))
@settings(max_examples=300)
def test_damaged_bodies(flips: list[tuple[int, int]]) -> None:
    batch = bytearray(VALID)
    for where, mask in flips:
        batch[where] ^= mask
    read_every_way(bytes(batch))


@given(data=st.binary(max_size=120))
@settings(max_examples=150)
def test_arbitrary_bytes_are_no_batch(data: bytes) -> None:
    for read in (lambda: list(read_records(data)), lambda: read_control_records(data)):
        try:
            read()
        except CorruptRecords:
            pass


def test_a_batch_cut_anywhere_is_corrupt() -> None:
    for cut in range(len(VALID)):
        with pytest.raises(CorruptRecords):
            list(read_records(VALID[:cut]))
    for cut in range(HEADER_SIZE, len(VALID)):
        with pytest.raises(CorruptRecords):
            list(read_records(batch_around(VALID[HEADER_SIZE:cut], 3)))


def record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (record(b"\x00\x00\x00\x03\x01\x00"), "key of -2 bytes"),
        (record(b"\x00\x00\x00\x01\x03\x00"), "value of -2 bytes"),
        (record(b"\x00\x00\x00\x01\x01\x01"), "-1 headers"),
        (record(b"\x00\x00\x00\x01\x01" + encode_varint(2**31 - 1)), "headers in 0 bytes"),
        (record(b"\x00\x00\x00\x01\x01\x02\x01\x01"), "header name of -1 bytes"),
        (record(b"\x00\x00\x00\x01\x01\x02\x00\x03"), "header value of -2 bytes"),
        (record(b"\x00\x00\x00\x01\x01\x00\x00"), "do not fill"),
        (record(b"\x00\x00\x00" + encode_varint(2**31 - 1)), "inside a record"),
        (encode_varint(2**31 - 1) + b"\x00", "after its batch"),
        (encode_varint(-5) + b"\x00\x00\x00\x01\x01\x00", "do not fill"),
        (record(b"\x00\x00\x00\x01\x01\x00") + b"\x00", "1 bytes after the last"),
        (b"\x80\x80\x80\x80\x80\x01", "32 bits"),
        (record(b"\x00" + b"\x80" * 10 + b"\x01\x00\x01\x01\x00"), "64 bits"),
        (record(b"\x00\x00\x00\xff\xff\xff\xff\x1f\x01\x00"), "32 bits"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, what: str) -> None:
    with pytest.raises(CorruptRecords, match=what):
        list(read_records(batch_around(body, 1)))
    with pytest.raises(CorruptRecords, match=what if "header" not in what else "header"):
        scan_keys(body, 1)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_lying_record_count_is_corrupt_and_cheap(codec: Codec) -> None:
    good = build_batch([Record(0, 0, b"k", b"v")], codec=codec)
    tracemalloc.start()
    try:
        for count in (0, 2, 2**31 - 1):
            with pytest.raises(CorruptRecords):
                list(read_records(batch_around(good[HEADER_SIZE:], count, codec)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_bomb_is_refused_with_the_readers_own_limit() -> None:
    batch = build_batch([Record(0, 0, b"k", bytes(100_000))], codec=Codec.ZSTD)
    assert len(batch) < 200
    assert len(next(read_records(batch)).value or b"") == 100_000
    with pytest.raises(CorruptRecords, match="more than 50000"):
        list(read_records(batch, max_size=50_000))


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_refused(magic: int) -> None:
    batch = bytearray(VALID)
    batch[16] = magic
    with pytest.raises(CorruptRecords, match="magic"):
        header_of(batch)


def test_header_names_that_are_not_utf8_do_not_break_the_reader() -> None:
    body = record(b"\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x02z")
    (read,) = read_records(batch_around(body, 1))
    assert read.headers == (("\ufffd\ufffd", b"z"),)


def test_records_are_read_at_a_position_in_a_larger_buffer() -> None:
    buffer = b"other" + VALID + b"bytes"
    assert list(read_records(buffer, header_of(buffer, 5))) == list(read_records(VALID))


def test_unknown_control_types_are_passed_on() -> None:
    (control,) = read_control_records(build_control_batch([(99, b"from the future")], timestamp=3))
    assert control.type == 99
