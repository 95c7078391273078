"""The process behind `moldau start`: reads the properties, runs a node until it is told to stop.

Decides what a person sees: one line when the node is ready, one clear line when it cannot start.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping

import uvloop

from moldau import __version__
from moldau.config.node_config import NodeConfig
from moldau.config.one_node import defaults_for_one_node
from moldau.config.properties import read_properties
from moldau.config.types import ConfigError
from moldau.node.libc import keep_freed_memory
from moldau.node.logging_setup import set_up_logging
from moldau.node.node import Node
from moldau.node.storage import StorageError

_GARBAGE_FROM_OBJECTS = 10_000
log = logging.getLogger("moldau.node")

# How long a node starts without a word.
PATIENCE_SECONDS = 5.0
EXIT_FAILED = 1
EXIT_CONFIG = 2


def run(
    properties_path: str | None,
    overrides: Mapping[str, str],
    *,
    welcome: bool = False,
    port_file: str | None = None,
    supervised: bool = False,
) -> int:
    """Run a node in the foreground; the process's exit code. A `supervised` one stops when its standard input ends."""
    started = time.perf_counter()
    set_up_logging()
    try:
        config = _load(properties_path, overrides)
    except (ConfigError, OSError, ValueError) as error:
        log.error("%s", error)
        return EXIT_CONFIG
    for warning in config.warnings:
        log.warning("%s", warning)
    _raise_file_limit()
    keep_freed_memory()
    try:
        return uvloop.run(_serve(config, started, welcome=welcome, port_file=port_file, supervised=supervised))
    except (StorageError, ConfigError, OSError) as error:
        log.error("%s", error)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 0


def run_several(nodes: int, properties_path: str | None, overrides: Mapping[str, str], *, welcome: bool = False) -> int:
    """Run so many nodes in the foreground, each in a process of its own; the process's exit code."""
    from moldau.node import supervisor

    set_up_logging()
    try:
        base = _properties(properties_path, overrides, one_node=False)
    except (OSError, ValueError) as error:
        log.error("%s", error)
        return EXIT_CONFIG
    return supervisor.run(base, nodes, welcome=welcome)


def _load(path: str | None, overrides: Mapping[str, str]) -> NodeConfig:
    return NodeConfig.load(_properties(path, overrides, one_node=True))


def _properties(path: str | None, overrides: Mapping[str, str], *, one_node: bool) -> dict[str, str]:
    if path is None:
        defaults = defaults_for_one_node()
        if not one_node:
            alone = ("replication.factor", "min.isr")  # what a single node needs because it cannot hold more copies
            defaults = {name: value for name, value in defaults.items() if not name.endswith(alone)}
        return {**defaults, **overrides}
    try:
        with open(path, "rb") as file:
            properties = read_properties(file.read())
    except FileNotFoundError:
        raise ValueError(f"{path}: no such properties file") from None
    return {**properties, **overrides}


def _raise_file_limit() -> None:
    """Connections and segments take descriptors: use as many as the system allows without asking."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _spare_what_stays() -> None:
    """What a node has loaded stays for its life: looking through it for garbage again and again is wasted, and so is
    looking every few hundred objects when hardly any of ours refer to each other in circles."""
    gc.freeze()
    gc.set_threshold(_GARBAGE_FROM_OBJECTS, 20, 20)


async def _serve(config: NodeConfig, started: float, *, welcome: bool, port_file: str | None, supervised: bool) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if supervised:
        _stop_with_stdin(loop, stop)
    node = Node(config, stop.set)
    try:
        if not await _start(node, stop):
            return EXIT_FAILED if node.has_failed else 0
        log.info(
            "Moldau %s is ready: node %d of cluster %s on %s (%.0f ms)",
            __version__,
            config.node_id,
            node.cluster_id,
            ", ".join(node.addresses),
            (time.perf_counter() - started) * 1000,
        )
        _spare_what_stays()
        if port_file is not None:
            _write_port(port_file, node.client_port)
        if welcome:
            sys.stderr.write(_welcome(node))
        await stop.wait()
        log.info("stopping")
    finally:
        await node.stop()
    log.info("stopped")
    return EXIT_FAILED if node.has_failed else 0


def _stop_with_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """The supervisor holds the other end: when that closes, it is gone, and nobody would ever stop this node."""

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    loop.add_reader(0, readable)


async def _start(node: Node, stop: asyncio.Event) -> bool:
    """Start, unless the node is told to stop before it is up; whether it serves."""
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(stop.wait())
    while True:
        done, _ = await asyncio.wait(
            (starting, stopping), timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if done:
            break
        log.warning("still waiting for %s", node.waits_for())
    stopping.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    log.info("stopped before it was up")
    return False


def _write_port(path: str, port: int) -> None:
    with open(path + ".tmp", "w") as file:
        file.write(str(port))
    os.replace(path + ".tmp", path)


def _welcome(node: Node) -> str:
    tool = os.path.join(os.path.dirname(sys.argv[0]), "moldau") if sys.argv[0] else "moldau"
    server = f" -b localhost:{node.client_port}" if node.client_port != 9092 else ""
    return f"""
Try it, in another terminal:

  {tool} topic create greetings --partitions 3{server}
  echo 'hello, world' | {tool} produce greetings{server}
  {tool} consume greetings --from-beginning{server}

Any Kafka client works: bootstrap.servers=localhost:{node.client_port}. Metrics: {node.metrics_url or "off"}.
Ctrl-C stops the node; its data stays in {", ".join(node.data_directories)}.
"""
