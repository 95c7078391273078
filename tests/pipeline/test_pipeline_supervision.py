"""Keeping queries alive: attempts, pauses, giving up, stopping between micro-batches; without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.pipeline.progress import FAILED, FINISHED, RUNNING, STARTING, STOPPED, Board
from moldau.pipeline.supervision import RestartPolicy, Supervisor

QUICK = RestartPolicy(first_seconds=0.01, longest_seconds=0.05, most_attempts=3)
PATIENCE = 30.0


class Life:
    """One life of a query, as Spark would show it."""

    def __init__(self, error: str | None = None) -> None:
        self.isActive = error is None
        self.status: dict[str, Any] = {"isTriggerActive": True, "message": "Processing new data"}
        self.recentProgress: list[Any] = []
        self.stopped_at = 0.0
        self._error = error

    def fail(self, error: str) -> None:
        self._error = error
        self.isActive = False

    def finish(self) -> None:
        self.isActive = False

    def exception(self) -> BaseException | None:
        return None if self._error is None else RuntimeError(self._error)

    def stop(self) -> None:
        self.stopped_at = time.monotonic()
        self.isActive = False


class Stage:
    """A supervisor, what it said, and queries that live as told."""

    def __init__(self, policy: RestartPolicy = QUICK, grace: float = PATIENCE) -> None:
        self.said: list[str] = []
        self.board = Board()
        self.supervisor = Supervisor(self.board, policy, self.said.append, grace=grace)
        self.lives: dict[str, list[Life]] = {}

    def query(self, name: str, *errors: str | None, completes_batches: bool = False) -> Any:
        """A query whose first lives fail like that, each at once; the one after them goes on."""
        lives = self.lives[name] = []

        def begin() -> Life:
            number = len(lives)
            if completes_batches:
                self.board.report(progress(name, number))
            lives.append(Life(errors[number] if number < len(errors) else None))
            return lives[-1]

        return self.supervisor.supervise(name, begin)

    def until(self, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.005)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.supervisor.ask_to_stop()
    for lives in made.lives.values():
        for life in lives:
            life.status["isTriggerActive"] = False
    if made.supervisor._thread.is_alive():
        assert made.supervisor.wait(PATIENCE)


def progress(name: str, batch: int) -> dict[str, Any]:
    return {"name": name, "runId": "r", "batchId": batch, "timestamp": "", "durationMs": {"addBatch": 1}}


def test_a_query_runs_as_soon_as_it_is_at_its_first_micro_batch(stage: Stage) -> None:
    stage.query("q")
    stage.lives["q"][0].status["message"] = "Initializing sources"
    stage.supervisor.start()
    time.sleep(0.3)
    assert stage.board.state("q") == STARTING
    stage.lives["q"][0].status["message"] = "Processing new data"
    stage.until(lambda: stage.board.state("q") == RUNNING)


def test_a_failed_query_is_started_again_and_its_program_does_not_notice(stage: Stage) -> None:
    query = stage.query("q", "connection lost", "connection lost")
    stage.supervisor.start()
    stage.until(lambda: len(stage.lives["q"]) == 3)
    assert query.isActive
    assert query.awaitTermination(0.05) is False
    stage.lives["q"][2].finish()
    query.awaitTermination()
    assert not query.isActive
    assert query.exception() is None
    (status,) = stage.board.snapshot()
    assert (status.state, status.restarts) == (FINISHED, 2)
    assert stage.said[0] == "q: connection lost; starting again in 0.01 s"
    assert stage.said[1] == "q: connection lost; starting again in 0.02 s"


def test_too_many_failures_without_progress_end_everything(stage: Stage) -> None:
    stage.query("bad", *["connection lost"] * 9)
    other = stage.query("good")
    stage.lives["good"][0].status["message"] = "Waiting for data to arrive"
    stage.supervisor.start()
    assert stage.supervisor.wait(PATIENCE)
    assert len(stage.lives["bad"]) == 4
    assert not other.isActive
    assert {each.name: each.state for each in stage.board.snapshot()} == {"bad": FAILED, "good": STOPPED}
    assert [name for name, _ in stage.supervisor.failures] == ["bad"]
    assert "bad: connection lost (tried again 3 times without progress)" in stage.said


def test_progress_makes_failures_forgotten(stage: Stage) -> None:
    # Three times as many failures as the policy allows, but each after a completed micro-batch.
    stage.query("q", *["connection lost"] * 9, completes_batches=True)
    stage.supervisor.start()
    stage.until(lambda: len(stage.lives["q"]) == 10)
    assert stage.supervisor.failures == []
    assert {each.rpartition(" in ")[2] for each in stage.said} == {"0.01 s"}


def test_what_cannot_get_better_is_not_tried_again(stage: Stage) -> None:
    query = stage.query("q", "moldau.client.errors.MoldauError: There is no topic 'x': check its name")
    stage.supervisor.start()
    query.awaitTermination()
    assert stage.supervisor.wait(PATIENCE)
    assert len(stage.lives["q"]) == 1
    assert stage.said == ["q: There is no topic 'x': check its name"]
    assert query.exception() is not None


def test_a_stop_waits_for_the_micro_batch(stage: Stage) -> None:
    waiting = stage.query("waiting")
    busy = stage.query("busy")
    stage.lives["waiting"][0].status = {"isTriggerActive": False, "message": "Waiting for next trigger"}
    stage.supervisor.start()
    stage.supervisor.ask_to_stop()
    stage.until(lambda: not waiting.isActive)
    time.sleep(0.1)
    assert busy.isActive
    done_at = time.monotonic()
    stage.board.report(progress("busy", 0))
    assert stage.supervisor.wait(PATIENCE)
    assert stage.lives["busy"][0].stopped_at >= done_at
    assert [each.state for each in stage.board.snapshot()] == [STOPPED, STOPPED]


def test_a_stop_does_not_wait_forever() -> None:
    stage = Stage(grace=0.2)
    stage.query("busy")
    stage.supervisor.start()
    stage.supervisor.ask_to_stop()
    assert stage.supervisor.wait(PATIENCE)
    assert stage.lives["busy"][0].stopped_at


def test_a_run_is_over_when_the_program_and_its_queries_are(stage: Stage) -> None:
    stage.query("q")
    stage.supervisor.start()
    stage.lives["q"][0].finish()
    assert not stage.supervisor.wait(0.3), "the program may start another one"
    stage.supervisor.program_is_done()
    assert stage.supervisor.wait(PATIENCE)


def test_waiting_for_any_query(stage: Stage) -> None:
    stage.query("one")
    stage.query("two")
    stage.supervisor.start()
    assert stage.supervisor.wait_for_any(0.2) is False
    threading.Timer(0.1, stage.lives["two"][0].finish).start()
    assert stage.supervisor.wait_for_any() is None


def test_names_are_unique(stage: Stage) -> None:
    stage.query(stage.supervisor.free_name("out"))
    stage.query(stage.supervisor.free_name("out"))
    assert [each.name for each in stage.board.snapshot()] == ["out", "out-2"]


def test_pauses_grow_up_to_a_limit() -> None:
    policy = RestartPolicy(first_seconds=1, longest_seconds=5, most_attempts=5)
    assert [policy.pause(attempt) for attempt in range(1, 7)] == [1, 2, 4, 5, 5, None]
