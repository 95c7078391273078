"""The two brokers under test: how each is formatted, started, asked whether it answers, and stopped.

Both get the same server.properties (written here) on loopback, with directories beside each other on one disk, and
otherwise run with their own defaults: Apache Kafka with the heap and collector that kafka-server-start gives it.
Nothing here tunes either of them.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from codegen import kafka_jars

from benchmarks import process

CLUSTER_ID = "bW9sZGF1LWJlbmNobWFyaw"
START_TIMEOUT_SECONDS = 60.0
PROBE_INTERVAL_SECONDS = 0.002

# What kafka-server-start and kafka-run-class give a broker when nothing is set in the environment. The GC log and the
# JMX agent, which they would add, are left out: both would only cost Kafka time.
KAFKA_JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# The shell scripts of Kafka's client tools set this one.
JAVA_TOOL_OPTIONS = ("-Xmx512M",)

LOG4J = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level={level}
rootLogger.appenderRefs=out
rootLogger.appenderRef.out.ref=out
"""

API_VERSIONS_KEY = 18
PROBE_CORRELATION_ID = 7
MAX_PROBE_ANSWER_BYTES = 1 << 20


class BrokerFailed(RuntimeError):
    """A broker did not start, or died; the end of its log is in the message."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one node is in its cluster."""

    node_id: int
    port: int
    controller_port: int
    # As controller.quorum.voters names them.
    voters: tuple[str, ...]

    @classmethod
    def alone(cls) -> Place:
        return cls.together(1)[0]

    @classmethod
    def together(cls, nodes: int) -> list[Place]:
        """The places of so many nodes that form one cluster."""
        ports = process.free_ports(2 * nodes)
        voters = tuple(f"{i + 1}@127.0.0.1:{ports[2 * i + 1]}" for i in range(nodes))
        return [cls(i + 1, ports[2 * i], ports[2 * i + 1], voters) for i in range(nodes)]


class Broker:
    """One broker process on loopback with a directory of its own."""

    name = ""

    replicas = 1

    def __init__(self, directory: Path, extra_properties: str = "", place: Place | None = None) -> None:
        self.directory = directory
        self.place = place or Place.alone()
        self.port = self.place.port
        self.process: subprocess.Popen[bytes] | None = None
        self.properties = directory / "server.properties"
        self.output = directory / "output.log"
        directory.mkdir(parents=True)
        self.properties.write_text(self._server_properties() + extra_properties, encoding="utf-8")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    @property
    def data_directories(self) -> list[Path]:
        return [self.data_directory]

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker is not running"
        return self.process.pid

    def format(self) -> None:
        """Make the data directory ready, for a broker that does not do it itself."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> float:
        """Start the process and wait for its first answer; the seconds from one to the other."""
        began = time.perf_counter()
        self.launch()
        self.wait_for_answer()
        return time.perf_counter() - began

    def launch(self) -> None:
        with self.output.open("ab") as output:
            self.process = process.spawn(self.command(), stdout=output, stderr=output, cwd=self.directory)

    def wait_for_answer(self) -> None:
        began = time.perf_counter()
        while time.perf_counter() - began < START_TIMEOUT_SECONDS:
            if ask_api_versions(self.port) is not None:
                return
            if self.process is None or self.process.poll() is not None:
                raise BrokerFailed(f"{self.name} ended while starting\n{self.last_output()}")
            time.sleep(PROBE_INTERVAL_SECONDS)
        self.stop()
        raise BrokerFailed(f"{self.name} gave no answer in {START_TIMEOUT_SECONDS:.0f} s\n{self.last_output()}")

    def stop(self) -> None:
        if self.process is not None:
            process.stop(self.process)
            self.process = None

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def check_alive(self) -> None:
        if self.process is None or self.process.poll() is not None:
            raise BrokerFailed(f"{self.name} died\n{self.last_output()}")

    def cpu_seconds(self) -> float:
        return process.cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return process.resident_bytes(self.pid)

    def last_output(self, lines: int = 30) -> str:
        text = self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _server_properties(self) -> str:
        place = self.place
        copies = min(len(place.voters), 3)
        return (
            "process.roles=broker,controller\n"
            f"node.id={place.node_id}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{place.controller_port}\n"
            f"controller.quorum.voters={','.join(place.voters)}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={self.data_directory}\n"
            "num.partitions=1\n"
            f"default.replication.factor={copies}\n"
            f"min.insync.replicas={max(1, copies - 1)}\n"
            f"offsets.topic.replication.factor={copies}\n"
            f"transaction.state.log.replication.factor={copies}\n"
            f"transaction.state.log.min.isr={max(1, copies - 1)}\n"
            f"share.coordinator.state.topic.replication.factor={copies}\n"
            f"share.coordinator.state.topic.min.isr={max(1, copies - 1)}\n"
            # As in the server.properties that comes with Kafka: without it every first rebalance takes three seconds.
            "group.initial.rebalance.delay.ms=0\n"
            # The one setting that nobody would choose: a deleted topic's files would stay for a minute, and with them
            # the memory the next row needs.
            "log.segment.delete.delay.ms=200\n"
        )


class KafkaBroker(Broker):
    """Apache Kafka in KRaft combined mode, from the jars on Maven Central."""

    name = "kafka"

    def format(self) -> None:
        (self.directory / "log4j2.properties").write_text(LOG4J.format(level="info"), encoding="utf-8")
        tool = ["java", "-Xmx256M", *self._classes(), "kafka.tools.StorageTool"]
        command = [*tool, "format", "--cluster-id", CLUSTER_ID, "--config", str(self.properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise BrokerFailed(f"kafka-storage format failed\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return ["java", *KAFKA_JVM_OPTIONS, *self._classes(), "kafka.Kafka", str(self.properties)]

    def _classes(self) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return [log4j, "-cp", kafka_jars.classpath()]


class MoldauBroker(Broker):
    """Moldau, as a user starts it."""

    name = "moldau"

    def format(self) -> None:
        """A node alone formats itself; those of a cluster must agree on its id."""
        if len(self.place.voters) == 1:
            return
        tool = str(Path(moldau_program()).parent / "kafka-storage")
        command = [tool, "format", "--cluster-id", CLUSTER_ID, "--config", str(self.properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise BrokerFailed(f"kafka-storage format failed\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return [moldau_program(), "start", str(self.properties)]


class Cluster(Broker):
    """Three nodes of one kind, to the rows one broker: CPU and memory are those of all of them."""

    replicas = 3

    def __init__(self, kind: type[Broker], directory: Path) -> None:
        self.name = kind.name
        self.directory = directory
        self.nodes = {
            place.node_id: kind(directory / f"node-{place.node_id}", place=place)
            for place in Place.together(self.replicas)
        }
        self.port = self.nodes[1].port

    @property
    def process(self) -> subprocess.Popen[bytes] | None:  # type: ignore[override]
        return self.nodes[1].process

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def data_directories(self) -> list[Path]:
        return [node.data_directory for node in self.nodes.values()]

    def format(self) -> None:
        for node in self.nodes.values():
            node.format()

    def start(self) -> float:
        """Start all of them; the seconds until the last one answers."""
        began = time.perf_counter()
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_for_answer()
        return time.perf_counter() - began

    def stop(self) -> None:
        """All at once: one after the other, the last ones would wait for a majority that is gone."""
        for node in self.nodes.values():
            if node.process is not None:
                node.process.terminate()
        for node in self.nodes.values():
            node.stop()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def check_alive(self) -> None:
        for node in self.nodes.values():
            node.check_alive()

    def cpu_seconds(self) -> float:
        return sum(node.cpu_seconds() for node in self.nodes.values() if node.process is not None)

    def resident_bytes(self) -> int:
        return sum(node.resident_bytes() for node in self.nodes.values())

    def last_output(self, lines: int = 30) -> str:
        return "\n".join(node.last_output(lines) for node in self.nodes.values())


BROKERS: dict[str, type[Broker]] = {broker.name: broker for broker in (KafkaBroker, MoldauBroker)}


def moldau_program() -> str:
    """The `moldau` command to measure: the one that MOLDAU_PROGRAM names, else that beside this Python."""
    return os.environ.get("MOLDAU_PROGRAM") or str(Path(sys.executable).parent / "moldau")


def moldau_build() -> str:
    """Whether that one has its hot path compiled."""
    return "compiled" if _package().suffix == ".so" else "not compiled"


def compile_moldau() -> None:
    """Write the bytecode that installing a wheel would have written, so a start from a checkout costs the same."""
    subprocess.run([_python(), "-m", "compileall", "-q", str(_package().parent)], check=True)


def _package() -> Path:
    """The file of one of its modules that may be compiled."""
    code = "import moldau.ports; print(moldau.ports.__file__)"
    return Path(subprocess.run([_python(), "-c", code], capture_output=True, text=True, check=True).stdout.strip())


def _python() -> str:
    return str(Path(moldau_program()).parent / "python")


def java_tool(class_name: str, log4j: Path) -> list[str]:
    """The start of a command line for one of Kafka's own tools, as its shell script would run it."""
    if not log4j.exists():
        log4j.write_text(LOG4J.format(level="warn"), encoding="utf-8")
    return [
        "java",
        *JAVA_TOOL_OPTIONS,
        f"-Dlog4j2.configurationFile={log4j}",
        "-cp",
        kafka_jars.classpath(),
        class_name,
    ]


def ask_api_versions(port: int, timeout_seconds: float = 5.0) -> dict[int, tuple[int, int]] | None:
    """What a broker answers to ApiVersions v0 on a fresh connection, or None when it gives no valid answer yet."""
    request = struct.pack(">hhih", API_VERSIONS_KEY, 0, PROBE_CORRELATION_ID, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 10 <= size <= MAX_PROBE_ANSWER_BYTES:
                return None
            answer = _receive(connection, size)
    except OSError:
        return None
    correlation_id, error, count = struct.unpack_from(">ihi", answer)
    if correlation_id != PROBE_CORRELATION_ID or error != 0 or 10 + 6 * count > size:
        return None
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed before the whole answer")
        received += chunk
    return bytes(received)
