"""A broker that answers what a test tells it to, request by request, in versions of the test's choice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.frames import encode_response, parse_request_header
from moldau.protocol.generated.wire.api_versions_response import ApiVersion, ApiVersionsResponse
from moldau.protocol.generated.wire.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.protocol.wire import Reader

Answer = Callable[[Any, int], Any]


class ScriptedBroker:
    """`answers` has a function of (request, version) for each API that is served; None instead of an answer ends the
    connection. `newest` limits versions."""

    def __init__(self, answers: Mapping[ApiKey, Answer], newest: Mapping[ApiKey, int] | None = None) -> None:
        self.answers = dict(answers)
        self.newest = dict(newest or {})
        self.connections = 0
        self.seen: list[ApiKey] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> ScriptedBroker:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(10)
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads[1:]:
            thread.join(10)

    def count(self, key: ApiKey) -> int:
        return self.seen.count(key)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while self._answer_one(connection):
                    pass
            except OSError:
                pass

    def _answer_one(self, connection: socket.socket) -> bool:
        head = connection.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return False
        frame = memoryview(connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        number, version, correlation, _, at = parse_request_header(frame)
        key = ApiKey(number)
        self.seen.append(key)
        request = API_TABLE[key].request_class().read(Reader(frame, at), version)
        answer = self._versions() if key is ApiKey.API_VERSIONS else self.answers[key](request, version)
        if answer is None:
            return False
        connection.sendall(encode_response(key, version, correlation, answer))
        return True

    def _versions(self) -> ApiVersionsResponse:
        served = [ApiKey.API_VERSIONS, *self.answers]
        newest = {key: self.newest.get(key, API_TABLE[key].max_stable_version) for key in served}
        return ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=key, min_version=0, max_version=high) for key, high in newest.items()]
        )


def metadata(brokers: Mapping[int, ScriptedBroker], leaders: Mapping[str, Mapping[int, int]]) -> MetadataResponse:
    """Who is there, and who leads which partition of which topic."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=broker.port) for node, broker in brokers.items()
        ],
        controller_id=min(brokers),
        topics=[
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=1)
                    for index, leader in partitions.items()
                ],
            )
            for name, partitions in leaders.items()
        ],
    )
