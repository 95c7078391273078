"""Are the replicas of a partition the same? Reads each of them from its own broker and compares them with the leader's.

Replicas hold the leader's batches byte for byte, up to what is committed. Only the cleaner may make a difference: each
replica of a compacted topic is cleaned on its own, so there only records that both still have are compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.client.admin.client import Admin
from moldau.protocol.errors import ErrorCode, error_code
from moldau.records.batch import BatchError, BatchHeader, iter_batches

# The last version with topic names; it lets consumers read from followers as well.
FETCH_VERSION = 12
CHUNK_BYTES = 4 << 20
WAIT_MS = 200
# How long a follower may take to get what it does not have yet.
CATCH_UP_SECONDS = 10.0


class ReplicaRead(NamedTuple):
    error: ErrorCode
    high_watermark: int
    log_start: int
    records: bytes


@dataclass(slots=True)
class Difference:
    broker: int
    offset: int
    what: str


@dataclass(slots=True)
class Verdict:
    """What came of comparing one partition."""

    topic: str
    partition: int
    leader: int
    compared: list[int] = field(default_factory=list)
    records_end: int = 0
    bytes: int = 0
    lag: dict[int, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.differences and not any(self.lag.values())


def read_replica(
    admin: Admin, broker: int, topic: str, partition: int, offset: int, max_bytes: int = CHUNK_BYTES
) -> ReplicaRead:
    """Committed records of one replica from an offset on, as its broker has them."""
    from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic

    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    answer = admin.ask_node(broker, request, max_version=FETCH_VERSION)
    [found] = [each for part in answer.responses for each in part.partitions]
    return ReplicaRead(
        error_code(found.error_code), found.high_watermark, found.log_start_offset, bytes(found.records or b"")
    )


def compare_replicas(
    admin: Admin,
    topic: str,
    partition: int,
    leader: int,
    followers: Sequence[int],
    *,
    start: int,
    compacted: bool = False,
) -> Verdict:
    """Compare what is committed now, from `start` on."""
    verdict = Verdict(topic, partition, leader, compared=[leader, *followers])
    read = read_replica(admin, leader, topic, partition, start)
    end = read.high_watermark
    follow = {broker: _Follower(admin, verdict, broker, compacted=compacted) for broker in followers}
    offset = start
    while offset < end and read.error is ErrorCode.NONE:
        chunk = [each for each in _batches(read.records) if each.base_offset < end]
        if not chunk:
            break
        for follower in follow.values():
            if not follower.gave_up:
                follower.compare(read.records[: chunk[-1].end], chunk, offset)
        verdict.bytes += chunk[-1].end
        offset = chunk[-1].last_offset + 1
        read = read_replica(admin, leader, topic, partition, offset)
    if read.error is not ErrorCode.NONE:
        verdict.differences.append(Difference(leader, offset, f"cannot be read: {read.error.name}"))
    verdict.records_end = offset
    verdict.lag = {broker: max(0, offset - each.offset) for broker, each in follow.items() if each.gave_up}
    return verdict


def _batches(records: bytes) -> list[BatchHeader]:
    try:
        return list(iter_batches(records))
    except BatchError:
        return []


class _Follower:
    """One replica's way along the leader's log."""

    def __init__(self, admin: Admin, verdict: Verdict, broker: int, *, compacted: bool) -> None:
        self._admin = admin
        self._verdict = verdict
        self._broker = broker
        self._compacted = compacted
        self.offset = 0
        self.gave_up = False

    def compare(self, expected: bytes, batches: list[BatchHeader], offset: int) -> None:
        self.offset = offset
        end = batches[-1].last_offset + 1
        held = b""
        for piece in self._pieces(end):
            held += piece
        if self.gave_up:
            return
        if self._compacted:
            self._compare_records(expected, held)
        elif held[: len(expected)] != expected:
            self._complain_about_bytes(expected, held, batches)

    def _pieces(self, end: int) -> Iterator[bytes]:
        """The replica's batches up to an offset; waits for a while for those it does not have yet."""
        verdict = self._verdict
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self.offset < end:
            read = read_replica(self._admin, self._broker, verdict.topic, verdict.partition, self.offset)
            batches = _batches(read.records)
            if batches:
                yield read.records[: batches[-1].end]
                self.offset = batches[-1].last_offset + 1
            elif read.error in (ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER) or (
                read.error is ErrorCode.OFFSET_OUT_OF_RANGE and read.high_watermark <= self.offset
            ):
                if self._compacted and read.high_watermark >= end:
                    self.offset = end  # the cleaner took what was there
                elif time.monotonic() > deadline:
                    self.gave_up = True
                    return
            else:
                self._differs(self.offset, f"cannot be read: {read.error.name}")
                self.gave_up = True
                return

    def _complain_about_bytes(self, expected: bytes, held: bytes, batches: list[BatchHeader]) -> None:
        for batch in batches:
            if held[batch.position : batch.end] != expected[batch.position : batch.end]:
                own = f"{min(len(held), batch.end) - min(len(held), batch.position)} bytes"
                self._differs(batch.base_offset, f"the batch differs from the leader's ({own})")
                self.gave_up = True
                return

    def _compare_records(self, expected: bytes, held: bytes) -> None:
        own = _records(held)
        for offset, record in _records(expected).items():
            if offset in own and own[offset] != record:
                self._differs(offset, "the record differs from the leader's")
                self.gave_up = True
                return

    def _differs(self, offset: int, what: str) -> None:
        self._verdict.differences.append(Difference(self._broker, offset, what))


def _records(data: bytes) -> dict[int, tuple[bytes | None, bytes | None]]:
    from moldau.records.record import read_records

    return {
        record.offset: (record.key, record.value)
        for batch in _batches(data)
        if not batch.is_control
        for record in read_records(data[batch.position : batch.end])
    }
