"""Requests that lie about themselves, and requests nobody may send here (attack checklist 3, 4 and 8)."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest

from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import decode_response
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from moldau.testing import Cluster
from tests.security.wire_client import WireClient, answer_seconds, ask, complaints, resident_bytes

MIB = 1 << 20
INT32_MAX = (2**31 - 1).to_bytes(4, "big")


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with Cluster({"max.incremental.fetch.session.cache.slots": "5"}, in_process=False) as cluster:
        cluster.create_topic("t")
        yield cluster
        assert complaints(cluster) == []


def head(key: int, version: int, client_id: bytes | None = b"c", tags: bytes | None = None) -> bytes:
    """A request's header; `tags` only for versions that have them."""
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 1, length) + (client_id or b"") + (tags or b"")


METADATA_OLD = head(3, 1)
METADATA = head(3, 12, tags=b"\0")
CREATE_OLD = head(19, 2)
CREATE = head(19, 7, tags=b"\0")
PRODUCE_OLD = head(0, 8) + b"\xff\xff" + struct.pack(">hi", 1, 1000)
PRODUCE = head(0, 9, tags=b"\0") + b"\0" + struct.pack(">hi", 1, 1000)
FETCH_OLD = head(1, 11) + struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1)
NO_TAGS = b"\0"

MALFORMED = {
    "an array of 2^31-1 topics": METADATA_OLD + INT32_MAX,
    "an array of -2 topics": CREATE_OLD + b"\xff\xff\xff\xfe",
    "a null array where there is none": CREATE_OLD + b"\xff\xff\xff\xff" + bytes(5),
    "a compact null array where there is none": CREATE + b"\0" + bytes(6),
    "a compact array of 2^31 topics": METADATA + b"\xff\xff\xff\xff\x0f",
    "a varint of six bytes": METADATA + b"\x80\x80\x80\x80\x80\x01" + bytes(10),
    "a varint of more than 32 bits": METADATA + b"\xff\xff\xff\xff\x7f" + bytes(10),
    "a varint without an end": METADATA + b"\x80",
    "a negative length of a name": CREATE_OLD + b"\0\0\0\1\xff\xfe" + bytes(30),
    "null as the name": CREATE_OLD + b"\0\0\0\1\xff\xff" + bytes(30),
    "null as the compact name": CREATE + b"\2\0" + bytes(30),
    "a name longer than the request": CREATE_OLD + b"\0\0\0\1\x7f\xff" + b"a" * 30,
    "a compact name longer than any may be": CREATE + b"\2" + b"\x81\x80\x02" + b"a" * 40000,
    "a name that is not text": CREATE_OLD + b"\0\0\0\1\0\2\xff\xfe" + bytes(30),
    "2^28 tagged fields": METADATA + b"\1\0\0\x80\x80\x80\x80\x01" + bytes(20),
    "a tagged field longer than the request": METADATA + b"\1\0\0\1\x07\xff\xff\xff\x07",
    "the same tag twice": METADATA + b"\1\0\0\2\x07\x01a\x07\x01b",
    "2^28 tagged fields in the header": head(3, 12, tags=b"\x80\x80\x80\x80\x01") + b"\1\0\0\0",
    "no tagged fields in a header that has them": head(3, 12) + b"\xff\xff",
    "nothing after the header": METADATA,
    "a client id longer than the request": struct.pack(">hhih", 3, 1, 1, 1000) + b"c",
    "a client id that is not text": head(3, 1, b"\xff\xfe") + b"\0\0\0\0",
    "Produce with 2^31-1 topics": PRODUCE_OLD + INT32_MAX,
    "Produce with 2^31-1 partitions": PRODUCE_OLD + b"\0\0\0\1\0\1t" + INT32_MAX,
    "Produce with 2^31-1 bytes of records": PRODUCE_OLD + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0" + INT32_MAX,
    "Produce with a null topic": PRODUCE_OLD + b"\0\0\0\1\xff\xff\0\0\0\0" + bytes(8),
    "Produce with a compact array of 2^31 topics": PRODUCE + b"\xff\xff\xff\xff\x0f" + bytes(10),
    "Produce with a varint of six bytes": PRODUCE + b"\x80\x80\x80\x80\x80\x01" + bytes(10),
    "Produce with 2^28 tagged fields": PRODUCE + b"\1\x80\x80\x80\x80\x01" + bytes(10),
    "Produce cut in its acks": head(0, 8) + b"\xff\xff\0",
    "Fetch with 2^31-1 topics": FETCH_OLD + INT32_MAX,
    "Fetch with 2^31-1 partitions": FETCH_OLD + b"\0\0\0\1\0\1t" + INT32_MAX,
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_request_ends_the_connection(node: Cluster, what: str) -> None:
    before = resident_bytes(node.pid)
    with WireClient(node.bootstrap_servers) as client:
        client.send_frame(MALFORMED[what])
        assert client.is_closed_by_node()
    answer_seconds(node.bootstrap_servers)
    assert resident_bytes(node.pid) - before < 4 * MIB


def test_an_unknown_tagged_field_is_skipped(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.send_frame(head(3, 12, tags=b"\1\x63\x03abc") + b"\1\0\0" + b"\1\x64\x02xy")
        _, answer = decode_response(ApiKey.METADATA, 12, client.receive_frame())
        assert answer.brokers[0].node_id == 1


def test_bytes_after_the_end_are_left_alone(node: Cluster) -> None:
    """As in Kafka, which never looks at them."""
    with WireClient(node.bootstrap_servers) as client:
        client.send_frame(METADATA + b"\1\0\0\0" + b"more")
        assert decode_response(ApiKey.METADATA, 12, client.receive_frame())[0] == 1


@pytest.mark.parametrize("key", [-1, -32768, 93, 1000, 32767])
def test_an_unknown_api_ends_the_connection(node: Cluster, key: int) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.send_frame(head(key, 0) + bytes(20))
        assert client.is_closed_by_node()


@pytest.mark.parametrize(("key", "version"), [(3, 99), (3, -1), (0, 2), (0, 14), (1, 3), (1, 19), (19, 1), (19, 8)])
def test_a_version_that_is_not_served_ends_the_connection(node: Cluster, key: int, version: int) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.send_frame(head(key, version) + bytes(20))
        assert client.is_closed_by_node()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_from_the_future_is_told_what_there_is(node: Cluster, version: int) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.send_frame(head(18, version) + b"\xde\xad\xbe\xef" * 5)
        correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, client.receive_frame())
        assert correlation_id == 1
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]
        # The connection goes on with a version that exists.
        assert client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4).error_code == 0


@pytest.mark.parametrize("name", ["", "-a", "a b", "a;DROP", "<script>", "a\n", "é", "a" * 2000 + "!", "\0"])
def test_a_junk_software_name_is_an_invalid_request(node: Cluster, name: str) -> None:
    with WireClient(node.bootstrap_servers) as client:
        for request in (
            ApiVersionsRequest(client_software_name=name, client_software_version="1"),
            ApiVersionsRequest(client_software_name="a", client_software_version=name),
        ):
            assert client.ask(request, 3).error_code == ErrorCode.INVALID_REQUEST
        assert client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).error_code == 0


def test_correlation_ids_are_the_clients_business(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        for number in (7, 7, -1, -(2**31)):
            client.send_frame(struct.pack(">hhih", 18, 0, number, -1))
            assert decode_response(ApiKey.API_VERSIONS, 0, client.receive_frame())[0] == number


# ---- what nodes say among themselves

AMONG_NODES = sorted(key for key, spec in API_TABLE.items() if "broker" not in spec.listeners)


def test_the_apis_of_the_quorum_are_among_them() -> None:
    names = {ApiKey(key).name for key in AMONG_NODES}
    assert {
        "VOTE",
        "BEGIN_QUORUM_EPOCH",
        "END_QUORUM_EPOCH",
        "FETCH_SNAPSHOT",
        "BROKER_REGISTRATION",
        "BROKER_HEARTBEAT",
        "ENVELOPE",
        "ALTER_PARTITION",
        "ALLOCATE_PRODUCER_IDS",
        "CONTROLLER_REGISTRATION",
        "ASSIGN_REPLICAS_TO_DIRS",
        "UPDATE_RAFT_VOTER",
    } <= names


@pytest.mark.parametrize("key", AMONG_NODES, ids=lambda key: ApiKey(key).name)
def test_what_nodes_say_among_themselves_is_refused_on_a_client_listener(node: Cluster, key: int) -> None:
    spec = API_TABLE[key]
    for version in range(spec.min_version, spec.max_version + 1):
        with WireClient(node.bootstrap_servers) as client:
            request = spec.request_class()()
            client.send(client.encode(request, version))
            assert client.is_closed_by_node()


def test_nothing_is_advertised_that_is_not_for_clients(node: Cluster) -> None:
    answer = ask(node.bootstrap_servers, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    assert not {each.api_key for each in answer.api_keys} & set(AMONG_NODES)


# ---- fetches


def fetch(
    *, replica: int = -1, epoch: int = -1, session: tuple[int, int] = (0, -1), partitions: int = 1
) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, current_leader_epoch=epoch, partition_max_bytes=1000)
        for index in range(partitions)
    ]
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="t", partitions=wanted)],
    )


@pytest.mark.parametrize("replica", [0, 2, 2**31 - 1])
def test_a_stranger_cannot_fetch_as_a_replica(node: Cluster, replica: int) -> None:
    with WireClient(node.bootstrap_servers) as client:
        answer = client.ask(fetch(replica=replica), 11)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # With the right leader epoch it may be a replica this node has not heard of yet: it shall try again.
        answer = client.ask(fetch(replica=replica, epoch=0), 11)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_full_session_cache_refuses_newcomers_and_keeps_the_others(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        first = [client.ask(fetch(session=(0, 0)), 11).session_id for _ in range(5)]
        assert 0 not in first
        for _ in range(20):
            answer = client.ask(fetch(session=(0, 0)), 11)
            assert (answer.error_code, answer.session_id) == (0, 0)
            assert answer.responses[0].partitions[0].error_code == 0
        for session_id in first:
            answer = client.ask(fetch(session=(session_id, 1)), 11)
            assert (answer.error_code, answer.session_id) == (0, session_id)
        # A place is free again when a session is closed.
        client.ask(fetch(session=(first[0], -1)), 11)
        assert client.ask(fetch(session=(0, 0)), 11).session_id not in (0, *first)
        answer = client.ask(fetch(session=(first[0], 2)), 11)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        answer = client.ask(fetch(session=(first[1], 77)), 11)
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_metadata_of_very_many_topics(node: Cluster) -> None:
    """10^5 names in one request: answered, and others are served meanwhile or soon after."""
    topics = [MetadataRequestTopic(name=f"nobody-{number}") for number in range(100_000)]
    before = resident_bytes(node.pid)
    with WireClient(node.bootstrap_servers) as client:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        client.send(client.encode(request, 12))
        waited = answer_seconds(node.bootstrap_servers)
        began = time.monotonic()
        answer = client.answer_to(request, 12)
        print(f"others waited {waited:.2f} s, the answer came after {waited + time.monotonic() - began:.2f} s")
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(answer.topics) == 100_000
        assert waited < 5
    assert resident_bytes(node.pid) - before < 200 * MIB
