"""The directory in which brokers keep their data while a benchmark runs; only one benchmark runs at a time.

Two at once would measure each other, so the second waits. What a killed run left behind goes when the next one begins.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DATA_DIRECTORY = Path(__file__).resolve().parent / ".data"


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """An empty directory on the disk of the checkout, ours alone until the block ends."""
    DATA_DIRECTORY.mkdir(exist_ok=True)
    with (DATA_DIRECTORY / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another benchmark is running; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        work = DATA_DIRECTORY / "run"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
