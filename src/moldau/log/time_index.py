"""The time index: from a timestamp to an offset before which no record is as young.

Entries are (timestamp, offset relative to the segment's base), twelve bytes: the largest timestamp up to that point
of the segment and the last offset of the batch that has it. Timestamps strictly increase from entry to entry, so a
stretch without a new maximum adds none.
"""

from __future__ import annotations

from struct import Struct

from moldau.log.errors import CorruptIndex
from moldau.log.sparse_index import SparseIndex


class TimeIndex(SparseIndex):
    """Pairs (timestamp, relative offset)."""

    ENTRY = Struct(">qi")
    KEY_TYPE = "q"

    __slots__ = ()

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        last = self.last()
        if timestamp > (last[0] if last is not None else -1):
            self.append(timestamp, relative_offset)

    def offset_before(self, timestamp: int) -> int:
        """A relative offset such that every earlier record has a smaller timestamp."""
        found = self.floor(timestamp)
        return found[1] if found is not None else 0

    def check(self) -> None:
        last = self.last()
        if last is not None and (last[0] < 0 or last[1] < 0):
            raise CorruptIndex(f"{self.path} ends at {last}")

    def truncate_to(self, relative_offset: int) -> None:
        count = len(self)
        while count and self._entry(count - 1)[1] >= relative_offset:
            count -= 1
        self.truncate(count)
