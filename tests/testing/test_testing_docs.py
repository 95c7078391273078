"""docs/testing.md: its programs run as they are, and every call and fixture it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.testing import Cluster, pytest_plugin

TEXT = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
PROGRAMS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
SECONDS_MAX = 120


@pytest.mark.timeout(2 * SECONDS_MAX)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs(tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    program.write_text(PROGRAMS[name])
    command = [sys.executable, "-m", "pytest", "-q"] if name.startswith("test_") else [sys.executable]
    done = subprocess.run(
        [*command, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_programs() -> None:
    assert set(PROGRAMS) == {"one_broker.py", "test_orders.py", "a_leader_dies.py"}


def test_every_call_and_fixture_exists() -> None:
    calls = {
        name for row in re.findall(r"^\| (`\w+\(.*?) \|", TEXT, re.MULTILINE) for name in re.findall(r"`(\w+)\(", row)
    }
    assert {"kill", "freeze", "partition", "heal", "slow"} <= calls
    assert [name for name in calls if not callable(getattr(Cluster, name, None))] == []
    fixtures = set(re.findall(r"^\| `(\w*moldau\w*)` \|", TEXT, re.MULTILINE))
    assert len(fixtures) == 5
    assert [name for name in fixtures if not hasattr(pytest_plugin, name)] == []
