"""The records every client writes and reads back: keys, values, headers and timestamps of all shapes."""

from __future__ import annotations

from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Sample:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def samples(count: int = 20) -> list[Sample]:
    begin = 1_700_000_000_000
    kinds = [
        Sample(b"key", b"value", (), begin),
        Sample(None, b"no key", (("trace", b"abc"),), begin + 1),
        Sample(b"tombstone", None, (), begin + 2),
        Sample(b"", b"", (("empty", b""), ("twice", b"1"), ("twice", b"2")), begin + 3),
        Sample("žluťoučký".encode(), "kůň 🐎".encode(), (("ünï", "cödé".encode()),), begin + 4),
        Sample(b"\x00\xff" * 8, bytes(range(256)) * 40, (), begin + 5),
    ]
    return [
        Sample(k.key, k.value, k.headers, begin + i) for i, k in enumerate(kinds[i % len(kinds)] for i in range(count))
    ]
