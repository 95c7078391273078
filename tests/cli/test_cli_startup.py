"""What a command loads before it does anything: start-up time is promised, and imports are where it goes."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from moldau.cli.start import start
from tests.cli.conftest import spawn

HEAVY = ("click", "rich", "confluent_kafka", "argparse", "asyncio")


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "from moldau.cli.main import main; main(['start', '--help'])",
        "from moldau.cli.kafka.server_start import main; main(['--help'])",
        "from moldau.cli.kafka.topics import main; main(['--help'])",
        "from moldau.cli.kafka.dump_log import main; main(['--help'])",
        "from moldau.cli.kafka.configs import main; main(['--help'])",
    ],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert not loaded_by(code).intersection(HEAVY)


def test_people_pay_only_for_what_they_use() -> None:
    loaded = loaded_by("from moldau.cli.main import main; main(['topic', '--help'])")
    assert "click" in loaded
    assert not loaded.intersection({"rich", "confluent_kafka", "socket", "moldau.cli.commands.config"})


def test_commands_start_quickly() -> None:
    """The promise is 150 ms on a quiet machine. What counts here is the work done, whatever else the machine does."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "moldau.cli.kafka.topics", "--version"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.15


def test_start_refuses_what_it_does_not_understand(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--nonsense"], "'--nonsense' is not an option of moldau start"),
        (["--override", "novalue"], "--override takes NAME=VALUE, not 'novalue'"),
        (["--override"], "--override takes NAME=VALUE, not ''"),
        (["a", "b"], "one properties file is enough"),
    ):
        assert start(arguments) == 2
        assert message in capsys.readouterr().err


def test_a_node_without_its_properties_file_does_not_start() -> None:
    done = spawn("main", "start", "/no/such/file.properties")
    assert done.code == 2
    assert "/no/such/file.properties: no such properties file" in done.out + done.err
