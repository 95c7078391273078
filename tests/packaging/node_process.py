"""A node as its own process, started the way people start it, with everything it says kept."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from socket import create_connection
from types import TracebackType

START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 10.0
MOLDAU = (sys.executable, "-m", "moldau")


def one_node(directory: Path, **more: str) -> dict[str, str]:
    """Properties of a node on free ports; names of further ones have underscores for dots."""
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": str(directory),
        "offsets.topic.replication.factor": "1",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def clean_environment() -> dict[str, str]:
    """The environment without what would put this checkout on the path of another interpreter."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


class NodeProcess:
    """`moldau start` with a properties file. Leaving the `with` block ends it, gently if it still runs."""

    def __init__(
        self,
        home: Path,
        properties: Mapping[str, str],
        *arguments: str,
        command: Sequence[str] = MOLDAU,
        environment: Mapping[str, str] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """`prepare` runs in the new process before the node does."""
        home.mkdir(parents=True, exist_ok=True)
        self._port_file = home / "port"
        self._port_file.unlink(missing_ok=True)
        file = home / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._process = subprocess.Popen(
            [*command, "start", str(file), "--port-file", str(self._port_file), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
            env={**(os.environ if command is MOLDAU else clean_environment()), **(environment or {})},
            preexec_fn=prepare,
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)

    @property
    def said(self) -> str:
        return "".join(self._said)

    def ready(self) -> str:
        """Wait until it serves; its bootstrap servers."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._port_file.exists() or "is ready" not in self.said:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the node did not start:\n{self.said}")
            time.sleep(0.005)
        return f"127.0.0.1:{self._port_file.read_text()}"

    def said_something(self) -> None:
        """Wait for its first words: it has taken over its signals by then, but does not serve yet."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._said and time.monotonic() < deadline:
            time.sleep(0.001)

    def ended(self) -> int:
        """Wait for its end by itself; the exit code."""
        code = self._process.wait(STOP_SECONDS_MAX)
        self._listener.join(STOP_SECONDS_MAX)
        return code

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Ask it to stop; how many seconds that took. It must succeed."""
        began = time.monotonic()
        self._process.send_signal(number)
        assert self.ended() == 0, self.said
        return time.monotonic() - began

    def kill(self) -> None:
        self._process.kill()
        self.ended()

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def ask_api_versions(servers: str) -> dict[int, tuple[int, int]]:
    """ApiVersions in its oldest version over a bare socket: key -> (lowest, highest) version."""
    host, _, port = servers.partition(":")
    with create_connection((host, int(port)), timeout=10) as connection:
        request = struct.pack(">hhih", 18, 0, 7, -1)
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        body = answer.read(size)
    correlation, error, count = struct.unpack_from(">ihi", body)
    assert (correlation, error) == (7, 0)
    ranges = [struct.unpack_from(">hhh", body, 10 + 6 * i) for i in range(count)]
    return {key: (low, high) for key, low, high in ranges}
