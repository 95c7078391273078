"""Several real nodes on this machine, each a process of its own, forming one cluster: started, killed, frozen, cut off
from each other, ended. `moldau.testing.Cluster` is the same for those who only want a cluster.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from moldau.config.properties import format_properties
from moldau.node.peers import FAULTS_VARIABLE
from moldau.testing.asking import ask
from moldau.testing.links import Links

if TYPE_CHECKING:
    from moldau.protocol.generated.wire.metadata_response import MetadataResponsePartition

T = TypeVar("T")

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
WAIT_SECONDS_MAX = 60.0
CLUSTER_ID = "bW9sZGF1LXRlc3RpbmctMQ"
METADATA_VERSION = 12
DESCRIBE_QUORUM_VERSION = 1


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

    def __init__(
        self, node_id: int, directory: Path, properties: Mapping[str, str], faults_socket: str | None = None
    ) -> None:
        """`faults_socket` is where the node takes orders about its links, if it shall take any."""
        self.id = node_id
        self.directory = directory
        self.properties = dict(properties)
        self._faults_socket = faults_socket
        self._process: subprocess.Popen[bytes] | None = None
        self.is_frozen = False

    @property
    def is_broker(self) -> bool:
        return "broker" in self.properties["process.roles"]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Everything it listens on."""
        found = [listener.partition("://")[2] for listener in self.properties["listeners"].split(",")]
        return [(host, int(port)) for host, _, port in (each.rpartition(":") for each in found)]

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
        self.is_frozen = False
        environment = dict(os.environ)
        if self._faults_socket is not None:
            environment[FAULTS_VARIABLE] = self._faults_socket
        with (self.directory / "node.log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moldau", "start", str(path), "--port-file", str(self._port_file)],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=environment,
            )

    @property
    def client_port(self) -> int:
        """The port that clients use, as the node itself told."""
        return int(self._port_file.read_text())

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
        """SIGSTOP: it keeps its connections, and says nothing on them."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_frozen = False

    def begin_to_stop(self) -> None:
        assert self._process is not None, "the node has not been started"
        if self.is_frozen:
            self.thaw()
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Shut down cleanly; the exit code."""
        assert self._process is not None, "the node has not been started"
        self.begin_to_stop()
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
        self._config = dict(config or {})
        self._links = Links()
        roles = ["broker,controller"] * combined + ["controller"] * controllers + ["broker"] * brokers
        ports = free_ports(2 * len(roles))
        voters = [i for i, role in enumerate(roles) if "controller" in role]
        self._quorum = {"controller.quorum.voters": ",".join(f"{i + 1}@127.0.0.1:{ports[2 * i + 1]}" for i in voters)}
        if dynamic:
            self._quorum = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{ports[2 * voters[0] + 1]}"}
        self.nodes: dict[int, NodeProcess] = {}
        for i, role in enumerate(roles):
            self._create(i + 1, role, ports[2 * i], ports[2 * i + 1], {})

    def _create(
        self, node_id: int, role: str, port: int, controller_port: int, config: Mapping[str, str]
    ) -> NodeProcess:
        properties = {**self._properties(node_id, role, port, controller_port), **config}
        directory = self.data_dir / f"node-{node_id}"
        node = self.nodes[node_id] = NodeProcess(node_id, directory, properties, self._links.socket_of(node_id))
        self._links.add(node)
        return node

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

    def start(self) -> Self:
        """Start every node that does not run, and wait until all serve."""
        idle = [node for node in self.nodes.values() if not node.is_running]
        for node in idle:
            node.launch()
        for node in idle:
            node.wait_until_ready()
        return self

    def add(self, *, controller: bool = False, config: Mapping[str, str] | None = None) -> NodeProcess:
        """One more broker, started; one that is a `controller` as well joins a dynamic quorum."""
        role = "broker,controller" if controller else "broker"
        port, controller_port = free_ports(2)
        node = self._create(max(self.nodes) + 1, role, port, controller_port, config or {})
        node.start()
        return node

    def stop(self) -> None:
        """Shut every node down cleanly, all at once; the data stays."""
        running = [node for node in self.nodes.values() if node.is_running]
        for node in running:
            node.begin_to_stop()
        for node in running:
            node.stop()

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill()
        self._links.close()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ---- faults between nodes

    def partition(self, *sides: int | Iterable[int], one_way: bool = False) -> None:
        """Cut the network between the sides, each a node or several; a node that is in none of them is not affected,
        so that it can be the bridge between two that do not see each other. `one_way` only stops what goes from the
        first side to the others. Cuts add up until `heal`."""
        groups = [_ids(side) for side in sides]
        assert len(groups) > 1, "a partition has two sides or more"
        pairs = [pair for a in groups for b in groups if a is not b for pair in product(a, b)]
        if one_way:
            pairs = [pair for b in groups[1:] for pair in product(groups[0], b)]
        self._links.cut(pairs)

    def isolate(self, *nodes: int) -> None:
        """Cut each of these nodes off from all others."""
        self._links.cut(pair for a in nodes for b in self.nodes if a != b for pair in ((a, b), (b, a)))

    def slow(self, *nodes: int, delay_ms: float) -> None:
        """Everything takes so much longer on the links of these nodes, each way; of all nodes when none is named."""
        self._links.slow(((a, b) for a in nodes or self.nodes for b in self.nodes if a != b), delay_ms)

    def reset_links(self, *nodes: int) -> None:
        """Break the connections of these nodes (of all when none is named) to others; new ones can be made at once."""
        self._links.reset((a, b) for a in nodes or self.nodes for b in self.nodes if a != b)

    def shift_clock(self, node_id: int, seconds: float) -> None:
        """A node's clock jumps, and is wrong by so much until `heal`."""
        self._links.shift_clock(node_id, int(seconds * 1000))

    def heal(self) -> None:
        """Take all faults off the network and the clocks."""
        self._links.heal()

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

    def leader_of(self, topic: str, partition: int = 0, *, seconds: float = WAIT_SECONDS_MAX) -> int:
        """The node that leads this partition, as a live broker knows it; waits until there is one."""
        return self._eventually(
            lambda port: self._leader(port, topic, partition), seconds, f"{topic}-{partition} has no leader"
        )

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The partition's in-sync replicas."""
        return self._eventually(
            lambda port: _partition(port, topic, partition).isr_nodes, WAIT_SECONDS_MAX, f"no {topic}-{partition}"
        )

    def active_controller(self, *, seconds: float = WAIT_SECONDS_MAX) -> int:
        """The node that leads the quorum, as a live broker knows it; waits until there is one."""
        return self._eventually(self._quorum_leader, seconds, "the quorum has no leader")

    def wait_until_in_sync(self, *topics: str, seconds: float = WAIT_SECONDS_MAX) -> None:
        """Wait until every replica of these topics (of all when none is named) is in sync."""
        self._eventually(
            lambda port: (
                all(
                    each.leader_id >= 0 and set(each.isr_nodes) == set(each.replica_nodes)
                    for each in _partitions(port, topics)
                )
                or None
            ),
            seconds,
            "replicas are out of sync",
        )

    def _leader(self, port: int, topic: str, index: int) -> int | None:
        leader: int = _partition(port, topic, index).leader_id
        alive = leader in self.nodes and self.nodes[leader].is_running and not self.nodes[leader].is_frozen
        return leader if alive else None

    def _quorum_leader(self, port: int) -> int | None:
        from moldau.protocol.generated.wire.describe_quorum_request import (
            DescribeQuorumRequest,
            PartitionData,
            TopicData,
        )

        topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
        answer = ask("127.0.0.1", port, DescribeQuorumRequest(topics=[topic]), DESCRIBE_QUORUM_VERSION)
        if answer.error_code:
            return None
        leader: int = answer.topics[0].partitions[0].leader_id
        alive = leader in self.nodes and self.nodes[leader].is_running and not self.nodes[leader].is_frozen
        return leader if alive else None

    def _eventually(self, find: Callable[[int], T | None], seconds: float, complaint: str) -> T:
        """Ask one live broker after the other until one of them knows."""
        deadline = time.monotonic() + seconds
        while True:
            for node in list(self.nodes.values()):
                if not (node.is_broker and node.is_running and not node.is_frozen and node.is_ready):
                    continue
                with contextlib.suppress(OSError, LookupError):
                    found = find(node.client_port)
                    if found is not None:
                        return found
            if time.monotonic() > deadline:
                raise TimeoutError(complaint)
            time.sleep(0.02)


def _ids(side: int | Iterable[int]) -> list[int]:
    return [side] if isinstance(side, int) else list(side)


def _partitions(port: int, topics: Sequence[str]) -> list[MetadataResponsePartition]:
    from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic

    wanted = [MetadataRequestTopic(name=name) for name in topics] or None
    answer = ask("127.0.0.1", port, MetadataRequest(topics=wanted, allow_auto_topic_creation=False), METADATA_VERSION)
    if any(topic.error_code for topic in answer.topics):
        raise LookupError("a topic is not known")
    return [partition for topic in answer.topics for partition in topic.partitions]


def _partition(port: int, topic: str, index: int) -> MetadataResponsePartition:
    found = {each.partition_index: each for each in _partitions(port, (topic,))}
    return found[index]
