"""An embedded node on a random port with a temporary directory, up in milliseconds.

By default it runs on a thread of this process; `in_process=False` gives it a process of its own, which can be killed
without mercy (`kill`) and started again on the same data (`start`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from moldau.config.one_node import defaults_for_one_node
from moldau.config.properties import format_properties

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0


class Cluster:
    """One node that any Kafka client can connect to for as long as the `with` block lasts."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        in_process: bool = True,
        data_dir: str | Path | None = None,
    ) -> None:
        """`config` overrides server.properties; `data_dir` keeps the data after the end, a temporary one does not."""
        self._own_dir = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="moldau-")) if data_dir is None else Path(data_dir)
        self._config = {
            **defaults_for_one_node(
                data_directory=str(self.data_dir / "data"), host="127.0.0.1", port=0, controller_port=0
            ),
            "moldau.http.listener": "",
            **(config or {}),
        }
        self._in_process = in_process
        self._runner: _Thread | _Process | None = None
        self._port = 0

    # ---- life

    def start(self) -> Cluster:
        assert self._runner is None, "the cluster is running already"
        runner = _Thread(self._config) if self._in_process else _Process(self._config, self.data_dir)
        self._port = runner.start(self._port)
        self._runner = runner
        return self

    def stop(self) -> None:
        """Shut down cleanly; the data stays until `close`."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()

    def kill(self) -> None:
        """End the node's process with SIGKILL, as a crash would. Only with `in_process=False`."""
        runner, self._runner = self._runner, None
        assert isinstance(runner, _Process), "only a node with a process of its own can be killed"
        runner.kill()

    def restart(self) -> Cluster:
        self.stop()
        return self.start()

    def close(self) -> None:
        self.stop()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Cluster:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ---- use

    @property
    def bootstrap_servers(self) -> str:
        assert self._port, "the cluster has not been started"
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process the node runs in."""
        return self._runner.pid if isinstance(self._runner, _Process) else os.getpid()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and return when it can be used."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([topic])[name].result(20)


class _Thread:
    """A node on an event loop of its own, in a thread of this process."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._port = 0
        self._stop: Any = None
        self._thread = threading.Thread(target=self._run, name="moldau-node", daemon=True)

    def start(self, port: int) -> int:
        self._wanted = port
        self._thread.start()
        assert self._ready.wait(START_SECONDS_MAX), "the node did not start in time"
        if self._failure is not None:
            raise self._failure
        return self._port

    def _run(self) -> None:
        import uvloop

        async def main() -> None:
            import asyncio

            from moldau.config.node_config import NodeConfig
            from moldau.node.node import Node

            stopped = asyncio.Event()
            node = Node(NodeConfig.load(_with_port(self._config, self._wanted)), stopped.set)
            loop = asyncio.get_running_loop()
            self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
            try:
                await node.start()
                self._port = node.client_port
                self._ready.set()
                await stopped.wait()
            finally:
                # Also after a failed start: the directories would stay locked for the rest of this process.
                await node.stop()

        try:
            uvloop.run(main())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    def stop(self) -> None:
        if self._thread.is_alive() and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                self._stop()
        self._thread.join(STOP_SECONDS_MAX)
        assert not self._thread.is_alive(), "the node did not stop in time"
        if self._failure is not None:
            raise self._failure


class _Process:
    """A node as `moldau start` runs it."""

    def __init__(self, config: Mapping[str, str], directory: Path) -> None:
        self._config = config
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, port: int) -> int:
        self._directory.mkdir(parents=True, exist_ok=True)
        properties = self._directory / "server.properties"
        properties.write_text(format_properties(_with_port(self._config, port)))
        port_file = self._directory / "port"
        with contextlib.suppress(FileNotFoundError):
            port_file.unlink()
        with (self._directory / "node.log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moldau", "start", str(properties), "--port-file", str(port_file)],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not port_file.exists():
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the node did not start (exit code {code}):\n{self._last_words()}")
            time.sleep(0.005)
        return int(port_file.read_text())

    def _last_words(self) -> str:
        return (self._directory / "node.log").read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def _with_port(config: Mapping[str, str], port: int) -> dict[str, str]:
    """The same client port after a restart: clients go on with the address they know."""
    changed = dict(config)
    changed["listeners"] = changed["listeners"].replace("PLAINTEXT://127.0.0.1:0", f"PLAINTEXT://127.0.0.1:{port}")
    return changed
