"""A cluster of three under load, broken in several ways; `tests.faults.cluster_run` does it for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.cluster_run import run

# Half of the faults: those that need no long waiting and have failed differently from each other.
FAULTS = ["kill_leader", "cut_off_leader", "bridge", "damage", "kill_all", "one_way", "full_disk", "clock_jump"]


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_whatever_happens(tmp_path: Path) -> None:
    report = run(FAULTS, seed=3, data_dir=tmp_path, progress_seconds=60)
    assert report.problems + report.verdict.problems == []
    assert set(report.costs) == set(FAULTS)
    assert report.verdict.acknowledged > 1000
