"""The wheel: built from this tree, installed from the locked dependencies into an empty environment, and used there."""

from __future__ import annotations

import email
import json
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.node_process import NodeProcess, ask_api_versions, clean_environment, one_node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
DIRECT_DEPENDENCIES_MAX = 7
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def run(*command: object, cwd: Path | None = None) -> str:
    """What a command prints; it must succeed. Nothing of this checkout is on its path."""
    done = subprocess.run(
        [str(each) for each in command],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=cwd,
        env=clean_environment(),
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "-o", target, ROOT)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The directory of programs in an environment that holds the wheel and its locked dependencies, nothing else."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=False)
    python = directory / "bin" / "python"
    lock = ROOT / "requirements" / "base.lock"
    run(*PIP, "--python", python, "install", "--no-compile", "--require-hashes", "-r", lock)
    run(*PIP, "--python", python, "install", "--no-compile", "--no-deps", wheel)
    return python.parent


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"moldau", "pyspark_moldau"}
    assert "moldau/py.typed" in names
    assert [name for name in names if name.endswith("/licenses/LICENSE")]
    assert not [name for name in names if name.endswith(".pyc")]
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size < 3 << 20


def test_few_dependencies(wheel: Path, installed: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    requirements = [Requirement(each) for each in metadata.get_all("Requires-Dist", [])]
    direct = [each.name for each in requirements if each.marker is None or "extra" not in str(each.marker)]
    assert 0 < len(direct) <= DIRECT_DEPENDENCIES_MAX
    listed = json.loads(run(*PIP[:3], "--python", installed / "python", "list", "--format", "json"))
    names = {each["name"].lower().replace("_", "-") for each in listed}
    assert {each.lower() for each in direct} < names
    # What these bring along: markdown-it-py, mdurl and pygments, for tables in a terminal.
    assert len(names) <= 1 + DIRECT_DEPENDENCIES_MAX + 3


def test_every_command_is_there_with_and_without_its_ending(installed: Path) -> None:
    assert {name for name in SCRIPTS if not (installed / name).exists()} == set()
    commands = {name for name in SCRIPTS if name.startswith("kafka-") and not name.endswith(".sh")}
    assert {f"{name}.sh" for name in commands} <= set(SCRIPTS)
    assert len(commands) >= 9
    for name in ("kafka-topics.sh", "kafka-storage", "moldau"):
        assert "--help" in run(installed / name, "--help")


def test_a_node_works_there(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "moldau")]
    with NodeProcess(tmp_path, one_node(tmp_path / "data"), command=command) as node:
        servers = node.ready()
        assert {0, 1, 2, 3, 18, 19} <= set(ask_api_versions(servers))
        run(installed / "kafka-topics.sh", "--bootstrap-server", servers, "--create", "--topic", "first")
        listed = run(installed / "moldau", "topic", "list", "-o", "json", "-b", servers)
        assert "first" in listed
        assert node.stop() < 5
    # The testing package must not need pytest.
    program = "from moldau.testing import Cluster\nwith Cluster() as cluster: print(cluster.bootstrap_servers)"
    assert run(installed / "python", "-c", program, cwd=tmp_path).startswith("127.0.0.1:")
