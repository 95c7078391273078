"""Exactly once, with kill -9 of the node and of the copiers, and zombies. `txn_run.py` does the same for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.txn_run import run


@pytest.mark.timeout(200)
def test_a_copy_in_transactions_equals_the_original(tmp_path: Path) -> None:
    report = run(3000, 5, seed=3, data_dir=tmp_path, seconds_max=120)
    assert sum(report.faults.values()) == 5
    assert report.problems == []
