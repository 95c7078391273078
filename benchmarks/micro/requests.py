"""Broker CPU per request, by kind of request, with nothing between the broker and a raw socket.

    python -m benchmarks.micro.requests [--broker kafka] [--only produce,...]

Frames are built once and sent again and again with a few in flight, so the figures are the broker's own: what a request
of each kind costs it, and how many it answers in a second.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import machine
from benchmarks.brokers import BROKERS, Broker
from benchmarks.rows import clients
from benchmarks.target import Target
from benchmarks.workspace import workspace
from moldau.protocol.api import request_header_version
from moldau.protocol.codec import encode
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.wire import WireMessage
from moldau.records.builder import build_batch
from moldau.records.record import Record

IN_FLIGHT = 16
SECONDS_EACH = 1.0
WARM_UP_SECONDS = 1.0
MANY_PARTITIONS = 1000
RECORDS = 100_000
RECORD_BYTES = 100
TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A request to repeat; `session` marks a fetch whose frames carry a growing session epoch."""

    name: str
    request: WireMessage
    version: int
    session: bool = False


def frame(request: WireMessage, version: int) -> bytes:
    """A whole frame with correlation id 1 and client id "bench"."""
    assert request.API_KEY is not None
    header = struct.pack(">hhih5s", request.API_KEY, version, 1, 5, b"bench")
    if request_header_version(request.API_KEY, version) >= 2:
        header += b"\x00"
    body = encode(request, version)
    return struct.pack(">i", len(header) + len(body)) + header + body


def batch(records: int) -> bytes:
    now = time.time_ns() // 1_000_000
    return build_batch([Record(number, now, None, bytes(RECORD_BYTES)) for number in range(records)])


def kinds(one: str, many: str) -> Iterator[Kind]:
    def produce(records: int) -> ProduceRequest:
        data = TopicProduceData(name=one, partition_data=[PartitionProduceData(index=0, records=batch(records))])
        return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])

    def fetch(limit: int) -> FetchRequest:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=limit)
        return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=one, partitions=[wanted])])

    yield Kind("api_versions", ApiVersionsRequest(client_software_name="b", client_software_version="1"), 4)
    yield Kind("metadata", MetadataRequest(topics=[MetadataRequestTopic(name=one)]), 12)
    yield Kind(f"metadata_{MANY_PARTITIONS}", MetadataRequest(topics=[MetadataRequestTopic(name=many)]), 12)
    yield Kind("list_offsets", _list_offsets(one), 7)
    yield Kind("produce_1", produce(1), 10)
    yield Kind("produce_10", produce(10), 10)
    yield Kind("produce_1000", produce(1000), 10)
    yield Kind("fetch_1kb", fetch(1000), 12)
    yield Kind("fetch_1mb", fetch(1_000_000), 12)
    # What a consumer of many partitions asks over and over when there is nothing new.
    ends = [
        FetchPartition(partition=n, fetch_offset=RECORDS // MANY_PARTITIONS, partition_max_bytes=1_000_000)
        for n in range(MANY_PARTITIONS)
    ]
    session = FetchRequest(max_wait_ms=0, session_epoch=0, topics=[FetchTopic(topic=many, partitions=ends)])
    yield Kind(f"fetch_session_{MANY_PARTITIONS}", session, 12, session=True)


def _list_offsets(topic: str) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])


class Repeater:
    """One connection that repeats a request for a while."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(4 << 20))

    def close(self) -> None:
        self._socket.close()

    def repeat(self, kind: Kind, seconds: float) -> int:
        """Requests answered in about `seconds`."""
        return self._repeat_session(kind, seconds) if kind.session else self._repeat_frame(kind, seconds)

    def _repeat_frame(self, kind: Kind, seconds: float) -> int:
        data = frame(kind.request, kind.version)
        self._socket.sendall(data * IN_FLIGHT)
        answered, deadline = 0, time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            self._answer()
            self._socket.sendall(data)
            answered += 1
        for _ in range(IN_FLIGHT):
            self._answer()
        return answered + IN_FLIGHT

    def _repeat_session(self, kind: Kind, seconds: float) -> int:
        """A fetch session: the first request names the partitions, the next ones only its id and epoch."""
        self._socket.sendall(frame(kind.request, kind.version))
        size = self._answer()
        # correlation id, tags, throttle time, error, session id
        (session_id,) = struct.unpack_from(">i", self._buffer, 11)
        assert session_id, f"no session was made (answer of {size} bytes)"
        epoch, deadline = 0, time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            epoch += 1
            again = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=epoch, topics=[])
            self._socket.sendall(frame(again, kind.version))
            self._answer()
        return epoch + 1

    def _answer(self) -> int:
        self._receive(4)
        (size,) = struct.unpack_from(">i", self._buffer)
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        self._receive(size)
        return int(size)

    def _receive(self, size: int) -> None:
        done = 0
        while done < size:
            count = self._socket.recv_into(self._buffer[done:size])
            if not count:
                raise ConnectionError("the broker closed the connection")
            done += count


def measure(broker: Broker, kind: Kind) -> None:
    with contextlib.closing(Repeater(broker.port)) as repeater:
        repeater.repeat(kind, WARM_UP_SECONDS)
    with contextlib.closing(Repeater(broker.port)) as repeater:
        cpu, began = broker.cpu_seconds(), time.perf_counter()
        requests = repeater.repeat(kind, SECONDS_EACH)
        seconds, spent = time.perf_counter() - began, broker.cpu_seconds() - cpu
    print(f"{kind.name:20} {spent / requests * 1e6:10.1f} µs CPU {requests / seconds:12.0f} requests/s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro.requests", description=__doc__)
    parser.add_argument("--broker", choices=sorted(BROKERS), default="moldau")
    parser.add_argument("--only", help="kinds, separated by commas")
    arguments = parser.parse_args()
    with workspace() as directory:
        broker = BROKERS[arguments.broker](directory / arguments.broker)
        try:
            measure_all(broker, set(arguments.only.split(",")) if arguments.only else None)
        finally:
            broker.remove()


def measure_all(broker: Broker, wanted: set[str] | None) -> None:
    broker.format()
    broker.start()
    target = Target(broker, 1.0, machine.Reservoir())
    one, many = target.new_topic("one"), target.new_topic("many", MANY_PARTITIONS)
    task = {"topic": one, "messages": RECORDS, "size_bytes": RECORD_BYTES}
    target.run((clients.produce, {**task, "config": {"batch.num.messages": 10}}))
    target.run((clients.produce, {**task, "topic": many, "partitions": MANY_PARTITIONS}))
    for kind in kinds(one, many):
        if wanted is None or kind.name in wanted:
            measure(broker, kind)


if __name__ == "__main__":
    main()
