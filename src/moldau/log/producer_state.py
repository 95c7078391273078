"""What one partition remembers of its producers: to answer a repeated batch with its old offset, to refuse a gap, to
fence a zombie, and to know which transactions are open.

Decides whether a producer's batch may be appended. It never touches the log or the disk: the log calls `check_*`
before it writes and `append_*` after, and stores snapshots of this state (`producer_snapshot.py`).

The rules are Kafka 4.3's: a producer nobody remembers may begin with any sequence number (its state may have expired
or its records may be deleted); a known one must go on where it stopped; a new epoch begins at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from moldau.log.markers import EndMarker, read_end_marker
from moldau.ports import Buffer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader, add_sequence

# The client may have this many requests under way, each of which it may repeat.
BATCHES_REMEMBERED: Final = 5
NO_OFFSET: Final = -1
_MAX_PRODUCER_EPOCH: Final = 32767
# From this transaction version on (KIP-890) the epoch is bumped with every transaction.
_EPOCH_BUMP_VERSION: Final = 2
# How long after the transaction timeout an open transaction counts as left hanging.
LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000


class Origin(Enum):
    """Who wrote the records, which decides how much is checked."""

    CLIENT = 0
    COORDINATOR = 1
    REPLICATION = 2


class AppendedBatch(NamedTuple):
    """One batch a producer wrote lately."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer's latest batches, epoch and open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "from_snapshot",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        # First offset of the open transaction.
        self.transaction_start = NO_OFFSET
        self.batches: list[AppendedBatch] = []
        # Where the next batch of this epoch must begin.
        self.next_sequence = 0
        # A snapshot has only the last batch; the log may have more of those that should be remembered.
        self.from_snapshot = False

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def begin_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0

    def find(self, epoch: int, first_sequence: int, last_sequence: int) -> AppendedBatch | None:
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None


class VerificationGuard:
    """Proof that the coordinator was asked about a transaction before its first batch here; equal only to itself."""

    __slots__ = ()


@dataclass(slots=True)
class _Verification:
    since_ms: int
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool
    guard: VerificationGuard


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerState:
    """Every producer of one partition, and its open transactions."""

    __slots__ = ("_ongoing", "_unreplicated", "_verifications", "name", "producers")

    def __init__(self, name: str) -> None:
        # The partition's name, for messages.
        self.name = name
        self.producers: dict[int, ProducerEntry] = {}
        # First offset -> producer, in the order of offsets: transactions begin in log order.
        self._ongoing: dict[int, int] = {}
        # First offset -> marker's offset of transactions whose marker may not be committed yet.
        self._unreplicated: dict[int, int] = {}
        self._verifications: dict[int, _Verification] = {}

    # ---- checking before the append

    def check_data(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        *,
        origin: Origin,
        transactional: bool,
        guard: VerificationGuard | None,
        verify: bool,
    ) -> AppendedBatch | None:
        """Raise when the batch may not be appended; give the old batch when it is a repetition."""
        entry = self.producers.get(producer_id)
        if entry is not None and origin is Origin.CLIENT:
            repeated = entry.find(epoch, first_sequence, last_sequence)
            if repeated is not None:
                return repeated
        if transactional:
            self._check_verified(entry, producer_id, epoch, guard, verify)
        if entry is not None:
            self._check_epoch(entry, epoch)
        if origin is Origin.CLIENT:
            self._check_sequence(entry, producer_id, epoch, first_sequence)
        if entry is not None and entry.transaction_start != NO_OFFSET and not transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} wrote outside of its open transaction in {self.name}",
            )
        return None

    def _check_verified(
        self, entry: ProducerEntry | None, producer_id: int, epoch: int, guard: VerificationGuard | None, verify: bool
    ) -> None:
        """A transaction's first batch is taken only if the coordinator knows of the transaction."""
        if entry is not None:
            if entry.transaction_start != NO_OFFSET and entry.epoch == epoch:
                return
            self._check_epoch(entry, epoch)
        if verify:
            known = self._verifications.get(producer_id)
            if known is None or guard is None or known.guard is not guard:
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"the transaction of producer {producer_id} in {self.name} is not known to be open",
                )

    def _check_epoch(self, entry: ProducerEntry, epoch: int) -> None:
        if epoch < entry.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {entry.producer_id} of {self.name} came with epoch {epoch}; {entry.epoch} was seen already",
            )

    def _check_sequence(self, entry: ProducerEntry | None, producer_id: int, epoch: int, first_sequence: int) -> None:
        verification = self._verifications.get(producer_id)
        if verification is not None:
            empty = entry is None or not entry.batches
            if verification.supports_epoch_bump and first_sequence != 0 and empty:
                raise self._out_of_order(producer_id, first_sequence, 0)
            if first_sequence > verification.lowest_sequence:
                raise self._out_of_order(producer_id, first_sequence, verification.lowest_sequence)
        if entry is None or entry.epoch == NO_PRODUCER_EPOCH:
            return
        expected = entry.next_sequence if epoch == entry.epoch else 0
        if first_sequence != expected:
            raise self._out_of_order(producer_id, first_sequence, expected)

    def _out_of_order(self, producer_id: int, sequence: int, expected: int) -> ApiError:
        return ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} of {self.name} sent sequence {sequence}, expected {expected}",
        )

    def check_marker(self, producer_id: int, epoch: int, marker: EndMarker, *, transaction_version: int = -1) -> None:
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        if transaction_version >= _EPOCH_BUMP_VERSION:
            if epoch <= entry.epoch:
                # The same epoch is a marker written again after its transaction ended, or an exhausted epoch.
                repeated = entry.transaction_start == NO_OFFSET or epoch == _MAX_PRODUCER_EPOCH
                if epoch < entry.epoch or not repeated:
                    raise ApiError(
                        ErrorCode.INVALID_PRODUCER_EPOCH,
                        f"the marker for producer {producer_id} of {self.name} has epoch {epoch}, "
                        f"which does not follow {entry.epoch}",
                    )
        else:
            self._check_epoch(entry, epoch)
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator with epoch {marker.coordinator_epoch} ended a transaction of producer {producer_id} "
                f"in {self.name}; {entry.coordinator_epoch} was seen already",
            )

    # ---- accounting after the append

    def append_data(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, epoch)
        elif epoch != entry.epoch:
            entry.begin_epoch(epoch)
        if first_sequence == NO_SEQUENCE:
            last_sequence = NO_SEQUENCE
        else:
            last_sequence = (first_sequence + last_offset - first_offset) & 0x7FFFFFFF
        batches = entry.batches
        if len(batches) >= BATCHES_REMEMBERED:
            del batches[0]
        batches.append(
            # Once per idempotent batch: a named tuple's own constructor takes twice as long.
            tuple.__new__(AppendedBatch, (first_sequence, last_sequence, first_offset, last_offset, timestamp))
        )
        entry.next_sequence = (last_sequence + 1) & 0x7FFFFFFF
        entry.last_timestamp = timestamp
        if transactional:
            if entry.transaction_start == NO_OFFSET:
                entry.transaction_start = first_offset
                self._ongoing[first_offset] = producer_id
            self._verifications.pop(producer_id, None)

    def append_marker(
        self, producer_id: int, epoch: int, marker: EndMarker, offset: int
    ) -> CompletedTransaction | None:
        """Account for a marker; gives the transaction it ended. `complete` must follow once the index has it."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, epoch)
        started = entry.transaction_start
        entry.begin_epoch(epoch)
        entry.transaction_start = NO_OFFSET
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        self._verifications.pop(producer_id, None)
        if started == NO_OFFSET:
            return None
        return CompletedTransaction(producer_id, started, offset, not marker.committed)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """How far readers of committed records could go once this transaction counts as ended."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        del self._ongoing[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset

    def replay(self, header: BatchHeader, batch: Buffer) -> CompletedTransaction | None:
        """Account for a batch that is in the log already, without checks."""
        if not header.has_producer_id:
            return None
        if header.is_control:
            marker = read_end_marker(header, batch)
            if marker is None:
                return None
            return self.append_marker(header.producer_id, header.producer_epoch, marker, header.base_offset)
        self.append_data(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.is_transactional,
        )
        return None

    # ---- transactions

    @property
    def has_unstable(self) -> bool:
        return bool(self._ongoing) or bool(self._unreplicated)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of a transaction that is open, or whose end is not committed yet."""
        if self._unreplicated:
            for first_offset, last_offset in list(self._unreplicated.items()):
                if last_offset < high_watermark:
                    del self._unreplicated[first_offset]
        undecided = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return undecided
        unreplicated = min(self._unreplicated)
        return unreplicated if undecided is None else min(undecided, unreplicated)

    def first_undecided_offset(self) -> int | None:
        return next(iter(self._ongoing), None)

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.transaction_start != NO_OFFSET and entry.epoch == epoch

    def has_late_transaction(self, now_ms: int, max_timeout_ms: int) -> bool:
        """Whether the oldest open transaction has been silent for longer than any timeout allows."""
        for producer_id in self._ongoing.values():
            last = self.producers[producer_id].last_timestamp
            return last > 0 and now_ms - last > max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        return False

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Note that the coordinator is being asked about a transaction; None when one is open here already."""
        entry = self.producers.get(producer_id)
        if entry is not None:
            if entry.transaction_start != NO_OFFSET and entry.epoch == epoch:
                return None
            self._check_epoch(entry, epoch)
        known = self._verifications.get(producer_id)
        if known is None:
            known = _Verification(now_ms, sequence, epoch, supports_epoch_bump, VerificationGuard())
            self._verifications[producer_id] = known
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known.guard

    # ---- keeping house

    def load(self, entries: list[ProducerEntry]) -> None:
        """Take over the entries of a snapshot."""
        for entry in entries:
            self.producers[entry.producer_id] = entry
        started = sorted((e.transaction_start, e.producer_id) for e in entries if e.transaction_start != NO_OFFSET)
        self._ongoing = dict(started)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        gone = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.transaction_start == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self.producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.since_ms >= expiration_ms:
                del self._verifications[producer_id]

    def log_start_moved(self, log_start_offset: int) -> None:
        for first_offset, last_offset in list(self._unreplicated.items()):
            if last_offset < log_start_offset:
                del self._unreplicated[first_offset]


def restored_entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> ProducerEntry:
    """A producer as a snapshot tells it: only its last batch is known."""
    entry = ProducerEntry(producer_id, epoch)
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    entry.transaction_start = transaction_start if transaction_start >= 0 else NO_OFFSET
    if last_offset >= 0:
        if last_sequence == NO_SEQUENCE:
            first_sequence = NO_SEQUENCE
        else:
            first_sequence = (last_sequence - offset_delta) & 0x7FFFFFFF
        first_offset = last_offset - offset_delta
        entry.batches.append(AppendedBatch(first_sequence, last_sequence, first_offset, last_offset, timestamp))
        entry.next_sequence = add_sequence(last_sequence, 1)
        entry.from_snapshot = True
    return entry
