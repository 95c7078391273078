"""Single requests over a plain socket, for costs that a client library's own machinery would hide."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable

from moldau.protocol.codec import decode, encode
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.fetch_response import FetchResponse
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.find_coordinator_response import FindCoordinatorResponse
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.generated.wire.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.generated.wire.list_offsets_response import ListOffsetsResponse
from moldau.protocol.generated.wire.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.generated.wire.offset_commit_response import OffsetCommitResponse
from moldau.protocol.generated.wire.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from moldau.protocol.generated.wire.offset_fetch_response import OffsetFetchResponse
from moldau.protocol.wire import WireMessage

# The last versions with plain headers, which need no tagged fields.
FETCH_VERSION, LIST_OFFSETS_VERSION = 11, 5
ALTER_VERSION = 0
GROUP_RESOURCE, SET = 32, 0
GROUP_KEY, TRANSACTION_KEY = 0, 1
COORDINATOR_VERSION, COMMIT_VERSION, OFFSET_VERSION = 2, 7, 5
TIMEOUT_SECONDS = 30.0


class Connection:
    """One connection to a broker; a request, then its answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def fetch(self, topic: str, offset: int) -> tuple[int, int]:
        """Read what is at an offset: the base offset of the first batch that came, and how many bytes came."""
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        request = FetchRequest(min_bytes=1, max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[partition])])
        answer = decode(FetchResponse, self._ask(request, FETCH_VERSION), FETCH_VERSION)
        data = answer.responses[0].partitions[0]
        records = data.records
        if data.error_code or records is None or len(records) < 8:
            raise RuntimeError(f"nothing at offset {offset} of {topic}: error {data.error_code}")
        return struct.unpack_from(">q", records)[0], len(records)

    def offset_at(self, topic: str, timestamp: int) -> int:
        """The first offset at or after a timestamp (or -1 the end, -2 the beginning)."""
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
        answer = decode(ListOffsetsResponse, self._ask(request, LIST_OFFSETS_VERSION), LIST_OFFSETS_VERSION)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise RuntimeError(f"no offset at {timestamp} of {topic}: error {found.error_code}")
        return found.offset

    def configure_group(self, group: str, name: str, value: str) -> None:
        setting = AlterableConfig(name=name, config_operation=SET, value=value)
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[setting])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = decode(IncrementalAlterConfigsResponse, self._ask(request, ALTER_VERSION), ALTER_VERSION)
        if answer.responses[0].error_code:
            raise RuntimeError(f"{group} cannot have {name}={value}: error {answer.responses[0].error_code}")

    # ---- offsets of groups without members

    def await_group_coordinator(self, group: str) -> int:
        return self.await_coordinator(group, GROUP_KEY)

    def await_coordinator(self, key: str, key_type: int) -> int:
        """The node that coordinates a group or a transactional id, as soon as there is one."""
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            answer = decode(FindCoordinatorResponse, self._ask(request, COORDINATOR_VERSION), COORDINATOR_VERSION)
            if not answer.error_code:
                return answer.node_id
            if time.monotonic() > deadline:
                raise TimeoutError(f"there is no coordinator of {key}")
            time.sleep(0.05)

    def commit(self, group: str, topic: str, partitions: Iterable[int], offset: int) -> None:
        committed = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=offset, committed_metadata="")
            for each in partitions
        ]
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=committed)]
        )
        answer = decode(OffsetCommitResponse, self._ask(request, COMMIT_VERSION), COMMIT_VERSION)
        for each in answer.topics[0].partitions:
            if each.error_code:
                raise RuntimeError(f"{group} cannot commit: error {each.error_code}")

    def await_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Until the coordinator has loaded the group; its offset must be this one."""
        wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(group_id=group, topics=wanted)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            answer = decode(OffsetFetchResponse, self._ask(request, OFFSET_VERSION), OFFSET_VERSION)
            if not answer.error_code:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"the offsets of {group} are not there: error {answer.error_code}")
            time.sleep(0.005)
        found = answer.topics[0].partitions[0].committed_offset
        if found != offset:
            raise RuntimeError(f"{group} committed {offset}, and finds {found}")

    def _ask(self, request: WireMessage, version: int) -> memoryview:
        header = struct.pack(">hhih", request.API_KEY, version, 1, -1)
        body = encode(request, version)
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)[4:]

    def _receive(self, size: int) -> memoryview:
        received = memoryview(bytearray(size))
        done = 0
        while done < size:
            count = self._socket.recv_into(received[done:])
            if not count:
                raise ConnectionError("closed before the whole answer")
            done += count
        return received
