"""The client side of a row, in a process of its own so that its CPU time is never counted as the broker's.

    python -m benchmarks.client benchmarks.rows.produce:client

The named function gets its task (one JSON line on stdin), connects, and returns the work to be timed. The process says
"ready", waits for a line, works, and answers with one JSON line. `ClientProcess` is the other end of that conversation.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import process

Task = dict[str, Any]
Result = dict[str, Any]
Work = Callable[[], Result]
Connect = Callable[[Task], Work]


class ClientFailed(RuntimeError):
    """A client process ended without an answer; what it printed on stderr is on the terminal."""


class ClientProcess:
    """Starts a client, tells it when to go, and collects its answer."""

    def __init__(self, connect: Connect, task: Task) -> None:
        self.name = f"{connect.__module__}:{connect.__name__}"
        command = [sys.executable, "-m", "benchmarks.client", self.name]
        self._process = process.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send(json.dumps(task))

    def wait_until_ready(self) -> None:
        if self._line() != "ready":
            raise ClientFailed(self.name)

    def cpu_seconds(self) -> float:
        return process.cpu_seconds(self._process.pid)

    def go(self) -> None:
        self._send("go")

    def result(self) -> Result:
        """The client's answer, after its process has ended."""
        line = self._line()
        if not line or self._process.wait() != 0:
            raise ClientFailed(self.name)
        answer: Result = json.loads(line)
        return answer

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()


def main() -> None:
    module, _, function = sys.argv[1].partition(":")
    connect: Connect = getattr(importlib.import_module(module), function)
    work = connect(json.loads(sys.stdin.readline()))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(work()), flush=True)
    # The answer is out. Taking the client apart (a consumer says goodbye to its group first) is nobody's measurement.
    os._exit(0)


if __name__ == "__main__":
    main()
