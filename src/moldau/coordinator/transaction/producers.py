"""Who is the producer of a transactional id: the first one, a successor that fences it, or the same one going on.

Decides ids and epochs for InitProducerId. It never ends a transaction itself: an open one is first aborted
(`ending.fenced`), and the producer asks again.
"""

from __future__ import annotations

from moldau.coordinator.transaction.metadata import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from moldau.coordinator.transaction.states import IDLE, PREPARED, TransactionState
from moldau.protocol.errors import ApiError, ErrorCode


def needs_producer_id(current: TransactionMetadata | None, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether `initialize` will need a producer id that nobody had before."""
    if current is None:
        return True
    return (
        current.state in IDLE and current.is_epoch_exhausted and (expected is None or expected.epoch == current.epoch)
    )


def check_expected(current: TransactionMetadata | None, expected: ProducerIdAndEpoch | None) -> None:
    """Raise unless the producer may ask at all, and may ask now."""
    if current is None:
        return
    if expected is not None and not _is_known(current, expected):
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if current.state in PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING and expected is not None and expected.epoch != current.epoch:
        # Only the producer that owns the open transaction may give it up; a zombie must not abort its successor's.
        raise ApiError(ErrorCode.PRODUCER_FENCED)


def _is_known(current: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    return (
        current.epoch == NO_EPOCH
        or expected.producer_id == current.producer_id
        # Its epochs were used up and it has not heard of its new id yet.
        or (expected.producer_id == current.previous_producer_id and _exhausted(expected.epoch))
    )


def _exhausted(epoch: int) -> bool:
    return TransactionMetadata(0, epoch, 0).is_epoch_exhausted


def initialize(
    current: TransactionMetadata | None,
    expected: ProducerIdAndEpoch | None,
    *,
    new_producer_id: int,
    timeout_ms: int,
    now_ms: int,
) -> TransactionMetadata:
    """The id with its producer for the time to come. No transaction is open, and `check_expected` said yes."""
    if current is None:
        begun = TransactionMetadata(new_producer_id, 0, timeout_ms, updated_ms=now_ms)
        return begun._replace(previous_producer_id=new_producer_id)
    assert current.state in IDLE, "an open transaction is aborted first"
    if needs_producer_id(current, expected):
        assert new_producer_id != NO_PRODUCER_ID, "a new producer id is needed"
        last_epoch = NO_EPOCH if expected is None else current.epoch
        return current.initialized(ProducerIdAndEpoch(new_producer_id, 0), last_epoch, timeout_ms, now_ms)
    epoch, last_epoch = _next_epoch(current, expected)
    return current.initialized(ProducerIdAndEpoch(current.producer_id, epoch), last_epoch, timeout_ms, now_ms)


def _next_epoch(current: TransactionMetadata, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
    """(epoch, the one before it that may still ask again)."""
    if expected is None:
        return current.epoch + 1, NO_EPOCH
    if current.epoch in (NO_EPOCH, expected.epoch):
        return current.epoch + 1, current.epoch
    if expected.epoch == current.last_epoch:
        # The same request once more: its first answer was lost, and nobody else has come since.
        return current.epoch, current.last_epoch
    raise ApiError(ErrorCode.PRODUCER_FENCED)
