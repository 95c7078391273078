"""Appending batches that did not come from a client: what a leader sends its replica, what this broker writes itself.

The batches of one call that go to the same segment are written together. Checks come first and are complete before
the first byte is written, so that a refused call changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.log.append_checks import check_replicated, refuse_size
from moldau.log.markers import EndMarker, read_end_marker
from moldau.log.producer_state import Origin, VerificationGuard
from moldau.log.segment import Segment
from moldau.ports import Buffer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import (
    LEADER_FIELDS,
    LEADER_FIELDS_SIZE,
    BatchError,
    BatchHeader,
    add_sequence,
    iter_batches,
)

if TYPE_CHECKING:
    from moldau.log.partition_log import AppendInfo, PartitionLog


def append_replicated(log: PartitionLog, records: memoryview, leader_epoch: int) -> AppendInfo | None:
    """Offsets and epochs stay as they are; None when no whole batch of a known epoch came."""
    batches = _check_replicated(log, records, _batches(log, records), leader_epoch)
    if not batches:
        return None
    if any(header.has_producer_id for header in batches):
        # Found out before the batches are in the log: read back with it, an abort among them would count as known.
        _ = log.producers
    return _Writer(log, records, assign=False).write(batches)


def append_own(
    log: PartitionLog,
    records: memoryview,
    leader_epoch: int,
    guard: VerificationGuard | None,
    transaction_version: int,
) -> AppendInfo:
    """Offsets and epoch are assigned here."""
    batches = _batches(log, records)
    _check_own(log, records, batches, leader_epoch, guard, transaction_version)
    return _Writer(log, records, assign=True).write(batches)


def _batches(log: PartitionLog, records: memoryview) -> list[BatchHeader]:
    try:
        return list(iter_batches(records))
    except BatchError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{error} ({log.name})") from error


def _check_replicated(
    log: PartitionLog, records: memoryview, batches: list[BatchHeader], leader_epoch: int
) -> list[BatchHeader]:
    expected = log.log_end_offset
    for i, header in enumerate(batches):
        if header.partition_leader_epoch > leader_epoch:
            return batches[:i]
        check_replicated(header, records, log.name)
        if header.base_offset < expected:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"a replicated batch begins at {header.base_offset}; {log.name} expects {expected} or later",
            )
        expected = header.next_offset
    return batches


def _check_own(
    log: PartitionLog,
    records: memoryview,
    batches: list[BatchHeader],
    leader_epoch: int,
    guard: VerificationGuard | None,
    transaction_version: int,
) -> None:
    """Assign offsets and epoch, and ask whether the producers may write."""
    offset = log.log_end_offset
    assert batches, "nothing to append"
    assert batches[-1].end == len(records), "this broker wrote a batch that is not one"
    for header in batches:
        if header.size > log.config.max_message_bytes:
            refuse_size(header.size, log.config.max_message_bytes, log.name)
        header.base_offset = offset
        header.partition_leader_epoch = leader_epoch
        offset = header.next_offset
        if not header.has_producer_id:
            continue
        marker = read_end_marker(header, records) if header.is_control else None
        if marker is not None:
            log.producers.check_marker(
                header.producer_id, header.producer_epoch, marker, transaction_version=transaction_version
            )
        else:
            log.producers.check_data(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                add_sequence(header.base_sequence, header.last_offset_delta),
                origin=Origin.COORDINATOR,
                transactional=header.is_transactional,
                guard=guard,
                verify=log.config.transaction_verification,
            )


class _Writer:
    """Writes checked batches, as many as go to the same segment at a time."""

    __slots__ = ("_assign", "_log", "_now", "_records")

    def __init__(self, log: PartitionLog, records: memoryview, *, assign: bool) -> None:
        self._log = log
        self._records = records
        self._assign = assign
        self._now = log.clock.now_ms()

    def write(self, batches: list[BatchHeader]) -> AppendInfo:
        from moldau.log.partition_log import AppendInfo

        log = self._log
        group: list[BatchHeader] = []
        size = 0
        segment: Segment | None = None
        if self._fits(log.active_segment, 0, batches[0]):
            segment = log.active_segment
        for header in batches:
            if segment is None or not self._fits(segment, size, header):
                self._write_group(segment, group)
                group, size = [], 0
                segment = log.segment_for(header.size, header.max_timestamp, header.last_offset, self._now)
            group.append(header)
            size += header.size
        self._write_group(segment, group)
        return AppendInfo(
            batches[0].base_offset,
            batches[-1].last_offset,
            sum(header.record_count for header in batches),
            -1,
            log.log_start_offset,
            False,
        )

    def _fits(self, segment: Segment, size: int, header: BatchHeader) -> bool:
        return self._log.still_fits(segment.size + size + header.size, header.max_timestamp, header.last_offset)

    def _write_group(self, segment: Segment | None, group: list[BatchHeader]) -> None:
        if segment is None:
            return
        position = segment.file.append(self._buffers(group))
        assert position == segment.size, "the file is not where the log thinks it ends"
        log = self._log
        for header in group:
            log.epochs.assign(header.partition_leader_epoch, header.base_offset)
            size = header.size
            log.written(segment, position, size, header)
            position += size
            if header.has_producer_id:
                self._account(header)

    def _buffers(self, group: list[BatchHeader]) -> list[Buffer]:
        if not self._assign:
            return [self._records[group[0].position : group[-1].end]]
        buffers: list[Buffer] = []
        for header in group:
            buffers.append(LEADER_FIELDS.pack(header.base_offset, header.batch_length, header.partition_leader_epoch))
            buffers.append(self._records[header.position + LEADER_FIELDS_SIZE : header.end])
        return buffers

    def _account(self, header: BatchHeader) -> None:
        log = self._log
        producers = log.producers
        if not header.is_control:
            producers.replay(header, self._records)
            return
        marker: EndMarker | None = read_end_marker(header, self._records)
        if marker is not None:
            completed = producers.append_marker(header.producer_id, header.producer_epoch, marker, header.base_offset)
            if completed is not None:
                log.end_transaction(completed)
