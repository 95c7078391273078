"""`moldau start --nodes 3`: ports, directories and copies of the nodes, and their supervision as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from moldau.config.one_node import defaults_for_one_node
from moldau.config.types import ConfigError
from moldau.node.supervised_nodes import properties_of_nodes

PATIENCE_SECONDS = 90.0


# ---- what each node is told


def test_ports_follow_those_of_the_first_node() -> None:
    nodes = properties_of_nodes(defaults_for_one_node(), 3)
    assert [each["node.id"] for each in nodes] == ["1", "2", "3"]
    assert [each["listeners"] for each in nodes] == [
        f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{port + 1}" for port in (9092, 9094, 9096)
    ]
    assert {each["controller.quorum.bootstrap.servers"] for each in nodes} == {
        "localhost:9093,localhost:9095,localhost:9097"
    }
    assert [each["log.dirs"] for each in nodes] == ["./data/node-1", "./data/node-2", "./data/node-3"]
    assert [each["moldau.http.listener"] for each in nodes] == ["localhost:9644", "localhost:9645", "localhost:9646"]


def test_three_nodes_keep_three_copies_unless_told_otherwise() -> None:
    [first, *_] = properties_of_nodes({"listeners": "PLAINTEXT://:9092", "min.insync.replicas": "1"}, 3)
    assert first["default.replication.factor"] == first["offsets.topic.replication.factor"] == "3"
    assert first["transaction.state.log.min.isr"] == "2"
    assert first["min.insync.replicas"] == "1"


@pytest.mark.parametrize(("nodes", "controllers"), [(2, [1]), (3, [1, 2, 3]), (5, [1, 2, 3])])
def test_the_first_nodes_are_the_controllers(nodes: int, controllers: list[int]) -> None:
    found = properties_of_nodes({"listeners": "PLAINTEXT://:9092", "controller.quorum.voters": "1@old:9"}, nodes)
    assert [int(each["node.id"]) for each in found if "controller" in each["process.roles"]] == controllers
    assert all(("CONTROLLER://" in each["listeners"]) == ("controller" in each["process.roles"]) for each in found)
    assert not any("controller.quorum.voters" in each for each in found)


@given(
    ports=st.lists(st.integers(1024, 20_000), min_size=2, max_size=4, unique=True),
    nodes=st.integers(2, 12),
)
def test_no_two_nodes_share_a_port(ports: list[int], nodes: int) -> None:
    names = ["CONTROLLER", "A", "B", "C"]
    listeners = ",".join(f"{name}://:{port}" for name, port in zip(names, ports, strict=False))
    found = [each["listeners"] for each in properties_of_nodes({"listeners": listeners}, nodes)]
    used = [listener.rpartition(":")[2] for each in found for listener in each.split(",")]
    assert len(used) == len(set(used))


@pytest.mark.parametrize("listeners", ["PLAINTEXT://:0", "CONTROLLER://:9093", "nonsense"])
def test_listeners_that_cannot_be_multiplied_are_refused(listeners: str) -> None:
    with pytest.raises(ConfigError, match="listeners"):
        properties_of_nodes({"listeners": listeners}, 3)


# ---- supervision


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def base_port(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    for first in range(21_000 + os.getpid() % 8_000, 60_000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


class Supervised:
    def __init__(self, directory: Path) -> None:
        self.port = base_port(6)
        self.directory = directory
        self._output = directory / "output"
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1}"
        command = [sys.executable, "-m", "moldau", "start", "--nodes", "3", "--override", f"listeners={listeners}"]
        command += ["--override", f"log.dirs={directory / 'data'}", "--override", "moldau.http.listener="]
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory)

    def output(self) -> str:
        return self._output.read_text()

    def wait_until_ready(self) -> None:
        eventually(lambda: "3 nodes are ready" in self.output() or self.process.poll() is not None)
        assert self.process.poll() is None, self.output()

    def children(self) -> dict[int, int]:
        """Node -> pid."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            for node in (1, 2, 3):
                if str(self.directory / "data" / f"node-{node}.properties").encode() in command:
                    found[node] = int(entry.name)
        return found

    def brokers(self) -> set[int]:
        listed = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"}).list_topics(timeout=10)
        return set(listed.brokers)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    running = Supervised(tmp_path)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        for pid in running.children().values():
            os.kill(pid, signal.SIGKILL)


def test_a_killed_node_comes_back_and_a_word_ends_all(supervised: Supervised) -> None:
    eventually(lambda: supervised.brokers() == {1, 2, 3})
    before = supervised.children()
    os.kill(before[3], signal.SIGKILL)
    eventually(lambda: supervised.children().get(3, before[3]) != before[3])
    eventually(lambda: supervised.output().count("is ready: node 3") == 2)
    eventually(lambda: supervised.brokers() == {1, 2, 3})
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.process.wait(PATIENCE_SECONDS) == 0
    assert supervised.children() == {}
    assert all(f"node-{node} | " in supervised.output() for node in (1, 2, 3))


def test_nodes_end_with_their_supervisor(supervised: Supervised) -> None:
    supervised.process.kill()
    supervised.process.wait()
    eventually(lambda: supervised.children() == {})


def test_a_second_signal_kills(supervised: Supervised) -> None:
    for pid in supervised.children().values():
        os.kill(pid, signal.SIGSTOP)  # none of them will hear the polite word
    supervised.process.send_signal(signal.SIGINT)
    eventually(lambda: "stopping all nodes" in supervised.output())
    supervised.process.send_signal(signal.SIGINT)
    assert supervised.process.wait(PATIENCE_SECONDS) == 130
    assert supervised.children() == {}


def test_the_directory_of_a_single_node_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    command = [sys.executable, "-m", "moldau", "start", "--nodes", "3"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 2
    assert b"single node" in ended.stderr


def test_a_node_that_cannot_start_ends_the_start(tmp_path: Path) -> None:
    taken = base_port(6)
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken + 2))
        other.listen()
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{taken},CONTROLLER://127.0.0.1:{taken + 1}"
        command = [sys.executable, "-m", "moldau", "start", "--nodes", "3", "--override", listeners]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 1
    assert b"node 2 could not start" in ended.stderr
