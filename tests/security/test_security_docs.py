"""The examples of docs/security.md, as they stand there: only ports are others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moldau.testing.nodes import free_ports
from tests.security.certificates import Authority

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
FILES = {match[2]: match[3] for match in re.finditer(r"```(\w+)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)}
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
SECONDS = 60


@pytest.fixture
def ports() -> dict[str, str]:
    broker, controller = free_ports(2)
    return {"localhost:9092": f"localhost:{broker}", "localhost:9093": f"localhost:{controller}"}


def written(directory: Path, ports: dict[str, str]) -> None:
    for name, text in FILES.items():
        for documented, port in ports.items():
            text = text.replace(documented, port)
        (directory / name).write_text(text)


@contextmanager
def running(directory: Path, properties: str) -> Iterator[None]:
    command = [sys.executable, "-m", "moldau", "start", properties, "--port-file", "port"]
    with (directory / "node.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + SECONDS
        while not (directory / "port").exists():
            assert process.poll() is None, (directory / "node.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)


def run(directory: Path, ports: dict[str, str], command: str) -> str:
    for documented, port in ports.items():
        command = command.replace(documented, port)
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "MOLDAU_BOOTSTRAP": ports["localhost:9092"]}
    done = subprocess.run(
        ["bash", "-c", command], cwd=directory, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_passwords_and_rules(tmp_path: Path, ports: dict[str, str]) -> None:
    written(tmp_path, ports)
    assert len(COMMANDS) == 5
    with running(tmp_path, "server.properties"):
        said = [run(tmp_path, ports, command) for command in COMMANDS]
    assert "one espresso" in said[-1]
    assert "alice-secret" not in (tmp_path / "node.log").read_text()


@pytest.mark.slow
def test_certificates(tmp_path: Path, ports: dict[str, str]) -> None:
    written(tmp_path, ports)
    authority = Authority(tmp_path)
    authority.issue("/CN=node").rename(tmp_path / "node.pem")
    authority.issue("/CN=Alice").rename(tmp_path / "alice.pem")
    with running(tmp_path, "tls.properties"):
        run(tmp_path, ports, "moldau topic create orders --command-config tls-client.properties")
        assert "orders" in run(tmp_path, ports, "moldau topic list -o plain --command-config tls-client.properties")
        assert "orders" in run(
            tmp_path,
            ports,
            "kafka-topics --bootstrap-server localhost:9092 --list --command-config tls-client.properties",
        )


@pytest.mark.slow
def test_users_in_a_file_of_their_own(tmp_path: Path, ports: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, ports)
    properties = tmp_path / "server.properties"
    text = properties.read_text()
    jaas = re.search(r"listener\.name\.clients\.plain\.sasl\.jaas\.config=(.*?;)", text, re.DOTALL)
    assert jaas is not None
    properties.write_text(text.replace(jaas[0], ""))
    (tmp_path / "users.jaas").write_text("KafkaServer {\n" + jaas[1].replace("\\\n", "\n") + "\n};\n")
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={tmp_path / 'users.jaas'}")
    with running(tmp_path, "server.properties"):
        run(tmp_path, ports, COMMANDS[0])
