"""Taking segments away: old ones, ones before the log start offset, ones that compaction replaced.

A segment's files are first renamed to `.deleted`, which is durable intent: whatever happens, they are gone at the next
start. The files themselves go a while later, when nobody can be reading them any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.log.names import DELETED_SUFFIX, SWAP_SUFFIX
from moldau.log.segment import Segment
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog


def delete_records(log: PartitionLog, before: int) -> int:
    if before > log.high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log start offset of {log.name} cannot be {before}, beyond the high watermark {log.high_watermark}",
        )
    if before > log.log_start_offset:
        log.log_start_offset = before
        log.epochs.truncate_from_start(before)
        log.producers.log_start_moved(before)
    return log.log_start_offset


def delete_old_segments(log: PartitionLog, now: int) -> int:
    config = log.config
    deleted = _delete_first(log, lambda segment: _before_log_start(log, segment))
    if not config.cleanup_delete:
        return deleted
    if config.retention_bytes >= 0:
        excess = log.size - config.retention_bytes

        def too_much(segment: Segment) -> bool:
            nonlocal excess
            if excess < segment.size:
                return False
            excess -= segment.size
            return True

        if excess >= 0:
            deleted += _delete_first(log, too_much)
    if config.retention_ms >= 0:
        deleted += _delete_first(log, lambda segment: now - log.largest_timestamp(segment) > config.retention_ms)
    return deleted


def _before_log_start(log: PartitionLog, segment: Segment) -> bool:
    following = log.segment_after(segment)
    return following is not None and following.base_offset <= log.log_start_offset


def _delete_first(log: PartitionLog, expendable: Callable[[Segment], bool]) -> int:
    """Delete segments from the front for as long as they are expendable and wholly committed."""
    chosen: list[Segment] = []
    for i, segment in enumerate(log.segments):
        following = log.segments[i + 1] if i + 1 < len(log.segments) else None
        end_offset = following.base_offset if following is not None else log.log_end_offset
        if following is None and segment.size == 0:
            break
        if log.high_watermark < end_offset or not expendable(segment):
            break
        chosen.append(segment)
    if not chosen:
        return 0
    if len(chosen) == len(log.segments):
        # There is always a segment to append to.
        log.roll()
    first_kept = log.segments[len(chosen)].base_offset
    # Readers are turned away before the files go.
    if first_kept > log.log_start_offset:
        delete_records(log, first_kept)
    drop_segments(log, chosen)
    log.snapshots.remove_before(first_kept)
    return len(chosen)


def drop_segments(log: PartitionLog, chosen: list[Segment]) -> None:
    """Take segments out of the log at once, and their files off the disk a while later.

    In the order given: a crash in between must not leave a hole.
    """
    for segment in chosen:
        log.segments.remove(segment)
        segment.unmap()
        segment.rename(DELETED_SUFFIX)
        log.leaving.append(segment)
    if chosen:
        log.forget_positions()
        log.clock.call_later(log.config.file_delete_delay_ms, lambda: _remove_files(log, chosen))


def _remove_files(log: PartitionLog, chosen: list[Segment]) -> None:
    for segment in chosen:
        if segment not in log.leaving:
            continue
        log.leaving.remove(segment)
        try:
            segment.remove()
        except OSError as error:
            log.disk_failed(error)
            return


def replace_segments(log: PartitionLog, new: list[Segment], old: list[Segment]) -> None:
    """Swap compacted segments in. A crash in between is finished at the next start: .swap files are complete."""
    assert log.active_segment not in old, "the active segment is never compacted"
    # From batches that are gone nobody can find out where their epoch began.
    log.epochs.write()
    for segment in reversed(new):
        # The last one first: while any .cleaned file is left, .swap files after it count as unfinished.
        segment.rename(SWAP_SUFFIX)
    log.disk.sync_dir(log.directory)
    at = log.segments.index(old[0])
    drop_segments(log, old)
    log.segments[at:at] = new
    for segment in new:
        segment.rename("")
    log.disk.sync_dir(log.directory)
    log.forget_positions()
