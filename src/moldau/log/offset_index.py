"""The offset index: from an offset to a position in the segment's file at or before which its batch begins.

Entries are (offset relative to the segment's base, position), eight bytes: the last offset of a batch and where that
batch begins. Not every batch has one; a reader walks on from there.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from moldau.log.errors import CorruptIndex
from moldau.log.sparse_index import SparseIndex

# A relative offset is an int32 in both indexes.
MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class OffsetIndex(SparseIndex):
    """Pairs (relative offset, position)."""

    ENTRY = Struct(">ii")
    KEY_TYPE = "i"

    __slots__ = ()

    def position_before(self, relative_offset: int) -> int:
        """Where to begin looking for an offset: the start of a batch that is not beyond it."""
        found = self.floor(relative_offset)
        return found[1] if found is not None else 0

    def boundary_before(self, position: int) -> int:
        """The start of an indexed batch at or before `position`; 0 when none is indexed."""
        found = self.floor_by_value(position)
        return found[1] if found is not None else 0

    def check(self, segment_size: int) -> None:
        """Cheap test that the file can belong to this segment; raises CorruptIndex."""
        last = self.last()
        if last is not None and (last[0] < 0 or not 0 <= last[1] < segment_size):
            raise CorruptIndex(f"{self.path} ends at {last}, the segment has {segment_size} bytes")

    def truncate_to(self, relative_offset: int) -> None:
        """Forget the batches that end at or after this offset."""
        count = len(self)
        while count and self._entry(count - 1)[0] >= relative_offset:
            count -= 1
        self.truncate(count)
