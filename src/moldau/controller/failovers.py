"""How long it took until others led what a broker led that died: counted by the controller that moved the leaders.

A fail-over begins with the first sign of trouble (a broken connection; where there was none, the last heartbeat) and
ends when the records that name the new leaders are committed. What clients notice is about the same: they hear of it
with the next record they fetch or send. Numbers of this controller only; they begin anew when another one takes over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.metadata.records import MetadataRecord
from moldau.metadata.replay import NO_LEADER_CHANGE
from moldau.ports import Clock
from moldau.protocol.generated.metadata.partition_change_record import PartitionChangeRecord

BUCKETS_MS: Final = (50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)


class Failovers:
    __slots__ = ("_clock", "buckets", "count", "last_at_ms", "last_ms", "partitions", "sum_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.count = 0
        self.partitions = 0
        self.sum_ms = 0
        self.last_ms = 0
        self.last_at_ms = 0
        self.buckets = [0] * (len(BUCKETS_MS) + 1)
        """How many took up to so many milliseconds; the last is for all longer ones."""

    def committed(self, began_ms: int, moved: int) -> None:
        """The new leaders of so many partitions are known for good."""
        took = max(0, self._clock.monotonic_ms() - began_ms)
        self.count += 1
        self.partitions += moved
        self.sum_ms += took
        self.last_ms = took
        self.last_at_ms = self._clock.now_ms()
        slot = next((i for i, limit in enumerate(BUCKETS_MS) if took <= limit), len(BUCKETS_MS))
        self.buckets[slot] += 1


def leaders_moved(records: Iterable[MetadataRecord]) -> int:
    """Of how many partitions these records name a new leader."""
    return sum(
        isinstance(record, PartitionChangeRecord) and record.leader != NO_LEADER_CHANGE and record.leader >= 0
        for record in records
    )
