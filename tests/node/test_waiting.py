"""A node that cannot come up yet says what it waits for, and ends in peace when it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.protocol.uuids import uuid_to_string
from moldau.testing.nodes import free_ports

CLUSTER = uuid_to_string(bytes(range(16)))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("roles", "hint"), [("broker", False), ("broker,controller", True)])
def test_a_node_without_a_quorum(tmp_path: Path, roles: str, hint: bool) -> None:
    client, own, other = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{client}"
    if "controller" in roles:
        listeners += f",CONTROLLER://127.0.0.1:{own}"
    settings = {
        "node.id": "1",
        "process.roles": roles,
        "cluster.id": CLUSTER,
        "listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{own},127.0.0.1:{other}",
        "log.dirs": str(tmp_path / "data"),
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "moldau", "start", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
        assert node.stderr is not None
        said = next(line for line in node.stderr if "still waiting for" in line)
        node.send_signal(signal.SIGTERM)
        rest = node.stderr.read()
    assert f"127.0.0.1:{own}, 127.0.0.1:{other}" in said
    assert ("--standalone" in said) is hint
    assert "stopped before it was up" in rest
    assert node.returncode == 0
