"""Apache Kafka's Java programs and small ones of our own, run one after the other in a single virtual machine."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from codegen import kafka_jars

from tests.clients.sample import Sample

SOURCES = Path(__file__).parent / "java"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONFIGS = "kafka.admin.ConfigCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
STORAGE = "kafka.tools.StorageTool"
JVM = ("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Djava.awt.headless=true")


@dataclass(frozen=True)
class Outcome:
    exit: int
    out: str
    err: str


class JavaTools:
    """The virtual machine that runs the tools; it starts with the first one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> JavaTools:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        classpath = f"{compiled()}:{kafka_jars.classpath()}"
        return subprocess.Popen(
            [*JVM, "-cp", classpath, "ToolShell"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def attempt(self, tool: str, *arguments: object, text: str = "") -> Outcome:
        """Run a tool to its end, however it ends."""
        process = self._process
        if process is None:
            process = self._process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"tool": tool, "args": [str(each) for each in arguments], "input": text}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return Outcome(**json.loads(process.stdout.readline()))

    def run(self, tool: str, *arguments: object, text: str = "") -> str:
        """What a tool prints; it must succeed."""
        done = self.attempt(tool, *arguments, text=text)
        assert done.exit == 0, f"{tool} ended with {done.exit}:\n{done.out}{done.err}"
        return done.out

    # ---- Apache's producer and consumer

    def produce(
        self, servers: str, topic: str, records: Sequence[Sample], config: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """What became of every record: its offset and timestamp, or the name of the error."""
        request = {
            "topic": topic,
            "config": {"bootstrap.servers": servers, "linger.ms": "20", **(config or {})},
            "records": [
                {
                    "key": _encoded(each.key),
                    "value": _encoded(each.value),
                    "headers": [[name, _encoded(value)] for name, value in each.headers],
                    "timestamp": each.timestamp,
                }
                for each in records
            ],
        }
        sent: list[dict[str, Any]] = json.loads(self.run("SampleClient", "produce", text=json.dumps(request)))["sent"]
        return sent

    def consume(
        self,
        servers: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int = 0,
        config: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """At least `count` records as the Java consumer sees them, with keys and values decoded."""
        request = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "count": count,
            "config": {"bootstrap.servers": servers, **(config or {})},
        }
        found = json.loads(self.run("SampleClient", "consume", text=json.dumps(request)))["records"]
        for record in found:
            record["key"], record["value"] = _decoded(record["key"]), _decoded(record["value"])
            record["headers"] = tuple((name, _decoded(value)) for name, value in record["headers"])
        return list(found)

    def read_samples(self, servers: str, topic: str, count: int, **options: Any) -> list[Sample]:
        found = self.consume(servers, topic, count, **options)
        return [Sample(r["key"], r["value"], r["headers"], r["timestamp"]) for r in found]

    def offsets(self, servers: str, topic: str, timestamps: Sequence[int]) -> dict[str, Any]:
        """`beginning`, `end`, and `at`: for each timestamp [offset, timestamp] of the first record not before it."""
        request = {"topic": topic, "timestamps": list(timestamps), "config": {"bootstrap.servers": servers}}
        found: dict[str, Any] = json.loads(self.run("SampleClient", "offsets", text=json.dumps(request)))
        return found


def compiled(directory: Path = SOURCES, jars: kafka_jars.JarSet | None = None) -> Path:
    """The directory of our own small Java programs, compiled once for each state of their sources."""
    sources = sorted(directory.glob("*.java"))
    state = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    target = kafka_jars.cache_directory().parent / f"test-classes-{state}"
    if target.is_dir():
        return target
    classpath = (jars or kafka_jars.brokers()).classpath
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="compiling-") as scratch:
        output = Path(scratch) / "classes"
        command = ["javac", "-cp", classpath, "-d", str(output), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        try:
            output.rename(target)
        except OSError:
            assert target.is_dir()
    return target


def why_not() -> str | None:
    """Why the Java programs cannot run here, if they cannot."""
    if shutil.which("javac") is None:
        return "no Java development kit on the PATH"
    if not kafka_jars.can_fetch():
        return "Apache Kafka's jars are not cached and there is no Maven to fetch them"
    return None


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
