"""Prints indexes and producer snapshots, and checks indexes against the segment they belong to.

Offset index: 8 bytes an entry (offset relative to the file's, position); time index: 12 (timestamp, relative offset).
"""

from __future__ import annotations

import os
import sys
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


def _entries(path: str, entry: Struct) -> list[tuple[int, int]]:
    data = map_file(path)
    whole = len(data) - len(data) % entry.size
    return list(entry.iter_unpack(data[:whole]))


def _check_size(path: str, entry: Struct) -> None:
    size = os.path.getsize(path)
    if size % entry.size:
        raise CliError(
            f"Index file {path} is corrupt, found {size} bytes which is neither positive "
            f"nor a multiple of {entry.size}."
        )


def dump_index(path: str, findings: Findings, *, sanity_only: bool, verify_only: bool, max_message_size: int) -> None:
    base = base_offset(path)
    log = map_file(_sibling(path, ".log"))
    entries = _entries(path, OFFSET_ENTRY)
    if not entries:
        print(f"{path} is empty.")
        return
    if sanity_only:
        if entries[-1][0] < 0:
            raise CliError(
                f"Corrupt index found, index file ({path}) has non-zero size but the last offset is "
                f"{base + entries[-1][0]} which is less than the base offset {base}."
            )
        _check_size(path, OFFSET_ENTRY)
        print(f"{path} passed sanity check.")
        return
    for number, (relative, position) in enumerate(entries):
        # A preallocated index is full of zeros after its last entry.
        if relative == 0 and number > 0:
            return
        end = min(len(log), position + max_message_size)
        header = next_batch(log, position, end, path) if 0 <= position < end else None
        last_offset = header.last_offset if header is not None else -1
        if last_offset != base + relative:
            findings.index_mismatches.setdefault(os.path.abspath(path), []).append((base + relative, last_offset))
        if not verify_only:
            print(f"offset: {base + relative} position: {position}")


def dump_time_index(path: str, findings: Findings, *, sanity_only: bool, verify_only: bool) -> None:
    base = base_offset(path)
    log = map_file(_sibling(path, ".log"))
    entries = _entries(path, TIME_ENTRY)
    if sanity_only:
        _check_time_index(path, base, entries)
        return
    positions = _entries(_sibling(path, ".index"), OFFSET_ENTRY)
    previous = NO_TIMESTAMP
    for number, (timestamp, relative) in enumerate(entries):
        if relative == 0 and number > 0:
            return
        _check_time_entry(path, log, positions, timestamp, base + relative, relative, previous, findings)
        if not verify_only:
            print(f"timestamp: {timestamp} offset: {base + relative}")
        previous = timestamp


def _check_time_index(path: str, base: int, entries: list[tuple[int, int]]) -> None:
    if entries and entries[-1][0] < entries[0][0]:
        raise CliError(
            f"Corrupt time index found, time index file ({path}) has non-zero size but the last timestamp is "
            f"{entries[-1][0]} which is less than the first timestamp {entries[0][0]}"
        )
    if entries and entries[-1][1] < 0:
        raise CliError(
            f"Corrupt time index found, time index file ({path}) has non-zero size but the last offset is "
            f"{base + entries[-1][1]} which is less than the first offset {base}"
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
    position = max((at for known, at in positions if known <= relative), default=0)
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
            f"currentTxnFirstOffset: {transaction} lastTimestamp: {timestamp} "
        )
        if offset >= 0:
            line += (
                f"firstSequence: {(sequence - delta) & 0x7FFFFFFF} lastSequence: {sequence} lastOffset: {offset} "
                f"offsetDelta: {delta} timestamp: {timestamp}"
            )
        print(line)
