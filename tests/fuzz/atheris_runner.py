"""What the coverage-guided fuzzers share: a seed corpus, a node that is renewed now and then, and a count at the end.

atheris is no locked dependency; it has wheels for some Python versions only. In an environment that has the project's
dependencies: `pip install atheris==3.0.0`, then for example

    python -m tests.fuzz.atheris_frames -max_total_time=300
    python -m tests.fuzz.atheris_batches -max_total_time=300

Every finding stops the run with its traceback and leaves the input in a file `crash-...` in the working directory, with
which the same command repeats it. Options are libFuzzer's; a directory as the last argument keeps the corpus.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.fuzz.fuzz_node import FuzzNode

# A node remembers topics, groups and records: a new one now and then keeps runs fast and findings repeatable.
INPUTS_PER_NODE = 2000


class Target:
    """Feeds inputs to a node."""

    def __init__(self, feed: Callable[[FuzzNode, bytes], None]) -> None:
        self._feed = feed
        self._node: FuzzNode | None = None
        self._fed = 0

    def __call__(self, data: bytes) -> None:
        if self._node is None or self._fed >= INPUTS_PER_NODE:
            self._renew()
        assert self._node is not None
        self._fed += 1
        self._feed(self._node, data)

    def _renew(self) -> None:
        if self._node is not None:
            self._node.alive()
            self._node.__exit__()
        self._node = FuzzNode()
        self._node.__enter__()
        self._fed = 0


def run(feed: Callable[[FuzzNode, bytes], None], seeds: Iterable[bytes]) -> None:
    import atheris

    arguments = list(sys.argv)
    if len(arguments) == 1 or arguments[-1].startswith("-"):
        corpus = tempfile.mkdtemp(prefix="moldau-corpus-")
        arguments.append(corpus)
    if Path(arguments[-1]).is_dir():
        for number, seed in enumerate(seeds):
            (Path(arguments[-1]) / f"seed-{number:05}").write_bytes(seed)
    atheris.Setup(arguments, Target(feed))
    atheris.Fuzz()
