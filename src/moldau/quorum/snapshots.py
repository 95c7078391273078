"""Snapshot files: everything the log said up to an offset, so that the log before it can go.

`00000000000000000123-0000000004.checkpoint` holds all metadata up to offset 123 (exclusive), the last of it written
in epoch 4. It begins with a control batch (header, and from kraft.version 1 on the voters), goes on with metadata
records in batches and ends with a footer; a file without its footer is not a snapshot. The file appears under its
name only when it is whole and durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from moldau.metadata.records import MetadataRecord
from moldau.ports import Buffer, Disk
from moldau.protocol.codec import decode, encode
from moldau.protocol.generated.wire.kraft_version_record import KRaftVersionRecord
from moldau.protocol.generated.wire.snapshot_footer_record import SnapshotFooterRecord
from moldau.protocol.generated.wire.snapshot_header_record import SnapshotHeaderRecord
from moldau.protocol.generated.wire.voters_record import VotersRecord
from moldau.protocol.wire import ProtocolError
from moldau.quorum.encoding import build_batches, encode_records, read_batch
from moldau.quorum.voters import VoterSet, voters_from_record, voters_record
from moldau.records.batch import (
    CONTROL_KRAFT_VERSION,
    CONTROL_KRAFT_VOTERS,
    CONTROL_SNAPSHOT_FOOTER,
    CONTROL_SNAPSHOT_HEADER,
    BatchError,
    iter_batches,
)
from moldau.records.builder import build_control_batch
from moldau.records.record import read_control_records

SNAPSHOT_SUFFIX: Final = ".checkpoint"
PARTIAL_SUFFIX: Final = ".checkpoint.part"
# Records between two pauses while a snapshot is written: a few milliseconds of work.
RECORDS_PER_STEP: Final = 500


class SnapshotId(NamedTuple):
    """End offset (exclusive) and the epoch of the last record before it."""

    offset: int
    epoch: int


BOOTSTRAP_SNAPSHOT_ID: Final = SnapshotId(0, 0)
"""What formatting writes: no metadata, but the voters that a dynamic quorum begins with."""


class CorruptSnapshot(Exception):
    """A file with a snapshot's name that does not hold a whole snapshot."""


@dataclass(slots=True)
class Snapshot:
    """What a snapshot file says."""

    last_timestamp_ms: int = -1
    kraft_version: int = 0
    voters: VoterSet | None = None
    records: list[MetadataRecord] = field(default_factory=list)


def snapshot_name(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SNAPSHOT_SUFFIX}"


def snapshot_id_of(name: str) -> SnapshotId | None:
    """The id in a file's name; None for any other file."""
    stem = name.removesuffix(SNAPSHOT_SUFFIX)
    offset, dash, epoch = stem.partition("-")
    if stem == name or not dash or len(offset) != 20 or len(epoch) != 10 or not (offset + epoch).isdigit():
        return None
    return SnapshotId(int(offset), int(epoch))


def header_records(last_timestamp_ms: int, kraft_version: int, voters: VoterSet | None) -> list[tuple[int, bytes]]:
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)
    records = [(CONTROL_SNAPSHOT_HEADER, encode(header, 0))]
    if kraft_version >= 1:
        version = KRaftVersionRecord(version=0, kraft_version=kraft_version)
        records.append((CONTROL_KRAFT_VERSION, encode(version, 0)))
        if voters is not None:
            records.append((CONTROL_KRAFT_VOTERS, encode(voters_record(voters), 0)))
    return records


def snapshot_batches(
    records: Iterable[MetadataRecord],
    metadata_version: int,
    *,
    epoch: int,
    timestamp_ms: int,
    last_timestamp_ms: int,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> Iterator[bytes]:
    """The batches of a snapshot file, in order; offsets inside a snapshot count from zero."""
    header = header_records(last_timestamp_ms, kraft_version, voters)
    yield build_control_batch(header, timestamp=timestamp_ms, base_offset=0, leader_epoch=epoch)
    offset = len(header)
    for step in _in_steps(iter(records)):
        values = encode_records(step, metadata_version)
        for batch, count in build_batches(values, base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms):
            yield batch
            offset += count
    footer = [(CONTROL_SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(version=0), 0))]
    yield build_control_batch(footer, timestamp=timestamp_ms, base_offset=offset, leader_epoch=epoch)


def _in_steps(records: Iterator[MetadataRecord]) -> Iterator[list[MetadataRecord]]:
    while step := list(islice(records, RECORDS_PER_STEP)):
        yield step


def write_snapshot(disk: Disk, directory: str, snapshot_id: SnapshotId, batches: Iterator[bytes]) -> Iterator[None]:
    """Write the file step by step; it has its name once the iterator is exhausted, and never half-written."""
    path = f"{directory}/{snapshot_name(snapshot_id)}"
    partial = path.removesuffix(SNAPSHOT_SUFFIX) + PARTIAL_SUFFIX
    disk.remove(partial)
    file = disk.open(partial)
    try:
        for batch in batches:
            file.append([batch])
            yield
        file.sync()
    finally:
        file.close()
    disk.rename(partial, path)
    disk.sync_dir(directory)


def read_snapshot(data: Buffer) -> Snapshot:
    """What the bytes of a snapshot file say; CorruptSnapshot unless all of it is there and intact."""
    found = Snapshot()
    seen_header = seen_footer = False
    position = 0
    try:
        for header in iter_batches(data):
            position = header.end
            if seen_footer:
                raise CorruptSnapshot("batches follow the footer")
            if not header.checksum_matches(data):
                raise CorruptSnapshot(f"the batch at position {header.position} has a wrong checksum")
            batch = memoryview(data)[header.position : header.end]
            if not header.is_control:
                found.records += read_batch(batch)
                continue
            for record in read_control_records(batch):
                if record.type == CONTROL_SNAPSHOT_HEADER:
                    seen_header = True
                    header_record = decode(SnapshotHeaderRecord, record.value, 0)
                    found.last_timestamp_ms = header_record.last_contained_log_timestamp
                elif record.type == CONTROL_SNAPSHOT_FOOTER:
                    seen_footer = True
                elif record.type == CONTROL_KRAFT_VERSION:
                    found.kraft_version = decode(KRaftVersionRecord, record.value, 0).kraft_version
                elif record.type == CONTROL_KRAFT_VOTERS:
                    found.voters = voters_from_record(decode(VotersRecord, record.value, 0))
    except (BatchError, ProtocolError) as error:
        raise CorruptSnapshot(str(error)) from error
    if not (seen_header and seen_footer) or position != len(data):
        raise CorruptSnapshot("the file ends before its footer")
    return found


def write_whole(disk: Disk, path: str, batches: Iterable[bytes]) -> None:
    """A small snapshot in one go, as formatting writes them."""
    disk.write_atomically(path, b"".join(batches))
