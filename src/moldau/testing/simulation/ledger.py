"""What was committed: the first replica whose high watermark passes a batch writes it down, all others are compared.

Decides what "the same" means for copies of a partition: byte for byte, or, of a compacted topic, record for record of
what is left. It also keeps what the records say, so that the clients' history can be judged against it at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from moldau.log.partition_log import PartitionLog
from moldau.ports import Buffer
from moldau.records.batch import BatchHeader, iter_batches
from moldau.records.record import read_control_records, read_records

READ_BYTES = 1 << 20
COMMIT, ABORT = 1, 0

PartitionKey = tuple[bytes, int]


class Broken(Exception):
    """A rule was broken; the text says which, where and how."""


class CommittedRecord(NamedTuple):
    offset: int
    value: bytes | None
    producer_id: int
    transactional: bool
    # COMMIT or ABORT for a marker that ends a transaction, None for everything else.
    marker: int | None
    key: bytes | None = None


def batches_of(log: PartitionLog, start: int, end: int) -> Iterator[tuple[BatchHeader, Buffer]]:
    """The batches of a replica from `start` to `end`, each with the bytes it is in."""
    offset = start
    while offset < end:
        data = log.read(offset, READ_BYTES, max_offset=end).records
        before = offset
        for header in iter_batches(data):
            if header.base_offset >= end:
                return
            yield header, data
            offset = header.next_offset
        if offset == before:
            return


class Ledger:
    """Everything committed in one partition, also what compaction has removed since."""

    __slots__ = (
        "_batches",
        "_epochs",
        "_latest_epoch",
        "_producer_epochs",
        "compacted",
        "first_offset",
        "next_offset",
        "records",
        "where",
    )

    def __init__(self, where: str, first_offset: int, *, compacted: bool = False) -> None:
        self.where = where
        # Replicas may have less than was committed, each as much as its own compaction left.
        self.compacted = compacted
        self.first_offset = first_offset
        self.next_offset = first_offset
        # Base offset of a batch -> (offset after it, checksum of all its bytes).
        self._batches: dict[int, tuple[int, int]] = {}
        # Leader epoch -> where its first batch begins.
        self._epochs: dict[int, int] = {}
        self._latest_epoch = -1
        # Producer id -> the epoch of its latest batch.
        self._producer_epochs: dict[int, int] = {}
        self.records: list[CommittedRecord] = []

    def compare(self, host: str, log: PartitionLog, start: int, end: int) -> int:
        """Look at what a replica says is committed from `start` to `end`; how far it was looked at."""
        offset = start
        for header, data in batches_of(log, start, end):
            self.note(host, header, data)
            offset = header.next_offset
        return offset

    def note(self, host: str, header: BatchHeader, data: Buffer) -> None:
        """A replica says that this batch is committed: the first one is believed, all others must have the same."""
        base = header.base_offset
        found = (header.next_offset, crc32(memoryview(data)[header.position : header.end]))
        known = self._batches.get(base)
        if known is None:
            if base != self.next_offset:
                raise Broken(
                    f"{self.where}: {host} calls a batch at offset {base} committed, which no other replica did "
                    f"(committed so far: up to {self.next_offset})"
                )
            self._batches[base] = found
            self.next_offset = header.next_offset
            epoch = header.partition_leader_epoch
            if epoch < self._latest_epoch:
                raise Broken(
                    f"{self.where}: the batch at offset {base} is of epoch {epoch}, after {self._latest_epoch}"
                )
            self._latest_epoch = epoch
            self._epochs.setdefault(epoch, base)
            self._note_producer(header)
            self.records.extend(records_of(header, data))
        elif known != found and not (self.compacted and known[0] == found[0] and self._is_left(header, data)):
            raise Broken(f"{self.where}: the committed batch at offset {base} is another one on {host}")

    def _note_producer(self, header: BatchHeader) -> None:
        """Whoever had a producer id before its newest epoch writes nothing any more."""
        producer, epoch = header.producer_id, header.producer_epoch
        if epoch < self._producer_epochs.get(producer, epoch):
            raise Broken(
                f"{self.where}: the batch at offset {header.base_offset} is of epoch {epoch} of producer {producer}, "
                f"after {self._producer_epochs[producer]}"
            )
        self._producer_epochs[producer] = epoch

    def _is_left(self, header: BatchHeader, data: Buffer) -> bool:
        """Whether a batch has nothing that was not in it when it was committed."""
        return all(each == self.records[each.offset - self.first_offset] for each in records_of(header, data))

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of a committed record; -1 when nothing is committed there."""
        if offset >= self.next_offset:
            return -1
        return max((epoch for epoch, start in self._epochs.items() if start <= offset), default=-1)

    def stable_records(self) -> tuple[list[CommittedRecord], list[CommittedRecord]]:
        """(records that readers of committed transactions must see, those of transactions that were aborted)."""
        ends: dict[int, list[tuple[int, int]]] = {}
        for each in self.records:
            if each.marker is not None:
                ends.setdefault(each.producer_id, []).append((each.offset, each.marker))
        seen: list[CommittedRecord] = []
        aborted: list[CommittedRecord] = []
        for each in self.records:
            if each.marker is not None:
                continue
            if not each.transactional:
                seen.append(each)
                continue
            end = next((marker for offset, marker in ends.get(each.producer_id, ()) if offset > each.offset), None)
            if end == COMMIT:
                seen.append(each)
            elif end == ABORT:
                aborted.append(each)
        return seen, aborted

    def latest_values(self) -> dict[bytes, CommittedRecord]:
        """The last value of each key that no later tombstone removes: what compaction must leave."""
        latest = {each.key: each for each in self.stable_records()[0] if each.key is not None}
        return {key: each for key, each in latest.items() if each.value is not None}


def records_of(header: BatchHeader, data: Buffer) -> Iterator[CommittedRecord]:
    """What is in one batch."""
    producer_id = header.producer_id
    if header.is_control:
        for control in read_control_records(data, header):
            yield CommittedRecord(control.offset, None, producer_id, True, control.type)
        return
    transactional = header.is_transactional
    for record in read_records(data, header):
        yield CommittedRecord(record.offset, record.value, producer_id, transactional, None, record.key)
