"""Records in flight: runs of neighbouring records that stand alike, in the batches in which they were delivered.

A batch begins as one run, so that delivering and acknowledging a whole batch touches one object however many records it
has; it is cut only where its records part ways. Decides how a run changes and how a change that could not be stored is
taken back. Knows nothing of timers, configuration or the partition's offsets.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.share.states import ACQUIRED, ARCHIVED, AVAILABLE, NOBODY, TERMINAL, RecordState, may_become

NEVER = 1 << 62
"""The deadline of what nobody holds."""


class Transition:
    """A change that is not stored yet: how its records stood before, should it have to be taken back."""

    __slots__ = ("max_deliveries", "member", "runs", "state", "target")

    def __init__(self, run: Run, max_deliveries: int) -> None:
        self.state = run.state
        self.member = run.member
        self.max_deliveries = max_deliveries
        # What the run became; runs that are cut meanwhile all belong to this transition.
        self.target = run.state
        self.runs = [run]


class Run:
    """Neighbouring records of one batch in the same state, with the same holder."""

    __slots__ = ("archived", "deadline_ms", "deliveries", "first", "last", "member", "state", "transition")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        deliveries: int,
        member: str = NOBODY,
        deadline_ms: int = NEVER,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        self.member = member
        # When the holder loses it; kept until a change is stored, so that one that is taken back can still run out.
        self.deadline_ms = deadline_ms
        self.transition: Transition | None = None
        # Put aside for good while a change was being stored: whatever becomes of that, it stays so.
        self.archived = False

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """Whether somebody may have it now."""
        return self.state is AVAILABLE and self.transition is None

    @property
    def is_done(self) -> bool:
        """Whether nobody will ever have it again, and that is stored."""
        return self.state in TERMINAL and self.transition is None

    def update(self, state: RecordState, member: str, max_deliveries: int, *, delivered: bool = False) -> bool:
        """Change at once, unless that is impossible. What was tried too often is archived instead of offered again."""
        if self.transition is not None:
            return False
        if state is AVAILABLE and self.deliveries >= max_deliveries:
            state = ARCHIVED
        if not may_become(self.state, state):
            return False
        self.state = state
        if delivered:
            self.deliveries += 1
        self.member = member
        return True

    def begin(self, state: RecordState, max_deliveries: int) -> Transition | None:
        """The same for a change that counts only when it is stored; None when it is impossible."""
        if self.transition is not None:
            return None
        transition = Transition(self, max_deliveries)
        if not self.update(state, NOBODY, max_deliveries):
            return None
        transition.target = self.state
        self.transition = transition
        return transition

    def commit(self) -> None:
        self.deadline_ms = NEVER
        self.transition = None

    def take_back(self, now_ms: int) -> None:
        """The change was not stored. A holder whose time ran out meanwhile does not get it back."""
        before = self.transition
        assert before is not None, "nothing to take back"
        self.transition = None
        if self.archived:
            self.deadline_ms = NEVER
        elif self.deadline_ms <= now_ms:
            self.state = ARCHIVED if self.deliveries >= before.max_deliveries else AVAILABLE
            self.member = NOBODY
            self.deadline_ms = NEVER
        else:
            self.state = before.state
            self.member = before.member

    def archive(self) -> None:
        self.archived = True
        self.state = ARCHIVED
        self.member = NOBODY
        self.deadline_ms = NEVER

    def acquire(self, member: str, deadline_ms: int, max_deliveries: int) -> bool:
        if not self.update(ACQUIRED, member, max_deliveries, delivered=True):
            return False
        self.deadline_ms = deadline_ms
        return True

    def cut_at(self, offset: int) -> Run:
        """End before `offset`; gives the rest, which stands alike."""
        assert self.first < offset <= self.last, "a run is cut inside"
        rest = Run(offset, self.last, self.state, self.deliveries, self.member, self.deadline_ms)
        rest.archived = self.archived
        transition = self.transition
        if transition is not None:
            rest.transition = transition
            transition.runs.append(rest)
        self.last = offset - 1
        return rest

    def continues(self, before: Run) -> bool:
        """Whether nothing tells this run from the one before it any more."""
        return (
            self.state is before.state
            and self.deliveries == before.deliveries
            and self.transition is None
            and before.transition is None
            and self.member == before.member
            and self.deadline_ms == before.deadline_ms
            and self.archived == before.archived
        )


class InFlightBatch:
    """Records that were delivered together."""

    __slots__ = ("by_offset", "first", "last", "runs")

    def __init__(self, first: int, last: int, runs: list[Run], *, by_offset: bool = False) -> None:
        self.first = first
        self.last = last
        self.runs = runs
        # Whether its records have been told apart once: from then on they are delivered one by one, too.
        self.by_offset = by_offset

    @classmethod
    def whole(
        cls,
        first: int,
        last: int,
        state: RecordState,
        deliveries: int,
        member: str = NOBODY,
        deadline_ms: int = NEVER,
    ) -> InFlightBatch:
        return cls(first, last, [Run(first, last, state, deliveries, member, deadline_ms)])

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def run(self) -> Run:
        """The one run of a batch whose records were never told apart."""
        assert not self.by_offset, "the records of this batch stand differently"
        return self.runs[0]

    def is_within(self, first: int, last: int) -> bool:
        return self.first >= first and self.last <= last

    def run_at(self, offset: int) -> Run:
        """The run that has this offset, or the last one when the offset is behind the batch."""
        for run in self.runs:
            if offset <= run.last:
                return run
        return self.runs[-1]

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs that have any offset in [first, last], uncut."""
        for run in self.runs:
            if run.first > last:
                return
            if run.last >= first:
                yield run

    def cut(self, run: Run, first: int, last: int) -> Run:
        """The part of one of its runs that is in [first, last], as a run of its own."""
        self.by_offset = True
        if run.first < first:
            rest = run.cut_at(first)
            self.runs.insert(self.runs.index(run) + 1, rest)
            run = rest
        if run.last > last:
            self.runs.insert(self.runs.index(run) + 1, run.cut_at(last + 1))
        return run

    def join_alike(self) -> None:
        """Forget cuts that no longer matter."""
        runs = self.runs
        if len(runs) < 2:
            return
        joined = [runs[0]]
        for run in runs[1:]:
            if run.continues(joined[-1]):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined
