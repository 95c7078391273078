"""Microseconds per append and per read of one partition's log on the real disk.

Run: python benchmarks/micro/log_append.py [directory]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable

from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.node.disk import OsDisk
from moldau.ports import Timer
from moldau.records.batch import HEADER, seal

ROUNDS = 5


class WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: int, run: Callable[[], None]) -> Timer:
        raise NotImplementedError("nothing here waits")


def batch(records: int, body: int, producer_id: int = -1, sequence: int = -1) -> memoryview:
    now = time.time_ns() // 1_000_000
    epoch = -1 if producer_id < 0 else 0
    built = bytearray(
        HEADER.pack(0, 0, -1, 2, 0, 0, records - 1, now, now, producer_id, epoch, sequence, records) + bytes(body)
    )
    seal(built)
    return memoryview(built)


def report(name: str, count: int, run: Callable[[], object]) -> None:
    best = min(_timed(run) for _ in range(ROUNDS))
    print(f"{name:48} {best / count * 1e6:8.2f} us")


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    root = tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None)
    disk = OsDisk(lambda _: None)
    clock = WallClock()
    try:
        plain = PartitionLog.open(disk, clock, f"{root}/plain-0", "plain", 0, None, LogConfig())
        small = batch(10, 1100)
        big = batch(1000, 100_000)

        def append(log: PartitionLog, what: memoryview, count: int) -> None:
            for _ in range(count):
                log.append_as_leader(what, 0)

        report("append 10 records, 1.1 KB", 10_000, lambda: append(plain, small, 10_000))
        report("append 1000 records, 100 KB", 500, lambda: append(plain, big, 500))

        idempotent = PartitionLog.open(disk, clock, f"{root}/idempotent-0", "idempotent", 0, None, LogConfig())
        sequence = 0

        def append_idempotent() -> None:
            nonlocal sequence
            for made in prepared.pop():
                idempotent.append_as_leader(made, 0)

        prepared: list[list[memoryview]] = []
        for _ in range(ROUNDS):
            prepared.insert(0, [batch(10, 1100, 7, sequence + 10 * i) for i in range(5000)])
            sequence += 50_000
        report("append 10 records, idempotent", 5000, append_idempotent)

        stamped_config = LogConfig(message_timestamp_type="LogAppendTime")
        stamped = PartitionLog.open(disk, clock, f"{root}/stamped-0", "stamped", 0, None, stamped_config)
        report("append 10 records, LogAppendTime", 5000, lambda: append(stamped, small, 5000))

        log = PartitionLog.open(disk, clock, f"{root}/read-0", "read", 0, None, LogConfig())
        append(log, small, 20_000)
        end = log.log_end_offset

        def tail(count: int) -> None:
            for _ in range(count):
                log.read(end - 10, 1 << 20)

        def sequential(max_bytes: int) -> None:
            offset = 0
            while offset < end:
                data = log.read(offset, max_bytes)
                offset += len(data.records) // len(small) * 10

        def scattered(count: int) -> None:
            for i in range(count):
                log.read(i * 7919 % end, 4096)

        report("read at the end, 1.1 KB", 10_000, lambda: tail(10_000))
        report("read in order, 64 KB a time", 20_000 * len(small) // 65536, lambda: sequential(65536))
        report("read in order, 1 MB a time", 20_000 * len(small) // (1 << 20), lambda: sequential(1 << 20))
        report("read anywhere, 4 KB", 5000, lambda: scattered(5000))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
