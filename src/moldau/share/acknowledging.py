"""Taking a member's word for records it holds, or taking the records themselves when the member is gone.

Decides whether an acknowledgement fits what the member holds; one that does not changes nothing at all. The answer is
promised for when the change is stored. A whole batch is acknowledged in one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.share.in_flight import InFlightBatch, Run, Transition
from moldau.share.partition import SharePartition
from moldau.share.states import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    NOBODY,
    RENEW,
    STATE_AFTER,
    TERMINAL,
    AcknowledgeType,
    RecordState,
)


class Acknowledgement(NamedTuple):
    """What a member says of [first, last]: one kind for all, or one for each record."""

    first: int
    last: int
    kinds: Sequence[int]


def acknowledge(
    partition: SharePartition, member: str, acknowledgements: Sequence[Acknowledgement]
) -> Pending[ApiError | None]:
    """All of it or nothing. What lies before the window is past caring and is accepted."""
    begun: list[Transition] = []
    error: ApiError | None = None
    try:
        for each in acknowledgements:
            _acknowledge(partition, member, each, begun)
    except ApiError as refused:
        error = refused
    return partition.settle(begun, error)


def release(partition: SharePartition, member: str) -> Pending[ApiError | None]:
    """The member is gone: offer again what it holds."""
    begun: list[Transition] = []
    max_deliveries = partition.config().share_delivery_count_limit
    for batch in partition.window:
        for run in [run for run in batch.runs if run.state is ACQUIRED and run.member in (member, NOBODY)]:
            for part in partition.around_start(batch, run):
                state = ARCHIVED if part.last < partition.start_offset else AVAILABLE
                _begin(partition, part, state, max_deliveries, begun)
    return partition.settle(begun, None)


def _acknowledge(partition: SharePartition, member: str, said: Acknowledgement, begun: list[Transition]) -> None:
    for kind in said.kinds:
        if not 0 <= kind <= RENEW:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"There is no acknowledge type {kind}.")
    if said.last < partition.start_offset:
        return
    for batch in _batches_of(partition, said):
        if batch.last < partition.start_offset:
            continue
        if not batch.by_offset:
            _check_holder(batch.run, member)
        whole = batch.is_within(said.first, said.last) and not batch.first < partition.start_offset <= batch.last
        if whole and not batch.by_offset and len(said.kinds) == 1:
            _change(partition, batch, batch.run, said.kinds[0], begun)
        else:
            _acknowledge_part(partition, batch, member, said, begun)


def _batches_of(partition: SharePartition, said: Acknowledgement) -> list[InFlightBatch]:
    window = partition.window
    floor = window.floor(said.first)
    if floor is None and said.first < partition.start_offset <= said.last:
        floor = window.floor(partition.start_offset)
    if floor is None:
        raise _not_held("The acknowledged records are not in flight.")
    found = window.between(floor.first, said.last)
    if found[-1].last < said.first or said.last > found[-1].last:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The acknowledged records reach beyond those in flight.")
    return found


def _check_holder(run: Run, member: str) -> None:
    if run.state is not ACQUIRED or run.transition is not None:
        raise _not_held("The acknowledged records are not acquired.")
    if run.member != member:
        raise _not_held("The acknowledged records are acquired by another member.")


def _acknowledge_part(
    partition: SharePartition, batch: InFlightBatch, member: str, said: Acknowledgement, begun: list[Transition]
) -> None:
    first = max(said.first, partition.start_offset)
    for run in list(batch.overlapping(first, said.last)):
        _check_holder(run, member)
        for part_first, part_last, kind in _alike(said, max(run.first, first), min(run.last, said.last)):
            # Earlier parts were cut off the run's beginning: what is left of it is where this part begins.
            _change(partition, batch, batch.cut(batch.run_at(part_first), part_first, part_last), kind, begun)


def _alike(said: Acknowledgement, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """[first, last] in pieces of which the member says the same."""
    kinds = said.kinds
    if len(kinds) == 1:
        yield first, last, kinds[0]
        return
    begin = first
    for offset in range(first + 1, last + 1):
        if kinds[offset - said.first] != kinds[begin - said.first]:
            yield begin, offset - 1, kinds[begin - said.first]
            begin = offset
    yield begin, last, kinds[begin - said.first]


def _change(partition: SharePartition, batch: InFlightBatch, run: Run, kind: int, begun: list[Transition]) -> None:
    config = partition.config()
    if kind == RENEW:
        if not config.share_renew_acknowledge_enable:
            raise _not_held("Acquisition locks of this group cannot be renewed.")
        run.deadline_ms = partition.lock(batch)
        return
    _begin(partition, run, STATE_AFTER[AcknowledgeType(kind)], config.share_delivery_count_limit, begun)


def _begin(
    partition: SharePartition, run: Run, state: RecordState, max_deliveries: int, begun: list[Transition]
) -> None:
    change = run.begin(state, max_deliveries)
    assert change is not None, "an acquired run can be given up"
    begun.append(change)
    if run.state in TERMINAL:
        partition.delivery_complete += partition.counted(run.first, run.last)


def _not_held(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD_STATE, why)
