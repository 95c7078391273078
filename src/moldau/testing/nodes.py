"""Several real nodes on this machine, each a process of its own, forming one cluster: started, killed, frozen, ended.

Ports are taken from the system before the start, since every node must know the others' beforehand.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from moldau.config.properties import format_properties

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
CLUSTER_ID = "bW9sZGF1LXRlc3RpbmctMQ"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class NodeProcess:
    """One node of such a cluster through all its lives."""

    def __init__(self, node_id: int, directory: Path, properties: Mapping[str, str]) -> None:
        self.id = node_id
        self.directory = directory
        self.properties = dict(properties)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node has not been started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process without waiting for the node."""
        assert not self.is_running, f"node {self.id} is running already"
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "server.properties"
        path.write_text(format_properties(self.properties))
        with contextlib.suppress(FileNotFoundError):
            self._port_file.unlink()
        with (self.directory / "node.log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moldau", "start", str(path), "--port-file", str(self._port_file)],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )

    @property
    def _port_file(self) -> Path:
        return self.directory / "port"

    @property
    def is_ready(self) -> bool:
        return self._port_file.exists()

    def wait_until_ready(self, seconds: float = START_SECONDS_MAX) -> None:
        deadline = time.monotonic() + seconds
        while not self.is_ready:
            if not self.is_running or time.monotonic() > deadline:
                raise RuntimeError(f"node {self.id} did not start:\n{self.last_words()}")
            time.sleep(0.005)

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def log(self) -> str:
        return (self.directory / "node.log").read_text(errors="replace")

    def last_words(self) -> str:
        return self.log()[-3000:]

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        assert self._process is not None, "the node has not been started"
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Shut down cleanly; the exit code."""
        assert self._process is not None, "the node has not been started"
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class NodeCluster:
    """`with NodeCluster(combined=3) as cluster: ... cluster.bootstrap_servers`; or separate controllers and brokers."""

    def __init__(
        self,
        *,
        combined: int = 0,
        controllers: int = 0,
        brokers: int = 0,
        dynamic: bool = False,
        config: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
    ) -> None:
        """Node ids count from 1: combined nodes first, then controllers, then brokers. The controllers are fixed
        voters of the quorum; in a `dynamic` one the first begins alone and the others join it. `config` overrides the
        properties of every node; `data_dir` keeps the data after the end, a temporary one does not."""
        assert combined + controllers > 0, "a cluster needs a controller"
        self._own_dir = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="moldau-")) if data_dir is None else Path(data_dir)
        roles = ["broker,controller"] * combined + ["controller"] * controllers + ["broker"] * brokers
        ports = free_ports(2 * len(roles))
        voters = [i for i, role in enumerate(roles) if "controller" in role]
        self._quorum = {"controller.quorum.voters": ",".join(f"{i + 1}@127.0.0.1:{ports[2 * i + 1]}" for i in voters)}
        if dynamic:
            self._quorum = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{ports[2 * voters[0] + 1]}"}
        self._config = dict(config or {})
        self.nodes = {
            i + 1: NodeProcess(
                i + 1, self.data_dir / f"node-{i + 1}", self._properties(i + 1, role, ports[2 * i], ports[2 * i + 1])
            )
            for i, role in enumerate(roles)
        }

    def _properties(self, node_id: int, role: str, port: int, controller_port: int) -> dict[str, str]:
        listeners = []
        if "broker" in role:
            listeners.append(f"PLAINTEXT://127.0.0.1:{port}")
        if "controller" in role:
            listeners.append(f"CONTROLLER://127.0.0.1:{controller_port}")
        quorum = dict(self._quorum)
        if "controller" in role and "controller.quorum.voters" not in quorum:
            quorum["controller.quorum.auto.join.enable"] = "true"
        return {
            "node.id": str(node_id),
            "process.roles": role,
            "cluster.id": CLUSTER_ID,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            **quorum,
            "log.dirs": str(self.data_dir / f"node-{node_id}" / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._config,
        }

    # ---- life

    def start(self) -> NodeCluster:
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()
        return self

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> NodeCluster:
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
        return ",".join(self._addresses("PLAINTEXT://"))

    @property
    def controller_servers(self) -> str:
        return ",".join(self._addresses("CONTROLLER://"))

    def _addresses(self, scheme: str) -> Sequence[str]:
        return [
            listener.removeprefix(scheme)
            for node in self.nodes.values()
            for listener in node.properties["listeners"].split(",")
            if listener.startswith(scheme)
        ]
