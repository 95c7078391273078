"""A client that can lie: raw bytes on a socket, and well-formed requests where a test needs them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.testing import Cluster

SECONDS_MAX = 10.0


class Disconnected(Exception):
    """The node closed the connection."""


class WireClient:
    """One connection to a node."""

    def __init__(
        self,
        servers: str,
        *,
        timeout: float = SECONDS_MAX,
        receive_buffer: int | None = None,
        source: str | None = None,
    ) -> None:
        host, _, port = servers.rpartition(":")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source is not None:
            self.socket.bind((source, 0))
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    # ---- bytes

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Disconnected from error

    def send_frame(self, body: bytes) -> None:
        self.send(len(body).to_bytes(4, "big") + body)

    def receive(self, size: int) -> bytes:
        """Exactly so many bytes."""
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(min(size - len(parts), 1 << 20))
            except ConnectionResetError as error:
                raise Disconnected from error
            if not part:
                raise Disconnected
            parts += part
        return bytes(parts)

    def receive_frame(self) -> bytes:
        return self.receive(int.from_bytes(self.receive(4), "big"))

    def is_closed_by_node(self, seconds: float = SECONDS_MAX) -> bool:
        """Whether the node ends this connection within the time, without having sent anything."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                got = self.socket.recv(65536)
            except ConnectionResetError:
                return True
            except TimeoutError:
                return False
            if not got:
                return True
            raise AssertionError(f"the node answered: {got[:40]!r}")
        return False

    # ---- requests

    def encode(self, request: Any, version: int, client_id: str | None = "tests") -> bytes:
        self._correlation_id += 1
        return encode_request(API_TABLE[type(request).API_KEY], version, self._correlation_id, client_id, request)

    def ask(self, request: Any, version: int, client_id: str | None = "tests") -> Any:
        self.send(self.encode(request, version, client_id))
        return self.answer_to(request, version, self._correlation_id)

    def answer_to(self, request: Any, version: int, correlation_id: int | None = None) -> Any:
        answered, message = decode_response(API_TABLE[type(request).API_KEY], version, self.receive_frame())
        if correlation_id is not None:
            assert answered == correlation_id, "answers come in the order of their requests"
        return message

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def ask(servers: str, request: Any, version: int) -> Any:
    """One request over a connection of its own."""
    with WireClient(servers) as client:
        return client.ask(request, version)


def answer_seconds(servers: str) -> float:
    """How long a newcomer waits for the answer to its first request; also the proof that the node lives."""
    began = time.monotonic()
    answer = ask(servers, ApiVersionsRequest(client_software_name="tests", client_software_version="1"), 4)
    assert answer.error_code == 0
    assert {ApiKey.PRODUCE, ApiKey.FETCH} <= {each.api_key for each in answer.api_keys}
    return time.monotonic() - began


def eventually(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Wait until it is so; a busy machine takes its time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def resident_bytes(pid: int) -> int:
    """What the process holds in memory now, without files it has mapped."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def resident_with_files(pid: int) -> int:
    """What the process holds in memory now, with the pages of files that it has mapped to send them."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))


def node_log(cluster: Cluster) -> str:
    """What a node with a process of its own has logged."""
    return (cluster.data_dir / "node.log").read_text(errors="replace")


def complaints(cluster: Cluster) -> list[str]:
    """What the node itself calls an error of its own. A hostile client is none."""
    return [
        line
        for line in node_log(cluster).splitlines()
        if " ERROR " in line or " CRITICAL" in line or line.startswith(("Traceback", "Exception"))
    ]
