"""A compacted log on a simulated disk, and what a consumer sees of it."""

from __future__ import annotations

from random import Random

from moldau.log.cleaner import CleanerSettings, LogCleaner
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.log.manager_settings import LogManagerSettings
from moldau.log.partition_log import PartitionLog
from moldau.records.batch import CONTROL_ABORT, BatchHeader, iter_batches
from moldau.records.builder import BatchBuilder, build_end_transaction_marker
from moldau.records.compression import Codec
from moldau.records.record import Record, read_control_records, read_records
from moldau.testing.background import SteppedBackground
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk

COMPACTED = LogConfig(
    cleanup_compact=True,
    cleanup_delete=False,
    segment_bytes=600,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=100_000,
    transaction_verification=False,
)
Pair = tuple[str, str | None]


class CompactedWorld:
    """One topic with one compacted partition."""

    def __init__(self, config: LogConfig = COMPACTED, settings: CleanerSettings | None = None) -> None:
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.clock)
        self.config = config
        self.settings = settings or CleanerSettings(backoff_ms=1000)
        self.start()

    def start(self) -> None:
        self.background = SteppedBackground()
        self.logs = LogManager(
            self.disk,
            self.clock,
            self.background,
            {"/a": b"a" * 16, "/b": b"b" * 16},
            LogManagerSettings(),
            configs=lambda topic: self.config,
            random=Random(1),
        )
        self.logs.load()
        self.logs.start()
        self.cleaner = LogCleaner(self.logs, self.disk, self.clock, self.background, self.settings)
        self.cleaner.start()
        self.log = self.logs.open("t", 0, b"t" * 16, self.config, directory_id=b"a" * 16)

    def restart(self) -> None:
        """After a crash, or to see what the files say."""
        self.clock = VirtualClock(self.clock.now_ms())
        self.disk._clock = self.clock
        self.start()

    def append(
        self,
        *pairs: Pair,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        sequence: int = -1,
        transactional: bool = False,
        leader_epoch: int = 0,
    ) -> None:
        builder = BatchBuilder(
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        for key, value in pairs:
            builder.append(key.encode(), None if value is None else value.encode(), timestamp=self.clock.now_ms())
        self.log.append_as_leader(memoryview(builder.build()), leader_epoch)
        self.log.high_watermark = self.log.log_end_offset

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        marker = build_end_transaction_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        self.log.append_own(marker, 0)
        self.log.high_watermark = self.log.log_end_offset

    def roll(self) -> None:
        self.log.roll()

    def clean(self, milliseconds: int = 1000) -> None:
        """Let the cleaner run until nothing is left to do."""
        for _ in range(milliseconds // 1000):
            self.clock.advance(1000)
            self.background.run_all()


def batches(opened: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    """Every batch a consumer would be given, from the start of the log."""
    found = []
    offset = opened.log_start_offset
    while offset < opened.log_end_offset:
        data = opened.read(offset, 2000)
        for records in data.buffers:
            whole = bytes(records)
            for header in iter_batches(whole):
                assert header.checksum_matches(whole)
                found.append((header, whole))
        assert data.next_offset > offset
        offset = data.next_offset
    offsets = [header.base_offset for header, _ in found]
    assert offsets == sorted(set(offsets))
    return found


def raw_records(opened: PartitionLog) -> list[Record]:
    return [
        record
        for header, whole in batches(opened)
        if not header.is_control
        for record in read_records(whole, header)
        if record.offset >= opened.log_start_offset
    ]


def committed_records(opened: PartitionLog) -> list[Record]:
    """What a consumer that reads committed records gets: the broker's list of aborts and the markers decide."""
    waiting = sorted(opened.collect_aborted(opened.log_start_offset, opened.log_end_offset), key=lambda each: each[1])
    aborted: set[int] = set()
    found = []
    for header, whole in batches(opened):
        while waiting and waiting[0][1] <= header.last_offset:
            aborted.add(waiting.pop(0)[0])
        if header.is_control:
            for control in read_control_records(whole, header):
                if control.type == CONTROL_ABORT:
                    aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += list(read_records(whole, header))
    return found


def view(records: list[Record]) -> dict[str, str]:
    """What the records amount to, key by key."""
    final: dict[str, str] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            final.pop(record.key.decode(), None)
        else:
            final[record.key.decode()] = record.value.decode()
    return final
