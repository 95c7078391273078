"""docs/operating.md, done as it says, in its order: real nodes with its properties file, and every command of it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.config.node_config import NodeConfig
from moldau.config.properties import parse_properties
from moldau.testing.nodes import free_ports

TEXT = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
MACHINES = {"one": 1, "two": 2, "three": 3, "four": 4}
SCRIPTS = Path(sys.executable).parent
START_SECONDS_MAX = 60.0
COMMAND_SECONDS_MAX = 120.0


def properties() -> dict[str, str]:
    found = re.search(r"```properties\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return parse_properties(found[1])


def commands() -> list[tuple[str, str]]:
    """(machine or "", command), in the order of the page."""
    blocks = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    return re.findall(r"^(\w*)\$ (.*)$", "\n".join(blocks), re.MULTILINE)


class Machines:
    """The machines of the page, as processes of this one on ports of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        ports = iter(free_ports(3 * len(MACHINES)))
        self._ports = {(name, port): next(ports) for name in MACHINES for port in (9092, 9093, 9644)}

    def here(self, text: str) -> str:
        """The same text with this machine's addresses."""
        for (name, port), own in self._ports.items():
            text = text.replace(f"{name}.example:{port}", f"127.0.0.1:{own}")
        return text

    def _file_of(self, name: str) -> Path:
        own = {key: value.replace("one.example", f"{name}.example") for key, value in properties().items()}
        own["controller.quorum.bootstrap.servers"] = properties()["controller.quorum.bootstrap.servers"]
        own["node.id"] = str(MACHINES[name])
        own["log.dirs"] = str(self._folder / name)
        if name == "four":  # what the page says of a broker that is not a controller
            own["process.roles"] = "broker"
            own["listeners"] = own["listeners"].split(",")[0]
            del own["controller.quorum.auto.join.enable"]
        file = self._folder / f"{name}.properties"
        file.write_text("".join(f"{key}={self.here(value)}\n" for key, value in own.items()))
        return file

    def start(self, name: str) -> None:
        ready = self._folder / f"{name}.port"
        ready.unlink(missing_ok=True)
        command = [str(SCRIPTS / "moldau"), "start", str(self._file_of(name)), "--port-file", str(ready)]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, stderr=log)
        subprocess.run(
            ["/bin/sh", "-c", f"until [ -s {ready} ]; do sleep 0.05; done"], timeout=START_SECONDS_MAX, check=True
        )

    def stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        assert process.wait(COMMAND_SECONDS_MAX) == 0

    def run(self, command: str, machine: str = "") -> str:
        words = shlex.split(self.here(command))
        if machine:
            words = [str(self._file_of(machine)) if word == "server.properties" else word for word in words]
        environment = {**os.environ, "MOLDAU_BOOTSTRAP": self.here("one.example:9092")}
        done = subprocess.run(
            [SCRIPTS / words[0], *words[1:]],
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    yield found
    found.kill_all()


def test_every_setting_is_known() -> None:
    settings = properties()
    assert NodeConfig.load(settings).integer("min.insync.replicas") == 2
    assert settings["controller.quorum.bootstrap.servers"].count("example:9093") == 3


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_page_from_top_to_bottom(machines: Machines) -> None:
    said: dict[str, str] = {}
    for machine, command in commands():
        if command == "stop":
            machines.stop(machine)
        elif command.startswith("moldau start"):
            machines.start(machine)
        else:
            said[command] = machines.run(command, machine)
            if command == "moldau topic create orders --partitions 12":
                machines.run("moldau cluster status --wait 60")
    assert "healthy" in said["moldau cluster status"]
    assert "partitions moved" in said["moldau cluster rebalance --execute --throttle 50000000"]
    assert "Nothing was changed" in said["moldau cluster drain 4"]
    assert len(said) >= 15
