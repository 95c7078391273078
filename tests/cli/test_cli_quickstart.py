"""Kafka's quickstart, command for command, on a node of our own: format, start, topic, producer, consumer, stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import spawn

READY_SECONDS = 15


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@pytest.fixture
def config(tmp_path: Path) -> tuple[Path, str]:
    """Kafka's own config/server.properties, but for the ports and the directory."""
    broker, controller = free_ports()
    path = tmp_path / "server.properties"
    path.write_text(
        f"""\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller}
listeners=PLAINTEXT://localhost:{broker},CONTROLLER://localhost:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{broker},CONTROLLER://localhost:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs={tmp_path}/kraft-combined-logs
num.partitions=1
offsets.topic.replication.factor=1
log.retention.hours=168
"""
    )
    return path, f"localhost:{broker}"


@pytest.fixture
def server(config: tuple[Path, str], tmp_path: Path) -> Iterator[str]:
    path, bootstrap = config
    cluster_id = spawn("kafka.storage", "random-uuid").out.strip()
    formatted = spawn("kafka.storage", "format", "--standalone", "-t", cluster_id, "-c", path)
    assert formatted.code == 0, formatted.err
    command = [sys.executable, "-m", "moldau.cli.kafka.server_start", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path) as process:
        try:
            yield bootstrap
        finally:
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=READY_SECONDS)
    assert process.returncode == 0, output.decode()


def test_the_quickstart(server: str) -> None:
    topic = ("--topic", "quickstart-events", "--bootstrap-server", server)
    assert spawn("kafka.topics", "--create", *topic).out == "Created topic quickstart-events.\n"
    described = spawn("kafka.topics", "--describe", *topic).lines
    assert described[0].startswith("Topic: quickstart-events\tTopicId: ")
    assert described[1].startswith("\tTopic: quickstart-events\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1")
    events = b"This is my first event\nThis is my second event\n"
    assert spawn("kafka.console_producer", *topic, stdin=events).code == 0
    consumed = spawn("kafka.console_consumer", *topic, "--from-beginning", "--max-messages", 2)
    assert consumed.out.encode() == events


def test_in_the_background(config: tuple[Path, str], tmp_path: Path) -> None:
    path, bootstrap = config
    environment = {**os.environ, "LOG_DIR": str(tmp_path / "logs")}
    command = [sys.executable, "-m", "moldau.cli.kafka.server_start", "-daemon", str(path)]
    subprocess.run(command, env=environment, timeout=READY_SECONDS, check=True)
    try:
        assert spawn("kafka.topics", "--list", "--bootstrap-server", bootstrap).code == 0
    finally:
        os.kill(running_with(path), signal.SIGTERM)
    output = tmp_path / "logs" / "kafkaServer.out"
    deadline = time.monotonic() + READY_SECONDS
    while "stopped" not in output.read_text():
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)


def running_with(path: Path) -> int:
    """The process that was started in the background with this properties file."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(path) in words:
                return int(entry.name)
    raise AssertionError("the node is not running")
