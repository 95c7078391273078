"""What compaction keeps of one batch, and what it must know to decide: the latest offset of every key, and which
transactions were aborted.

This module decides record by record as Kafka's cleaner does; it reads no segment and writes no file (`cleaner.py`
does). It must never drop the latest value of a key, a tombstone or marker before its delete horizon, nor the last
sequence number of a producer that is still remembered; and it never rewrites a batch whose checksum does not fit,
because that would turn damage into valid data.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush
from typing import NamedTuple

from moldau.log.markers import read_end_marker
from moldau.log.transaction_index import AbortedTransaction
from moldau.ports import Buffer
from moldau.records.batch import BatchHeader
from moldau.records.builder import empty_batch, filter_batch
from moldau.records.compression import CorruptRecords
from moldau.records.record import KeyedSlice, scan_keys, unpack_body

# Keys of this length or more are remembered by a digest of exactly this length, so that no short key can be mistaken
# for one. 24 bytes of BLAKE2b do not collide.
_DIGEST_SIZE = 24
# What one remembered key costs at most: the key (64 bytes as an object), the offset (32) and its share of the dict.
BYTES_PER_KEY = 192
_NO_LIMIT = 2**63
# Records between two pauses: about a millisecond of work.
RECORDS_PER_STEP = 500


class LatestOffsets:
    """The latest offset of every key in the part of a log that is being compacted, in bounded memory."""

    __slots__ = ("_capacity", "_offsets", "latest_offset")

    def __init__(self, memory_bytes: int) -> None:
        self._capacity = max(memory_bytes // BYTES_PER_KEY, 1)
        self._offsets: dict[bytes, int] = {}
        # Every record up to here is accounted for.
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        return len(self._offsets) / self._capacity

    def add(self, base_offset: int, records: Iterable[KeyedSlice], from_offset: int) -> bool:
        """Note the offsets of these records, which come in log order; False when there is no room for more keys.

        The keys of the first batch always fit, so that every compaction gets somewhere.
        """
        offsets = self._offsets
        capacity = self._capacity if self.latest_offset >= 0 else _NO_LIMIT
        for delta, key, _, _, _ in records:
            offset = base_offset + delta
            if key is None or offset < from_offset:
                continue
            if len(key) >= _DIGEST_SIZE:
                key = blake2b(key, digest_size=_DIGEST_SIZE).digest()
            if len(offsets) >= capacity and key not in offsets:
                return False
            offsets[key] = offset
        return True

    def offset_of(self, key: bytes) -> int:
        """The latest offset of this key; -1 when it is not among the remembered ones."""
        if len(key) >= _DIGEST_SIZE:
            key = blake2b(key, digest_size=_DIGEST_SIZE).digest()
        return self._offsets.get(key, -1)


class TransactionTracker:
    """Follows the transactions of a log that is read in order: which batches are aborted, which markers are spent.

    A marker is spent when no batch of its transaction is left before it.
    """

    __slots__ = ("_aborted", "_known", "_open_aborted", "_open_committed")

    def __init__(self) -> None:
        # Aborted transactions that did not begin yet, by first offset.
        self._aborted: list[tuple[int, int, AbortedTransaction]] = []
        self._known: set[AbortedTransaction] = set()
        # Producer -> its transaction and whether a batch of it was seen.
        self._open_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._open_committed: set[int] = set()

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Tell of aborted transactions that overlap what will be read next; repeating one does no harm."""
        for transaction in transactions:
            if transaction not in self._known:
                self._known.add(transaction)
                heappush(self._aborted, (transaction.first_offset, len(self._known), transaction))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of this batch belong to an aborted transaction."""
        self._begin_transactions(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._open_aborted.get(header.producer_id)
        if found is None:
            self._open_committed.add(header.producer_id)
            return False
        self._open_aborted[header.producer_id] = (found[0], True)
        return True

    def end_transaction(self, header: BatchHeader, batch: Buffer) -> tuple[bool, AbortedTransaction | None]:
        """(the marker in this control batch is spent, the aborted transaction that readers must still be told of)."""
        self._begin_transactions(header.last_offset)
        marker = read_end_marker(header, batch)
        if marker is None:
            # Emptied by an earlier compaction, or a control record that is not a transaction's.
            return header.record_count == 0, None
        if marker.committed:
            spent = header.producer_id not in self._open_committed
            self._open_committed.discard(header.producer_id)
            return spent, None
        found = self._open_aborted.pop(header.producer_id, None)
        if found is None or not found[1]:
            return True, None
        return False, found[0]

    def _begin_transactions(self, up_to: int) -> None:
        while self._aborted and self._aborted[0][0] <= up_to:
            transaction = heappop(self._aborted)[2]
            self._open_aborted.setdefault(transaction.producer_id, (transaction, False))


class LastOfProducer(NamedTuple):
    """The last batch of a producer the log remembers: its last offset, or, when only a marker is known, its epoch."""

    last_offset: int | None
    epoch: int


@dataclass(slots=True)
class CompactionStats:
    """What one compaction read and kept."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless_records: int = 0
    keys: int = 0
    map_utilization: float = 0.0


class BatchCompactor:
    """Decides what stays of each batch of a log, given in order."""

    __slots__ = (
        "_aborted_kept",
        "_delete_horizon",
        "_last_of_producers",
        "_latest",
        "_now_ms",
        "_stats",
        "_transactions",
        "_upper_bound",
    )

    def __init__(
        self,
        latest: LatestOffsets,
        transactions: TransactionTracker,
        last_of_producers: Mapping[int, LastOfProducer],
        stats: CompactionStats,
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound: int,
    ) -> None:
        """`upper_bound` is where the compacted part of the log ends: the batch before it stays, if only as a header,
        so that the log's end is not lost with it."""
        self._latest = latest
        self._transactions = transactions
        self._last_of_producers = last_of_producers
        self._stats = stats
        self._now_ms = now_ms
        self._delete_horizon = now_ms + delete_retention_ms
        self._upper_bound = upper_bound
        self._aborted_kept: list[AbortedTransaction] = []

    def take_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were kept since the last call, for the new transaction index."""
        taken, self._aborted_kept = self._aborted_kept, []
        return taken

    def compact(self, batch: memoryview) -> Generator[None, None, Buffer | None]:
        """What stays of a batch: itself, a smaller one, or None. Pauses (yields) within long batches."""
        header = BatchHeader(batch)
        stats = self._stats
        stats.records_read += header.record_count
        if header.is_control:
            return self._compact_control(header, batch)
        if self._transactions.is_aborted(header):
            return self._emptied(header)
        if header.record_count == 0:
            return batch if self._must_stay(header) else None
        if header.base_offset > self._latest.latest_offset:
            stats.records_kept += header.record_count
            return batch
        if not header.checksum_matches(batch):
            raise CorruptRecords(f"the checksum of the batch at offset {header.base_offset} does not fit")
        body = unpack_body(batch, header)
        kept: list[KeyedSlice] = []
        has_tombstone = False
        left = header.record_count
        position = 0
        while left:
            part = scan_keys(body, min(left, RECORDS_PER_STEP), position, to_end=left <= RECORDS_PER_STEP)
            has_tombstone |= self._keep(header, part, kept)
            position = part[-1][4]
            left -= len(part)
            if left:
                yield
        if not kept:
            return self._emptied(header)
        stats.records_kept += len(kept)
        horizon = self._delete_horizon if has_tombstone and not header.has_delete_horizon else None
        if horizon is None and len(kept) == header.record_count:
            return batch
        return filter_batch(header, body, kept, delete_horizon=horizon)

    def _keep(self, header: BatchHeader, records: list[KeyedSlice], kept: list[KeyedSlice]) -> bool:
        """Add those of `records` that stay to `kept`; whether a tombstone is among them."""
        base_offset = header.base_offset
        latest = self._latest
        latest_offset = latest.latest_offset
        offset_of = latest.offset_of
        tombstones_stay = not header.has_delete_horizon or self._now_ms < header.base_timestamp
        has_tombstone = False
        for record in records:
            delta, key, has_value, _, _ = record
            offset = base_offset + delta
            if offset <= latest_offset:
                if key is None:
                    self._stats.keyless_records += 1
                    continue
                if offset < offset_of(key) or not (has_value or tombstones_stay):
                    continue
            if not has_value:
                has_tombstone = True
            kept.append(record)
        return has_tombstone

    def _compact_control(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        spent, aborted = self._transactions.end_transaction(header, batch)
        if aborted is not None:
            self._aborted_kept.append(aborted)
        if header.record_count == 0:
            return batch if self._must_stay(header) else None
        if spent and header.has_delete_horizon and header.base_timestamp <= self._now_ms:
            return self._emptied(header)
        self._stats.records_kept += header.record_count
        if spent and not header.has_delete_horizon:
            if not header.checksum_matches(batch):
                raise CorruptRecords(f"the checksum of the batch at offset {header.base_offset} does not fit")
            body = unpack_body(batch, header)
            return filter_batch(header, body, scan_keys(body, header.record_count), delete_horizon=self._delete_horizon)
        return batch

    def _emptied(self, header: BatchHeader) -> bytes | None:
        return empty_batch(header) if self._must_stay(header) else None

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the batch's header must outlive its records."""
        if header.next_offset == self._upper_bound:
            return True
        if not header.has_producer_id:
            return False
        last = self._last_of_producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset is not None:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch
