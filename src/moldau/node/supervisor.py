"""`moldau start --nodes 3`: several nodes on one machine, each a process, started, watched and stopped by this one.

Decides when a node is started again (whenever it ends without having been told to, after a pause that grows) and when
all are told to stop. It never looks into what the nodes do: they are a cluster like any other. Nodes end with this
process, however it ends, because they notice that its end of their standard input is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final

from moldau.config.properties import format_properties, read_properties
from moldau.config.types import ConfigError
from moldau.node.logging_setup import set_up_logging
from moldau.node.main import EXIT_CONFIG, EXIT_FAILED
from moldau.node.storage import StorageError
from moldau.node.supervised_nodes import controller_count, properties_of_nodes
from moldau.protocol.uuids import uuid_to_string
from moldau.quorum.meta_properties import META_PROPERTIES, new_uuid

log = logging.getLogger("moldau.supervisor")

PAUSE_SECONDS_FIRST: Final = 0.5
PAUSE_SECONDS_MAX: Final = 30.0
# A node that ran this long is not one that crashes over and over.
STEADY_SECONDS: Final = 60.0
READY_POLL_SECONDS: Final = 0.05
LINE_BYTES_MAX: Final = 1 << 20
EXIT_KILLED: Final = 130


def run(base: Mapping[str, str], nodes: int, *, welcome: bool = False) -> int:
    """Run the nodes in the foreground; the process's exit code."""
    set_up_logging()
    try:
        properties = _prepared(properties_of_nodes(base, nodes))
        return asyncio.run(_Supervisor(properties, welcome=welcome).run())
    except (ConfigError, StorageError) as error:
        log.error("%s", error)
        return EXIT_CONFIG
    except OSError as error:
        log.error("%s", error)
        return EXIT_FAILED


# ---- one data directory


def _prepared(properties: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """With the id of the cluster, and with a founder of its quorum when there is none yet."""
    directories = [Path(each["log.dirs"].split(",")[0]) for each in properties]
    parent = directories[0].parent
    if (parent / META_PROPERTIES).exists():
        raise StorageError(
            f"{parent} holds the data of a single node; give several nodes another directory "
            "(--override log.dirs=DIRECTORY)"
        )
    known = {_cluster_id(each) for each in directories} - {None}
    if len(known) > 1:
        raise StorageError(f"the nodes under {parent} belong to different clusters: {', '.join(map(str, known))}")
    cluster_id = known.pop() if known else uuid_to_string(new_uuid(SystemRandom()))
    controllers = directories[: controller_count(len(properties))]
    for i, (each, directory) in enumerate(zip(properties, directories, strict=True)):
        each.setdefault("cluster.id", str(cluster_id))
        if i == 0 and not any((other / META_PROPERTIES).exists() for other in controllers):
            # The first controller begins the quorum alone, the others join it; once begun, it is never begun again.
            own = each["controller.quorum.bootstrap.servers"].split(",")[0]
            each["controller.quorum.bootstrap.servers"] = own
        directory.mkdir(parents=True, exist_ok=True)
    return list(properties)


def _cluster_id(directory: Path) -> str | None:
    try:
        return read_properties((directory / META_PROPERTIES).read_bytes()).get("cluster.id")
    except FileNotFoundError:
        return None


# ---- supervising


class _Child:
    """One node through all its lives."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.id = int(properties["node.id"])
        directory = Path(properties["log.dirs"].split(",")[0])
        self._properties = properties
        self._path = directory.with_name(f"{directory.name}.properties")
        self._port_file = directory.with_name(f"{directory.name}.port")
        self._process: asyncio.subprocess.Process | None = None
        self._lines: asyncio.Task[None] | None = None
        self.was_ready = False

    async def start(self) -> None:
        self._path.write_text(format_properties(self._properties))
        with contextlib.suppress(FileNotFoundError):
            self._port_file.unlink()
        command = ["-m", "moldau", "start", str(self._path), "--port-file", str(self._port_file), "--supervised"]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process: it tells the nodes
            limit=LINE_BYTES_MAX,
        )
        self._lines = asyncio.create_task(self._pass_lines_on(self._process))

    async def _pass_lines_on(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        prefix = f"node-{self.id} | ".encode()
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                continue  # a line beyond all measure: what was read of it is gone
            if not line:
                return
            os.write(2, prefix + line)

    async def wait(self) -> int:
        assert self._process is not None
        code = await self._process.wait()
        if self._lines is not None:
            await self._lines
        return code

    async def until_ready(self) -> None:
        while not self._port_file.exists():
            await asyncio.sleep(READY_POLL_SECONDS)
        self.was_ready = True

    @property
    def client_port(self) -> int:
        return int(self._port_file.read_text())

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


class _Supervisor:
    def __init__(self, properties: Sequence[Mapping[str, str]], *, welcome: bool) -> None:
        self._children = [_Child(each) for each in properties]
        self._welcome = welcome
        self._stop = asyncio.Event()
        self._exit_code = 0
        self._data = Path(properties[0]["log.dirs"].split(",")[0]).parent

    async def run(self) -> int:
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        keepers = [asyncio.create_task(self._keep(child)) for child in self._children]
        announcing = asyncio.create_task(self._announce(began))
        await self._stop.wait()
        announcing.cancel()
        await asyncio.gather(*keepers)
        log.info("stopped")
        return self._exit_code

    def _told_to_stop(self) -> None:
        if not self._stop.is_set():
            log.info("stopping all nodes; once more kills them")
            self._stop.set()
            self._signal_all(signal.SIGTERM)
            return
        log.warning("killing all nodes")
        self._exit_code = EXIT_KILLED
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: int) -> None:
        for child in self._children:
            child.signal(number)

    async def _announce(self, began: float) -> None:
        await asyncio.gather(*(child.until_ready() for child in self._children))
        servers = ",".join(f"localhost:{child.client_port}" for child in self._children)
        log.info("%d nodes are ready (%.0f ms): %s", len(self._children), (time.monotonic() - began) * 1000, servers)
        if self._welcome:
            sys.stderr.write(_welcome(servers, self._data))

    async def _keep(self, child: _Child) -> None:
        """Keep one node running until all are told to stop."""
        pause = PAUSE_SECONDS_FIRST
        while not self._stop.is_set():
            began = time.monotonic()
            await child.start()
            if self._stop.is_set():  # told so in the very moment of the start
                child.signal(signal.SIGTERM)
            ready = asyncio.create_task(child.until_ready())
            code = await child.wait()
            ready.cancel()
            if self._stop.is_set():
                break
            if not child.was_ready:
                log.error("node %d could not start; stopping the others", child.id)
                self._exit_code = code if code > 0 else EXIT_FAILED
                self._stop.set()
                self._signal_all(signal.SIGTERM)
                return
            if time.monotonic() - began > STEADY_SECONDS:
                pause = PAUSE_SECONDS_FIRST
            log.warning("node %d %s; starting it again in %.1f s", child.id, _ending(code), pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _welcome(servers: str, data: Path) -> str:
    tool = os.path.join(os.path.dirname(sys.argv[0]), "moldau") if sys.argv[0] else "moldau"
    first = servers.split(",")[0]
    return f"""
Try it, in another terminal:

  export MOLDAU_BOOTSTRAP={servers}
  {tool} cluster status
  {tool} topic create greetings --partitions 3
  echo 'hello, world' | {tool} produce greetings
  {tool} consume greetings --from-beginning

Any Kafka client works: bootstrap.servers={first}. Kill a node and watch: it is started again.
Ctrl-C stops all nodes; their data stays in {data}.
"""
