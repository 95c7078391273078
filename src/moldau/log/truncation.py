"""Cutting the end of a log: a follower that parted ways with its leader, or begins again somewhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.log.retention import drop_segments

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog


def truncate_to(log: PartitionLog, offset: int) -> bool:
    """Remove the batches that reach `offset` or beyond; the log then ends at `offset`."""
    assert offset >= 0, "a log cannot end before it begins"
    if offset >= log.log_end_offset:
        log.cut_epochs(log.log_end_offset)
        return False
    if log.segments[0].base_offset > offset:
        truncate_fully(log, offset, None)
        return True
    kept = log.segment_of(offset)
    index = log.segments.index(kept)
    log.ensure_indexes(kept)
    position = kept.locate(offset)
    drop_segments(log, log.segments[:index:-1])
    kept.truncate(kept.size if position is None else position, offset, log.clock.now_ms())
    # Without this a power cut could bring back what was cut off, behind what is written next.
    kept.file.sync()
    log.snapshots.remove_after(offset)
    log.truncated(offset)
    return True


def truncate_fully(log: PartitionLog, offset: int, log_start_offset: int | None) -> None:
    """Remove everything; the log is empty and begins and ends at `offset` (or begins at `log_start_offset`)."""
    drop_segments(log, log.segments[::-1])
    for snapshot in list(log.snapshots.offsets):
        log.snapshots.remove(snapshot)
    log.epochs.clear()
    log.add_active_segment(offset)
    log.log_start_offset = offset
    log.truncated(offset)
    if log_start_offset is not None:
        log.log_start_offset = log_start_offset
    log.high_watermark = max(log.high_watermark, log.log_start_offset)
