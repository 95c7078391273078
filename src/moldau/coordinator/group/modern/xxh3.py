"""XXH3, 64 bits, without a seed: the hash by which Kafka notices that the topics of a group have changed.

Groups keep it in their records, so it must be Kafka's hash, bit by bit. Nothing here is meant to be hard to forge.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_M64: Final = (1 << 64) - 1
_M32: Final = (1 << 32) - 1

# The default secret of the algorithm.
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

_P32_1: Final = 0x9E3779B1
_P32_2: Final = 0x85EBCA77
_P32_3: Final = 0xC2B2AE3D
_P64_1: Final = 0x9E3779B185EBCA87
_P64_2: Final = 0xC2B2AE3D27D4EB4F
_P64_3: Final = 0x165667B19E3779F9
_P64_4: Final = 0x85EBCA77C2B2AE63
_P64_5: Final = 0x27D4EB2F165667C5
_MIX_1: Final = 0x165667919E3779F9
_MIX_2: Final = 0x9FB21C651E98DF25

_STRIPE: Final = 64
# How far the secret moves from one stripe to the next, and how many stripes fit before the lanes are scrambled.
_SECRET_STEP: Final = 8
_STRIPES_IN_BLOCK: Final = (len(_SECRET) - _STRIPE) // _SECRET_STEP
_LANES: Final = Struct("<8Q")
_LANES_OF_SECRET: Final = tuple(
    _LANES.unpack_from(_SECRET, at) for at in range(0, len(_SECRET) - _STRIPE + 1, _SECRET_STEP)
)


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _fold(left: int, right: int) -> int:
    """The two halves of a 128-bit product, laid over each other."""
    product = left * right
    return (product ^ (product >> 64)) & _M64


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _MIX_1 & _M64
    return value ^ value >> 32


def _avalanche_xxh64(value: int) -> int:
    value ^= value >> 33
    value = value * _P64_2 & _M64
    value ^= value >> 29
    value = value * _P64_3 & _M64
    return value ^ value >> 32


def _swap64(value: int) -> int:
    return int.from_bytes(value.to_bytes(8, "little"), "big")


def xxh3_64(data: bytes) -> int:
    """The hash as an unsigned number."""
    size = len(data)
    if size <= 16:
        return _short(data, size)
    if size <= 128:
        return _up_to_128(data, size)
    if size <= 240:
        return _up_to_240(data, size)
    return _long(data, size)


def _short(data: bytes, size: int) -> int:
    if size > 8:
        low = _u64(data, 0) ^ (_u64(_SECRET, 24) ^ _u64(_SECRET, 32))
        high = _u64(data, size - 8) ^ (_u64(_SECRET, 40) ^ _u64(_SECRET, 48))
        return _avalanche((size + _swap64(low) + high + _fold(low, high)) & _M64)
    if size >= 4:
        both = (_u32(data, size - 4) + (_u32(data, 0) << 32)) ^ (_u64(_SECRET, 8) ^ _u64(_SECRET, 16))
        both ^= (both << 49 | both >> 15) & _M64 ^ (both << 24 | both >> 40) & _M64
        both = both * _MIX_2 & _M64
        both ^= (both >> 35) + size
        both = both * _MIX_2 & _M64
        return both ^ both >> 28
    if size:
        joined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _avalanche_xxh64(joined ^ (_u32(_SECRET, 0) ^ _u32(_SECRET, 4)))
    return _avalanche_xxh64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mix16(data: bytes, at: int, secret_at: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8))


def _up_to_128(data: bytes, size: int) -> int:
    total = size * _P64_1 & _M64
    for i in range((size - 1) // 32, -1, -1):
        total += _mix16(data, 16 * i, 32 * i) + _mix16(data, size - 16 * (i + 1), 32 * i + 16)
    return _avalanche(total & _M64)


def _up_to_240(data: bytes, size: int) -> int:
    total = size * _P64_1
    for i in range(8):
        total += _mix16(data, 16 * i, 16 * i)
    total = _avalanche(total & _M64)
    for i in range(8, size // 16):
        total += _mix16(data, 16 * i, 16 * (i - 8) + 3)
    total += _mix16(data, size - 16, 136 - 17)
    return _avalanche(total & _M64)


def _accumulate(lanes: list[int], stripe: tuple[int, ...], secret: tuple[int, ...]) -> None:
    for i in range(8):
        value = stripe[i]
        keyed = value ^ secret[i]
        lanes[i ^ 1] += value
        lanes[i] = (lanes[i] + (keyed & _M32) * (keyed >> 32)) & _M64


def _scramble(lanes: list[int]) -> None:
    for i, key in enumerate(_LANES_OF_SECRET[-1]):
        lane = lanes[i] & _M64
        lanes[i] = ((lane ^ lane >> 47) ^ key) * _P32_1 & _M64


def _long(data: bytes, size: int) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    whole = (size - 1) // _STRIPE
    for number in range(whole):
        in_block = number % _STRIPES_IN_BLOCK
        _accumulate(lanes, _LANES.unpack_from(data, number * _STRIPE), _LANES_OF_SECRET[in_block])
        if in_block == _STRIPES_IN_BLOCK - 1:
            _scramble(lanes)
    last_secret = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE - 7)
    _accumulate(lanes, _LANES.unpack_from(data, size - _STRIPE), last_secret)
    total = size * _P64_1
    for i in range(4):
        left, right = lanes[2 * i] & _M64, lanes[2 * i + 1] & _M64
        total += _fold(left ^ _u64(_SECRET, 11 + 16 * i), right ^ _u64(_SECRET, 19 + 16 * i))
    return _avalanche(total & _M64)
