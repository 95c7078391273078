"""The 50 GB topic is made of valid batches: Moldau's own log opens it and reads what was meant to be there."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.sparse_log import BATCH_BYTES, SECOND_MS, SEGMENT_BATCHES, write_sparse_log

from moldau.records.batch import iter_batches
from moldau.records.record import read_records


def test_every_batch_is_whole_and_holds_one_record(tmp_path: Path) -> None:
    log = write_sparse_log(tmp_path, "big", 3 * BATCH_BYTES)
    data = (tmp_path / "big-0" / f"{0:020}.log").read_bytes()
    headers = list(iter_batches(data))
    assert [header.base_offset for header in headers] == [0, 1, 2]
    assert all(header.size == BATCH_BYTES for header in headers)
    for number, header in enumerate(headers):
        batch = data[number * BATCH_BYTES : (number + 1) * BATCH_BYTES]
        assert header.checksum_matches(data)
        (record,) = read_records(batch)
        assert record.offset == number
        assert record.timestamp == log.first_ms + number * SECOND_MS
        assert record.value is not None
        assert not any(record.value)


def test_a_large_log_takes_many_segments_and_little_disk(tmp_path: Path) -> None:
    log = write_sparse_log(tmp_path, "big", (SEGMENT_BATCHES + 10) * BATCH_BYTES)
    segments = sorted((tmp_path / "big-0").glob("*.log"))
    assert [path.stem for path in segments] == [f"{0:020}", f"{SEGMENT_BATCHES:020}"]
    assert (log.batches, log.segments) == (SEGMENT_BATCHES + 10, 2)
    assert sum(path.stat().st_size for path in segments) == log.size_bytes
    assert sum(os.stat(path).st_blocks * 512 for path in segments) < log.size_bytes / 16
