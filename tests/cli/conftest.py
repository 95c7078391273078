"""A cluster for the commands to talk to, and ways to run them for real.

By default the cluster is an embedded Moldau node. MOLDAU_TEST_BOOTSTRAP names another one, of any make: the same tests
then run against it (`MOLDAU_TEST_BOOTSTRAP=localhost:9092 pytest tests/cli`).
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("MOLDAU_TEST_BOOTSTRAP")
    if given:
        return given
    cluster: Any = request.getfixturevalue("moldau_cluster")
    servers: str = cluster.bootstrap_servers
    return servers


@pytest.fixture
def topic() -> str:
    """A name nobody else uses."""
    return f"cli-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run a command's `main` in this process."""

    def run(main: Callable[[Sequence[str]], int], *argv: object, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(each) for each in argv])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def kafka(call: Callable[..., Done], bootstrap: str) -> Callable[..., Done]:
    """Run one of Kafka's commands against the cluster: kafka("topics", "--list")."""
    from importlib import import_module

    def run(command: str, *argv: object, stdin: bytes = b"") -> Done:
        main = import_module(f"moldau.cli.kafka.{command}").main
        return call(main, "--bootstrap-server", bootstrap, *argv, stdin=stdin)

    return run


@pytest.fixture
def moldau(call: Callable[..., Done], bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run one of people's commands against the cluster: moldau("topic", "list")."""
    from moldau.cli.main import main

    monkeypatch.setenv("MOLDAU_BOOTSTRAP", bootstrap)

    def run(*argv: object, stdin: bytes = b"") -> Done:
        return call(main, *argv, stdin=stdin)

    return run


def spawn(module: str, *argv: object, stdin: bytes = b"") -> Done:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", f"moldau.cli.{module}", *map(str, argv)],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
