"""A Java program of Kafka's in a process of its own, with everything it says."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from codegen import kafka_jars

from moldau.config.properties import format_properties
from tests.clients.java_tools import JVM, compiled

SOURCES = Path(__file__).parent / "java"
WAIT_SECONDS = 120.0


def why_not() -> str | None:
    """Why these programs cannot run here, if they cannot."""
    if not kafka_jars.programs().can_be_had:
        return "the jars of Apache Kafka's programs are not cached and there is no Maven (or no Java) to fetch them"
    return None


class JavaProgram:
    """Runs from `start` (or the `with` block) until it ends by itself, or is killed."""

    def __init__(self, home: Path, name: str, main: str, *arguments: object) -> None:
        self._output = home / f"{name}.out"
        self._errors = home / f"{name}.err"
        jars = kafka_jars.programs()
        classpath = f"{compiled(SOURCES, jars)}:{jars.classpath}"
        # What programs leave behind in their temporary directories goes with the test's.
        scratch = home / f"{name}.tmp"
        scratch.mkdir()
        self._command = [*JVM, f"-Djava.io.tmpdir={scratch}", "-cp", classpath, main, *map(str, arguments)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> JavaProgram:
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        return self

    def __enter__(self) -> JavaProgram:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def finish(self, seconds: float = WAIT_SECONDS) -> str:
        """What it said, when it has ended well."""
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.report()}") from None
        assert code == 0, f"it ended with {code}:\n{self.report()}"
        return self.output

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def events(self) -> list[dict[str, Any]]:
        """Of programs that say everything as a line of JSON: all lines that are whole."""
        lines = self.output.split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_until(self, met: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not met():
            assert self._process is not None
            assert self._process.poll() is None, f"it ended too early:\n{self.report()}"
            assert time.monotonic() < deadline, f"nothing came of it:\n{self.report()}"
            time.sleep(0.1)

    def report(self) -> str:
        return f"{self.output[-5000:]}\n{self._errors.read_text(errors='replace')[-5000:]}"


def properties_file(home: Path, name: str, settings: Mapping[str, str]) -> Path:
    path = home / f"{name}.properties"
    path.write_text(format_properties(dict(settings)))
    return path
