"""Prints indexes and producer snapshots, and checks indexes against the segment they belong to.

Offset index: 8 bytes an entry (offset relative to the file's, position); time index: 12 (timestamp, relative offset).
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from struct import Struct

from moldau.cli.errors import CliError
from moldau.cli.kafka._dump_log import Findings, map_file, next_batch
from moldau.ports import Buffer
from moldau.records.batch import BatchHeader
from moldau.records.record import read_records

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
ABORTED_ENTRY = Struct(">hqqqq")
SNAPSHOT_HEAD = Struct(">hIi")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction's first offset
SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
SNAPSHOT_VERSION = 1
CRC_COVERS_FROM = 6
NO_TIMESTAMP = -1


def base_offset(path: str) -> int:
    name = os.path.basename(path)
    try:
        return int(name.partition(".")[0])
    except ValueError:
        raise CliError(f"{name} is not named like an index: its name must begin with its first offset") from None


def _sibling(path: str, suffix: str) -> str:
    directory, name = os.path.split(os.path.abspath(path))
    return os.path.join(directory, name.partition(".")[0] + suffix)


def _entry(data: Buffer, entry: Struct, number: int) -> tuple[int, int]:
    """One entry by number; a negative one counts from the end."""
    count = len(data) // entry.size
    first, second = entry.unpack_from(data, (number % count) * entry.size)
    return first, second


def _used_entries(path: str, entry: Struct, relative_at: int) -> list[tuple[int, int]]:
    """The entries up to where a preallocated index has only zeros: after the first, no entry is for the base offset."""
    data = map_file(path)
    used: list[tuple[int, int]] = []
    for pair in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
        if used and pair[relative_at] == 0:
            break
        used.append(pair)
    return used


def _check_size(path: str, entry: Struct) -> None:
    size = os.path.getsize(path)
    if size % entry.size:
        raise CliError(
            f"Index file {path} is corrupt, found {size} bytes which is neither positive "
            f"nor a multiple of {entry.size}."
        )


def dump_index(path: str, findings: Findings, *, sanity_only: bool, verify_only: bool, max_message_size: int) -> None:
    base = base_offset(path)
    data = map_file(path)
    if len(data) < OFFSET_ENTRY.size:
        print(f"{path} is empty.")
        return
    if sanity_only:
        last, _ = _entry(data, OFFSET_ENTRY, -1)
        if last < 0:
            raise CliError(
                f"Corrupt index found, index file ({path}) has non-zero size but the last offset is "
                f"{base + last} which is less than the base offset {base}."
            )
        _check_size(path, OFFSET_ENTRY)
        print(f"{path} passed sanity check.")
        return
    used, mismatches = check_offset_index(path, max_message_size)
    if mismatches:
        findings.index_mismatches[os.path.abspath(path)] = mismatches
    if not verify_only:
        for offset, position in used:
            print(f"offset: {offset} position: {position}")


def check_offset_index(path: str, max_message_size: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The entries in use as (offset, position), and those that do not fit as (offset, the batch's last offset)."""
    base = base_offset(path)
    log = map_file(_sibling(path, ".log"))
    used = []
    mismatches = []
    for relative, position in _used_entries(path, OFFSET_ENTRY, 0):
        end = min(len(log), position + max_message_size)
        header = next_batch(log, position, end, path) if 0 <= position < end else None
        last_offset = header.last_offset if header is not None else -1
        if last_offset != base + relative:
            mismatches.append((base + relative, last_offset))
        used.append((base + relative, position))
    return used, mismatches


def dump_time_index(path: str, findings: Findings, *, sanity_only: bool, verify_only: bool) -> None:
    if sanity_only:
        _check_time_index(path, base_offset(path))
        return
    for timestamp, offset in check_time_index(path, findings):
        if not verify_only:
            print(f"timestamp: {timestamp} offset: {offset}")


def check_time_index(path: str, findings: Findings) -> list[tuple[int, int]]:
    """The entries in use as (timestamp, offset); what does not fit the segment goes to `findings`."""
    base = base_offset(path)
    log = map_file(_sibling(path, ".log"))
    positions = _used_entries(_sibling(path, ".index"), OFFSET_ENTRY, 0)
    previous = NO_TIMESTAMP
    used = []
    for timestamp, relative in _used_entries(path, TIME_ENTRY, 1):
        _check_time_entry(path, log, positions, timestamp, base + relative, relative, previous, findings)
        used.append((timestamp, base + relative))
        previous = timestamp
    return used


def _check_time_index(path: str, base: int) -> None:
    data = map_file(path)
    if len(data) >= TIME_ENTRY.size:
        first_time, _ = _entry(data, TIME_ENTRY, 0)
        last_time, last_relative = _entry(data, TIME_ENTRY, -1)
        if last_time < first_time:
            raise CliError(
                f"Corrupt time index found, time index file ({path}) has non-zero size but the last timestamp is "
                f"{last_time} which is less than the first timestamp {first_time}"
            )
        if last_relative < 0:
            raise CliError(
                f"Corrupt time index found, time index file ({path}) has non-zero size but the last offset is "
                f"{base + last_relative} which is less than the first offset {base}"
            )
    _check_size(path, TIME_ENTRY)
    print(f"{path} passed sanity check.")


def _check_time_entry(
    path: str,
    log: Buffer,
    positions: list[tuple[int, int]],
    timestamp: int,
    offset: int,
    relative: int,
    previous: int,
    findings: Findings,
) -> None:
    name = os.path.abspath(path)
    below = bisect_right(positions, relative, key=lambda pair: pair[0])
    position = positions[below - 1][1] if below else 0
    found: BatchHeader | None = None
    while (header := next_batch(log, position, len(log), path)) is not None:
        if header.last_offset >= offset:
            found = header
            break
        position = header.end
    if found is None or found.last_offset != offset:
        actual = -1 if found is None else found.last_offset
        findings.time_not_found.setdefault(name, []).append((offset, actual))
        return
    records = read_records(log[found.position : found.end])
    latest = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    if latest != timestamp:
        findings.time_mismatches.setdefault(name, []).append((timestamp, latest))
    if previous >= timestamp:
        findings.time_disorder.setdefault(name, []).append((timestamp, previous))


def dump_transaction_index(path: str) -> None:
    data = map_file(path)
    whole = len(data) - len(data) % ABORTED_ENTRY.size
    for version, producer_id, first, last, stable in ABORTED_ENTRY.iter_unpack(data[:whole]):
        print(
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}"
        )


def dump_producer_snapshot(path: str) -> None:
    import crc32c

    data = bytes(map_file(path))
    problem = None
    count = 0
    if len(data) < SNAPSHOT_HEAD.size:
        problem = "it is too short"
    else:
        version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION:
            problem = f"it has version {version}"
        elif crc32c.crc32c(data[CRC_COVERS_FROM:]) != crc:
            problem = "its checksum does not fit"
        elif count * SNAPSHOT_ENTRY.size != len(data) - SNAPSHOT_HEAD.size:
            problem = f"{count} producers do not fit its size"
    if problem:
        print(f"Snapshot {path} is corrupt: {problem}", file=sys.stderr)
        return
    for entry in SNAPSHOT_ENTRY.iter_unpack(data[SNAPSHOT_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset = entry
        transaction = f"OptionalLong[{first_offset}]" if first_offset >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
            f"currentTxnFirstOffset: {transaction} lastTimestamp: {timestamp}"
        )
        if offset >= 0:
            line += (
                f" firstSequence: {(sequence - delta) & 0x7FFFFFFF} lastSequence: {sequence} lastOffset: {offset} "
                f"offsetDelta: {delta} timestamp: {timestamp}"
            )
        print(line)
