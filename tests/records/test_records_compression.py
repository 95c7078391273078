"""Codecs: round trips, framings, levels, and that no payload takes more memory than its reader allows."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moldau.records.compression import (
    CODEC_BY_NAME,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Codec,
    CorruptRecords,
    RecordsTooLarge,
    compress,
    decompress,
)

COMPRESSING = [GZIP, SNAPPY, LZ4, ZSTD]
MEBIBYTE = 1 << 20

payloads = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=50), st.integers(0, 5000)),
)


@pytest.mark.parametrize("codec", list(Codec))
@given(data=payloads)
@settings(max_examples=60)
@example(data=b"")
def test_what_was_packed_unpacks_to_the_same_bytes(codec: Codec, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert decompress(codec, memoryview(packed), len(data)) == data
    assert decompress(codec, bytearray(packed)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_the_limit_is_exact(codec: Codec) -> None:
    data = bytes(range(256)) * 1000
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(RecordsTooLarge):
        decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_output_far_larger_than_the_first_guess_still_arrives(codec: Codec) -> None:
    data = bytes(5 * MEBIBYTE)
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(GZIP, [-1, 1, 6, 9]), (LZ4, [1, 3, 9, 12, 17]), (ZSTD, [-131072, -5, 1, 3, 19, 22])],
)
def test_every_configurable_level_works(codec: Codec, levels: list[int]) -> None:
    data = b"".join(b"record %d with some text " % (number % 97) for number in range(3000))
    for level in levels:
        assert decompress(codec, compress(codec, data, level)) == data


@pytest.mark.parametrize(("codec", "fast", "small"), [(GZIP, 1, 9), (LZ4, None, 12), (ZSTD, 1, 19)])
def test_a_higher_level_packs_tighter(codec: Codec, fast: int | None, small: int) -> None:
    data = b"".join(b"%d:%d;" % (number * 7919 % 1009, number % 13) for number in range(20000))
    assert len(compress(codec, data, small)) < len(compress(codec, data, fast))


def test_names_of_codecs_are_those_of_the_configuration() -> None:
    assert CODEC_BY_NAME == {"uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def test_snappy_is_written_in_the_framing_of_snappy_java() -> None:
    data = bytes(70_000)
    packed = compress(SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    sizes, position = [], 16
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        block = packed[position + 4 : position + 4 + length]
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(block))))
        position += 4 + length
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_raw_snappy_is_read_too() -> None:
    data = b"written by a client without framing " * 100
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_snappy_streams_one_after_the_other_are_read_as_one() -> None:
    assert decompress(SNAPPY, compress(SNAPPY, b"first ") + compress(SNAPPY, b"second")) == b"first second"


def test_lz4_blocks_are_independent_because_javas_reader_refuses_linked_ones() -> None:
    packed = compress(LZ4, bytes(200_000))
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0b1110_0000 == 0b0110_0000, "version 1, independent blocks"
    assert packed[4] & 0b1000 == 0, "no content size"


def test_lz4_linked_blocks_and_content_checksums_are_read() -> None:
    data = b"linked " * 40_000
    assert decompress(LZ4, bytes(cramjam.lz4.compress(data))) == data
    frame = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=True)
    frame.compress(data)
    assert decompress(LZ4, bytes(frame.finish())) == data


def test_lz4_header_checksum_is_verified() -> None:
    packed = bytearray(compress(LZ4, b"some bytes"))
    packed[6] ^= 1
    with pytest.raises(CorruptRecords):
        decompress(LZ4, packed)


def test_gzip_members_one_after_the_other_are_read_as_one() -> None:
    assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_zstd_without_content_size_is_read_as_java_writes_it() -> None:
    stream = cramjam.zstd.Compressor(level=3)
    stream.compress(b"streamed " * 9000)
    packed = bytes(stream.finish())
    assert packed[4] & 0b1110_0000 == 0, "the frame must not declare its size"
    assert decompress(ZSTD, packed) == b"streamed " * 9000


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_corrupt(codec: int) -> None:
    with pytest.raises(CorruptRecords):
        decompress(codec, b"anything")
    with pytest.raises(ValueError, match="no codec"):
        compress(codec, b"anything")


def gzip_bomb() -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(MEBIBYTE)
    return b"".join(stream.compress(zeros) for _ in range(256)) + stream.flush()


def zstd_bomb() -> bytes:
    # A frame of 8192 run-length blocks, each 4 bytes that unpack to 128 KiB: 1 GiB out of 32 KiB.
    block = (1 << 17 << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (1 << 17 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\x00"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * 8191 + last


def lz4_bomb() -> bytes:
    stream = cramjam.lz4.Compressor(level=9, content_checksum=False, block_linked=False)
    parts = []
    for _ in range(256):
        stream.compress(bytes(MEBIBYTE))
        parts.append(bytes(stream.flush()))
    return b"".join([*parts, bytes(stream.finish())])


def snappy_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MEBIBYTE)))
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 256


def zstd_with_huge_window() -> bytes:
    # Window descriptor 0xA8 asks for 2 GiB of history, which the decoder must not set aside.
    return b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x09\x00\x00x"


@pytest.mark.parametrize(
    ("codec", "bomb"), [(GZIP, gzip_bomb), (ZSTD, zstd_bomb), (LZ4, lz4_bomb), (SNAPPY, snappy_bomb)]
)
def test_a_bomb_is_refused_within_the_limit(codec: Codec, bomb: Callable[[], bytes]) -> None:
    payload = bomb()
    limit = 4 * MEBIBYTE
    tracemalloc.start()
    try:
        with pytest.raises(RecordsTooLarge):
            decompress(codec, payload, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit


@pytest.mark.parametrize(
    "block", [b"\xff\xff\xff\xff\x0f" + b"x" * 50, b"\x80\x80\x80\x80\x04" + b"\x00"], ids=["4 GiB", "1 GiB"]
)
def test_a_snappy_block_that_lies_about_its_size_allocates_nothing(block: bytes) -> None:
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    for payload in (block, framed):
        tracemalloc.start()
        try:
            with pytest.raises(CorruptRecords):
                decompress(SNAPPY, payload, 2**40)
            assert tracemalloc.get_traced_memory()[1] < MEBIBYTE
        finally:
            tracemalloc.stop()


def test_a_declared_size_or_window_is_not_believed() -> None:
    lying_zstd = b"\x28\xb5\x2f\xfd\xe0" + (2**40).to_bytes(8, "little") + b"\x09\x00\x00x"
    lying_gzip = gzip.compress(b"x")[:-4] + b"\xff\xff\xff\x7f"
    tracemalloc.start()
    try:
        for codec, payload in ((ZSTD, lying_zstd), (ZSTD, zstd_with_huge_window()), (GZIP, lying_gzip)):
            with pytest.raises(CorruptRecords):
                decompress(codec, payload)
        assert tracemalloc.get_traced_memory()[1] < MEBIBYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.binary(max_size=300))
@settings(max_examples=150)
@example(data=b"\x82SNAPPY\x00")
@example(data=b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, -1))
@example(data=b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 2**31 - 1))
@example(data=b"")
def test_arbitrary_bytes_unpack_or_are_corrupt(codec: Codec, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, 10_000)) <= 10_000
    except CorruptRecords:
        pass


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=payloads, flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4))
@settings(max_examples=100)
def test_damaged_payloads_unpack_or_are_corrupt(codec: Codec, data: bytes, flips: list[tuple[int, int]]) -> None:
    packed = bytearray(compress(codec, data))
    for where, mask in flips:
        packed[where % len(packed)] ^= mask
    try:
        decompress(codec, packed, MEBIBYTE)
    except CorruptRecords:
        pass


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_cut_payload_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, b"to be cut anywhere " * 50)
    for length in range(len(packed)):
        with pytest.raises(CorruptRecords):
            decompress(codec, packed[:length])


def test_uncompressed_bytes_are_passed_on() -> None:
    assert decompress(NONE, memoryview(b"abc")) == b"abc"
