"""`moldau start` as a process: what it refuses and how it says so, how it stops, and how it comes back."""

from __future__ import annotations

import resource
import signal
import socket
import struct
import time
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.python_clients import consume_confluent, produce_confluent
from tests.clients.sample import samples
from tests.packaging.node_process import NodeProcess, ask_api_versions, one_node


def test_one_line_when_it_is_ready(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, one_node(tmp_path / "data")) as node:
        servers = node.ready()
        assert ask_api_versions(servers)[18][0] == 0
        (line,) = (line for line in node.said.splitlines() if "is ready" in line)
        assert f"PLAINTEXT://{servers}" in line
        assert node.stop() < 5
    assert "stopped" in node.said.splitlines()[-1]


# ---- what it refuses


def refused(tmp_path: Path, properties: dict[str, str], *arguments: str) -> str:
    """What it says when it does not start; without a stack trace."""
    with NodeProcess(tmp_path, properties, *arguments) as node:
        assert node.ended() in (1, 2), node.said
    assert "Traceback" not in node.said
    return node.said


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("num.partitions", "many", "INT"),
        ("log.retention.check.interval.ms", "-5", "at least 1"),
        ("compression.type", "brotli", "zstd"),
        ("process.roles", "manager", "controller"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, name: str, value: str, allowed: str) -> None:
    said = refused(tmp_path, one_node(tmp_path / "data"), "--override", f"{name}={value}")
    assert name in said
    assert value in said
    assert allowed in said
    assert not (tmp_path / "data").exists()


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one(tmp_path: Path) -> None:
    properties = one_node(tmp_path / "data") | {"num.partitons": "3", "log.retention.hour": "1"}
    with NodeProcess(tmp_path, properties) as node:
        node.ready()
        warnings = [line for line in node.said.splitlines() if "WARNING" in line]
        assert len(warnings) == 2
        assert "num.partitons" in warnings[0]
        assert "num.partitions" in warnings[0]
        assert "log.retention.hours" in warnings[1]


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "first", one_node(tmp_path / "data")) as first:
        servers = first.ready()
        said = refused(tmp_path / "second", one_node(tmp_path / "data"))
        assert str(tmp_path / "data") in said
        assert "in use by another process" in said
        assert ask_api_versions(servers)
        first.stop()
    with NodeProcess(tmp_path / "second", one_node(tmp_path / "data")) as second:
        second.ready()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        listeners = f"PLAINTEXT://{address},CONTROLLER://127.0.0.1:0"
        said = refused(tmp_path, one_node(tmp_path / "data", listeners=listeners))
    assert address in said
    assert "in use" in said


def test_directories_of_another_cluster_or_node_are_refused(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, one_node(tmp_path / "data", cluster_id="AAAAAAAAAAAAAAAAAAAAAQ")) as node:
        node.ready()
        node.stop()
    said = refused(tmp_path, one_node(tmp_path / "data", cluster_id="BBBBBBBBBBBBBBBBBBBBBQ"))
    assert "AAAAAAAAAAAAAAAAAAAAAQ" in said
    assert "BBBBBBBBBBBBBBBBBBBBBQ" in said
    said = refused(tmp_path, one_node(tmp_path / "data", node_id="2"))
    assert str(tmp_path / "data") in said


def test_a_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    assert str(tmp_path / "data") in refused(tmp_path, one_node(tmp_path / "data"))


def test_security_that_is_not_served_is_refused(tmp_path: Path) -> None:
    listeners = "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    assert "PLAINTEXT" in refused(tmp_path, one_node(tmp_path / "data", listeners=listeners))


# ---- how it stops and comes back


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_quickly_whatever_clients_do(tmp_path: Path, number: int) -> None:
    """One client waits for records that do not come, one has sent half a request, one reads nothing of its answers."""
    with NodeProcess(tmp_path, one_node(tmp_path / "data")) as node:
        servers = node.ready()
        produce_confluent(servers, "kept", "none", samples())
        waiting = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 60_000,
                "socket.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        waiting.assign([confluent_kafka.TopicPartition("kept", 0, 20)])
        waiting.poll(0.5)
        host, _, port = servers.partition(":")
        half = socket.create_connection((host, int(port)))
        half.sendall(struct.pack(">ihhi", 1000, 0, 9, 1))
        deaf = socket.create_connection((host, int(port)))
        metadata = struct.pack(">hhihi", 3, 0, 1, -1, 0)
        deaf.sendall(2000 * (struct.pack(">i", len(metadata)) + metadata))
        time.sleep(0.1)
        assert node.stop(number) < 5
        waiting.close()
        half.close()
        deaf.close()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in node.said
    with NodeProcess(tmp_path, one_node(tmp_path / "data")) as node:
        assert consume_confluent(node.ready(), "kept", 20) == samples()


def test_a_killed_node_comes_back_with_everything_acknowledged(tmp_path: Path) -> None:
    properties = one_node(tmp_path / "data")
    expected = []
    for round_number in range(3):
        with NodeProcess(tmp_path, properties) as node:
            servers = node.ready()
            assert consume_confluent(servers, "kept", len(expected)) == expected
            for codec in ("none", "zstd"):
                produce_confluent(servers, "kept", codec, samples())
                expected += samples()
            node.kill()
        assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists(), round_number
    with NodeProcess(tmp_path, properties) as node:
        assert consume_confluent(node.ready(), "kept", len(expected)) == expected


def test_a_torn_batch_at_the_end_is_cut_off(tmp_path: Path) -> None:
    properties = one_node(tmp_path / "data")
    with NodeProcess(tmp_path, properties) as node:
        produce_confluent(node.ready(), "kept", "none", samples())
        node.kill()
    segment = tmp_path / "data" / "kept-0" / f"{0:020d}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:-7])
    with NodeProcess(tmp_path, properties) as node:
        servers = node.ready()
        assert consume_confluent(servers, "kept", 20) == samples()
        assert segment.read_bytes() == whole
        produce_confluent(servers, "kept", "none", samples())
        assert consume_confluent(servers, "kept", 40) == 2 * samples()


def test_a_metadata_log_that_cannot_be_written_ends_the_node(tmp_path: Path) -> None:
    """It says why and fails; what was acknowledged is there after the disk has been mended."""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    properties = one_node(tmp_path / "data", offsets_topic_num_partitions="1")
    made = []
    with NodeProcess(tmp_path, properties, prepare=small_files) as node:
        admin = AdminClient({"bootstrap.servers": node.ready(), "log_level": 0})
        for i in range(1000):
            name = f"topic-{i}"
            try:
                admin.create_topics([NewTopic(name, 20, 1)])[name].result(5)
            except KafkaException:
                break
            made.append(name)
        assert node.ended() == 1
    assert "the metadata log failed" in node.said
    assert "File too large" in node.said
    assert "Traceback" not in node.said
    with NodeProcess(tmp_path, properties) as node:
        listed = AdminClient({"bootstrap.servers": node.ready()}).list_topics(timeout=10).topics
        assert set(made) <= set(listed)
        node.stop()


def test_a_signal_before_it_is_up(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, one_node(tmp_path / "data")) as node:
        node.said_something()
        node.stop()
    assert "Traceback" not in node.said


def test_logs_for_machines(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, one_node(tmp_path / "data"), environment={"MOLDAU_LOG_FORMAT": "json"}) as node:
        node.ready()
        node.stop()
    assert [line[0] + line[-1] for line in node.said.splitlines()] == ["{}"] * len(node.said.splitlines())
