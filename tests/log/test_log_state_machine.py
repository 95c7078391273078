"""A log under random work and crashes must always equal a list of batches.

The model keeps every appended batch and derives everything else from them. After a crash the log may have lost
batches, but only from the end, only those after what was synced, and what is left must be exactly what was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_helpers import World, batches, client_batch, read_all

from moldau.log.names import LOG_SUFFIX
from moldau.records.batch import BatchHeader
from moldau.records.builder import build_end_transaction_marker

PLAIN_PRODUCERS = (3, 4)
TRANSACTIONAL_PRODUCERS = (5, 6)


@dataclass
class Batch:
    """One batch of the model: its values (none for a marker), or what a marker says."""

    base: int
    values: list[bytes]
    epoch: int
    producer: int | None = None
    committed: bool | None = None
    sequence: int | None = None

    @property
    def end(self) -> int:
        return self.base + max(len(self.values), 1)


class LogMachine(RuleBasedStateMachine):
    """Random appends, reads, rolls, cuts, deletions, restarts and crashes."""

    @initialize(
        segment_bytes=st.sampled_from([1400, 3000, 1 << 20]),
        interval=st.sampled_from([0, 100, 4096]),
        index_bytes=st.sampled_from([48, 10 << 20]),
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int) -> None:
        self.world = World(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            transaction_verification=False,
        )
        self.batches: list[Batch] = []
        self.end = 0
        self.log_start = 0
        self.synced = 0
        self.epoch = 0
        self.written = 0

    # ---- what the model derives

    def boundaries(self) -> list[int]:
        return sorted({0, self.end, *(batch.base for batch in self.batches)})

    def records(self) -> dict[int, tuple[bytes, int]]:
        return {b.base + i: (value, b.epoch) for b in self.batches for i, value in enumerate(b.values)}

    def next_sequence(self, producer: int) -> int:
        if producer in self.forgotten():
            # Nothing is left of its records: where it goes on is up to it, and to a marker to begin again at 0.
            return 0
        return self.next_sequences().get(producer, 0)

    def next_sequences(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for batch in self.batches:
            if batch.producer is not None and batch.committed is None:
                found[batch.producer] = (batch.sequence or 0) + len(batch.values)
        return found

    def forgotten(self) -> set[int]:
        """Producers whose batches were all deleted; after a crash nothing is known of them."""
        kept = self.world.log.segments[0].base_offset
        known = self.world.log.producers.producers
        written = {batch.producer for batch in self.batches if batch.committed is None and batch.end > kept}
        everyone = {*PLAIN_PRODUCERS, *TRANSACTIONAL_PRODUCERS}
        return {p for p in everyone - written if p not in known or not known[p].batches}

    def transactions(self) -> tuple[list[tuple[int, int]], dict[int, int]]:
        """(producer, first offset) of aborted transactions in the order of their markers, and the open ones."""
        aborted: list[tuple[int, int]] = []
        ongoing: dict[int, int] = {}
        for batch in self.batches:
            if batch.producer not in TRANSACTIONAL_PRODUCERS:
                continue
            if batch.committed is None:
                ongoing.setdefault(batch.producer, batch.base)
            else:
                first = ongoing.pop(batch.producer, None)
                if first is not None and not batch.committed:
                    aborted.append((batch.producer, first))
        return aborted, ongoing

    def forget_after(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self.end = end

    # ---- work

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 300),
        producer=st.sampled_from([None, *PLAIN_PRODUCERS, *TRANSACTIONAL_PRODUCERS]),
    )
    def append(self, count: int, size: int, producer: int | None) -> None:
        values = [b"%d-" % (self.written + i) + bytes(size) for i in range(count)]
        self.written += count
        settings: dict[str, int] = {}
        if producer is not None:
            settings = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.next_sequence(producer),
                "transactional": producer in TRANSACTIONAL_PRODUCERS,
            }
        self.world.clock.advance(7)
        batch = client_batch(values, timestamp=self.world.clock.now_ms(), **settings)
        info = self.world.log.append_as_leader(batch, self.epoch)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + count - 1)
        self.batches.append(Batch(self.end, values, self.epoch, producer, sequence=settings.get("base_sequence")))
        self.end += count

    @rule(producer=st.sampled_from(TRANSACTIONAL_PRODUCERS), committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        marker = build_end_transaction_marker(
            committed=committed,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=1,
            timestamp=self.world.clock.now_ms(),
        )
        info = self.world.log.append_own(marker, self.epoch)
        assert info.first_offset == self.end
        self.batches.append(Batch(self.end, [], self.epoch, producer, committed))
        self.end += 1

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1
        self.world.log.begin_leader_epoch(self.epoch)

    @rule()
    def roll(self) -> None:
        self.world.log.roll()

    @rule()
    def flush(self) -> None:
        self.world.log.flush()
        self.synced = self.end

    @rule()
    def checkpoint(self) -> None:
        self.world.log.checkpoint()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from([b for b in self.boundaries() if b >= self.log_start]))
        self.world.log.truncate_to(target)
        self.forget_after(target)
        self.synced = min(self.synced, target)

    @precondition(lambda self: self.end)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        before = data.draw(st.integers(self.log_start, self.end))
        log = self.world.log
        log.high_watermark = log.log_end_offset
        assert log.delete_records(before) == before
        self.log_start = before
        log.delete_old_segments(self.world.clock.now_ms())

    @rule()
    def time_passes(self) -> None:
        self.world.clock.advance(self.world.config.file_delete_delay_ms + 1)

    # ---- restarts

    @rule()
    def restart(self) -> None:
        self.world.reopen()
        self.synced = self.end
        assert self.world.log.log_end_offset == self.end

    @rule(use_recovery_point=st.booleans())
    def killed(self, use_recovery_point: bool) -> None:
        """The process dies, the machine does not: nothing is lost."""
        self.world.disk.crash(keep_unsynced=True)
        self.recover(use_recovery_point)
        assert self.world.log.log_end_offset == self.end

    @rule(seed=st.none() | st.integers(0, 1000), use_recovery_point=st.booleans())
    def power_cut(self, seed: int | None, use_recovery_point: bool) -> None:
        self.world.disk.crash(None if seed is None else Random(seed))
        self.recover(use_recovery_point)
        end = self.world.log.log_end_offset
        assert self.synced <= end <= self.end, "synced records were lost"
        # A log that lost everything begins again where it may be read from, which need not be where a batch began.
        assert end in self.boundaries() or end == self.log_start
        self.forget_after(end)

    def recover(self, use_recovery_point: bool) -> None:
        point = self.world.log.recovery_point if use_recovery_point else 0
        self.world.open(clean=False, recovery_point=point, log_start_offset=self.log_start)
        self.world.log.flush()

    # ---- what must always hold

    @rule(data=st.data(), max_bytes=st.integers(1, 2000), min_one=st.booleans())
    def read_somewhere(self, data: st.DataObject, max_bytes: int, min_one: bool) -> None:
        log = self.world.log
        offset = data.draw(st.integers(log.log_start_offset, log.log_end_offset))
        limit = data.draw(st.none() | st.integers(log.log_start_offset, log.log_end_offset))
        found = log.read(offset, max_bytes, max_offset=limit, min_one_message=min_one)
        end = self.end if limit is None else limit
        expected = [batch for batch in self.batches if batch.end > offset and batch.end <= end]
        read = batches(found.records)
        if offset >= end:
            expected = []
        assert [header.base_offset for header, _ in read] == [batch.base for batch in expected[: len(read)]]
        assert read or not expected or not min_one, "nothing was read although there is something"
        assert found.size <= max_bytes or len(read) == 1
        known = self.records()
        for header, records in read:
            for record in records:
                assert (record.value, header.partition_leader_epoch) == known[record.offset]

    @invariant()
    def same_records(self) -> None:
        log = self.world.log
        assert log.log_end_offset == self.end
        assert log.log_start_offset == self.log_start
        found = read_all(log, max_bytes=1500)
        assert [(r.offset, r.value) for r in found] == [
            (offset, value) for offset, (value, _) in self.records().items() if offset >= self.log_start
        ]

    @invariant()
    def epochs_fit_the_records(self) -> None:
        log = self.world.log
        for offset, (_, epoch) in self.records().items():
            if offset >= self.log_start:
                assert log.epochs.epoch_at(offset) == epoch

    @invariant()
    def producers_fit_the_records(self) -> None:
        known = self.world.log.producers.producers
        forgotten = self.forgotten()
        for producer, sequence in self.next_sequences().items():
            if producer not in forgotten:
                assert known[producer].next_sequence == sequence

    @invariant()
    def transactions_fit_the_records(self) -> None:
        log = self.world.log
        aborted, ongoing = self.transactions()
        kept = log.segments[0].base_offset
        log.high_watermark = log.log_end_offset
        known = {producer: first for producer, first in ongoing.items() if first >= kept}
        if known:
            assert log.last_stable_offset <= min(known.values())
        elif not ongoing:
            assert log.last_stable_offset == self.end
        found = log.collect_aborted(kept, log.log_end_offset)
        # Of a transaction that began in deleted records, a crash may leave only the part that is still there.
        doubtful = {producer for producer, first in aborted if first < kept}
        assert [each for each in found if each[0] not in doubtful] == [
            each for each in aborted if each[0] not in doubtful
        ]
        assert {each for each in aborted if each[1] >= kept} <= set(found)

    @invariant()
    def indexes_fit_the_segments(self) -> None:
        for segment in self.world.log.segments:
            places = {position: BatchHeader(batch) for position, batch in segment.scan()}
            for relative, position in segment.offset_index.entries():
                assert places[position].last_offset == relative + segment.base_offset
            for timestamp, relative in segment.time_index.entries():
                assert timestamp == max(
                    header.max_timestamp
                    for header in places.values()
                    if header.last_offset <= relative + segment.base_offset
                )

    @invariant()
    def segments_follow_each_other(self) -> None:
        bases = [segment.base_offset for segment in self.world.log.segments]
        assert bases == sorted(set(bases))
        assert [int(name[:20]) for name in self.world.names(LOG_SUFFIX)] == bases


LogMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # Shrinking whole histories takes minutes; the printed steps of a failure are enough to find it.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestLogMachine = LogMachine.TestCase
