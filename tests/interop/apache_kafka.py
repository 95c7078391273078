"""Apache Kafka as a process: formatted, started and stopped cleanly on directories that Moldau opens as well."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from codegen import kafka_jars
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from moldau.config.properties import format_properties
from tests.clients.java_tools import JVM, STORAGE, JavaTools

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def shared_properties(directories: list[Path]) -> dict[str, str]:
    """One node with fixed addresses, so that clients do not notice which of the two brokers it is."""
    port, controller_port = free_ports(2)
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": ",".join(map(str, directories)),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Some of the samples are years old.
        "log.retention.ms": "-1",
        "group.initial.rebalance.delay.ms": "0",
    }


class ApacheKafka:
    """A broker of Apache's, from its published jars."""

    def __init__(self, properties: Mapping[str, str], home: Path) -> None:
        self.file = home / "apache.properties"
        self.log = home / "apache.log"
        self.file.write_text(format_properties(dict(properties)))
        self.bootstrap_servers = properties["listeners"].split(",")[0].partition("://")[2]
        self._process: subprocess.Popen[bytes] | None = None

    def format(self, java: JavaTools, cluster_id: str, *options: str) -> None:
        java.run(STORAGE, "format", "--config", self.file, "--cluster-id", cluster_id, *options)

    def start(self) -> ApacheKafka:
        command = [*JVM, "-cp", kafka_jars.classpath(), "kafka.Kafka", str(self.file)]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"Apache Kafka did not start:\n{self.log.read_text(errors='replace')[-5000:]}")
        return self

    def _answers(self) -> bool:
        try:
            host, _, port = self.bootstrap_servers.partition(":")
            socket.create_connection((host, int(port)), timeout=1).close()
            admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            return bool(admin.list_topics(timeout=5).brokers)
        except (OSError, KafkaException):
            time.sleep(0.1)
            return False

    def stop(self) -> None:
        """A clean stop, as `kafka-server-stop` asks for it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        # Kafka's process ends with 128 + 15 although it stopped cleanly.
        assert self._process.wait(STOP_SECONDS_MAX) in (0, 143), self.log.read_text(errors="replace")[-5000:]
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> ApacheKafka:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.kill()
        elif self._process is not None:
            self.stop()
