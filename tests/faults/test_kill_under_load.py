"""kill -9 under load, a few times: nothing acknowledged is lost. `kill_run.py` does the same fifty times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kill_load import History, Stream, Verdict, compare, value_of
from tests.faults.kill_run import STREAMS, run

STREAM = Stream("t", partitions=1)


def test_a_killed_node_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    report = run(5, seed=5, streams=STREAMS, rate=150, longest_life=0.7, data_dir=tmp_path)
    assert report.verdict.problems == []
    assert report.verdict.acknowledged > 0


# ---- the judgement itself: it must see what it is there to see


def judged(stored: list[int], acknowledged: dict[int, int], seen: dict[int, int] | None = None) -> list[str]:
    history = History(STREAM)
    history.acknowledged[0] = acknowledged
    verdict = Verdict()
    compare(
        verdict,
        history,
        0,
        {offset: value_of(STREAM, 0, number) for offset, number in enumerate(stored)},
        {offset: value_of(STREAM, 0, number) for offset, number in (seen or {}).items()},
    )
    return [problem.split(": ", 1)[1] for problem in verdict.problems]


def test_the_judge_accepts_a_good_history() -> None:
    # The last record was written, but its acknowledgement never came.
    assert judged([0, 1, 2], {0: 0, 1: 1}, {0: 0, 1: 1}) == []


@pytest.mark.parametrize(
    ("stored", "acknowledged", "seen", "complaint"),
    [
        ([0], {0: 0, 1: 1}, {}, "1 acknowledged records are not where they were, e.g. [1]"),
        ([1, 0], {}, {}, "records are out of order"),
        ([0, 2], {0: 0, 2: 1}, {}, "there are records missing in between"),
        ([0, 1, 1], {0: 0, 1: 1}, {}, "1 duplicates of an idempotent producer"),
        ([0], {0: 0}, {1: 1}, "1 records that were served are gone or others, e.g. [1]"),
        ([0, 1], {0: 0}, {1: 2}, "1 records that were served are gone or others, e.g. [1]"),
    ],
)
def test_the_judge_sees(stored: list[int], acknowledged: dict[int, int], seen: dict[int, int], complaint: str) -> None:
    assert complaint in judged(stored, acknowledged, seen)
