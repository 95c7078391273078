"""Checks the files of a partition without a broker: checksums, offsets, record counts, and that indexes fit.

It only reads. A torn last batch in the newest segment is no fault: a broker that was killed leaves one and cuts it off
when it starts, so it is reported as such.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from moldau.cli.errors import CliError
from moldau.cli.kafka._dump_indexes import check_offset_index, check_time_index
from moldau.cli.kafka._dump_log import Findings, map_file, next_batch
from moldau.records.compression import CorruptRecords
from moldau.records.record import read_records

MAX_BATCH_BYTES = 2**31 - 1


@dataclass(slots=True)
class LogReport:
    """What was found in one partition directory (or in one file)."""

    path: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    torn_bytes: int = 0
    problems: list[str] = field(default_factory=list)


def partition_directories(path: str) -> Iterator[str]:
    """The directory itself when it holds segments, else those of its children that do."""
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}") from None
    if any(name.endswith(".log") for name in names):
        yield path
        return
    for name in names:
        child = os.path.join(path, name)
        if os.path.isdir(child) and any(each.endswith(".log") for each in os.listdir(child)):
            yield child


def check_directory(path: str, *, deep: bool) -> LogReport:
    report = LogReport(path)
    segments = sorted(name for name in os.listdir(path) if name.endswith(".log"))
    for number, name in enumerate(segments):
        check_segment(os.path.join(path, name), report, deep=deep, is_last=number == len(segments) - 1)
    return report


def check_file(path: str, *, deep: bool) -> LogReport:
    report = LogReport(path)
    check_segment(path, report, deep=deep, is_last=True)
    return report


def check_segment(path: str, report: LogReport, *, deep: bool, is_last: bool) -> None:
    name = os.path.basename(path)
    data = map_file(path)
    report.segments += 1
    report.size += len(data)
    base = int(name.partition(".")[0]) if name.partition(".")[0].isdigit() else 0
    position = 0
    previous = base - 1
    try:
        while (header := next_batch(data, position, len(data), path)) is not None:
            where = f"{name}: batch at position {position}"
            if not header.checksum_matches(data):
                report.problems.append(f"{where} has a wrong checksum")
            if header.base_offset <= previous:
                report.problems.append(f"{where} begins at offset {header.base_offset}, after offset {previous}")
            if report.first_offset is None:
                report.first_offset = header.base_offset
            previous = report.last_offset = header.last_offset
            report.batches += 1
            report.records += header.record_count
            if deep:
                # Reading to the end checks lengths, counts and compression.
                for _ in read_records(data[position : header.end]):
                    pass
            position = header.end
    except (CliError, CorruptRecords) as error:
        report.problems.append(f"{name}: at position {position}: {error}")
        return
    if position < len(data):
        if is_last:
            report.torn_bytes = len(data) - position
        else:
            report.problems.append(f"{name}: {len(data) - position} bytes after the last whole batch")
    _check_indexes(path, report)


def _check_indexes(path: str, report: LogReport) -> None:
    stem = path.removesuffix(".log").removesuffix(".checkpoint")
    name = os.path.basename(stem)
    findings = Findings()
    if os.path.exists(f"{stem}.index"):
        _, mismatches = check_offset_index(f"{stem}.index", MAX_BATCH_BYTES)
        # A preallocated index that has no entry yet begins with zeros.
        real = [pair for pair in mismatches if pair[0] != int(name) or pair[1] < 0]
        if real and report.batches:
            report.problems.append(f"{name}.index: {len(real)} entries do not fit the segment")
    if os.path.exists(f"{stem}.timeindex") and os.path.exists(f"{stem}.index"):
        check_time_index(f"{stem}.timeindex", findings)
        for found, text in (
            (findings.time_not_found, "entries point to no batch"),
            (findings.time_mismatches, "timestamps are not the batch's"),
            (findings.time_disorder, "timestamps are out of order"),
        ):
            pairs = [pair for pairs in found.values() for pair in pairs if pair[0] not in (0, int(name))]
            if pairs:
                report.problems.append(f"{name}.timeindex: {len(pairs)} {text}")
