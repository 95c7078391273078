"""A disk that is full takes its partitions offline; with room again and a restart they are whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# A mount of its own, invisible to everybody else, also for those who are not root.
NAMESPACE = ["unshare", "--mount", "--map-root-user"]


def may_mount(directory: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = [*NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_log_directory_that_fills_up(tmp_path: Path) -> None:
    if not may_mount(tmp_path):
        pytest.skip("this machine allows no mounts in a namespace")
    command = [*NAMESPACE, sys.executable, "-m", "tests.faults.full_disk", str(tmp_path / "node")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a full disk was survived" in done.stdout
