"""Connections that cost: too many, silent, never reading, reading slowly, running ahead (attack checklist 2)."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.testing import Cluster
from tests.security.wire_client import (
    Disconnected,
    WireClient,
    answer_seconds,
    ask,
    complaints,
    eventually,
    resident_bytes,
    resident_with_files,
)

MIB = 1 << 20
IDLE_CONNECTIONS = 2000
VERSIONS = ApiVersionsRequest(client_software_name="tests", client_software_version="1")


@contextlib.contextmanager
def running(**config: str) -> Iterator[Cluster]:
    with Cluster({name.replace("_", "."): value for name, value in config.items()}, in_process=False) as cluster:
        answer_seconds(cluster.bootstrap_servers)
        yield cluster
        assert complaints(cluster) == []


def test_thousands_of_idle_connections_are_cheap() -> None:
    with running() as node, contextlib.ExitStack() as open_clients:
        servers = node.bootstrap_servers
        before = resident_bytes(node.pid)
        clients = [open_clients.enter_context(WireClient(servers)) for _ in range(IDLE_CONNECTIONS)]
        for client in clients[::10]:
            client.ask(VERSIONS, 4)
        each = (resident_bytes(node.pid) - before) / IDLE_CONNECTIONS
        print(f"{each:.0f} bytes for each of {IDLE_CONNECTIONS} idle connections")
        assert each < 8192
        assert answer_seconds(servers) < 2


def test_half_a_request_each_is_cheap_as_well() -> None:
    with running() as node, contextlib.ExitStack() as open_clients:
        before = resident_bytes(node.pid)
        for _ in range(500):
            client = open_clients.enter_context(WireClient(node.bootstrap_servers))
            client.send(client.encode(VERSIONS, 4)[:7])
        answer_seconds(node.bootstrap_servers)
        each = (resident_bytes(node.pid) - before) / 500
        print(f"{each:.0f} bytes for each connection in the middle of a small request")
        assert each < 16384


def test_connections_per_address_are_limited() -> None:
    with running(max_connections_per_ip="3", max_connections_per_ip_overrides="127.0.0.2:1") as node:
        servers = node.bootstrap_servers
        with contextlib.ExitStack() as open_clients:
            for _ in range(3):
                open_clients.enter_context(WireClient(servers, source="127.0.0.1")).ask(VERSIONS, 4)
            with WireClient(servers, source="127.0.0.1") as refused:
                assert refused.is_closed_by_node()
            open_clients.enter_context(WireClient(servers, source="127.0.0.2")).ask(VERSIONS, 4)
            with WireClient(servers, source="127.0.0.2") as refused:
                assert refused.is_closed_by_node()
            open_clients.enter_context(WireClient(servers, source="127.0.0.3")).ask(VERSIONS, 4)
        wait_until_answered(servers)


def test_beyond_max_connections_newcomers_wait_for_a_place() -> None:
    """As in Kafka, where the acceptor waits: who is in stays in, and whoever waits is served when one leaves."""
    with running(max_connections="4") as node:
        servers = node.bootstrap_servers
        inside = [WireClient(servers) for _ in range(4)]
        for client in inside:
            client.ask(VERSIONS, 4)
        waiting = [WireClient(servers, timeout=0.3) for _ in range(3)]
        for client in waiting:
            client.send(client.encode(VERSIONS, 4))
        with pytest.raises(TimeoutError):
            waiting[0].receive(1)
        waiting.pop(1).close()
        inside[0].ask(VERSIONS, 4)
        for left, client in zip(inside, waiting, strict=False):
            left.close()
            client.socket.settimeout(10)
            assert client.answer_to(VERSIONS, 4).error_code == 0
        for client in inside + waiting:
            client.close()
        wait_until_answered(servers)


def wait_until_answered(servers: str) -> None:
    """Connections that were closed a moment ago still count until the node has noticed."""

    def answered() -> bool:
        try:
            answer_seconds(servers)
        except Disconnected:
            return False
        return True

    eventually(answered, "the places of closed connections are not free again")


def test_silent_connections_are_closed_after_the_idle_time() -> None:
    with running(connections_max_idle_ms="1000") as node:
        quiet, busy, half = (WireClient(node.bootstrap_servers) for _ in range(3))
        half.send(half.encode(VERSIONS, 4)[:9])
        for _ in range(25):
            busy.ask(VERSIONS, 4)
            time.sleep(0.1)
        assert quiet.is_closed_by_node(0.1)
        assert half.is_closed_by_node(0.1)
        busy.ask(VERSIONS, 4)
        for client in (quiet, busy, half):
            client.close()


def test_a_poll_that_waits_is_not_idle() -> None:
    with running(connections_max_idle_ms="300") as node, WireClient(node.bootstrap_servers) as reader:
        node.create_topic("t")
        answer = reader.ask(fetch("t", max_wait_ms=1200), 11)
        assert answer.responses[0].partitions[0].error_code == 0


def fetch(topic: str, *, max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=60 * MIB)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=60 * MIB,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def fill(node: Cluster, topic: str, megabytes: int) -> None:
    node.create_topic(topic)
    records = build_batch([Record(0, int(time.time() * 1000), None, bytes(MIB - 2000), ())])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    with WireClient(node.bootstrap_servers) as client:
        for _ in range(megabytes):
            answer = client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0


def held_by(node: Cluster) -> int:
    return resident_with_files(node.pid)


class TestClientsThatDoNotRead:
    @pytest.fixture(scope="class")
    @classmethod
    def node(cls) -> Iterator[Cluster]:
        with running() as cluster:
            fill(cluster, "large", 50)
            cluster.create_topic("empty")
            yield cluster

    def test_one_gets_one_answer_however_much_it_asks(self, node: Cluster) -> None:
        before = held_by(node)
        with WireClient(node.bootstrap_servers, receive_buffer=4096) as greedy:
            for _ in range(100):
                greedy.send(greedy.encode(fetch("large"), 11))
            eventually(lambda: held_by(node) - before > 25 * MIB, "the first answer")
            time.sleep(0.3)
            assert answer_seconds(node.bootstrap_servers) < 2
            held = held_by(node) - before
            print(f"{held / MIB:.0f} MiB held for a client that asked for 100 large answers and reads none")
            assert held < 45 * MIB

    def test_who_reads_at_last_gets_every_answer(self, node: Cluster) -> None:
        with WireClient(node.bootstrap_servers) as late:
            for _ in range(5):
                late.send(late.encode(fetch("large"), 11))
            time.sleep(0.3)
            for number in range(1, 6):
                answer = late.answer_to(fetch("large"), 11, number)
                assert len(answer.responses[0].partitions[0].records) > 30 * MIB

    def test_nothing_piles_up_behind_a_poll(self, node: Cluster) -> None:
        before = held_by(node)
        with WireClient(node.bootstrap_servers) as greedy:
            greedy.send(greedy.encode(fetch("empty", max_wait_ms=20_000), 11))
            for _ in range(50):
                greedy.send(greedy.encode(fetch("large"), 11))
            time.sleep(0.3)
            assert answer_seconds(node.bootstrap_servers) < 2
            assert held_by(node) - before < 8 * MIB

    def test_polls_that_end_together_do_not_add_up(self, node: Cluster) -> None:
        before = held_by(node)
        with WireClient(node.bootstrap_servers, receive_buffer=4096) as greedy:
            for _ in range(50):
                greedy.send(greedy.encode(fetch("large", max_wait_ms=300, min_bytes=54 * MIB), 11))
            time.sleep(0.8)
            assert answer_seconds(node.bootstrap_servers) < 2
            assert held_by(node) - before < 45 * MIB

    def test_memory_comes_back_when_they_leave(self, node: Cluster) -> None:
        before = held_by(node)
        greedy = [WireClient(node.bootstrap_servers, receive_buffer=4096) for _ in range(4)]
        for client in greedy:
            client.send(client.encode(fetch("large"), 11))
        eventually(lambda: held_by(node) - before > 60 * MIB, "the answers")
        for client in greedy:
            client.close()
        eventually(lambda: held_by(node) - before < 10 * MIB, "what nobody reads any more is still in memory")

    def test_an_offender_that_does_not_read_is_not_waited_for_long(self, node: Cluster) -> None:
        """The answer it was given before its offence is still in the way; some seconds later it is dropped."""
        before = held_by(node)
        with WireClient(node.bootstrap_servers, receive_buffer=4096) as greedy:
            greedy.send(greedy.encode(fetch("large"), 11) + b"\xff" * 100)
            # A busy machine may look too late to see the answer held; it must not be held in the end.
            with contextlib.suppress(AssertionError):
                eventually(lambda: held_by(node) - before > 25 * MIB, "the answer", seconds=5)
            eventually(lambda: held_by(node) - before < 10 * MIB, "what nobody reads is still in memory")


def test_a_client_that_never_reads_is_idle_in_the_end() -> None:
    with running(connections_max_idle_ms="1000") as node:
        fill(node, "large", 20)
        before = held_by(node)
        with WireClient(node.bootstrap_servers, receive_buffer=4096) as greedy:
            greedy.send(greedy.encode(fetch("large"), 11))
            eventually(lambda: held_by(node) - before > 15 * MIB, "the answer")
            eventually(lambda: held_by(node) - before < 10 * MIB, "what nobody reads is still in memory")


def test_when_all_together_leave_too_much_unread_answers_shrink_and_the_oldest_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moldau.node.node.default_limit", lambda: 24 * MIB)
    with Cluster() as node:
        fill(node, "large", 15)
        servers = node.bootstrap_servers
        with WireClient(servers) as honest, contextlib.ExitStack() as open_clients:

            def fetched() -> int:
                return len(honest.ask(fetch("large"), 11).responses[0].partitions[0].records)

            def stuck() -> WireClient:
                client = open_clients.enter_context(WireClient(servers, receive_buffer=4096))
                # The first few answers go to the kernel's buffers.
                client.send(client.encode(fetch("large"), 11) * 10)
                time.sleep(0.02)
                return client

            assert fetched() > 14 * MIB
            first = stuck()
            eventually(lambda: fetched() < MIB, "answers do not shrink")
            others = [stuck() for _ in range(45)]
            with pytest.raises(Disconnected):
                first.receive_frame()
            assert others[-1].receive_frame()


def test_a_client_that_runs_ahead_without_reading_is_held_back() -> None:
    with running() as node, WireClient(node.bootstrap_servers, receive_buffer=4096) as hasty:
        before = resident_bytes(node.pid)
        burst = b"".join(hasty.encode(VERSIONS, 4) for _ in range(2000))
        hasty.socket.setblocking(False)
        sent = 0
        slowest = 0.0
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            try:
                sent += hasty.socket.send(burst)
            except BlockingIOError:
                time.sleep(0.02)
            slowest = max(slowest, answer_seconds(node.bootstrap_servers))
        held = resident_bytes(node.pid) - before
        ahead = sent // len(burst) * 2000
        print(f"{ahead} requests sent ahead, {held / MIB:.1f} MiB held, others waited {slowest:.3f} s")
        assert held < 30 * MIB
        assert slowest < 2


def test_without_descriptors_connections_are_refused_and_the_logs_go_on(tmp_path: Path) -> None:
    """With few file descriptors allowed, connections must not take those that the logs need."""
    program = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
from moldau.cli.main import main
sys.argv = ["moldau", "start", *sys.argv[1:]]
sys.exit(main())
"""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "node.id=1\nprocess.roles=broker,controller\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:0\nlog.dirs={tmp_path}/data\nmoldau.http.listener=\n"
    )
    output = (tmp_path / "node.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(properties), "--port-file", str(tmp_path / "port")], stderr=output
    )
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "port").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        servers = f"127.0.0.1:{(tmp_path / 'port').read_text()}"
        clients = [WireClient(servers) for _ in range(400)]
        served = 0
        for client in clients:
            with contextlib.suppress(Disconnected):
                client.ask(VERSIONS, 4)
                served += 1
        assert 50 < served < 300
        survivor = clients[0]
        for partition in range(150):
            records = build_batch([Record(0, int(time.time() * 1000), None, b"x", ())])
            data = TopicProduceData(
                name=f"t-{partition}", partition_data=[PartitionProduceData(index=0, records=records)]
            )
            create_topic(survivor, f"t-{partition}")
            answer = survivor.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        for client in clients:
            client.close()
        wait_until_answered(servers)
    finally:
        process.terminate()
        process.wait(20)
        output.close()
    text = (tmp_path / "node.log").read_text()
    assert " ERROR " not in text, text
    assert "Traceback" not in text, text


def create_topic(client: WireClient, name: str) -> None:
    from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest

    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    assert client.ask(request, 7).topics[0].error_code == 0


def test_clients_cannot_take_the_controllers_places() -> None:
    controller = free_port()
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "max.connections": "2",
    }
    with Cluster(config, in_process=False) as node:
        clients = [WireClient(node.bootstrap_servers) for _ in range(2)]
        for client in clients:
            client.ask(VERSIONS, 4)
        assert ask(f"127.0.0.1:{controller}", VERSIONS, 4).error_code == 0
        for client in clients:
            client.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_this_machine_allows_the_test() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > IDLE_CONNECTIONS + 500, "raise `ulimit -n` to run the tests of many connections"
