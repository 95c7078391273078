"""Nonsense in the internal topics: as in Kafka, a client that calls itself `__admin_client` may write there.

What a coordinator loads from them may therefore be anything; it must leave out what it does not understand, and serve
everybody else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.generated.wire.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.testing import Cluster
from tests.security.wire_client import WireClient, ask, complaints, eventually

CONFIG = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@pytest.fixture
def node() -> Iterator[Cluster]:
    with Cluster(CONFIG, in_process=False) as cluster:
        cluster.create_topic("t")
        yield cluster
        assert complaints(cluster) == []


def write(node: Cluster, topic: str, records: bytes, client_id: str) -> ErrorCode:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    with WireClient(node.bootstrap_servers) as client:
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9, client_id)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def junk(chance: random.Random) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values as no coordinator writes them: every version, cut, random, empty."""
    found: list[tuple[bytes | None, bytes | None]] = []
    for version in (*range(-1, 25), 100, 32767):
        key = version.to_bytes(2, "big", signed=True)
        for rest in (b"", b"\0", b"\0\5group", b"\0\5group\0\1t\0\0\0\0", b"\xff\xff", chance.randbytes(30)):
            value = chance.choice((None, b"", b"\0", b"\0\0", b"\x7f\xff", chance.randbytes(40)))
            found.append((key + rest, value))
    found += [(b"", b"x"), (b"\0", b"x"), (chance.randbytes(100), chance.randbytes(100))]
    chance.shuffle(found)
    return found


def commit_offset(node: Cluster, group: str, offset: int) -> bool:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    ask(node.bootstrap_servers, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    answer = ask(node.bootstrap_servers, OffsetCommitRequest(group_id=group, topics=[topic]), 8)
    return bool(answer.topics[0].partitions[0].error_code == 0)


def committed_offset(node: Cluster, group: str) -> int | None:
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = ask(node.bootstrap_servers, OffsetFetchRequest(group_id=group, topics=[topic]), 7)
    if answer.error_code or answer.topics[0].partitions[0].error_code:
        return None
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def producer_id(node: Cluster, name: str) -> int | None:
    ask(node.bootstrap_servers, FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
    answer = ask(node.bootstrap_servers, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000), 4)
    found: int = answer.producer_id
    return None if answer.error_code else found


def batches(pairs: list[tuple[bytes | None, bytes | None]]) -> list[bytes]:
    now = int(time.time() * 1000)
    # One record a batch: a record without a key would take the others of its batch with it.
    return [build_batch([Record(0, now, key, value, ())]) for key, value in pairs]


def test_others_may_not_write_to_internal_topics(node: Cluster) -> None:
    eventually(lambda: commit_offset(node, "g", 1), "no coordinator for the group")
    assert write(node, "__consumer_offsets", batches([(b"k", b"v")])[0], "anybody") is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_nonsense_among_the_groups_offsets(node: Cluster) -> None:
    chance = random.Random(1)
    eventually(lambda: commit_offset(node, "before", 17), "no coordinator for the group")
    for records in batches(junk(chance)):
        assert write(node, "__consumer_offsets", records, "__admin_client") is ErrorCode.NONE
    assert commit_offset(node, "after", 23)
    for stop in (node.stop, node.kill):
        stop()
        node.start()
        eventually(lambda: committed_offset(node, "before") == 17, "what a group had committed is lost")
        assert committed_offset(node, "after") == 23
        assert commit_offset(node, "new", 5)


def test_nonsense_among_the_transactions(node: Cluster) -> None:
    chance = random.Random(2)
    eventually(lambda: producer_id(node, "before") is not None, "no coordinator for transactions")
    first = producer_id(node, "before")
    for records in batches(junk(chance)):
        assert write(node, "__transaction_state", records, "__admin_client") is ErrorCode.NONE
    for stop in (node.stop, node.kill):
        stop()
        node.start()
        eventually(lambda: producer_id(node, "before") == first, "a transactional id has lost its producer")
        assert producer_id(node, "new") not in (None, first)
