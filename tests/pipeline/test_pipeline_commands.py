"""`moldau run` and `moldau sql` as processes: killed, stopped, resumed; what they load; what they say without Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.cli.app import run as run_command
from moldau.testing import Cluster
from tests.pipeline.world import consume, produce

pytestmark = pytest.mark.timeout(600)

START_SECONDS_MAX = 240.0
RECORDS = 2000
COPY = """
def pipeline(spark, options):
    writer = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert writer.endswith(".FileSystemBasedCheckpointFileManager"), writer
    source = dict(options, subscribe="{source}", startingOffsets="earliest", maxOffsetsPerTrigger="100")
    frame = spark.readStream.format("moldau").options(**source).load()
    frame.select("key", "value").writeStream.format("moldau").options(**options, topic="{target}").start()
"""


class Running:
    """A command in a process of its own, with what it prints in files."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self.out, self.err = directory / f"{name}.out", directory / f"{name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            command = [sys.executable, "-m", "moldau", *arguments]
            # In a group of its own, as a shell would start it.
            self.process = subprocess.Popen(command, stdout=out, stderr=err, cwd=directory, start_new_session=True)

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (found := condition()):
            assert self.process.poll() is None, f"it ended:\n{self.err.read_text()}"
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.err.read_text()}"
            time.sleep(0.1)
        return found

    def last_line(self) -> dict[str, Any]:
        lines = [line for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return json.loads(lines[-1]) if lines else {}

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(START_SECONDS_MAX)

    def press_ctrl_c(self) -> int:
        """What a terminal does: every process of the group is told, Spark's too."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(START_SECONDS_MAX)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(name: str, *arguments: str) -> Running:
        started.append(Running(tmp_path, name, *arguments))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


@pytest.mark.long
def test_a_killed_run_goes_on_and_counts_everything_once(
    start: Callable[..., Running], moldau_cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    bootstrap = moldau_cluster.bootstrap_servers
    source, target = new_topic(2), new_topic(2)
    produce(bootstrap, source, [(f"k{number}", f"v{number}") for number in range(RECORDS)])
    (tmp_path / "mirror.py").write_text(COPY.format(source=source, target=target))
    arguments = ("run", "mirror.py", "-b", bootstrap, "--master", "local[2]", "--name", f"run-{target}", "-o", "json")
    options = ("--interval", "0.2", "--metrics-port", "0")

    first = start("first", *arguments, *options)
    first.wait_for(lambda: 200 <= first.last_line().get("inputRows", 0) < RECORDS, "some of the rows")
    assert first.end(signal.SIGKILL) == -signal.SIGKILL

    second = start("second", *arguments, *options)
    second.wait_for(lambda: second.last_line().get("lag") == 0, "the end of the topic")
    third = subprocess.run(
        [sys.executable, "-m", "moldau", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert third.returncode == 1
    assert "Another run uses the checkpoints in" in third.stderr
    page = metrics_of(second)
    assert f'moldau_query_lag_records{{query="{target}"}} 0.0' in page
    assert f'moldau_query_up{{query="{target}"}} 1.0' in page

    assert second.press_ctrl_c() == 0, second.err.read_text()
    assert second.last_line()["state"] == "stopped"
    said = second.err.read_text()
    assert "Stopping after the current micro-batch" in said
    assert "WARN" not in said
    assert "Traceback" not in said
    log = re.search(r"log in (\S+)", said)
    assert log is not None
    assert Path(log[1]).stat().st_size > 0
    assert sorted(value for _, value in consume(bootstrap, target)) == sorted(f"v{n}" for n in range(RECORDS))


def metrics_of(running: Running) -> str:
    address = re.search(r"Metrics at (\S+)", running.err.read_text())
    assert address is not None
    with urllib.request.urlopen(address[1], timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.long
def test_sql_as_a_command(moldau_cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path) -> None:
    bootstrap, topic = moldau_cluster.bootstrap_servers, new_topic()
    produce(bootstrap, topic, [("a", {"n": 1}), ("a", {"n": 2})])
    query = f"SELECT key, sum(value.n) AS total FROM `{topic}` GROUP BY key"
    command = [sys.executable, "-m", "moldau", "sql", "-b", bootstrap, "--master", "local[2]", "--format", "json"]
    done = subprocess.run([*command, "-o", "json", query], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"key": "a", "total": 3}
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, complaint in (
        (["run", "nothing.py"], "Cannot read nothing.py: No such file or directory"),
        (["run", "x.py", "--metrics-port", "many"], "--metrics-port takes PORT or HOST:PORT, not 'many'."),
        (["run", "x.py", "--conf", "a"], "Settings are given as NAME=VALUE"),
        (["sql", "SELECT 1", "-b", "127.0.0.1:1", "--client-property", "default.api.timeout.ms=200"], "Cannot reach a"),
    ):
        assert run_command(arguments) != 0
        assert complaint in capsys.readouterr().err


# Python as it is where the extra was not installed.
WITHOUT_SPARK = """
import sys
from importlib.machinery import PathFinder

found = PathFinder.find_spec
hidden = {"pyspark", "pyarrow", "numba", "numpy", "pandas", "fastavro", "google"}
PathFinder.find_spec = lambda name, *more: None if name.split(".")[0] in hidden else found(name, *more)
from moldau.cli.main import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("arguments", [["run", "app.py"], ["run", "app.sql"], ["sql", "SELECT 1"]])
def test_without_the_extra(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("")
    (tmp_path / "app.sql").write_text("CREATE STREAM s WITH (topic = 't'); INSERT INTO TOPIC 'o' SELECT value FROM s")
    command = [sys.executable, "-c", WITHOUT_SPARK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "Error: This needs Spark, which is not installed\npip install 'moldau[spark]' (in a clone: make setup)\n",
    )


def test_a_java_that_is_too_old(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'UnsupportedClassVersionError: class file version 61.0' >&2\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "app.py").write_text("")
    command = [sys.executable, "-m", "moldau", "run", "app.py", "-b", "127.0.0.1:1"]
    settings = ["--client-property", "default.api.timeout.ms=200"]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, *settings], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "Cannot reach a broker: 127.0.0.1:1: connection refused. Going on, since one may come\n" in done.stderr
    assert done.stderr.endswith(
        "Error: Spark did not start: UnsupportedClassVersionError: class file version 61.0\n"
        "Spark needs Java 17 or newer: see what 'java -version' and JAVA_HOME say.\n"
    )


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["sql", "--help"], ["topic", "--help"]])
def test_help_does_not_load_spark(arguments: list[str]) -> None:
    script = f"import sys\nfrom moldau.cli.main import main\nmain({arguments!r})\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stderr.split())
    assert not loaded.intersection({"pyspark", "pyarrow", "numba", "moldau.pipeline", "moldau.streams", "moldau.spark"})
