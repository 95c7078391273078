"""Bytes that are no request: the connection ends, the node does not notice (attack checklist 1)."""

from __future__ import annotations

import os
import signal
import ssl
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.metadata_request import MetadataRequest
from moldau.testing import Cluster
from tests.security.wire_client import Disconnected, WireClient, answer_seconds, complaints, node_log, resident_bytes

MAX_FRAME = 104_857_600
VERSIONS = ApiVersionsRequest(client_software_name="tests", client_software_version="1")


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with Cluster(in_process=False) as cluster:
        answer_seconds(cluster.bootstrap_servers)
        yield cluster
        assert complaints(cluster) == []


@pytest.mark.parametrize("size", [-1, 0, 3, 7, MAX_FRAME + 1, 2**31 - 1, -(2**31)])
def test_a_length_that_cannot_be_ends_the_connection(node: Cluster, size: int) -> None:
    before = resident_bytes(node.pid)
    with WireClient(node.bootstrap_servers) as client:
        client.send(struct.pack(">i", size) + bytes(64))
        assert client.is_closed_by_node()
    answer_seconds(node.bootstrap_servers)
    assert resident_bytes(node.pid) - before < 4 << 20


@pytest.mark.parametrize("size", [-1, 3, MAX_FRAME + 1])
def test_such_a_length_one_byte_at_a_time(node: Cluster, size: int) -> None:
    with WireClient(node.bootstrap_servers) as client:
        for byte in struct.pack(">i", size):
            client.send(bytes([byte]))
            time.sleep(0.01)
        assert client.is_closed_by_node()


def test_a_claimed_length_takes_no_memory_before_the_bytes_come(node: Cluster) -> None:
    before = resident_bytes(node.pid)
    clients = [WireClient(node.bootstrap_servers) for _ in range(300)]
    try:
        for client in clients:
            client.send(struct.pack(">i", MAX_FRAME) + bytes(4))
        answer_seconds(node.bootstrap_servers)
        # 64 MiB are lent generously, then a page for each.
        assert resident_bytes(node.pid) - before < 80 << 20
    finally:
        for client in clients:
            client.close()


def test_tls_on_a_plaintext_port(node: Cluster) -> None:
    def shake_hands() -> None:
        with WireClient(node.bootstrap_servers) as client:
            context = ssl.create_default_context()
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                context.wrap_socket(client.socket, server_hostname="localhost")

    assert logs(node, "a TLS handshake arrived on a plaintext listener", shake_hands)


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT"])
def test_http_on_the_port(node: Cluster, method: str) -> None:
    def ask() -> None:
        with WireClient(node.bootstrap_servers) as client:
            client.send(method.encode() + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.is_closed_by_node()

    assert logs(node, "this port speaks Kafka's protocol, not HTTP", ask)


def logs(node: Cluster, words: str, provoke: Callable[[], None]) -> bool:
    """Whether that is said in the node's log; such complaints are logged once a second only."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        provoke()
        if words in node_log(node):
            return True
        time.sleep(0.1)
    return False


def test_a_request_may_come_one_byte_at_a_time(node: Cluster) -> None:
    """Slowloris: as long as it goes on it is a client like any other, and nobody waits for it."""
    with WireClient(node.bootstrap_servers) as client:
        for byte in client.encode(VERSIONS, 4):
            client.send(bytes([byte]))
            assert answer_seconds(node.bootstrap_servers) < 1
        assert client.answer_to(VERSIONS, 4).error_code == 0


def test_a_request_in_two_pieces_cut_anywhere(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        whole = client.encode(VERSIONS, 4)
        for cut in range(1, len(whole)):
            client.send(whole[:cut])
            client.send(whole[cut:] + whole)
            for _ in range(2):
                assert client.answer_to(VERSIONS, 4).error_code == 0


@pytest.mark.parametrize("megabytes", [1, 2, 5, 40])
def test_a_large_request_that_arrives_at_once(node: Cluster, megabytes: int) -> None:
    """While the node sleeps the kernel collects: more than the scratch buffer holds may be there in one go."""
    request = MetadataRequest(topics=[])
    with WireClient(node.bootstrap_servers) as client:
        frame = client.encode(request, 12)
        # An unknown tagged field of that size at the very end of the request.
        tagged = frame[:-1] + b"\x01\x63" + _uvarint(megabytes << 20) + bytes(megabytes << 20)
        tagged = struct.pack(">i", len(tagged) - 4) + tagged[4:]
        os.kill(node.pid, signal.SIGSTOP)
        try:
            client.socket.settimeout(0.5)
            sent = 0
            while sent < len(tagged):
                try:
                    sent += client.socket.send(tagged[sent:])
                except TimeoutError:
                    break
        finally:
            os.kill(node.pid, signal.SIGCONT)
        client.socket.settimeout(10)
        client.send(tagged[sent:])
        assert client.answer_to(request, 12).topics == []


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_many_requests_at_once_are_answered_in_order(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        first = client._correlation_id + 1
        client.send(b"".join(client.encode(VERSIONS, 4) for _ in range(500)))
        for number in range(500):
            client.answer_to(VERSIONS, 4, first + number)


def test_garbage_after_good_requests_ends_the_connection_after_their_answers(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.send(client.encode(VERSIONS, 4) * 3 + b"\xff" * 100)
        for _ in range(3):
            assert client.answer_to(VERSIONS, 4).error_code == 0
        with pytest.raises(Disconnected):
            client.receive(1)
