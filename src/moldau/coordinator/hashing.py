"""Which partition of an internal topic a key belongs to: Java's hash of a string, as every Kafka client expects it."""

from __future__ import annotations

from functools import lru_cache


# A group commits again and again.
@lru_cache(maxsize=1024)
def java_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition that coordinates a key; the sign is dropped as Kafka drops it (the lowest number counts as 0)."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partitions
