"""Handing over what is committed: snapshot and batches in the order of the log, each once, to every listener.

Reads them back from the log, unless this node appended them itself and still has them decoded. It must never hand
over anything at or above the high watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from moldau.metadata.image import Provenance
from moldau.metadata.publisher import CommittedBatch
from moldau.metadata.records import MetadataRecord
from moldau.quorum.encoding import read_batch
from moldau.quorum.metadata_log import MetadataLog
from moldau.quorum.snapshots import BOOTSTRAP_SNAPSHOT_ID, Snapshot, SnapshotId
from moldau.records.batch import BatchHeader

# Committed batches handed to the listeners at once while a log is read back: bounds the memory this takes.
BYTES_PER_DELIVERY: Final = 1 << 20


class QuorumListener(Protocol):
    """Someone who follows the committed log. Snapshot and batches come in the order of the log, each once."""

    def load_snapshot(self, records: Sequence[MetadataRecord], provenance: Provenance) -> None: ...

    def load_batches(self, batches: Sequence[CommittedBatch], *, more_follows: bool) -> None: ...


class Delivery:
    def __init__(self, log: MetadataLog, delivered: Callable[[int], None]) -> None:
        """`delivered` is told up to which offset everything has been handed over."""
        self.listeners: list[QuorumListener] = []
        self.next_offset = 0
        self._log = log
        self._delivered = delivered
        self._until = 0
        self._running = False
        # A reader that goes on where it stopped, for logs that are read back as a whole.
        self._reading: Iterator[tuple[BatchHeader, memoryview]] | None = None
        self._read_from = -1
        # Batches this leader appended, decoded: they need not be read back when they are committed.
        self._own: deque[CommittedBatch] = deque()

    def appended(self, batch: CommittedBatch) -> None:
        self._own.append(batch)

    def forget_own(self) -> None:
        """What this node appended as leader may not be what is committed."""
        self._own.clear()

    def deliver(self, high_watermark: int) -> None:
        """Hand over what became committed. A listener may append in turn; what that commits is delivered by the loop
        that is already running, so that nobody sees offsets out of order."""
        self._until = max(high_watermark, self._until)
        if self._running:
            return
        self._running = True
        try:
            while self.next_offset < self._until:
                until = self._until
                for chunk, more_follows in self._chunks(until):
                    for listener in self.listeners:
                        listener.load_batches(chunk, more_follows=more_follows)
                self.next_offset = max(until, self.next_offset)
                self._delivered(until)
        finally:
            self._running = False
            self._reading = None

    def snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """A snapshot replaces everything delivered so far."""
        if snapshot_id == BOOTSTRAP_SNAPSHOT_ID:
            return
        provenance = Provenance(snapshot_id.offset - 1, snapshot_id.epoch, snapshot.last_timestamp_ms)
        for listener in self.listeners:
            listener.load_snapshot(snapshot.records, provenance)
        self.next_offset = snapshot_id.offset

    def _chunks(self, until: int) -> Iterator[tuple[list[CommittedBatch], bool]]:
        """Batches from the next one to deliver on; at first a snapshot stands in for the beginning of the log."""
        if self.next_offset == 0:
            snapshot_id, snapshot = self._log.take_latest_snapshot()
            if snapshot is not None:
                self.snapshot(snapshot_id, snapshot)
        position = self.next_offset
        chunk: list[CommittedBatch] = []
        size = 0
        while position < until:
            found = self._own_batch(position)
            if found is None:
                found = self._read(position, until)
            if found is None:
                break
            chunk.append(found)
            position = found.last_offset + 1
            size += found.size_bytes
            if size >= BYTES_PER_DELIVERY and position < until:
                yield chunk, True
                chunk, size = [], 0
        assert position >= until, f"the log ends at {position}, before what is committed ({until})"
        yield chunk, False

    def _own_batch(self, position: int) -> CommittedBatch | None:
        own = self._own
        while own and own[0].base_offset < position:
            own.popleft()
        return own.popleft() if own and own[0].base_offset == position else None

    def _read(self, position: int, until: int) -> CommittedBatch | None:
        if self._reading is None or self._read_from != position:
            self._reading = self._log.batches(position, until)
        header, batch = next(self._reading, (None, None))
        if header is None or batch is None:
            self._reading = None
            return None
        self._read_from = header.next_offset
        return CommittedBatch(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.max_timestamp,
            header.size,
            () if header.is_control else read_batch(batch),
        )
