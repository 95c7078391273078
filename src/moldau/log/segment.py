"""One segment: a file of batches, its indexes, and how to find a batch in it.

A segment knows positions, sizes and timestamps. It never assigns an offset, never decides when to roll or what to
delete, and never keeps records in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from moldau.log.errors import CorruptIndex
from moldau.log.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from moldau.log.offset_index import OffsetIndex
from moldau.log.time_index import TimeIndex
from moldau.log.transaction_index import TransactionIndex
from moldau.ports import Buffer, Disk, File
from moldau.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
)

# Base offset, length, then (after epoch, magic, checksum and attributes) the last offset delta and the timestamps.
_PLACE: Final = Struct(">qi11xiqq")
_unpack_place: Final = _PLACE.unpack_from
SCAN_CHUNK: Final = 1 << 20
# Read this much more than the index interval when looking for a batch, so that one read usually finds it.
_LOOK_BEYOND: Final = 8192


class Segment:
    """The batches from `base_offset` on, up to where the next segment begins."""

    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_indexes_checked",
        "_suffix",
        "_timestamps_known",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "roll_jitter_ms",
        "size",
        "time_index",
        "transactions",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        size: int,
        *,
        fresh: bool,
        has_transactions: bool = False,
        suffix: str = "",
        created_ms: int = 0,
        roll_jitter_ms: int = 0,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._suffix = suffix
        self._file: File | None = None
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.offset_index = OffsetIndex(disk, self.path(OFFSET_INDEX_SUFFIX), fresh=fresh)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX_SUFFIX), fresh=fresh)
        self.transactions = TransactionIndex(disk, self.path(TRANSACTION_INDEX_SUFFIX), exists=has_transactions)
        self.bytes_since_index = 0
        # The largest timestamp and the last offset of the batch that has it. Of a segment found on disk they are
        # known for the part scanned at opening; the rest is looked up in the time index when first asked for.
        self._timestamps_known = fresh
        # Whether the index files were found to fit; from then on only reading them can show that they do not.
        self._indexes_checked = fresh
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        # Timestamp of the first batch, from which time-based rolling counts; None while it was not looked at.
        self.first_timestamp: int | None = None

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        preallocate: int = 0,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> Segment:
        """A new, empty segment; files of that name are overwritten."""
        segment = cls(
            disk, directory, base_offset, 0, fresh=True, suffix=suffix, created_ms=now_ms, roll_jitter_ms=jitter_ms
        )
        segment._file = disk.open(segment.path(LOG_SUFFIX), preallocate=preallocate)
        if segment._file.size():
            segment._file.truncate(0)
        # Empty indexes say that there is nothing to index yet; Apache's broker takes missing ones for damage.
        for index in (segment.offset_index, segment.time_index):
            disk.open(index.path).close()
        return segment

    def path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path(LOG_SUFFIX), create=False)
        return file

    # ---- appending

    def add_index_entries(self, last_offset: int, position: int) -> None:
        """Note where a batch begins, and the largest timestamp so far."""
        self.offset_index.append(last_offset - self.base_offset, position)
        if self.max_timestamp >= 0:
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.bytes_since_index = 0

    def indexes_full(self, index_bytes: int) -> bool:
        return (
            len(self.offset_index) >= index_bytes // OffsetIndex.ENTRY.size
            # The last entry of a time index is kept for the segment's largest timestamp.
            or len(self.time_index) >= index_bytes // TimeIndex.ENTRY.size - 1
        )

    # ---- timestamps

    def note_timestamp(self, timestamp: int, last_offset: int) -> None:
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset

    def resolve_timestamps(self) -> None:
        """Make `max_timestamp` the whole segment's; raises CorruptIndex when the time index is not to be believed."""
        if not self._timestamps_known:
            last = self.time_index.last()
            # One look is enough; thousands of mappings would not be.
            self.time_index.unmap()
            if last is not None:
                if last[0] >= self.max_timestamp:
                    self.max_timestamp, self.max_timestamp_offset = last[0], last[1] + self.base_offset
            elif self.max_timestamp < 0 and (self.resolve_first_timestamp() or -1) >= 0:
                raise CorruptIndex(f"{self.time_index.path} is empty, but the batches have timestamps")
            self._timestamps_known = True

    def largest_timestamp(self) -> int:
        """What retention by time looks at: the youngest record, or the file's age when no record has a timestamp."""
        self.resolve_timestamps()
        return self.max_timestamp if self.max_timestamp >= 0 else self._disk.modified_ms(self.path(LOG_SUFFIX))

    def resolve_first_timestamp(self) -> int | None:
        """Timestamp of the first batch; None when the segment is empty."""
        if self.first_timestamp is None and self.size:
            head = self.file.read(0, HEADER_SIZE)
            if len(head) == HEADER_SIZE:
                self.first_timestamp = _unpack_place(head)[4]
        return self.first_timestamp

    # ---- finding

    def locate(self, offset: int, end: int | None = None) -> int | None:
        """Position of the first batch whose last offset is at least `offset`; None when there is none before `end`."""
        end = self.size if end is None else end
        position = self.offset_index.position_before(offset - self.base_offset)
        while position < end:
            data = self.file.read(position, min(_LOOK_BEYOND, end - position))
            at, found = walk_to(data, 0, offset)
            if found:
                return position + at
            if at == 0:
                # Not even one header: the file ends here or a batch is larger than what was read.
                return None
            position += at
        return None

    def end_of_whole_batches(self, first: int, limit: int, data: Buffer = b"", data_at: int = 0) -> tuple[int, int]:
        """Where the last whole batch ends that begins at `first` or later and ends by `limit`, and the offset that
        comes next: -1 when no batch fits.

        Jumps with the index, so at most one index interval is walked. Headers that are not in `data`, which was read
        at position `data_at`, are read.
        """
        # Begin where a header can still be read, so that the offset there is known.
        at = max(first, self.offset_index.boundary_before(limit - HEADER_SIZE))
        next_offset = -1
        while at + HEADER_SIZE <= limit:
            if not 0 <= at - data_at <= len(data) - HEADER_SIZE:
                data_at, data = at, self.file.read(at, min(_LOOK_BEYOND, limit - at))
                if len(data) < HEADER_SIZE:
                    break
            base, length, delta, _, _ = _unpack_place(data, at - data_at)
            if next_offset < 0:
                next_offset = base
            if at + length + LENGTH_OVERHEAD > limit:
                break
            next_offset = base + delta + 1
            at += length + LENGTH_OVERHEAD
        return at, next_offset if at > first else -1

    def scan(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, memoryview]]:
        """Whole batches from `position` on, as (position, bytes). Stops before what does not look like a batch."""
        end = self.size if end is None else end
        want = SCAN_CHUNK
        while end - position >= HEADER_SIZE:
            data = memoryview(self.file.read(position, min(want, end - position)))
            at = 0
            want = SCAN_CHUNK
            while len(data) - at >= HEADER_SIZE:
                length = _unpack_place(data, at)[1]
                size = length + LENGTH_OVERHEAD
                if length < MIN_BATCH_LENGTH or data[at + 16] != MAGIC or position + at + size > end:
                    return
                if at + size > len(data):
                    want = max(size, SCAN_CHUNK)
                    break
                yield position + at, data[at : at + size]
                at += size
            if at == 0 and want == SCAN_CHUNK:
                return
            position += at

    # ---- indexes on disk

    def write_indexes(self) -> None:
        """Bring the index files up to date, with the largest timestamp as the time index's last entry."""
        self.resolve_timestamps()
        if self.max_timestamp >= 0:
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.offset_index.write()
        self.time_index.write()

    def index_paths(self) -> list[str]:
        """The index files there are once the segment is complete."""
        paths = [self.offset_index.path, self.time_index.path]
        return [*paths, self.transactions.path] if self.transactions.exists else paths

    def retire(self) -> None:
        """The segment is no longer appended to: free what only the active segment needs."""
        self.offset_index.let_go()
        self.time_index.let_go()
        self.transactions.let_go()

    def unmap(self) -> None:
        self.offset_index.unmap()
        self.time_index.unmap()

    def check_indexes(self) -> None:
        """Raises CorruptIndex when an index file is missing or cannot belong to this segment."""
        self.offset_index.check(self.size)
        self.time_index.check()
        self.resolve_timestamps()

    def ensure_indexes(self, interval: int, *, again: bool = False) -> bool:
        """Make sure the index files can be used, making them again when they cannot; whether that was needed. Once is
        enough, unless reading them showed that something is wrong: then `again`."""
        if self._indexes_checked and not again:
            return False
        try:
            self.check_indexes()
        except CorruptIndex:
            self.rebuild_indexes(interval)
            return True
        self._indexes_checked = True
        return False

    def rebuild_indexes(self, interval: int) -> None:
        """Make the offset and time index again from the batches (which are trusted here)."""
        self._forget_indexes()
        for position, batch in self.scan():
            self.index_batch(batch, position, interval)
        self.write_indexes()
        self._indexes_checked = True

    def _forget_indexes(self) -> None:
        self.offset_index.clear()
        self.time_index.clear()
        self._timestamps_known = True
        self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self.bytes_since_index = 0

    def begin_rebuild(self) -> None:
        """Forget every index, the transactions' too: recovery goes through all batches again."""
        self._forget_indexes()
        self.transactions.clear()

    def index_batch(self, batch: Buffer, position: int, interval: int) -> None:
        """Account for one batch that stands in the file: timestamps, and an index entry when one is due."""
        base, length, delta, _, max_timestamp = _unpack_place(batch)
        last_offset = base + delta
        self.note_timestamp(max_timestamp, last_offset)
        if self.bytes_since_index > interval:
            self.add_index_entries(last_offset, position)
        self.bytes_since_index += length + LENGTH_OVERHEAD

    # ---- shortening, moving, closing

    def truncate(self, position: int, offset: int, now_ms: int) -> None:
        """Cut the file at `position`, before the batch that has `offset`, and the indexes with it."""
        self.offset_index.truncate_to(offset - self.base_offset)
        self.time_index.truncate_to(offset - self.base_offset)
        self.transactions.truncate_to(offset)
        self.file.truncate(position)
        self.size = position
        if position == 0:
            self.created_ms = now_ms
            self.first_timestamp = None
        self.bytes_since_index = 0
        last = self.time_index.last()
        self._timestamps_known = True
        self.max_timestamp = last[0] if last is not None else -1
        self.max_timestamp_offset = last[1] + self.base_offset if last is not None else self.base_offset
        indexed = self.offset_index.last()
        for at, batch in self.scan(indexed[1] if indexed is not None else 0):
            base, length, delta, _, max_timestamp = _unpack_place(batch)
            self.note_timestamp(max_timestamp, base + delta)
            if indexed is None or at > indexed[1]:
                self.bytes_since_index += length + LENGTH_OVERHEAD

    def rename(self, suffix: str) -> None:
        """Give every file of the segment another suffix ('' is a segment in use)."""
        old = [self.path(kind) for kind in SEGMENT_SUFFIXES]
        self.close_file()
        self._suffix = suffix
        for source, kind in zip(old, SEGMENT_SUFFIXES, strict=True):
            if self._disk.exists(source):
                self._disk.rename(source, self.path(kind))
        self._paths_changed()

    def moved(self, directory: str) -> None:
        """The partition's directory has another name now."""
        self.close_file()
        self._directory = directory
        self._paths_changed()

    def _paths_changed(self) -> None:
        self.offset_index.moved(self.path(OFFSET_INDEX_SUFFIX))
        self.time_index.moved(self.path(TIME_INDEX_SUFFIX))
        self.transactions.moved(self.path(TRANSACTION_INDEX_SUFFIX))

    def remove(self) -> None:
        """Delete every file of the segment."""
        self.close_file()
        self.unmap()
        for kind in SEGMENT_SUFFIXES:
            self._disk.remove(self.path(kind))

    def close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)}, {self.size} bytes)"


def walk_to(data: Buffer, at: int, offset: int) -> tuple[int, bool]:
    """Walk headers from `at` to the batch that reaches `offset`: its place and True, or where the walk ended."""
    end = len(data) - HEADER_SIZE
    while at <= end:
        base, length, delta, _, _ = _unpack_place(data, at)
        if base + delta >= offset:
            return at, True
        if length < MIN_BATCH_LENGTH:
            raise CorruptIndex("an index points into the middle of a batch, or the segment is damaged")
        at += length + LENGTH_OVERHEAD
    return at, False
