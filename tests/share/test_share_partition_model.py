"""A share partition against a model that knows each record: none is lost, none is held by two, deliveries count."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from share_world import World

from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.share.acknowledging import Acknowledgement, acknowledge
from moldau.share.in_flight import NEVER
from moldau.share.states import ACQUIRED, AcknowledgeType

MEMBERS = ("a", "b", "c")
LOCK_MS = 1_000
MAX_DELIVERIES = 4
FREE, HELD, STORING, DONE = "free", "held", "storing", "done"


@dataclass
class Record:
    stands: str = FREE
    deliveries: int = 0
    member: str = ""
    deadline: int = 0
    # What it becomes when the store agrees.
    target: str = FREE
    # The log deleted it while a change was being stored.
    deleted: bool = False


class SharePartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            share_record_lock_duration_ms=LOCK_MS,
            share_delivery_count_limit=MAX_DELIVERIES,
            share_partition_max_record_locks=25,
        )
        self.world.store.at_once = False
        self.records: dict[int, Record] = {}
        self.log_start = 0
        # Offsets of each change that waits for the store, in the order of the writes.
        self.storing: list[list[int]] = []

    # ---- the model

    def now(self) -> int:
        return self.world.clock.monotonic_ms()

    def record(self, offset: int) -> Record:
        return self.records.setdefault(offset, Record())

    def free(self, record: Record) -> None:
        record.member = ""
        record.stands = DONE if record.deliveries >= MAX_DELIVERIES else FREE

    def held_by(self, member: str) -> list[int]:
        return [o for o, r in sorted(self.records.items()) if r.stands == HELD and r.member == member]

    def note_expiries(self) -> None:
        """Timers ran: one write for everything that fell due together."""
        due = [r for r in self.records.values() if r.stands == HELD and r.deadline <= self.now()]
        for record in due:
            self.free(record)

    def note_write(self, offsets: list[int]) -> None:
        self.storing.append(offsets)
        assert len(self.storing) == len(self.world.store.waiting)

    # ---- what happens

    @rule(size=st.integers(1, 9))
    def append(self, size: int) -> None:
        for offset in range(self.world.end, self.world.end + size):
            self.records[offset] = Record()
        self.world.append(size)

    @rule(
        member=st.sampled_from(MEMBERS),
        most=st.integers(1, 12),
        batch_size=st.integers(1, 12),
        record_limit=st.booleans(),
        batches=st.one_of(st.none(), st.integers(1, 4)),
    )
    def acquire(self, member: str, most: int, batch_size: int, record_limit: bool, batches: int | None) -> None:
        share = self.world.share
        acquired = self.world.fetch(member, most, batch_size=batch_size, record_limit=record_limit, batches=batches)
        told = 0
        previous = -1
        for first, last, deliveries in acquired.given:
            assert previous < first <= last < self.world.end
            previous = last
            for offset in range(first, last + 1):
                record = self.records[offset]
                assert record.stands == FREE, f"{offset} is {record.stands}"
                assert offset >= self.log_start
                record.stands, record.member = HELD, member
                record.deadline = self.now() + LOCK_MS
                record.deliveries += 1
                assert deliveries == record.deliveries, f"{offset} was delivered {record.deliveries} times"
                told += 1
        assert told == acquired.records
        if record_limit:
            assert told <= most
        assert share.in_flight_records <= 25 + 9, "one batch of the log may go over the limit"

    @rule(data=st.data(), member=st.sampled_from(MEMBERS))
    def acknowledge(self, data: st.DataObject, member: str) -> None:
        held = self.held_by(member)
        if not held:
            return
        first = data.draw(st.sampled_from(held))
        last = first
        while last + 1 in held and data.draw(st.booleans()):
            last += 1
        same = data.draw(st.booleans())
        kinds = data.draw(
            st.lists(
                st.integers(0, 3), min_size=1 if same else last - first + 1, max_size=1 if same else last - first + 1
            )
        )
        outcome = self.world.say(member, first, last, *kinds)
        if last < self.world.share.start_offset:
            assert outcome.done, "what is before the window is past caring"
            assert outcome.value is None
            return
        offsets = []
        for offset in range(first, last + 1):
            record = self.records[offset]
            if offset < self.world.share.start_offset:
                continue
            kind = kinds[0] if len(kinds) == 1 else kinds[offset - first]
            record.stands = STORING
            record.target = FREE if kind == AcknowledgeType.RELEASE else DONE
            offsets.append(offset)
        assert not outcome.done
        self.note_write(offsets)

    @rule(data=st.data(), member=st.sampled_from(MEMBERS), other=st.integers(0, 60))
    def acknowledge_what_is_not_held(self, data: st.DataObject, member: str, other: int) -> None:
        held = set(self.held_by(member))
        if other in held or other < self.world.share.start_offset or not held:
            return
        # One good acknowledgement before a bad one changes nothing either.
        good = min(held)
        said = [Acknowledgement(good, good, [1])] if good < other else []
        outcome = acknowledge(self.world.share, member, [*said, Acknowledgement(other, other, [1])])
        assert outcome.done
        assert outcome.value is not None
        assert outcome.value.code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)

    @rule(data=st.data(), member=st.sampled_from(MEMBERS))
    def renew(self, data: st.DataObject, member: str) -> None:
        held = [offset for offset in self.held_by(member) if offset >= self.world.share.start_offset]
        if not held:
            return
        offset = data.draw(st.sampled_from(held))
        assert self.world.acknowledge(member, offset, offset, AcknowledgeType.RENEW) is None
        self.records[offset].deadline = self.now() + LOCK_MS

    @rule(member=st.sampled_from(MEMBERS))
    def release(self, member: str) -> None:
        held = self.held_by(member)
        outcome = self.world.release(member)
        if not held:
            assert outcome.done
            return
        for offset in held:
            record = self.records[offset]
            record.stands, record.target = STORING, FREE
        self.note_write(held)

    @precondition(lambda self: self.storing)
    @rule(agrees=st.booleans())
    def store_answers(self, agrees: bool) -> None:
        self.answer(None if agrees else ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def answer(self, error: ApiError | None) -> None:
        offsets = self.storing.pop(0)
        self.world.store.answer(error)
        for offset in offsets:
            record = self.records[offset]
            if record.stands != STORING:
                continue
            if record.deleted:
                record.stands = DONE
            elif error is not None and record.deadline > self.now():
                record.stands = HELD
            elif error is not None or record.target == FREE:
                self.free(record)
            else:
                record.stands, record.member = DONE, ""

    @rule(milliseconds=st.sampled_from((1, 300, LOCK_MS)))
    def time_passes(self, milliseconds: int) -> None:
        # In steps at which anything falls due, so that each expiry is one write.
        until = self.now() + milliseconds
        while self.now() < until:
            due = [r.deadline for r in self.records.values() if r.stands == HELD and r.deadline <= until]
            step = max(min(due, default=until) - self.now(), 0)
            before = len(self.world.store.waiting)
            self.world.clock.advance(step)
            self.note_expiries()
            for _ in range(len(self.world.store.waiting) - before):
                self.storing.append([])
            if not due:
                break

    @rule(batches=st.integers(1, 2))
    def log_deletes(self, batches: int) -> None:
        gone = self.world.log[:batches]
        if len(gone) == len(self.world.log):
            return
        del self.world.log[: len(gone)]
        if gone:
            self.log_start = gone[-1].last + 1
            if self.log_start > self.world.share.next_fetch_offset():
                self.world.share.log_start_moved(self.log_start)
            for offset in range(self.log_start):
                record = self.record(offset)
                if record.stands == FREE or (record.stands == STORING and record.target == FREE):
                    if record.stands == STORING:
                        record.deleted = True
                    else:
                        record.stands = DONE

    @precondition(lambda self: not self.storing)
    @rule()
    def another_leader(self) -> None:
        """Whoever takes over knows what was stored: nobody holds anything, deliveries since then are forgotten."""
        store = self.world.store
        self.world.share.fence()
        self.world.load()
        for offset, record in self.records.items():
            state, deliveries = store.records.get(offset, (0, 0))
            done = offset < max(store.start_offset, self.log_start) or state != 0
            self.records[offset] = Record(DONE if done else FREE, 0 if done else deliveries)
            assert not record.deleted or done

    # ---- what always holds

    @invariant()
    def next_offset_is_free_or_new(self) -> None:
        share = self.world.share
        offset = share.next_fetch_offset()
        if offset in self.records and offset >= self.log_start:
            assert self.records[offset].stands == FREE
        first = max(share.start_offset, self.log_start)
        free = [o for o, r in self.records.items() if r.stands == FREE and first <= o <= share.end_offset]
        if free and len(share.window):
            assert offset <= min(free)

    @invariant()
    def completed_are_counted(self) -> None:
        share = self.world.share
        done = sum(
            run.last - max(run.first, share.start_offset) + 1
            for batch in share.window
            for run in batch.runs
            if run.state in (2, 4) and run.last >= share.start_offset
        )
        assert share.delivery_complete == done

    @invariant()
    def batches_are_in_order(self) -> None:
        previous = -1
        for batch in self.world.share.window:
            assert batch.first > previous
            assert batch.runs[0].first == batch.first
            assert batch.runs[-1].last == batch.last
            for run in batch.runs:
                assert run.first <= run.last
                assert run.state is ACQUIRED or run.transition is not None or run.deadline_ms == NEVER
            for left, right in zip(batch.runs, batch.runs[1:], strict=False):
                assert left.last + 1 == right.first
            previous = batch.last

    def teardown(self) -> None:
        """In the end everybody gives up what they hold, and one member takes all that is left."""
        while self.storing:
            self.answer(None)
        self.time_passes(LOCK_MS)
        while self.storing:
            self.answer(None)
        world, share = self.world, self.world.share
        world.store.at_once = True
        for _ in range(1000):
            given = world.acquire("z", 500)
            if not given:
                break
            for first, last, _ in given:
                for offset in range(first, last + 1):
                    assert self.records[offset].stands == FREE, f"{offset} is {self.records[offset].stands}"
                    self.records[offset].stands = DONE
                outcome: Pending[ApiError | None] = world.say("z", first, last, 1)
                assert outcome.value is None
        lost = [o for o, r in self.records.items() if o >= self.log_start and r.stands != DONE]
        assert not lost, f"nobody got {lost}"
        assert not len(share.window) or share.window.last.last < self.log_start


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(
    max_examples=120, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
