"""Nearly right bytes: what is changed in a frame or a batch so that it still gets far."""

from __future__ import annotations

import random
from collections.abc import Callable

# Lengths and counts that have hurt somebody before.
LIES = (0, 1, -1, -2, 0x7F, 0x80, 0xFF, 0x7FFF, -0x8000, 0xFFFF, 2**31 - 1, -(2**31), 2**28, 2**20, 100, 61, 49)
VARINTS = (
    b"\x80\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x08",
    b"\x00",
)


def flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def replace_byte(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def drop(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.choice((1, 2, 4, 8, 40))]


def insert(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.randbytes(chance.choice((1, 2, 4, 8, 40)))


def insert_varint(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at : at + chance.randrange(2)] = chance.choice(VARINTS)


def lie(data: bytearray, chance: random.Random) -> None:
    """Write a length that is not true over two, four or eight bytes."""
    size = chance.choice((2, 4, 4, 8))
    at = chance.randrange(len(data))
    data[at : at + size] = (chance.choice(LIES) % (1 << (8 * size))).to_bytes(size, "big")


def repeat(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    part = data[at : at + chance.choice((1, 4, 20, 100))]
    data[at:at] = part * chance.choice((1, 2, 50))


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip,
    replace_byte,
    cut,
    drop,
    insert,
    insert_varint,
    lie,
    repeat,
)


def mutant(data: bytes, chance: random.Random, keep: int = 0) -> bytes:
    """The data with one or a few changes after its first `keep` bytes."""
    changed = bytearray(data[keep:])
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if not changed:
            break
        chance.choice(MUTATIONS)(changed, chance)
    return data[:keep] + bytes(changed)
