"""Ending a transaction: at its producer's request, because a successor came, or because its time is up.

Decides whether a request is about the open transaction, a repetition, or about one that is long over. The epoch of
transactions v2 makes that decision safe: a delayed request can only be a repetition. Without it, only the state tells.
"""

from __future__ import annotations

from moldau.coordinator.transaction.metadata import (
    EPOCH_BUMP_VERSION,
    LAST_EPOCH_OF_CLIENTS,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from moldau.coordinator.transaction.states import (
    ENDINGS_OF_CURRENT_EPOCH,
    ENDINGS_OF_PREVIOUS_EPOCH,
    ENDINGS_WITHOUT_BUMP,
    IDLE,
    PREPARED,
    Ending,
    TransactionState,
)
from moldau.protocol.errors import ApiError, ErrorCode


def needs_producer_id(current: TransactionMetadata | None, transaction_version: int) -> bool:
    """Whether ending the transaction will need a producer id that nobody had before."""
    return (
        current is not None
        and transaction_version >= EPOCH_BUMP_VERSION
        and current.state not in PREPARED
        and current.is_epoch_exhausted
    )


def end(
    current: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    *,
    commit: bool,
    client_version: int,
    new_producer_id: int,
    now_ms: int,
) -> TransactionMetadata:
    """The transaction after a producer's request to end it; the very same value for a repetition that succeeded."""
    if current is None:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    bumps = client_version >= EPOCH_BUMP_VERSION
    ending = _with_bump(current, producer, commit) if bumps else _without_bump(current, producer, commit)
    if ending is Ending.DONE:
        return current
    if ending is Ending.UNDER_WAY:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if ending is Ending.REFUSED:
        raise ApiError(ErrorCode.INVALID_TXN_STATE)
    if not bumps:
        return current.prepared(
            commit=commit,
            epoch=current.epoch,
            last_epoch=current.last_epoch,
            client_version=0,
            next_producer_id=NO_PRODUCER_ID,
            now_ms=now_ms,
        )
    return _bumped(current, commit, client_version, new_producer_id, now_ms)


def _without_bump(current: TransactionMetadata, producer: ProducerIdAndEpoch, commit: bool) -> Ending:
    if current.producer_id != producer.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.epoch != producer.epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    return ENDINGS_WITHOUT_BUMP.get((current.state, commit), Ending.REFUSED)


def _with_bump(current: TransactionMetadata, producer: ProducerIdAndEpoch, commit: bool) -> Ending:
    over = current.state in IDLE and current.state is not TransactionState.EMPTY
    # The last epoch of an id was followed by epoch 0 of the next.
    rotated = (
        current.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_EPOCH_OF_CLIENTS
        and current.epoch == 0
    )
    if current.producer_id != producer.producer_id and not rotated:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    bumped = current.epoch == producer.epoch + 1
    repeated = (over and (rotated or bumped)) or (bumped and current.state in PREPARED)
    if repeated:
        return ENDINGS_OF_PREVIOUS_EPOCH.get((current.state, commit), Ending.REFUSED)
    if current.epoch != producer.epoch or current.state in PREPARED:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    return ENDINGS_OF_CURRENT_EPOCH.get((current.state, commit), Ending.REFUSED)


def fenced(
    current: TransactionMetadata, *, transaction_version: int, new_producer_id: int, now_ms: int
) -> TransactionMetadata:
    """The open transaction about to be aborted over its producer's head; the producer's epoch is void from here on."""
    assert current.state is TransactionState.ONGOING, "only an open transaction is aborted"
    if transaction_version >= EPOCH_BUMP_VERSION:
        return _bumped(current, False, transaction_version, new_producer_id, now_ms)
    return current.prepared(
        commit=False,
        epoch=min(current.epoch + 1, MAX_EPOCH),
        last_epoch=NO_EPOCH,
        client_version=0,
        next_producer_id=NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def _bumped(
    current: TransactionMetadata, commit: bool, client_version: int, new_producer_id: int, now_ms: int
) -> TransactionMetadata:
    rotates = current.is_epoch_exhausted
    assert not rotates or new_producer_id != NO_PRODUCER_ID, "a new producer id is needed"
    return current.prepared(
        commit=commit,
        epoch=min(current.epoch + 1, MAX_EPOCH),
        last_epoch=current.epoch,
        client_version=client_version,
        next_producer_id=new_producer_id if rotates else NO_PRODUCER_ID,
        now_ms=now_ms,
    )
