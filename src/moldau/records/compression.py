"""The four codecs a record batch may be compressed with, in the framings that Kafka's clients write and read.

This module decides the framing of each codec (snappy in snappy-java's stream format, lz4 in its frame format with
independent blocks, gzip, zstd), what a configured level means, and the bound on what unpacking may produce. It must
never let a peer's bytes decide how much memory is taken: every output is written into a buffer of a size that the
caller's limit covers, and a payload that would not fit is refused, not truncated.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final, TypeAlias

import cramjam

from moldau.ports import Buffer
from moldau.records.batch import BatchError


class Codec(IntEnum):
    """Compression codecs by the id that stands in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


NONE: Final = Codec.NONE
GZIP: Final = Codec.GZIP
SNAPPY: Final = Codec.SNAPPY
LZ4: Final = Codec.LZ4
ZSTD: Final = Codec.ZSTD

# The names topics and producers are configured with (compression.type).
CODEC_BY_NAME: Final = {"uncompressed": NONE, "none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

# Defaults of compression.gzip.level, compression.lz4.level and compression.zstd.level.
GZIP_DEFAULT_LEVEL: Final = -1
LZ4_DEFAULT_LEVEL: Final = 9
ZSTD_DEFAULT_LEVEL: Final = 3

# What unpacking one batch may produce unless the caller says otherwise: Kafka's largest request (100 MiB) would hold
# no larger batch uncompressed, so nobody honest packs more.
DEFAULT_MAX_SIZE: Final = 100 * 1024 * 1024

# zlib's own meaning of "default" (-1), spelled out because cramjam takes only real levels.
_GZIP_LEVEL_OF_DEFAULT: Final = 6
# lz4 levels below 3 are its fast compressor, 3 to 12 the high-compression one.
_LZ4_FAST: Final = 1
_LZ4_HIGH_MIN: Final = 3
_LZ4_HIGH_MAX: Final = 12

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_HEADER_SIZE: Final = 16
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
# A snappy element of 3 bytes yields at most 64: a block that promises more than this many bytes per byte lies.
_SNAPPY_MAX_RATIO: Final = 22
_INT32: Final = Struct(">i")
_UINT32_LE: Final = Struct("<I")

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
# Size of zstd's optional content-size field by the two top bits of the frame descriptor.
_ZSTD_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)

# First guess of an unknown output size, and how it grows while the output does not fit.
_MIN_GUESS: Final = 16 * 1024
_GUESS_RATIO: Final = 6
_GROWTH: Final = 4
# Rust's own words for an output slice that is full; every other failure is the data's fault.
_OUTPUT_IS_FULL: Final = "whole buffer"


_DecompressInto: TypeAlias = Callable[[Buffer, bytearray | memoryview], int]

# Codecs that unpack straight into a given buffer.
_INTO: Final[dict[int, _DecompressInto]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


class CorruptRecords(BatchError):
    """The body of a batch is not what its header promises: it does not unpack, or its records do not parse."""


class RecordsTooLarge(CorruptRecords):
    """Unpacking the body would take more memory than its reader allows."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Pack `data`; `level` is the value of the codec's configuration key, None its default."""
    if codec == GZIP:
        if level is None or level < 0:
            level = _GZIP_LEVEL_OF_DEFAULT
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        return _compress_lz4(data, level)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=ZSTD_DEFAULT_LEVEL if level is None else level))
    if codec == NONE:
        return bytes(data)
    raise ValueError(f"there is no codec {codec}")


def decompress(codec: int, data: Buffer, max_size: int = DEFAULT_MAX_SIZE) -> bytes:
    """Unpack `data`, to at most `max_size` bytes.

    Raises RecordsTooLarge when there would be more, CorruptRecords when `data` is not what the codec writes.
    """
    if codec == NONE:
        if len(data) > max_size:
            raise RecordsTooLarge(f"{len(data)} bytes of records where {max_size} are allowed")
        return bytes(data)
    if codec == ZSTD:
        return _unpack(cramjam.zstd.decompress_into, data, _zstd_size_hint(data), max_size)
    if codec == LZ4:
        return _unpack(cramjam.lz4.decompress_into, data, len(data) * _GUESS_RATIO, max_size)
    if codec == SNAPPY:
        return _decompress_snappy(data, max_size)
    if codec == GZIP:
        return _unpack(cramjam.gzip.decompress_into, data, _gzip_size_hint(data), max_size)
    raise CorruptRecords(f"there is no codec {codec}")


def decompress_into(codec: int, data: Buffer, output: memoryview) -> int:
    """Unpack `data` to the beginning of `output`, for readers that bring their own memory; how many bytes it is.

    Raises RecordsTooLarge when it does not fit, CorruptRecords when `data` is not what the codec writes.
    """
    unpack = _INTO.get(codec)
    if unpack is None:
        unpacked = decompress(codec, data, len(output))
        output[: len(unpacked)] = unpacked
        return len(unpacked)
    try:
        return unpack(data, output)
    except cramjam.DecompressionError as error:
        if _OUTPUT_IS_FULL in str(error):
            raise RecordsTooLarge(f"records unpack to more than {len(output)} bytes") from None
        raise CorruptRecords(f"compressed records do not unpack: {error}") from None


def _unpack(decompress_into: _DecompressInto, data: Buffer, hint: int, max_size: int) -> bytes:
    """Unpack into a buffer of the hinted size, growing it up to the limit while the output does not fit."""
    size = min(max(hint, _MIN_GUESS), max_size)
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise CorruptRecords(f"compressed records do not unpack: {error}") from None
            if size >= max_size:
                raise RecordsTooLarge(f"records unpack to more than {max_size} bytes") from None
            size = min(size * _GROWTH, max_size)
            continue
        return bytes(memoryview(output)[:written])


def _gzip_size_hint(data: Buffer) -> int:
    """What the trailer of the (last) gzip member says; a lie costs a retry, no more."""
    if len(data) < 18:
        return 0
    declared = int(_UINT32_LE.unpack_from(data, len(data) - 4)[0])
    # Deflate cannot do better than 1032:1.
    return declared if declared <= len(data) * 1032 else len(data) * _GUESS_RATIO


def _zstd_size_hint(data: Buffer) -> int:
    """The frame's declared content size where it has one (RFC 8878, 3.1.1.1); a lie costs a retry, no more."""
    guess = len(data) * _GUESS_RATIO
    if len(data) < 6 or bytes(data[:4]) != _ZSTD_MAGIC:
        return guess
    descriptor = data[4]
    single_segment = descriptor & 0x20
    field_size = _ZSTD_CONTENT_SIZE_BYTES[descriptor >> 6]
    if not field_size:
        if not single_segment:
            return guess
        field_size = 1
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 0x03]
    declared = int.from_bytes(data[start : start + field_size], "little")
    if field_size == 2:
        declared += 256
    # Trusted only within reason: a frame of a few bytes may declare terabytes.
    return declared if declared <= max(len(data) * 1024, _MIN_GUESS) else guess


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """An lz4 frame of independent blocks: Kafka's Java reader refuses linked ones."""
    if level is None or level == LZ4_DEFAULT_LEVEL:
        # Kafka's default level means the fast compressor; every other level means the high-compression one.
        lz4_level = _LZ4_FAST
    else:
        lz4_level = min(max(level, _LZ4_HIGH_MIN), _LZ4_HIGH_MAX)
    frame = cramjam.lz4.Compressor(level=lz4_level, content_checksum=False, block_linked=False)
    frame.compress(data if isinstance(data, bytes) else bytes(data))
    return bytes(frame.finish())


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        output += _INT32.pack(len(block))
        output += block
    return bytes(output)


def _decompress_snappy(data: Buffer, max_size: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return bytes(_decompress_snappy_block(view, max_size))
    if len(view) < _XERIAL_HEADER_SIZE:
        raise CorruptRecords("snappy stream ends inside its header")
    output = bytearray()
    position = _XERIAL_HEADER_SIZE
    end = len(view)
    while position < end:
        if end - position < 4:
            raise CorruptRecords("snappy stream ends inside a block's length")
        length = _INT32.unpack_from(view, position)[0]
        if length < 0:
            # Streams may be written one after the other: the next one begins with its own header.
            if bytes(view[position : position + 8]) != _XERIAL_MAGIC or end - position < _XERIAL_HEADER_SIZE:
                raise CorruptRecords(f"snappy block of {length} bytes")
            position += _XERIAL_HEADER_SIZE
            continue
        position += 4
        if length > end - position:
            raise CorruptRecords(f"snappy block of {length} bytes where {end - position} are left")
        output += _decompress_snappy_block(view[position : position + length], max_size - len(output))
        position += length
    return bytes(output)


def _decompress_snappy_block(block: memoryview, max_size: int) -> bytearray:
    """One raw snappy block; its declared size is judged before anything is allocated."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_MAX_RATIO:
            raise CorruptRecords(f"snappy block of {len(block)} bytes claims to hold {size}")
        if size > max_size:
            raise RecordsTooLarge(f"records unpack to more than {max_size} bytes")
        output = bytearray(size)
        if cramjam.snappy.decompress_raw_into(block, output) != size:
            raise CorruptRecords("snappy block is shorter than it claims")
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"compressed records do not unpack: {error}") from None
    return output
