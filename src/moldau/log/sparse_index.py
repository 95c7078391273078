"""What the offset index and the time index share: sorted pairs, the newest in memory, the others in a file.

An index file is a plain sequence of fixed-size entries. Apache's broker keeps an active segment's index
preallocated, so a file may end in zeros: those are not entries. Entries of the active segment live in two arrays
until they are written; entries already in the file are read through a mapping made at the first lookup, by
bisection, so that memory does not grow with the log.

This module never repairs an index: it raises `CorruptIndex` and the segment rebuilds it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import ClassVar, Final

from moldau.log.errors import CorruptIndex
from moldau.ports import Buffer, Disk

_NOT_LOOKED: Final = -1


class SparseIndex:
    """Pairs (key, value), both increasing, of one segment."""

    ENTRY: ClassVar[Struct]
    KEY_TYPE: ClassVar[str]

    __slots__ = ("_disk", "_file_count", "_keys", "_values", "_view", "_written", "path")

    def __init__(self, disk: Disk, path: str, *, fresh: bool) -> None:
        self._disk = disk
        self.path = path
        # Entries in the file that are not in the arrays; unknown until the file is looked at.
        self._file_count = 0 if fresh else _NOT_LOOKED
        self._view: Buffer | None = None
        self._keys: array[int] = array(self.KEY_TYPE)
        self._values: array[int] = array("i")
        # How many of the arrays' entries the file has too.
        self._written = 0

    # ---- the part in the file

    def _in_file(self) -> int:
        """How many entries come from the file; looks at it the first time."""
        count = self._file_count
        if count == _NOT_LOOKED:
            count = self._file_count = self._count_in_file()
        return count

    def _mapped(self) -> Buffer:
        view = self._view
        if view is None:
            try:
                view = self._view = self._disk.map_read_only(self.path)
            except FileNotFoundError as error:
                raise CorruptIndex(f"{self.path} is missing") from error
        return view

    def _count_in_file(self) -> int:
        view = self._mapped()
        size = self.ENTRY.size
        if len(view) % size:
            raise CorruptIndex(f"{self.path} has {len(view)} bytes, not a multiple of {size}")
        count = len(view) // size
        if count and self._is_blank(view, count - 1):
            # Blank entries come last, so bisection finds where they begin.
            count = bisect_left(range(count), True, key=lambda i: self._is_blank(view, i))
        return count

    def _is_blank(self, view: Buffer, i: int) -> bool:
        size = self.ENTRY.size
        return not any(view[i * size : i * size + size])

    def _entry(self, i: int) -> tuple[int, int]:
        in_file = self._in_file()
        if i >= in_file:
            return self._keys[i - in_file], self._values[i - in_file]
        view = self._mapped()
        if (i + 1) * self.ENTRY.size > len(view):
            raise CorruptIndex(f"{self.path} is shorter than it was")
        key, value = self.ENTRY.unpack_from(view, i * self.ENTRY.size)
        return key, value

    # ---- reading

    def __len__(self) -> int:
        return self._in_file() + len(self._keys)

    def entries(self) -> list[tuple[int, int]]:
        return [self._entry(i) for i in range(len(self))]

    def last(self) -> tuple[int, int] | None:
        if self._keys:
            return self._keys[-1], self._values[-1]
        count = self._in_file()
        return self._entry(count - 1) if count else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is at most `key`."""
        keys = self._keys
        if keys and keys[0] <= key:
            i = bisect_right(keys, key) - 1
            return keys[i], self._values[i]
        i = bisect_right(range(self._in_file()), key, key=self._key_in_file) - 1
        return self._entry(i) if i >= 0 else None

    def floor_by_value(self, value: int) -> tuple[int, int] | None:
        """The last entry whose value is at most `value`."""
        values = self._values
        if values and values[0] <= value:
            i = bisect_right(values, value) - 1
            return self._keys[i], values[i]
        i = bisect_right(range(self._in_file()), value, key=self._value_in_file) - 1
        return self._entry(i) if i >= 0 else None

    def _key_in_file(self, i: int) -> int:
        return self._entry(i)[0]

    def _value_in_file(self, i: int) -> int:
        return self._entry(i)[1]

    # ---- writing

    def append(self, key: int, value: int) -> None:
        self._keys.append(key)
        self._values.append(value)

    def write(self) -> None:
        """Bring the file up to date: exactly the entries there are, no blank tail."""
        in_file = self._in_file()
        size = self.ENTRY.size
        pack = self.ENTRY.pack
        pairs = zip(self._keys[self._written :], self._values[self._written :], strict=True)
        fresh = b"".join([pack(key, value) for key, value in pairs])
        start = (in_file + self._written) * size
        end = start + len(fresh)
        file = self._disk.open(self.path)
        try:
            if file.size() > end:
                # A mapping must never outlive the bytes it shows.
                self._view = None
                file.truncate(end)
            if fresh:
                file.write_at(start, fresh)
        finally:
            file.close()
        self._written = len(self._keys)

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries, in memory and in the file."""
        in_file = self._in_file()
        if count >= in_file + len(self._keys):
            return
        kept = max(count - in_file, 0)
        del self._keys[kept:]
        del self._values[kept:]
        self._written = min(self._written, kept)
        self._file_count = min(in_file, count)
        self._view = None
        self.write()

    def clear(self) -> None:
        """Forget everything, also what the file says: it is about to be rebuilt."""
        self._view = None
        self._file_count = 0
        self._written = 0
        del self._keys[:]
        del self._values[:]

    def let_go(self) -> None:
        """Drop the arrays (all written by now) and the mapping: the segment is no longer the active one."""
        assert self._written == len(self._keys), "entries would be lost"
        if self._file_count != _NOT_LOOKED:
            self._file_count += len(self._keys)
        self._keys = array(self.KEY_TYPE)
        self._values = array("i")
        self._written = 0
        self._view = None

    def unmap(self) -> None:
        self._view = None

    def moved(self, path: str) -> None:
        self.path = path
        self._view = None
