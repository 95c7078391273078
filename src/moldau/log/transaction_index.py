"""The transaction index: the aborted transactions whose markers stand in this segment.

Entries of 34 bytes (version, producer id, first offset, last offset, last stable offset) in the order of their
markers. The file exists only once a transaction was aborted. Written at once and read whole: aborts are few, and a
reader asks only when it reads committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from moldau.log.errors import CorruptIndex
from moldau.ports import Disk

_ENTRY = Struct(">hqqqq")
_VERSION = 0


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment."""

    __slots__ = ("_disk", "_entries", "_exists", "path")

    def __init__(self, disk: Disk, path: str, *, exists: bool) -> None:
        self._disk = disk
        self.path = path
        self._exists = exists
        self._entries: list[AbortedTransaction] | None = None if exists else []

    def entries(self) -> list[AbortedTransaction]:
        entries = self._entries
        if entries is None:
            entries = self._entries = self._read()
        return entries

    def _read(self) -> list[AbortedTransaction]:
        try:
            data = self._disk.read_bytes(self.path)
        except FileNotFoundError:
            return []
        whole = len(data) - len(data) % _ENTRY.size
        entries: list[AbortedTransaction] = []
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data[:whole]):
            if version != _VERSION or first < 0 or last < first:
                raise CorruptIndex(f"{self.path} has an entry of version {version} from {first} to {last}")
            entries.append(AbortedTransaction(producer_id, first, last, stable))
        return entries

    def append(self, aborted: AbortedTransaction) -> None:
        entries = self.entries()
        packed = _ENTRY.pack(
            _VERSION, aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset
        )
        file = self._disk.open(self.path)
        try:
            file.write_at(len(entries) * _ENTRY.size, packed)
        finally:
            file.close()
        self._exists = True
        entries.append(aborted)

    def collect(self, start: int, upto: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that overlap [start, upto), and whether later segments cannot have any more of them."""
        found: list[AbortedTransaction] = []
        for aborted in self.entries():
            if aborted.last_offset >= start and aborted.first_offset < upto:
                found.append(aborted)
            if aborted.last_stable_offset >= upto:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose marker is at or after `offset`."""
        entries = self.entries()
        kept = [aborted for aborted in entries if aborted.last_offset < offset]
        if len(kept) < len(entries):
            self._resize(len(kept))
            self._entries = kept

    def clear(self) -> None:
        if self._exists:
            self._resize(0)
        self._entries = []

    def _resize(self, count: int) -> None:
        file = self._disk.open(self.path)
        try:
            file.truncate(count * _ENTRY.size)
        finally:
            file.close()

    @property
    def exists(self) -> bool:
        return self._exists

    def let_go(self) -> None:
        if self._exists:
            self._entries = None

    def moved(self, path: str) -> None:
        self.path = path
