"""Walks a segment or snapshot and prints its batches and records, line for line as Kafka's tool does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from typing import NamedTuple

from moldau.cli.errors import CliError
from moldau.ports import Buffer
from moldau.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, add_sequence
from moldau.records.compression import CorruptRecords
from moldau.records.record import Record, read_records

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
# The least an old-format record takes after its length; Kafka calls anything shorter corrupt.
MIN_RECORD_LENGTH = 14
UP_TO_MAGIC = 17
UNLIMITED = 2**31 - 1

# Turns a record into the texts for its key and its value; None leaves the part out.
Decoder = Callable[[Record], tuple[str | None, str | None]]


class Gap(NamedTuple):
    offset: int
    followed_by: int


@dataclass(slots=True)
class DumpSettings:
    deep: bool
    print_data: bool
    skip_metadata: bool
    max_bytes: int
    decoder: Decoder


@dataclass(slots=True)
class Findings:
    """Inconsistencies by absolute file name, printed at the end."""

    gaps: dict[str, list[Gap]] = field(default_factory=dict)
    index_mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    time_mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    time_disorder: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    time_not_found: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def map_file(path: str) -> Buffer:
    """The file's bytes without loading them."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return b""
            return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}") from None


def next_batch(data: Buffer, position: int, end: int, path: str) -> BatchHeader | None:
    """The batch at the position; None at the end or where the last one is cut off."""
    if position + UP_TO_MAGIC > end:
        return None
    length = int.from_bytes(data[position + 8 : position + LENGTH_OVERHEAD], "big", signed=True)
    if length < MIN_RECORD_LENGTH:
        raise CliError(
            f"Found record size {length} smaller than minimum record overhead ({MIN_RECORD_LENGTH}) in file {path}."
        )
    if position + LENGTH_OVERHEAD + length > end:
        return None
    magic = data[position + UP_TO_MAGIC - 1]
    if magic != MAGIC:
        raise CliError(f"Found message format {magic} at position {position} in file {path}; only {MAGIC} can be read.")
    if length + LENGTH_OVERHEAD < HEADER_SIZE:
        raise CliError(f"Found a batch of {length + LENGTH_OVERHEAD} bytes at position {position} in file {path}.")
    return BatchHeader(data, position)


def dump_log(path: str, settings: DumpSettings, findings: Findings) -> None:
    print(_title(os.path.basename(path)))
    data = map_file(path)
    size = min(len(data), settings.max_bytes)
    position = 0
    last_offset = -1
    while (header := next_batch(data, position, size, path)) is not None:
        print(format_batch(data, header))
        if settings.deep:
            batch = data[position : header.end]
            last_offset = _dump_records(path, batch, settings, findings, last_offset)
        position = header.end
    if size > position and settings.max_bytes == UNLIMITED:
        print(f"Found {size - position} invalid bytes at the end of {os.path.basename(path)}")


def _title(name: str) -> str:
    stem = name.partition(".")[0]
    if name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    try:
        if name.endswith(".checkpoint"):
            end, epoch = stem.split("-")[:2]
            return f"Snapshot end offset: {int(end)}, epoch: {int(epoch)}"
        return f"Log starting offset: {int(stem)}"
    except ValueError:
        raise CliError(f"{name} is not named like a segment: its name must begin with its first offset") from None


def _dump_records(path: str, batch: Buffer, settings: DumpSettings, findings: Findings, last_offset: int) -> int:
    """Print the records of one batch; the offset of the last one."""
    header = BatchHeader(batch)
    lines: list[str] = []
    try:
        for record in read_records(batch, header):
            if last_offset >= 0 and record.offset != last_offset + 1:
                findings.gaps.setdefault(os.path.abspath(path), []).append(Gap(last_offset, record.offset))
            last_offset = record.offset
            lines.append(_format_record(header, record, settings))
    except CorruptRecords as error:
        print("\n".join(lines), flush=True)
        raise CliError(f"The batch at offset {header.base_offset} in {path} cannot be read: {error}") from None
    if lines:
        print("\n".join(lines))
    return last_offset


def format_batch(data: Buffer, header: BatchHeader) -> str:
    horizon = f"OptionalLong[{header.base_timestamp}]" if header.has_delete_horizon else "OptionalLong.empty"
    codec = CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else f"unknown({header.codec})"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_java_bool(header.is_transactional)} isControl: {_java_bool(header.is_control)} "
        f"deleteHorizonMs: {horizon} position: {header.position} {_time_type(header)}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} compresscodec: {codec} crc: {header.crc} "
        f"isvalid: {_java_bool(header.checksum_matches(data))}"
    )


def _format_record(header: BatchHeader, record: Record, settings: DumpSettings) -> str:
    line = ""
    prefix = "| "
    if not settings.skip_metadata:
        sequence = -1
        if header.base_sequence >= 0:
            sequence = add_sequence(header.base_sequence, record.offset - header.base_offset)
        names = ",".join(name for name, _ in record.headers)
        line = (
            f"| offset: {record.offset} {_time_type(header)}: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{names}]"
        )
        prefix = " "
        if header.is_control:
            from moldau.cli.kafka._record_json import control_record

            line += f" {control_record(record.key or b'', record.value or b'')}"
    if settings.print_data and not header.is_control:
        key, value = settings.decoder(record)
        if key is not None:
            line += f"{prefix}key: {key}"
            prefix = " "
        if value is not None:
            line += f"{prefix}payload: {value}"
    return line


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _java_bool(value: bool) -> str:
    return "true" if value else "false"


def print_findings(findings: Findings) -> None:
    def show(title: str, found: dict[str, list[tuple[int, int]]], line: str) -> None:
        for name, pairs in found.items():
            print(f"{title}{name}", file=sys.stderr)
            for first, second in pairs:
                print(line.format(first, second), file=sys.stderr)

    show("Mismatches in :", findings.index_mismatches, "  Index offset: {}, log offset: {}")
    show("Found timestamp mismatch in :", findings.time_mismatches, "  Index timestamp: {}, log timestamp: {}")
    show(
        "Found out of order timestamp in :",
        findings.time_disorder,
        "  Index timestamp: {}, Previously indexed timestamp: {}",
    )
    show(
        "The following indexed offsets are not found in :",
        findings.time_not_found,
        "Indexed offset: {}, found log offset: {}",
    )
    gaps = {name: [(gap.offset, gap.followed_by) for gap in found] for name, found in findings.gaps.items()}
    show("Non-consecutive offsets in ", gaps, "  {} is followed by {}")
