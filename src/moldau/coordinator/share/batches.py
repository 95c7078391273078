"""Combining state batches: runs of offsets that have the same delivery state and count.

Decides which of two overlapping batches counts: the one that was delivered more often, or else the one in the later
state. It never looks at where batches come from; a newer batch is told from an older one by its counts alone, so that
the same update may be applied twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

NO_START_OFFSET = -1


class StateBatch(NamedTuple):
    """Offsets from first to last, both included. The order of the fields is the order of batches."""

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: int

    def outranks(self, other: StateBatch) -> bool:
        """Whether this one counts where both speak of the same offset."""
        return self[2:] >= other[2:]


def combine(before: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """What both say together about the offsets from `start_offset` on: sorted, without overlaps."""
    waiting = [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in (*before, *new)
        if batch.last_offset >= start_offset
    ]
    if len(waiting) < 2:
        return waiting
    heapify(waiting)
    combined: list[StateBatch] = []
    while len(waiting) > 1:
        earlier = heappop(waiting)
        later = waiting[0]
        same = earlier[2:] == later[2:]
        if later.first_offset <= earlier.last_offset or (same and later.first_offset == earlier.last_offset + 1):
            heappop(waiting)
            parts = (_joined(earlier, later),) if same else _split(earlier, later)
            for part in parts:
                heappush(waiting, part)
        else:
            combined.append(earlier)
    combined += waiting
    return combined


def _joined(earlier: StateBatch, later: StateBatch) -> StateBatch:
    return earlier._replace(last_offset=max(earlier.last_offset, later.last_offset))


def _split(earlier: StateBatch, later: StateBatch) -> tuple[StateBatch, ...]:
    """Two overlapping batches of different state; `later` sorts behind `earlier`."""
    if not later.outranks(earlier):
        if later.last_offset <= earlier.last_offset:
            return (earlier,)
        return earlier, later._replace(first_offset=earlier.last_offset + 1)
    if later.first_offset == earlier.first_offset:
        # It reaches at least as far, so that nothing is left of the other one.
        return (later,)
    head = earlier._replace(last_offset=later.first_offset - 1)
    if later.last_offset < earlier.last_offset:
        return head, later, earlier._replace(first_offset=later.last_offset + 1)
    return head, later
