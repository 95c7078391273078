"""Batches that came before a restart: found again in the log when a producer repeats one of them.

A producer's latest batches are remembered so that a repeated one is recognised. Kafka's snapshots keep only the very
last one, so after a clean restart a producer with several batches under way would be told that the first of them is
out of order, and modern clients write it again under a new epoch: a duplicate. What the snapshot left out is looked up
in the log instead, once for each producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.log.producer_state import BATCHES_REMEMBERED, AppendedBatch, ProducerEntry
from moldau.records.batch import iter_batches

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog

# As far back as is looked; batches that are under way at the same time are close together.
LOOK_BACK_OFFSETS: Final = 10_000
LOOK_BACK_BYTES: Final = 4 << 20


def remember_more(log: PartitionLog, entry: ProducerEntry) -> None:
    """Complete what is known of a producer's latest batches with what the log says."""
    entry.from_snapshot = False
    known = entry.batches
    if not known:
        return
    first = known[0].first_offset
    offset = max(log.log_start_offset, first - LOOK_BACK_OFFSETS)
    found: list[AppendedBatch] = []
    while offset < first:
        data = log.read(offset, LOOK_BACK_BYTES, max_offset=first).records
        before = offset
        for header in iter_batches(data):
            offset = header.next_offset
            if header.base_offset >= first or header.producer_id != entry.producer_id or header.is_control:
                continue
            if header.producer_epoch == entry.epoch:
                found.append(
                    AppendedBatch(
                        header.base_sequence,
                        header.last_sequence,
                        header.base_offset,
                        header.last_offset,
                        header.max_timestamp,
                    )
                )
        if offset == before:
            break
    entry.batches = [*found[len(known) - BATCHES_REMEMBERED :], *known] if found else known
