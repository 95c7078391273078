"""Queries that are kept alive: started, watched, started again when they fail, and stopped between micro-batches.

It decides when a failed query is tried again (ever longer pauses, a bounded number of times, from the beginning after
every micro-batch that was completed), when a failure is for good, and what happens then: the whole run stops, because
half a pipeline that looks alive helps nobody. It knows nothing of Spark but the few methods a query has.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from moldau.pipeline.failures import Failure, explain
from moldau.pipeline.progress import FAILED, FINISHED, RESTARTING, RUNNING, STARTING, STOPPED, Board

LOOK_SECONDS = 0.1
STOP_SECONDS_MAX = 60.0
# What Spark says a query is doing.
STATUS_PROCESSING = "Processing new data"
STATUS_WAITING = ("Waiting for data to arrive", "Waiting for next trigger")


class Query(Protocol):
    """What is needed of Spark's `StreamingQuery`."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name

    @property
    def status(self) -> dict[str, Any]: ...

    @property
    def recentProgress(self) -> list[Any]: ...  # noqa: N802 - Spark's name

    def exception(self) -> BaseException | None: ...

    def stop(self) -> None: ...


@dataclass(slots=True, frozen=True)
class RestartPolicy:
    """Pauses before the first, second, ... attempt without progress in between, and how many there may be."""

    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    most_attempts: int = 10

    def pause(self, attempt: int) -> float | None:
        """Seconds before this attempt (from 1); None when it is one too many.

        >>> [RestartPolicy(most_attempts=4).pause(each) for each in range(1, 6)]
        [1.0, 2.0, 4.0, 8.0, None]
        """
        if attempt > self.most_attempts:
            return None
        return min(self.longest_seconds, self.first_seconds * 2.0 ** (attempt - 1))


class SupervisedQuery:
    """A query through all its lives. A program sees it in place of Spark's, whose other attributes it passes on."""

    def __init__(self, name: str, begin: Callable[[], Query], supervisor: Supervisor) -> None:
        self.name = name
        self._begin = begin
        self._supervisor = supervisor
        self._ended = threading.Event()
        self.current: Query = begin()
        self.failure: Failure | None = None
        # Attempts since the last completed micro-batch, how many were completed before, and when the next is due.
        self.attempts = 0
        self.batches_before = 0
        self.due: float | None = None
        self.stop_wanted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return not self._ended.is_set()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - Spark's name
        """Wait until the query has ended for good; what happens in between is the runner's business."""
        with self._supervisor.waiting():
            ended = self._ended.wait(timeout)
        return None if timeout is None else ended

    def exception(self) -> BaseException | None:
        return self.current.exception() if self.failure is not None else None

    def stop(self) -> None:
        """Stop for good, at once, as Spark's `stop` does."""
        self.stop_wanted = True
        self.current.stop()
        self.end(STOPPED)

    def begin_again(self) -> None:
        self.current = self._begin()

    def report(self) -> None:
        """Put what Spark still knows of the query on the board: its listeners hear of the end before the last batch."""
        for each in self.current.recentProgress:
            self._supervisor.board.report(json.loads(each.json))

    def end(self, state: str, message: str | None = None) -> None:
        if not self._ended.is_set():
            with contextlib.suppress(Exception):  # Spark itself may be gone
                self.report()
            self._supervisor.board.set_state(self.name, state, message)
            self._ended.set()


class Supervisor:
    """Watches the queries of one run from a thread of its own, and stops them there when it is asked to."""

    def __init__(
        self,
        board: Board,
        policy: RestartPolicy,
        say: Callable[[str], None],
        *,
        grace: float = STOP_SECONDS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` gets a sentence whenever a query fails; `grace` is how long a stop waits for micro-batches."""
        self.board = board
        self._policy = policy
        self._say = say
        self._grace = grace
        self._clock = clock
        self._queries: dict[str, SupervisedQuery] = {}
        self._lock = threading.Lock()
        self._waiting = 0
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._program_done = False
        self._thread = threading.Thread(target=self._watch, name="moldau-supervisor", daemon=True)

    # ---- what a program does

    def free_name(self, wanted: str) -> str:
        """The name, or with a number behind it when another query has it."""
        names = [wanted, *(f"{wanted}-{number}" for number in range(2, 1000))]
        return next(each for each in names if each not in self._queries)

    def supervise(self, name: str, begin: Callable[[], Query]) -> SupervisedQuery:
        """Start a query and keep it alive. Failing to start at all is the program's error, and raised to it."""
        self.board.add(name)
        query = SupervisedQuery(name, begin, self)
        with self._lock:
            self._queries[name] = query
        return query

    def wait_for_any(self, timeout: float | None = None) -> bool | None:
        """Wait until some query has ended for good."""
        deadline = None if timeout is None else self._clock() + timeout
        with self.waiting():
            while self._queries and not any(not each.isActive for each in self.queries()):
                if deadline is not None and self._clock() >= deadline:
                    return False
                time.sleep(LOOK_SECONDS)
        return None if timeout is None else True

    def waiting(self) -> _Waiting:
        return _Waiting(self)

    @property
    def is_waited_for(self) -> bool:
        """Whether the program itself waits for its queries at this moment."""
        return self._waiting > 0

    # ---- what the runner does

    def start(self) -> None:
        self._thread.start()

    def program_is_done(self) -> None:
        """No more queries will come: the run ends when the last one has."""
        self._program_done = True

    def queries(self) -> list[SupervisedQuery]:
        with self._lock:
            return list(self._queries.values())

    @property
    def failures(self) -> list[tuple[str, Failure]]:
        return [(each.name, each.failure) for each in self.queries() if each.failure is not None]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every query has ended; whether that is so."""
        return self._finished.wait(timeout)

    def ask_to_stop(self) -> None:
        """Let micro-batches end and begin no other. Safe to call from a signal handler."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    # ---- the thread

    def _watch(self) -> None:
        while not self._stopping.is_set():
            for query in self.queries():
                if query.isActive and not self._stopping.is_set():
                    self._look_at(query)
                    if query.failure is not None:
                        # The others do not go on alone.
                        self._stopping.set()
            if self._program_done and not any(each.isActive for each in self.queries()):
                break
            self._stopping.wait(LOOK_SECONDS)
        self._stop_all()
        self._finished.set()

    def _stop_all(self) -> None:
        """Stop every query when its micro-batch is done, or when the grace is over."""
        left = [each for each in self.queries() if each.isActive]
        marks = {each.name: self.board.batches(each.name) for each in left}
        if left:
            self._say("Stopping after the current micro-batch")
        deadline = self._clock() + self._grace
        while left:
            for query in list(left):
                completed = self.board.batches(query.name) > marks[query.name]
                try:
                    if (
                        completed
                        or query.due is not None
                        or _is_between_batches(query.current)
                        or self._clock() >= deadline
                    ):
                        left.remove(query)
                        query.stop()
                except Exception as error:
                    query.end(STOPPED, explain(error).message)
            if left:
                time.sleep(LOOK_SECONDS / 2)

    def _look_at(self, query: SupervisedQuery) -> None:
        if query.due is not None:
            if self._clock() >= query.due:
                self._begin_again(query)
            return
        if query.current.isActive:
            if self.board.state(query.name) == STARTING and _has_begun(query.current):
                # Spark reports nothing before the first micro-batch is over, and a backlog can make that a long one.
                self.board.set_state(query.name, RUNNING)
            return
        error = query.current.exception()
        if error is None:
            query.end(STOPPED if query.stop_wanted else FINISHED)
            return
        self._after_failure(query, explain(error))

    def _after_failure(self, query: SupervisedQuery, failure: Failure) -> None:
        done = self.board.batches(query.name)
        if done > query.batches_before:
            query.attempts = 0
        query.batches_before = done
        query.attempts += 1
        pause = None if failure.permanent else self._policy.pause(query.attempts)
        if pause is None:
            query.failure = failure
            tried = "" if failure.permanent else f" (tried again {query.attempts - 1} times without progress)"
            query.end(FAILED, failure.message)
            self._say(f"{query.name}: {failure.message}{tried}")
            return
        query.due = self._clock() + pause
        self.board.set_state(query.name, RESTARTING, failure.message)
        self._say(f"{query.name}: {failure.message}; starting again in {pause:g} s")

    def _begin_again(self, query: SupervisedQuery) -> None:
        query.due = None
        self.board.count_restart(query.name)
        self.board.set_state(query.name, STARTING)
        try:
            query.begin_again()
        except Exception as error:
            self._after_failure(query, explain(error))


class _Waiting:
    """Notes that the program waits, for as long as it does."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def __enter__(self) -> None:
        self._supervisor._waiting += 1

    def __exit__(self, *_: object) -> None:
        self._supervisor._waiting -= 1


def _has_begun(query: Query) -> bool:
    return str(query.status.get("message", "")).startswith((STATUS_PROCESSING, *STATUS_WAITING))


def _is_between_batches(query: Query) -> bool:
    if not query.isActive:
        return True
    status = query.status
    return not status.get("isTriggerActive") or str(status.get("message", "")).startswith(STATUS_WAITING)
