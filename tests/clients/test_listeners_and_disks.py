"""Several listeners by name, each telling clients its own address; several disks, and a replica moved between them."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from moldau.testing import Cluster
from tests.clients.java_tools import JavaTools
from tests.clients.python_clients import consume_confluent, produce_confluent
from tests.clients.sample import samples
from tests.interop.apache_kafka import free_ports

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


def test_clients_are_told_the_address_of_their_own_listener() -> None:
    inside, outside = free_ports(2)
    config = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://0.0.0.0:{outside},CONTROLLER://127.0.0.1:0",
        "advertised.listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.2:{outside}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    with Cluster(config) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{inside}"
        produce_confluent(f"127.0.0.1:{inside}", "shared", "none", samples())
        for asked, told in ((inside, f"127.0.0.1:{inside}"), (outside, f"127.0.0.2:{outside}")):
            listed = AdminClient({"bootstrap.servers": f"127.0.0.1:{asked}"}).list_topics(timeout=10)
            assert [str(each) for each in listed.brokers.values()] == [f"{told}/1"]
            assert consume_confluent(f"127.0.0.1:{asked}", "shared", 20) == samples()


@pytest.mark.java
def test_a_replica_moves_to_another_disk_while_it_is_written(tmp_path: Path, java_tools: JavaTools) -> None:
    disks = [tmp_path / "one", tmp_path / "two"]
    with Cluster({"log.dirs": ",".join(map(str, disks))}, data_dir=tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("moved", config={"segment.bytes": str(1 << 20)})
        written: list[bytes] = []
        stop = threading.Event()

        def write() -> None:
            producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5})
            while not stop.is_set():
                written.append(b"%d" % len(written) + b"." * 10_000)
                producer.produce("moved", written[-1])
                producer.poll(0.001)
            assert producer.flush(20) == 0

        writer = threading.Thread(target=write)
        writer.start()
        try:
            wait_for(lambda: len(written) > 200)
            before = home_of("moved-0", disks)
            after = next(each for each in disks if each != before)
            plan = {"topic": "moved", "partition": 0, "replicas": [1], "log_dirs": [str(after)]}
            (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": [plan]}))
            arguments = ("--bootstrap-server", servers, "--reassignment-json-file", tmp_path / "plan.json")
            assert "Successfully started" in java_tools.run(REASSIGN, *arguments, "--execute")
            wait_for(
                lambda: (
                    "completed successfully" in java_tools.run(REASSIGN, *arguments, "--verify", "--preserve-throttles")
                )
            )
            assert home_of("moved-0", disks) == after
            so_far = len(written)
            wait_for(lambda: len(written) > so_far + 100)
        finally:
            stop.set()
            writer.join(30)
        assert [each.value for each in consume_confluent(servers, "moved", len(written))] == written
        described = java_tools.run(LOG_DIRS, "--bootstrap-server", servers, "--describe", "--topic-list", "moved")
        (found,) = json.loads(described.splitlines()[-1])["brokers"]
        sizes = {
            each["logDir"]: [(p["partition"], p["isFuture"]) for p in each["partitions"]] for each in found["logDirs"]
        }
        assert sizes == {str(after): [("moved-0", False)], str(before): []}
        cluster.restart()
        assert [each.value for each in consume_confluent(servers, "moved", len(written))] == written


def home_of(partition: str, disks: list[Path]) -> Path:
    (found,) = (each for each in disks if (each / partition).is_dir())
    return found


def wait_for(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
