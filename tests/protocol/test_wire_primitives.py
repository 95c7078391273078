"""The primitive types by hand: known bytes, round trips, and every way in which a length can lie."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.wire import ProtocolError, Reader, Writer

INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "varint": 32, "varlong": 64}


def written(method: str, *arguments: Any) -> bytes:
    writer = Writer()
    getattr(writer, method)(*arguments)
    return bytes(writer.buf)


@pytest.mark.parametrize(
    ("method", "value", "data"),
    [
        ("int8", -1, b"\xff"),
        ("int16", 258, b"\x01\x02"),
        ("uint16", 65535, b"\xff\xff"),
        ("int32", -2, b"\xff\xff\xff\xfe"),
        ("uint32", 2**32 - 1, b"\xff\xff\xff\xff"),
        ("int64", 1, b"\0\0\0\0\0\0\0\1"),
        ("float64", 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        ("boolean", True, b"\x01"),
        ("uvarint", 300, b"\xac\x02"),
        ("uvarint", 2**32 - 1, b"\xff\xff\xff\xff\x0f"),
        ("varint", -1, b"\x01"),
        ("varint", 2**31 - 1, b"\xfe\xff\xff\xff\x0f"),
        ("varlong", -(2**63), b"\xff" * 9 + b"\x01"),
        ("uuid", bytes(range(16)), bytes(range(16))),
        ("string", "né", b"\x00\x03n\xc3\xa9"),
        ("nullable_string", None, b"\xff\xff"),
        ("compact_string", "ab", b"\x03ab"),
        ("compact_nullable_string", None, b"\x00"),
        ("bytes_", b"ab", b"\0\0\0\x02ab"),
        ("nullable_bytes", None, b"\xff\xff\xff\xff"),
        ("compact_bytes", b"", b"\x01"),
        ("compact_nullable_bytes", None, b"\x00"),
    ],
)
def test_known_bytes(method: str, value: Any, data: bytes) -> None:
    assert written(method, value) == data
    reader = Reader(data)
    assert getattr(reader, method)() == value
    assert reader.pos == len(data)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            getattr(Reader(data[:size]), method)()


@pytest.mark.parametrize(("method", "bits"), INTEGERS.items())
def test_integers_keep_their_range(method: str, bits: int) -> None:
    for value in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1):
        assert getattr(Reader(written(method, value)), method)() == value
    for value in (-(2 ** (bits - 1)) - 1, 2 ** (bits - 1)):
        with pytest.raises(ProtocolError):
            written(method, value)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_round_trip(value: int) -> None:
    assert Reader(written("varlong", value)).varlong() == value


def test_varints_end() -> None:
    with pytest.raises(ProtocolError, match="five bytes"):
        Reader(b"\x80" * 6 + b"\x01").uvarint()
    with pytest.raises(ProtocolError, match="ten bytes"):
        Reader(b"\x80" * 11 + b"\x01").varlong()
    with pytest.raises(ProtocolError, match="32 bits"):
        Reader(b"\xff\xff\xff\xff\x1f").uvarint()
    with pytest.raises(ProtocolError, match="64 bits"):
        Reader(b"\xff" * 9 + b"\x02").varlong()
    with pytest.raises(ProtocolError):
        written("uvarint", -1)


@pytest.mark.parametrize(
    "read",
    [
        Reader.string,
        Reader.compact_string,
        Reader.bytes_,
        Reader.compact_bytes,
        Reader.array_length,
        Reader.compact_array_length,
    ],
)
def test_null_is_refused_where_there_is_none(read: Callable[[Reader], Any]) -> None:
    data = b"\x00" if "compact" in read.__name__ else b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match="null"):
        read(Reader(data))


def test_strings_have_a_limit_and_an_encoding() -> None:
    longest = "x" * 32767
    assert Reader(written("string", longest)).string() == longest
    assert Reader(written("compact_string", longest)).compact_string() == longest
    for method in ("string", "compact_string"):
        with pytest.raises(ProtocolError):
            written(method, longest + "x")
    too_long = b"\x81\x80\x02" + b"x" * 32768
    with pytest.raises(ProtocolError):
        Reader(too_long).compact_string()
    with pytest.raises(ProtocolError, match="UTF-8"):
        Reader(b"\x00\x01\xff").string()


def test_a_reader_ends_where_it_is_told() -> None:
    reader = Reader(b"\x00\x01\x02\x03", pos=1, end=3)
    assert reader.remaining() == 2
    assert reader.int16() == 0x0102
    with pytest.raises(ProtocolError):
        reader.int8()
    for pos, end in ((5, None), (-1, None), (0, 5), (2, 1)):
        with pytest.raises(ProtocolError):
            Reader(b"\x00\x01\x02\x03", pos, end)


def test_records_are_a_view() -> None:
    frame = bytearray(b"\0\0\0\x03abc\x04abc")
    reader = Reader(frame)
    classic, compact = reader.records(), reader.records(compact=True)
    assert classic == compact == b"abc"
    assert classic is not None
    assert classic.obj is frame
    assert Reader(b"\xff\xff\xff\xff").records() is None
    with pytest.raises(ProtocolError):
        Reader(b"\0\0\0\x04abc").records()
    assert written("records", None) == b"\xff\xff\xff\xff"
    writer = Writer()
    writer.records(b"abc", compact=True)
    writer.records(None, compact=True)
    assert writer.buf == b"\x04abc\x00"


def test_array_lengths_fit_what_is_left() -> None:
    assert Reader(b"\0\0\0\x02ab").array_length() == 2
    assert Reader(b"\x03ab").compact_array_length() == 2
    with pytest.raises(ProtocolError):
        Reader(b"\0\0\0\x02ab").array_length(element_size=2)
    with pytest.raises(ProtocolError):
        Reader(b"\0\0\0\x03ab").array_length()


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        (b"\x02\x01\x00\x01\x00", "tag 1 after tag 1"),
        (b"\x02\x05\x00\x03\x00", "tag 3 after tag 5"),
        (b"\x01\x00\x05abc", "longer than the message"),
        (b"\xff\xff\xff\xff\x0f", "more tagged fields than bytes"),
        (b"\x01\x00", "more tagged fields than bytes|too early"),
        (b"", "too early"),
    ],
)
def test_tagged_sections_that_lie(section: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        Reader(section).skip_tagged_fields()


def test_unknown_tagged_fields_are_passed_over() -> None:
    reader = Reader(b"\x02\x00\x02ab\x07\x00!")
    reader.skip_tagged_fields()
    assert reader.pos == 7
    writer = Writer()
    writer.empty_tagged_fields()
    assert writer.buf == b"\x00"


def test_large_batches_are_spliced_not_copied() -> None:
    large, small = b"L" * 5000, b"s" * 10
    writer = Writer(splice_from=4096)
    writer.records(small)
    writer.records(large)
    writer.int8(1)
    chunks = writer.chunks()
    assert any(chunk is large for chunk in chunks)
    copied = Writer()
    copied.records(small)
    copied.records(large)
    copied.int8(1)
    assert b"".join(chunks) == copied.buf


def test_a_claimed_count_allocates_nothing() -> None:
    from moldau.protocol.generated.wire.metadata_request import MetadataRequest

    def claim() -> None:
        with pytest.raises(ProtocolError, match="claims length"):
            MetadataRequest.read(Reader(b"\x7f\xff\xff\xff" + bytes(50)), 0)
        with pytest.raises(ProtocolError, match="claims length"):
            MetadataRequest.read(Reader(b"\xff\xff\xff\xff\x07" + bytes(50)), 9)

    claim()
    tracemalloc.start()
    claim()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000
