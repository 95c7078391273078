"""Microseconds a share partition takes to give records to a member and to take its word for them.

Run: python benchmarks/micro/share_partition.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

from moldau.config.group_config import GroupConfig
from moldau.ports import Pending, Timer
from moldau.protocol.errors import ApiError
from moldau.share.acknowledging import Acknowledgement, acknowledge
from moldau.share.acquiring import Span, Wish, acquire
from moldau.share.partition import SharePartition
from moldau.share.store import StateBatch, StoredState

ROUNDS = 5
FETCHES = 2000
ACCEPT = [1]


class _Timer:
    def cancel(self) -> None: ...


class WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: int, run: Callable[[], None]) -> Timer:
        return _Timer()


class NoStore:
    def read(self) -> Pending[StoredState | ApiError]:
        return Pending.of(StoredState(0, 0, []))

    def write(
        self, state_epoch: int, start_offset: int, delivery_complete: int, batches: list[StateBatch]
    ) -> Pending[ApiError | None]:
        return Pending.of(None)


def partition() -> SharePartition:
    config = GroupConfig()
    share = SharePartition(
        "group", bytes(16), 0, 0, config=lambda: config, clock=WallClock(), store=NoStore(), news=lambda _: None
    )
    share.load(lambda: 0)
    return share


def whole(records: int, per_batch: int) -> None:
    """Fetches of `records` in log batches of `per_batch`, each acknowledged as a whole."""
    share = partition()
    offset = 0
    for _ in range(FETCHES):
        spans = [Span(at, at + per_batch - 1) for at in range(offset, offset + records, per_batch)]
        wish = Wish("member", share.next_fetch_offset(), records, records)
        given = acquire(share, wish, spans).given
        acknowledge(share, "member", [Acknowledgement(each.first, each.last, ACCEPT) for each in given])
        offset += records
    assert share.start_offset == offset


def one_by_one(records: int) -> None:
    """Fetches of one batch, each record acknowledged by a request of its own."""
    share = partition()
    offset = 0
    for _ in range(FETCHES // 100):
        acquire(
            share, Wish("member", share.next_fetch_offset(), records, records), [Span(offset, offset + records - 1)]
        )
        for at in range(offset, offset + records):
            acknowledge(share, "member", [Acknowledgement(at, at, ACCEPT)])
        offset += records
    assert share.start_offset == offset


def report(name: str, count: int, run: Callable[[], object]) -> None:
    best = min(_timed(run) for _ in range(ROUNDS))
    print(f"{name:60} {best / count * 1e6:8.2f} us")


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    report("give and acknowledge 500 records, one batch of the log", FETCHES, lambda: whole(500, 500))
    report("give and acknowledge 500 records, batches of ten", FETCHES, lambda: whole(500, 10))
    report("give and acknowledge 500 records, batches of one", FETCHES, lambda: whole(500, 1))
    report("acknowledge one record of 500", FETCHES // 100 * 500, lambda: one_by_one(500))


if __name__ == "__main__":
    main()
