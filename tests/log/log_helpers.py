"""What the tests of the log share: batches as clients send them, and a log on a disk in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.ports import Buffer
from moldau.records.batch import BatchHeader, iter_batches
from moldau.records.builder import BatchBuilder
from moldau.records.record import Record, read_records
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk

TOPIC_ID = bytes(range(16))
DIRECTORY = "/data/orders-0"
START_MS = 1_700_000_000_000


def client_batch(
    values: list[bytes] | int = 1,
    *,
    timestamp: int = START_MS,
    timestamps: list[int] | None = None,
    key: bytes | None = b"k",
    **settings: Any,
) -> memoryview:
    """A batch as a producer sends it: offsets from 0, no leader epoch."""
    builder = BatchBuilder(**settings)
    if isinstance(values, int):
        values = [b"value-%d" % i for i in range(values)]
    for i, value in enumerate(values):
        builder.append(key, value, timestamp=timestamps[i] if timestamps else timestamp)
    return memoryview(bytearray(builder.build()))


def produced(producer_id: int, sequence: int, count: int = 1, epoch: int = 0, **settings: Any) -> memoryview:
    return client_batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **settings)


class World:
    """A clock, a disk and one log on it that can be closed, crashed and opened again."""

    def __init__(self, **settings: Any) -> None:
        self.clock = VirtualClock(START_MS)
        self.disk = SimulatedDisk(self.clock)
        self.config = LogConfig(**settings)
        self.disk.make_dirs("/data")
        self.failures: list[object] = []
        self.log = self.open(clean=True)

    def open(self, *, clean: bool, recovery_point: int = 0, log_start_offset: int = 0) -> PartitionLog:
        self.log = PartitionLog.open(
            self.disk,
            self.clock,
            DIRECTORY,
            "orders",
            0,
            TOPIC_ID,
            self.config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean,
            failed=self.failures.append,
        )
        return self.log

    def reopen(self) -> PartitionLog:
        """Close properly and open again."""
        start = self.log.log_start_offset
        self.log.close()
        return self.open(clean=True, log_start_offset=start)

    def reconfigure(self, **settings: Any) -> None:
        self.config = replace(self.config, **settings)
        self.log.reconfigure(self.config)

    def append(self, count: int = 1, *, epoch: int = 0, **settings: Any) -> int:
        """Append a batch of so many records; gives its first offset."""
        settings.setdefault("timestamp", self.clock.now_ms())
        return self.log.append_as_leader(client_batch(count, **settings), epoch).first_offset

    def names(self, ending: str = "") -> list[str]:
        return [name for name in self.disk.list_dir(DIRECTORY) if name.endswith(ending)]

    def path(self, name: str) -> str:
        return f"{DIRECTORY}/{name}"


def read_all(log: PartitionLog, start: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from an offset on, as a consumer would fetch them."""
    offset = log.log_start_offset if start is None else start
    found: list[Record] = []
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes)
        if not data.size:
            break
        for header, records in batches(data.records):
            assert header.checksum_matches(data.records)
            found += [record for record in records if record.offset >= offset]
            offset = header.next_offset
        assert data.next_offset >= offset
        offset = data.next_offset
    return found


def batches(data: Buffer) -> list[tuple[BatchHeader, list[Record]]]:
    view = memoryview(data)
    found = []
    for header in iter_batches(view):
        records = [] if header.is_control else list(read_records(view[header.position : header.end]))
        found.append((header, records))
    assert not found or found[-1][0].end == len(view), "a cut batch was returned"
    return found
