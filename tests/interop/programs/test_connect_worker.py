"""A distributed worker of Kafka Connect copies a file into a topic and the topic into a file, exactly once."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import confluent_kafka as librdkafka
import pytest

from moldau.testing import Cluster
from tests.interop.apache_kafka import free_ports
from tests.interop.programs.java_program import JavaProgram, properties_file

pytestmark = pytest.mark.java

WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
FILES = "org.apache.kafka.connect.file"
JSON = "org.apache.kafka.connect.json.JsonConverter"


class Worker:
    """A worker's process and its REST interface."""

    def __init__(self, cluster: Cluster, home: Path, name: str) -> None:
        (self._port,) = free_ports(1)
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"connect-{name}",
            "listeners": f"http://127.0.0.1:{self._port}",
            "key.converter": JSON,
            "value.converter": JSON,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "service_load",
        }
        for kind in ("config", "offset", "status"):
            settings[f"{kind}.storage.topic"] = f"connect-{name}-{kind}s"
            settings[f"{kind}.storage.replication.factor"] = "1"
        settings |= {"offset.storage.partitions": "3", "status.storage.partitions": "2"}
        self._home = home
        self._file = properties_file(home, "worker", settings)
        self._starts = 0

    def program(self) -> JavaProgram:
        self._starts += 1
        return JavaProgram(self._home, f"worker-{self._starts}", WORKER, self._file)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer, or None when there is no good one."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        except OSError:
            return None
        finally:
            connection.close()
        return json.loads(text) if answer.status < 300 and text else None

    def configure(self, program: JavaProgram, name: str, settings: dict[str, str]) -> None:
        """The worker has no time for this while its group is on the move."""
        program.wait_until(lambda: self.ask("PUT", f"/connectors/{name}/config", settings) is not None)

    def states(self, name: str) -> list[str]:
        status = self.ask("GET", f"/connectors/{name}/status")
        return [] if status is None else [task["state"] for task in status["tasks"]]

    def position(self, name: str) -> int | None:
        """How far the connector has come in its file, as it has committed it."""
        answer = self.ask("GET", f"/connectors/{name}/offsets")
        if answer is None or not answer["offsets"]:
            return None
        position: int = answer["offsets"][0]["offset"]["position"]
        return position


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


EXPECTED = [f"line {number}" for number in range(1000)]


def write(path: Path, lines: list[str]) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def connect(worker: Worker, program: JavaProgram, source: Path, sink: Path, topic: str) -> None:
    kinds = {"source": (source, {"topic": topic}), "sink": (sink, {"topics": topic})}
    for kind, (path, reads) in kinds.items():
        settings = {"connector.class": f"{FILES}.FileStream{kind.title()}Connector", "file": str(path), **reads}
        worker.configure(program, kind, {"tasks.max": "1", **settings})
    program.wait_until(lambda: worker.states("source") == worker.states("sink") == ["RUNNING"])


def test_a_file_goes_through_a_topic_into_another_file(cluster: Cluster, tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    write(source, EXPECTED)
    worker = Worker(cluster, tmp_path, "short")
    with worker.program() as program:
        connect(worker, program, source, sink, "short-lines")
        program.wait_until(lambda: len(lines_of(sink)) >= len(EXPECTED))
        program.wait_until(lambda: worker.position("source") == source.stat().st_size)
    assert lines_of(sink) == EXPECTED
    assert lines_in(cluster, "short-lines") == EXPECTED


@pytest.mark.programs
def test_another_worker_goes_on_where_one_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    write(source, EXPECTED[:600])
    worker = Worker(cluster, tmp_path, "long")
    with worker.program() as program:
        connect(worker, program, source, sink, "long-lines")
        program.wait_until(lambda: len(lines_of(sink)) >= 600)
    write(source, EXPECTED[600:])
    with worker.program() as program:
        program.wait_until(lambda: set(lines_of(sink)) == set(EXPECTED))
        program.wait_until(lambda: worker.position("source") == source.stat().st_size)
    assert lines_in(cluster, "long-lines") == EXPECTED, "the source wrote every line once, in order"
    # A sink that was killed writes again what it had not committed; it never leaves anything out.
    assert list(dict.fromkeys(lines_of(sink))) == EXPECTED


def lines_in(cluster: Cluster, topic: str) -> list[str]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "lines", "enable.partition.eof": True}
    consumer = librdkafka.Consumer(settings)
    consumer.assign([librdkafka.TopicPartition(topic, 0, 0)])
    found: list[str] = []
    for message in iter(lambda: consumer.poll(30), None):
        if message.error() is not None:
            assert message.error().code() == librdkafka.KafkaError._PARTITION_EOF
            break
        found.append(json.loads(message.value()))
    consumer.close()
    return found
