"""A log under random work and crashes must always equal a list of records.

The model keeps every appended record. After a crash the log may have lost records, but only from the end, only those
after what was synced, and what is left must be exactly what was written.
"""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_helpers import DIRECTORY, World, batches, client_batch, read_all

from moldau.log.names import LOG_SUFFIX
from moldau.log.producer_state import ProducerState
from moldau.records.batch import BatchHeader

PRODUCERS = (3, 4)


class LogMachine(RuleBasedStateMachine):
    """Random appends, reads, rolls, cuts, deletions, restarts and crashes."""

    @initialize(
        segment_bytes=st.sampled_from([1400, 3000, 1 << 20]),
        interval=st.sampled_from([0, 100, 4096]),
        index_bytes=st.sampled_from([48, 10 << 20]),
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int) -> None:
        self.world = World(segment_bytes=segment_bytes, index_interval_bytes=interval, segment_index_bytes=index_bytes)
        # (value, epoch) by offset, from offset 0; the log start only hides the first ones.
        self.records: list[tuple[bytes, int]] = []
        self.boundaries = [0]
        self.sequences: list[tuple[int, dict[int, int]]] = [(0, {})]
        self.log_start = 0
        self.synced = 0
        self.epoch = 0
        self.written = 0

    # ---- work

    @rule(count=st.integers(1, 4), size=st.integers(0, 300), producer=st.sampled_from([None, *PRODUCERS]))
    def append(self, count: int, size: int, producer: int | None) -> None:
        values = [b"%d-" % (self.written + i) + bytes(size) for i in range(count)]
        self.written += count
        settings = {}
        sequences = dict(self.sequences[-1][1])
        if producer is not None:
            sequence = sequences.get(producer, 0)
            settings = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            sequences[producer] = sequence + count
        self.world.clock.advance(7)
        batch = client_batch(values, timestamp=self.world.clock.now_ms(), **settings)
        info = self.world.log.append_as_leader(batch, self.epoch)
        assert (info.first_offset, info.last_offset) == (len(self.records), len(self.records) + count - 1)
        self.records += [(value, self.epoch) for value in values]
        self.boundaries.append(len(self.records))
        self.sequences.append((len(self.records), sequences))

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
        self.synced = len(self.records)

    @rule()
    def checkpoint(self) -> None:
        self.world.log.checkpoint()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from([b for b in self.boundaries if b >= self.log_start]))
        self.world.log.truncate_to(target)
        self.forget_after(target)
        self.synced = min(self.synced, target)

    def forget_after(self, target: int) -> None:
        del self.records[target:]
        self.boundaries = [b for b in self.boundaries if b <= target]
        self.sequences = [s for s in self.sequences if s[0] <= target]

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        before = data.draw(st.integers(self.log_start, len(self.records)))
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
        self.synced = len(self.records)
        assert self.world.log.log_end_offset == len(self.records)

    @rule(use_recovery_point=st.booleans())
    def killed(self, use_recovery_point: bool) -> None:
        """The process dies, the machine does not: nothing is lost."""
        self.world.disk.crash(keep_unsynced=True)
        self.recover(use_recovery_point)
        assert self.world.log.log_end_offset == len(self.records)

    @rule(seed=st.none() | st.integers(0, 1000), use_recovery_point=st.booleans())
    def power_cut(self, seed: int | None, use_recovery_point: bool) -> None:
        self.world.disk.crash(None if seed is None else Random(seed))
        self.recover(use_recovery_point)
        end = self.world.log.log_end_offset
        assert self.synced <= end <= len(self.records), "synced records were lost"
        # A log that lost everything begins again where it may be read from, which need not be where a batch began.
        assert end in self.boundaries or end == self.log_start
        self.forget_after(end)
        if end not in self.boundaries:
            self.boundaries.append(end)

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
        end = len(self.records) if limit is None else limit
        whole_end = max(b for b in self.boundaries if b <= end)
        whole_start = max((b for b in self.boundaries if b <= offset), default=0)
        read = batches(found.records)
        if whole_end <= whole_start or offset >= end:
            assert not read
            return
        if min_one:
            assert read, "nothing was read although there is something"
        if read:
            assert read[0][0].base_offset == whole_start
            assert read[-1][0].next_offset <= whole_end
            assert found.size <= max_bytes or len(read) == 1
        for header, records in read:
            for record in records:
                assert (record.value, header.partition_leader_epoch) == self.records[record.offset]

    @invariant()
    def same_records(self) -> None:
        log = self.world.log
        assert log.log_end_offset == len(self.records)
        assert log.log_start_offset == self.log_start
        found = read_all(log, max_bytes=1500)
        assert [(r.offset, r.value) for r in found] == [
            (i, value) for i, (value, _) in enumerate(self.records) if i >= self.log_start
        ]

    @invariant()
    def epochs_fit_the_records(self) -> None:
        log = self.world.log
        for offset in range(self.log_start, len(self.records)):
            assert log.epochs.epoch_at(offset) == self.records[offset][1]

    @invariant()
    def producers_fit_the_records(self) -> None:
        expected = self.sequences[-1][1]
        known = self.world.log.producers.producers
        for producer_id, sequence in expected.items():
            if producer_id in known:
                assert known[producer_id].next_sequence == sequence
            else:
                # Only a producer whose batches were all deleted may be forgotten, and only after a crash.
                assert all(
                    header.producer_id != producer_id
                    for segment in self.world.log.segments
                    for header, _ in batches(self.world.disk.read_bytes(segment.path(LOG_SUFFIX))[: segment.size])
                )

    @invariant()
    def indexes_fit_the_segments(self) -> None:
        for segment in self.world.log.segments:
            places = {}
            state = ProducerState("model")
            for position, batch in segment.scan():
                header = BatchHeader(batch)
                places[position] = header
                state.replay(header, batch)
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
        names = self.world.names(LOG_SUFFIX)
        assert [int(name[:20]) for name in names] == bases, f"{DIRECTORY} has {names}"


LogMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestLogMachine = LogMachine.TestCase
