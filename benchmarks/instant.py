"""A server that answers at once: how fast one client can commit offsets when the broker costs next to nothing.

It never sleeps (waking it would take longer than the answer), knows one topic and keeps nothing. The first commit is
answered properly; every other gets the same bytes with its own correlation id in them, whatever it says. What a client
reaches here bounds what it can reach with any broker.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from struct import Struct

from benchmarks import process
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.frames import encode_response, parse_request_header
from moldau.protocol.generated.wire.api_versions_response import ApiVersion, ApiVersionsResponse
from moldau.protocol.generated.wire.find_coordinator_response import FindCoordinatorResponse
from moldau.protocol.generated.wire.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.protocol.generated.wire.offset_commit_request import OffsetCommitRequest
from moldau.protocol.generated.wire.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.protocol.wire import Reader, WireMessage

_INT32 = Struct(">i")
_CORRELATION_AT = 4
_HEAD_BYTES = 8  # API key, version, correlation id
_RECEIVED_BYTES = 64 << 10
# The newest version of FindCoordinator that asks for one coordinator: one less thing to get right.
_ONE_COORDINATOR = 3


@contextlib.contextmanager
def instant_server(topic: str) -> Iterator[str]:
    """The address of such a server, in a process of its own."""
    server = process.spawn([sys.executable, "-m", "benchmarks.instant", topic], stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        yield f"127.0.0.1:{server.stdout.readline().decode().strip()}"
    finally:
        process.stop(server)
        server.stdout.close()


class InstantServer:
    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._commit_answer: bytearray | None = None

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select(0):
                key.data()
            os.sched_yield()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = bytearray()
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(connection, received))

    def _read(self, connection: socket.socket, received: bytearray) -> None:
        data = connection.recv(_RECEIVED_BYTES)
        if not data:
            self._selector.unregister(connection)
            connection.close()
            return
        received += data
        while len(received) >= _INT32.size:
            end = _INT32.size + _INT32.unpack_from(received)[0]
            if len(received) < end:
                break
            answer = self._answer(bytes(received[_INT32.size : end]))
            del received[:end]
            if answer:
                connection.sendall(answer)

    def _answer(self, frame: bytes) -> bytes | bytearray:
        answer = self._commit_answer
        if answer is not None and frame[1] == ApiKey.OFFSET_COMMIT:
            answer[_CORRELATION_AT:_HEAD_BYTES] = frame[_CORRELATION_AT:_HEAD_BYTES]
            return answer
        key, version, correlation_id, _, position = parse_request_header(memoryview(frame))
        answers: dict[int, Callable[[], WireMessage]] = {
            ApiKey.API_VERSIONS: self._versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: lambda: FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=self.port),
            ApiKey.OFFSET_COMMIT: lambda: _committed(OffsetCommitRequest.read(Reader(frame, position), version)),
        }
        make = answers.get(key)
        if make is None:
            return b""  # a fetch: it waits for records that never come
        if key == ApiKey.API_VERSIONS:
            version = min(version, API_TABLE[key].max_version)
        made = encode_response(key, version, correlation_id, make())
        if key == ApiKey.OFFSET_COMMIT:
            self._commit_answer = bytearray(made)
        return made

    def _versions(self) -> ApiVersionsResponse:
        newest = {key: spec.max_stable_version for key, spec in API_TABLE.items()}
        newest[ApiKey.FIND_COORDINATOR] = _ONE_COORDINATOR
        return ApiVersionsResponse(
            api_keys=[ApiVersion(key, spec.min_version, newest[key]) for key, spec in API_TABLE.items()]
        )

    def _metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(1, "127.0.0.1", self.port)],
            cluster_id="instant",
            controller_id=1,
            topics=[MetadataResponseTopic(name=self._topic, topic_id=bytes(15) + b"t", partitions=[partition])],
        )


def _committed(request: OffsetCommitRequest) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[OffsetCommitResponsePartition(each.partition_index) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


if __name__ == "__main__":
    served = InstantServer(sys.argv[1])
    print(served.port, flush=True)
    served.run()
