"""One share partition: the records between the first that a group is not done with and the last that it was given.

Decides where the group reads next, when the beginning of the window moves on, what happens to records whose holder ran
out of time and to those that the log has deleted, and what is written to the store and taken back when that fails.
`acquiring.py` gives records to members, `acknowledging.py` takes their word; both work on this state.
It never opens a record and never reads a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from moldau.config.group_config import GroupConfig
from moldau.ports import Clock, Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.share.in_flight import NEVER, InFlightBatch, Run, Transition
from moldau.share.lock_times import LockTimes
from moldau.share.states import ACQUIRED, ARCHIVED, AVAILABLE, NOBODY, TERMINAL, RecordState
from moldau.share.store import UNINITIALIZED, StateBatch, StateStore, StoredState
from moldau.share.window import Window

_NONE = -1


class Status(Enum):
    EMPTY = 0
    LOADING = 1
    ACTIVE = 2
    FAILED = 3
    # Another leader, or no longer this group's: whoever has it in hand must get a new one.
    FENCED = 4


class SharePartition:
    __slots__ = (
        "_clock",
        "_gap_end",
        "_gap_start",
        "_news",
        "_search",
        "config",
        "delivery_complete",
        "end_offset",
        "group_id",
        "index",
        "leader_epoch",
        "lock_timeouts",
        "lock_times",
        "start_offset",
        "state_epoch",
        "status",
        "store",
        "topic_id",
        "window",
    )

    def __init__(
        self,
        group_id: str,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        *,
        config: Callable[[], GroupConfig],
        clock: Clock,
        store: StateStore,
        news: Callable[[SharePartition], None],
    ) -> None:
        """`news` is called when there may be more to acquire than before."""
        self.group_id = group_id
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self.config = config
        self._clock = clock
        self.store = store
        self._news = news
        self.status = Status.EMPTY
        self.window = Window()
        self.lock_times = LockTimes(clock, self._expire)
        # How many records were taken from members that held them for too long.
        self.lock_timeouts = 0
        self.start_offset = 0
        # The last offset in the window; where to read from, while the window is empty.
        self.end_offset = 0
        self.state_epoch = 0
        # Records in the window that nobody gets again.
        self.delivery_complete = 0
        # Whether there may be something to acquire before the end of the window.
        self._search = False
        # Stored state may have holes, which were never delivered: from the first of them to the end it had.
        self._gap_start = _NONE
        self._gap_end = _NONE

    # ---- loading

    def load(self, start_at: Callable[[], int]) -> Pending[ApiError | None]:
        """Read the stored state. `start_at` says where a group begins that has none; it may raise ApiError."""
        assert self.status is Status.EMPTY, "a share partition is loaded once"
        self.status = Status.LOADING
        loaded: Pending[ApiError | None] = Pending()

        def arrived(state: StoredState | ApiError) -> None:
            error = state if isinstance(state, ApiError) else self._install(state, start_at)
            if error is not None and self.status is Status.LOADING:
                self.status = Status.FAILED
            loaded.resolve(error)
            self._news(self)

        self.store.read().then(arrived)
        return loaded

    def _install(self, state: StoredState, start_at: Callable[[], int]) -> ApiError | None:
        if self.status is not Status.LOADING:
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            start = start_at() if state.start_offset == UNINITIALIZED else state.start_offset
        except ApiError as error:
            return error
        self.start_offset = start
        self.state_epoch = state.state_epoch
        previous_last = start - 1
        for first, last, number, deliveries in state.batches:
            if first < start or last < first or first <= previous_last:
                return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The stored state of the share partition is damaged.")
            if self._gap_start == _NONE and first > previous_last + 1:
                self._gap_start = previous_last + 1
            previous_last = last
            record_state = RecordState(number)
            self.window.add(InFlightBatch.whole(first, last, record_state, deliveries))
            if record_state in TERMINAL:
                self.delivery_complete += last - first + 1
        if len(self.window):
            self._search = True
            self.end_offset = previous_last
            if self._gap_start != _NONE:
                self._gap_end = previous_last
            self.advance()
        else:
            self.end_offset = start
        self.status = Status.ACTIVE
        return None

    def fence(self) -> None:
        """Nobody may use this any more. What is being stored still comes to its end."""
        self.status = Status.FENCED
        self.lock_times.close()
        self._news(self)

    @property
    def is_active(self) -> bool:
        return self.status is Status.ACTIVE

    @property
    def in_flight_records(self) -> int:
        return self.end_offset - self.start_offset + 1 if len(self.window) else 0

    # ---- where to read

    def next_fetch_offset(self) -> int:
        """The first offset that somebody may acquire."""
        window = self.window
        if not len(window) or self.start_offset > window.last.last:
            self._search = False
            return self.end_offset
        if self._search:
            found = self._first_free()
            if found != _NONE:
                return found
            self._search = False
        return self.end_offset + 1

    def _first_free(self) -> int:
        gap_start = self._gap_start if self.has_gaps else _NONE
        for batch in self.window:
            if gap_start != _NONE:
                if batch.first > gap_start:
                    return gap_start
                gap_start = max(batch.last + 1, gap_start)
            for run in batch.runs:
                if run.state is AVAILABLE and run.transition is None:
                    return run.first
        return _NONE

    def can_acquire(self) -> bool:
        """Whether a fetch could give anybody anything."""
        if self.next_fetch_offset() != self.end_offset + 1:
            return True
        return self.in_flight_records < self.config().share_partition_max_record_locks

    def reach(self, fetch_offset: int, max_records: int) -> int:
        """The last offset a fetch of so many records from `fetch_offset` could need from the log."""
        most = self.config().share_partition_max_record_locks - self.in_flight_records
        if most <= 0:
            return self.end_offset
        max_records = min(max_records, most)
        if not self._search or fetch_offset > self.end_offset:
            return fetch_offset + max_records - 1
        left = max_records
        for batch in self.window:
            if batch.last < fetch_offset:
                continue
            for run in batch.overlapping(fetch_offset, batch.last):
                if run.is_free:
                    left -= run.last - max(run.first, fetch_offset) + 1
                    if left <= 0:
                        return run.last
        return self.end_offset + left

    def search_again(self) -> None:
        """Something before the end of the window is, or may be, available."""
        self._search = True

    # ---- holes in what was stored

    @property
    def has_gaps(self) -> bool:
        return self._gap_end != _NONE and self._gap_end == self.end_offset

    def gap_closed_before(self, offset: int) -> None:
        """Everything before `offset` was acquired: later holes remain, if any."""
        if self._gap_end == _NONE:
            return
        if self._gap_end == self.end_offset and offset <= self._gap_end:
            self._gap_start = offset
        else:
            self._gap_start = self._gap_end = _NONE

    # ---- what is being stored

    def lock(self, batch: InFlightBatch) -> int:
        """Until when what is acquired now is held; the timer knows of it."""
        deadline = self._clock.monotonic_ms() + self.config().share_record_lock_duration_ms
        self.lock_times.watch(batch, deadline, len(self.window))
        return deadline

    def settle(self, begun: list[Transition], error: ApiError | None) -> Pending[ApiError | None]:
        """Take the begun changes back because of `error`, or store them; the promise says how that ended."""
        if error is not None:
            self._take_back(begun)
            return Pending.of(error)
        if not begun:
            return Pending.of(None)
        batches = [
            StateBatch(run.first, run.last, run.state, run.deliveries) for change in begun for run in change.runs
        ]
        outcome: Pending[ApiError | None] = Pending()

        def stored(failure: ApiError | None) -> None:
            if failure is not None:
                self._take_back(begun)
                outcome.resolve(failure)
                self._news(self)
                return
            freed = False
            for change in begun:
                for run in change.runs:
                    run.commit()
                    freed = freed or run.state is AVAILABLE
            if freed:
                self._search = True
            moved = self.advance()
            self._join_alike(begun)
            self.lock_times.settled()
            outcome.resolve(None)
            if moved or freed:
                self._news(self)

        self.write(batches).then(stored)
        return outcome

    def write(self, batches: list[StateBatch]) -> Pending[ApiError | None]:
        return self.store.write(self.state_epoch, self.start_offset, self.delivery_complete, batches)

    def _take_back(self, begun: Iterable[Transition]) -> None:
        now = self._clock.monotonic_ms()
        for change in begun:
            for run in change.runs:
                run.take_back(now)
                if run.state is AVAILABLE:
                    self._search = True
                if change.target in TERMINAL and run.state not in TERMINAL:
                    self.delivery_complete -= self.counted(run.first, run.last)
        self._join_alike(begun)

    def _join_alike(self, begun: Iterable[Transition]) -> None:
        seen: InFlightBatch | None = None
        for change in begun:
            for run in change.runs:
                batch = self.window.floor(run.first)
                if batch is not None and batch is not seen and batch.by_offset:
                    batch.join_alike()
                    seen = batch

    def counted(self, first: int, last: int) -> int:
        """How many of these records are still in the window."""
        return last - max(self.start_offset, first) + 1 if last >= self.start_offset else 0

    # ---- the beginning of the window

    def advance(self) -> bool:
        """Leave behind what everybody is done with; whether anything was."""
        window = self.window
        if not self._may_advance():
            return False
        last_done, completed = self._last_done()
        if last_done == _NONE:
            return False
        if last_done == window.last.last:
            self.start_offset = self.end_offset = last_done + 1
            window.clear()
            self.delivery_complete = 0
            return True
        batch = window.floor(last_done)
        assert batch is not None, "what is done is in the window"
        if last_done == batch.last:
            following = window.after(last_done)
            assert following is not None, "the last batch is not done"
            self.start_offset = max(self.start_offset, following.first)
            if self.has_gaps:
                self.start_offset = min(self._gap_start, self.start_offset)
            window.drop_before(following.first)
        else:
            self.start_offset = max(self.start_offset, last_done + 1)
            window.drop_before(batch.first)
        self.delivery_complete -= completed
        return True

    def _may_advance(self) -> bool:
        batch = self.window.floor(self.start_offset)
        # None: the window begins with a hole that can still be acquired.
        return batch is not None and batch.run_at(self.start_offset).is_done

    def _last_done(self) -> tuple[int, int]:
        """The last offset up to which all records are done, and how many of them are in the window."""
        last_done, completed = _NONE, 0
        for batch in self.window:
            if self.has_gaps and batch.last >= self._gap_start:
                break
            for run in batch.runs:
                # What the log has deleted holds nobody up, whoever still has it.
                if run.last >= self.start_offset and not run.is_done:
                    return last_done, completed
                last_done = run.last
                completed += self.counted(run.first, run.last)
        return last_done, completed

    # ---- records that are gone, or held for too long

    def log_start_moved(self, log_start: int) -> None:
        """The log has deleted everything before `log_start`: nobody can be given that any more."""
        if log_start <= self.start_offset:
            return
        if not len(self.window):
            self.start_offset = self.end_offset = log_start
            self.delivery_complete = 0
            return
        completed = self._completed_before(log_start)
        if self.archive(self.start_offset, log_start - 1, self.window, AVAILABLE, count=False):
            self._search = True
        self.start_offset = log_start
        self.delivery_complete -= completed
        self.end_offset = max(self.end_offset, self.start_offset)

    def _completed_before(self, offset: int) -> int:
        completed = 0
        for batch in self.window:
            if batch.first >= offset:
                break
            for run in batch.runs:
                if run.state in TERMINAL:
                    completed += max(0, min(offset - 1, run.last) - max(self.start_offset, run.first) + 1)
        return completed

    def archive(
        self, first: int, last: int, batches: Iterable[InFlightBatch], standing: RecordState, *, count: bool
    ) -> bool:
        """Put the records of [first, last] aside that stand so, without storing it; whether there were any."""
        any_archived = False
        for batch in batches:
            if batch.first > last:
                break
            if batch.is_within(first, last) and not batch.by_offset:
                runs: Iterable[Run] = batch.runs
            else:
                if not batch.by_offset and batch.run.state is not standing:
                    continue
                standing_so = [run for run in batch.overlapping(first, last) if run.state is standing]
                runs = [batch.cut(run, first, last) for run in standing_so]
            for run in runs:
                if run.state is standing:
                    run.archive()
                    any_archived = True
                    if count:
                        self.delivery_complete += run.size
        return any_archived

    def _expire(self, batches: list[InFlightBatch]) -> None:
        """The holders of these batches had them long enough; those who acknowledge right now may finish."""
        now = self._clock.monotonic_ms()
        changed: list[StateBatch] = []
        max_deliveries = self.config().share_delivery_count_limit
        for batch in batches:
            for run in [run for run in batch.runs if run.state is ACQUIRED and run.deadline_ms <= now]:
                for part in self.around_start(batch, run):
                    self._take_from_holder(part, max_deliveries, changed)
        if not changed:
            return
        # Whether it can be stored or not, the records are free: the next leader would free them, too.
        self.write(changed).then(self._expiry_stored)
        self._news(self)

    def _take_from_holder(self, run: Run, max_deliveries: int, changed: list[StateBatch]) -> None:
        if not run.update(ARCHIVED if run.last < self.start_offset else AVAILABLE, NOBODY, max_deliveries):
            return
        run.deadline_ms = NEVER
        self.lock_timeouts += run.size
        changed.append(StateBatch(run.first, run.last, run.state, run.deliveries))
        if run.state in TERMINAL:
            self.delivery_complete += self.counted(run.first, run.last)
        else:
            self._search = True

    def _expiry_stored(self, failure: ApiError | None) -> None:
        if self.advance():
            self._news(self)

    def around_start(self, batch: InFlightBatch, run: Run) -> tuple[Run, ...]:
        """The run, cut in two where the window begins if that is inside of it."""
        start = self.start_offset
        if not run.first < start <= run.last:
            return (run,)
        before = batch.cut(run, run.first, start - 1)
        return before, batch.run_at(start)
