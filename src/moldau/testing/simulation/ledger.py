"""What was committed: the first replica whose high watermark passes a batch writes it down, all others are compared.

Decides what "the same" means for copies of a partition: byte for byte. It also keeps what the records say, so that
the history of the clients can be judged against it at the end.
"""

from __future__ import annotations

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


class Ledger:
    """Everything committed in one partition."""

    __slots__ = ("_batches", "_epochs", "_latest_epoch", "first_offset", "next_offset", "records", "where")

    def __init__(self, where: str, first_offset: int) -> None:
        self.where = where
        self.first_offset = first_offset
        self.next_offset = first_offset
        # Base offset of a batch -> (offset after it, checksum of all its bytes).
        self._batches: dict[int, tuple[int, int]] = {}
        # Leader epoch -> where its first batch begins.
        self._epochs: dict[int, int] = {}
        self._latest_epoch = -1
        self.records: list[CommittedRecord] = []

    def compare(self, host: str, log: PartitionLog, start: int, end: int) -> int:
        """Look at what a replica says is committed from `start` to `end`; how far it was looked at."""
        offset = start
        while offset < end:
            data = log.read(offset, READ_BYTES, max_offset=end).records
            before = offset
            for header in iter_batches(data):
                if header.base_offset >= end:
                    return offset
                self.note(host, header, data)
                offset = header.next_offset
            if offset == before:
                return offset
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
            self._keep(header, data)
        elif known != found:
            raise Broken(f"{self.where}: the committed batch at offset {base} is another one on {host}")

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of a committed record; -1 when nothing is committed there."""
        if offset >= self.next_offset:
            return -1
        return max((epoch for epoch, start in self._epochs.items() if start <= offset), default=-1)

    def _keep(self, header: BatchHeader, data: Buffer) -> None:
        if header.is_control:
            for control in read_control_records(data, header):
                self.records.append(CommittedRecord(control.offset, None, header.producer_id, True, control.type))
            return
        transactional = header.is_transactional
        for record in read_records(data, header):
            self.records.append(CommittedRecord(record.offset, record.value, header.producer_id, transactional, None))

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
