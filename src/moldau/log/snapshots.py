"""The producer snapshots of one partition: when one is written, which one is read back, which ones are removed.

A snapshot at offset N holds the producers as of N. One is taken whenever a segment is rolled (N is the new segment's
base offset) and at a clean close (N is the end of the log), so that opening the log replays at most one segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moldau.log.config import LogConfig
from moldau.log.errors import CorruptSnapshot
from moldau.log.names import SNAPSHOT_SUFFIX, file_name
from moldau.log.producer_snapshot import decode_snapshot, encode_snapshot
from moldau.log.producer_state import NO_OFFSET, ProducerState
from moldau.log.segment import Segment
from moldau.log.transaction_index import AbortedTransaction
from moldau.ports import Buffer, Disk
from moldau.records.batch import BatchHeader


class ProducerSnapshots:
    """The snapshot files in one directory, by offset."""

    __slots__ = ("_disk", "directory", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int]) -> None:
        self._disk = disk
        self.directory = directory
        self.offsets = sorted(offsets)

    def _path(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def take(self, offset: int, producers: ProducerState, *, sync: bool = False) -> None:
        """Write the producers down as of `offset`, unless that was done already."""
        if offset in self.offsets:
            return
        self._disk.write_atomically(self._path(offset), encode_snapshot(producers.producers.values()), sync=sync)
        self.offsets.append(offset)
        self.offsets.sort()

    def load(self, name: str, upto: int, now_ms: int, config: LogConfig) -> tuple[ProducerState, int | None]:
        """The producers of the latest readable snapshot not beyond `upto`, and its offset; damaged ones are removed."""
        producers = ProducerState(name)
        for offset in reversed([offset for offset in self.offsets if offset <= upto]):
            try:
                entries = decode_snapshot(self._disk.read_bytes(self._path(offset)))
            except (CorruptSnapshot, FileNotFoundError):
                self.remove(offset)
                continue
            oldest = now_ms - config.producer_id_expiration_ms
            producers.load([e for e in entries if e.transaction_start != NO_OFFSET or e.last_timestamp > oldest])
            return producers, offset
        return producers, None

    def restore(
        self, name: str, segments: Sequence[Segment], end_offset: int, now_ms: int, config: LogConfig
    ) -> ProducerState:
        """The producers as of the end of the log: from the latest snapshot and the batches after it."""
        producers, offset = self.load(name, end_offset, now_ms, config)
        for segment in segments:
            replay_segment(producers, segment, offset or 0, config)
        return producers

    def rebuild_transactions(
        self, name: str, segments: Sequence[Segment], damaged: Segment, now_ms: int, config: LogConfig
    ) -> None:
        """Make a segment's index of aborted transactions again, from the batches and the snapshot before them."""
        producers, offset = self.load(name, damaged.base_offset, now_ms, config)
        for segment in segments:
            if segment.base_offset < damaged.base_offset:
                replay_segment(producers, segment, offset or 0, config)
        damaged.transactions.clear()
        for _, batch in damaged.scan():
            replay_and_index(producers, damaged, BatchHeader(batch), batch)

    def remove(self, offset: int) -> None:
        self._disk.remove(self._path(offset))
        self.offsets.remove(offset)

    def remove_before(self, offset: int) -> None:
        for old in [known for known in self.offsets if known < offset]:
            self.remove(old)

    def remove_after(self, offset: int) -> None:
        for young in [known for known in self.offsets if known > offset]:
            self.remove(young)


def replay_segment(producers: ProducerState, segment: Segment, from_offset: int, config: LogConfig) -> None:
    """Account for the batches of a segment from `from_offset` on; their aborts are in the index already."""
    segment.ensure_indexes(config.index_interval_bytes)
    start = segment.locate(from_offset)
    if start is None:
        return
    for _, batch in segment.scan(start):
        header = BatchHeader(batch)
        if header.has_producer_id and header.base_offset >= from_offset:
            completed = producers.replay(header, batch)
            if completed is not None:
                producers.complete(completed)


def replay_and_index(producers: ProducerState, segment: Segment, header: BatchHeader, batch: Buffer) -> None:
    """Account for one batch of a segment whose index of aborted transactions is made again."""
    completed = producers.replay(header, batch)
    if completed is None:
        return
    if completed.aborted:
        stable = producers.last_stable_offset(completed)
        segment.transactions.append(
            AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
        )
    producers.complete(completed)
