"""An embedded cluster for somebody's tests: one node in milliseconds, or several that can be made to fail.

One node runs on a thread of this process by default; `in_process=False` gives it a process of its own, which can be
killed without mercy (`kill`) and started again on the same data (`start`). Several nodes are always processes, each a
broker and a controller; they can be killed, frozen and cut off from each other one by one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from moldau.config.one_node import defaults_for_one_node
from moldau.node.supervised_nodes import settings_of_copies
from moldau.testing.nodes import NodeCluster, NodeProcess

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
TOPIC_SECONDS_MAX = 20.0


class Cluster:
    """Nodes that any Kafka client can connect to for as long as the `with` block lasts.

    with Cluster(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        ...  # a producer on cluster.bootstrap_servers
        cluster.kill(cluster.leader_of("orders", 0))
        cluster.partition(1, [2, 3])
        cluster.heal()
    """

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        nodes: int = 1,
        in_process: bool = True,
        data_dir: str | Path | None = None,
    ) -> None:
        """`config` overrides server.properties; `data_dir` keeps the data after the end, a temporary one does not.
        With several `nodes`, ids count from 1, topics have three copies (two for two nodes) of which two must be in
        sync, a node that says nothing is given up after 3 s, and every node has a process of its own."""
        assert nodes >= 1, "a cluster has a node"
        self._own_dir = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="moldau-")) if data_dir is None else Path(data_dir)
        self._cluster: NodeCluster | None = None
        self._runner: _Thread | _Process | None = None
        self._port = 0
        self._in_process = in_process and nodes == 1
        if nodes > 1:
            settings = {**_settings_of_several(nodes), **(config or {})}
            self._cluster = NodeCluster(combined=nodes, config=settings, data_dir=self.data_dir)
            return
        self._config = {
            **defaults_for_one_node(
                data_directory=str(self.data_dir / "data"), host="127.0.0.1", port=0, controller_port=0
            ),
            "moldau.http.listener": "",
            **(config or {}),
        }

    # ---- life

    def start(self, node: int | None = None) -> Cluster:
        """Start what does not run, or only this node, and return when it serves."""
        if self._cluster is not None:
            if node is None:
                self._cluster.start()
            else:
                self._cluster.nodes[node].start()
            return self
        assert self._runner is None, "the cluster is running already"
        runner = _Thread(self._config) if self._in_process else _Process(self._config, self.data_dir)
        self._port = runner.start(self._port)
        self._runner = runner
        return self

    def stop(self, node: int | None = None) -> None:
        """Shut down cleanly, everything or only this node; the data stays until `close`."""
        if self._cluster is not None:
            if node is None:
                self._cluster.stop()
            else:
                self._cluster.nodes[node].stop()
            return
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()

    def kill(self, node: int | None = None) -> None:
        """End a node's process with SIGKILL, as a crash would; every node's when none is named. A single node needs
        `in_process=False`."""
        if self._cluster is not None:
            wanted = list(self._cluster.nodes.values()) if node is None else [self._cluster.nodes[node]]
            for each in wanted:
                if each.is_running:
                    each.kill()
            return
        runner, self._runner = self._runner, None
        assert isinstance(runner, _Process), "only a node with a process of its own can be killed"
        runner.kill()

    def restart(self, node: int | None = None) -> Cluster:
        """Stop cleanly and start again; a node that was killed is only started."""
        if self._cluster is None or node is None or self._cluster.nodes[node].is_running:
            self.stop(node)
        return self.start(node)

    def close(self) -> None:
        try:
            if self._cluster is not None:
                self._cluster.close()
            else:
                self.stop()
        finally:
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
        if self._cluster is not None:
            return self._cluster.bootstrap_servers
        assert self._port, "the cluster has not been started"
        return f"127.0.0.1:{self._port}"

    @property
    def node_ids(self) -> list[int]:
        return [1] if self._cluster is None else sorted(self._cluster.nodes)

    @property
    def nodes(self) -> dict[int, NodeProcess]:
        """The processes of several nodes, by id: their logs, pids and directories."""
        return self._several.nodes

    @property
    def pid(self) -> int:
        """The process a single node runs in."""
        return self._runner.pid if isinstance(self._runner, _Process) else os.getpid()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int = -1,
    ) -> None:
        """Create a topic and return when it can be used."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replication_factor, config=dict(config or {})
        )
        admin.create_topics([topic])[name].result(TOPIC_SECONDS_MAX)
        if self._cluster is not None:
            for index in range(partitions):
                self._cluster.leader_of(name, index, seconds=TOPIC_SECONDS_MAX)

    # ---- what several nodes can go through

    @property
    def _several(self) -> NodeCluster:
        assert self._cluster is not None, "this needs a cluster of several nodes: Cluster(nodes=3)"
        return self._cluster

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The live node that leads this partition; waits until there is one."""
        return self._several.leader_of(topic, partition)

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The nodes whose replicas of this partition are in sync."""
        return self._several.in_sync(topic, partition)

    def active_controller(self) -> int:
        """The live node that leads the quorum; waits until there is one."""
        return self._several.active_controller()

    def wait_until_in_sync(self, *topics: str, seconds: float = 60.0) -> None:
        """Wait until every replica of these topics (of all when none is named) is in sync."""
        self._several.wait_until_in_sync(*topics, seconds=seconds)

    def add_broker(self, config: Mapping[str, str] | None = None) -> int:
        """One more broker, started; its id."""
        return self._several.add(config=config).id

    def freeze(self, node: int) -> None:
        """Stop a node's process in the midst of what it does, without a word to anybody, until `thaw`."""
        self._several.nodes[node].freeze()

    def thaw(self, node: int) -> None:
        self._several.nodes[node].thaw()

    def partition(self, *sides: int | Iterable[int], one_way: bool = False) -> None:
        """Cut the network between the sides, each a node or several; a node in none of them still sees all. `one_way`
        only stops what goes from the first side to the others. Clients are not affected. Cuts add up until `heal`."""
        self._several.partition(*sides, one_way=one_way)

    def isolate(self, *nodes: int) -> None:
        """Cut each of these nodes off from all others."""
        self._several.isolate(*nodes)

    def slow(self, *nodes: int, delay_ms: float) -> None:
        """Everything takes so much longer on the links of these nodes, each way; of all nodes when none is named."""
        self._several.slow(*nodes, delay_ms=delay_ms)

    def reset_links(self, *nodes: int) -> None:
        """Break the connections of these nodes to others, of all nodes when none is named."""
        self._several.reset_links(*nodes)

    def shift_clock(self, node: int, seconds: float) -> None:
        """A node's clock jumps, forward or back, and is wrong by so much until `heal`."""
        self._several.shift_clock(node, seconds)

    def heal(self) -> None:
        """Take all faults off the network and the clocks."""
        self._several.heal()


def _settings_of_several(nodes: int) -> dict[str, str]:
    return {
        **settings_of_copies(nodes),
        # A test shall not wait as long as an operator would until a frozen node is given up.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
    }


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
    """A single node as `moldau start` runs it."""

    def __init__(self, config: Mapping[str, str], directory: Path) -> None:
        self._config = config
        self._directory = directory
        self._node: NodeProcess | None = None

    @property
    def _running(self) -> NodeProcess:
        assert self._node is not None, "the node has not been started"
        return self._node

    @property
    def pid(self) -> int:
        return self._running.pid

    def start(self, port: int) -> int:
        self._node = NodeProcess(1, self._directory, _with_port(self._config, port))
        try:
            self._node.start()
        except RuntimeError:
            self._node.kill()
            raise
        return self._node.client_port

    def stop(self) -> None:
        self._running.stop()

    def kill(self) -> None:
        self._running.kill()


def _with_port(config: Mapping[str, str], port: int) -> dict[str, str]:
    """The same client port after a restart: clients go on with the address they know."""
    changed = dict(config)
    changed["listeners"] = changed["listeners"].replace("PLAINTEXT://127.0.0.1:0", f"PLAINTEXT://127.0.0.1:{port}")
    return changed
