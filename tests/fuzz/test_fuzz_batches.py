"""Record batches with every field changed, every codec damaged, every count a lie: refused, or stored and readable."""

from __future__ import annotations

import random
import struct
from collections import Counter
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.describe_producers_request import DescribeProducersRequest, TopicRequest
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.batch import iter_batches
from moldau.records.builder import build_batch
from moldau.records.record import Record
from tests.fuzz.fuzz_node import EFFORT, QUICK, TOPICS, FuzzNode, sample_batch
from tests.fuzz.mutations import LIES, mutant

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_AT, CRC_FROM = 17, 21
# Where a client may be told that its records are wrong; anything else would be our own fault.
EXPECTED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def sealed(batch: bytes) -> bytes:
    """With the right checksum and length, so that the change gets past the first checks."""
    changed = bytearray(batch)
    if len(changed) >= HEADER.size:
        struct.pack_into(">i", changed, 8, len(changed) - 12)
        struct.pack_into(">I", changed, CRC_AT, crc32c(changed[CRC_FROM:]))
    return bytes(changed)


def with_lies(batch: bytes, chance: random.Random) -> bytes:
    """One or two header fields that say something else."""
    fields = list(HEADER.unpack_from(batch))
    limits = [63, 31, 31, 7, 32, 15, 31, 63, 63, 63, 15, 31, 31]
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(fields))
        lie = chance.choice((*LIES, chance.getrandbits(limits[at]), fields[at] + 1, fields[at] - 1))
        if at == 4:
            fields[at] = lie % 2**32
        else:
            fields[at] = max(min(lie, 2 ** limits[at] - 1), -(2 ** limits[at]))
    return HEADER.pack(*fields) + batch[HEADER.size :]


def changed(batch: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(6)
    if kind == 0:
        return mutant(batch, chance)
    if kind == 1:
        return with_lies(batch, chance)
    if kind == 2:
        return sealed(with_lies(batch, chance))
    if kind == 3:
        return sealed(mutant(batch, chance, keep=HEADER.size))
    if kind == 4:
        # Another codec than the body is in.
        attributes = chance.randrange(8)
        return sealed(batch[:21] + struct.pack(">h", attributes) + batch[23:])
    return batch + mutant(sample_batch(chance), chance)


def produce(node: FuzzNode, topic: str, records: bytes) -> ErrorCode:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    answer = node.ask(ProduceRequest(acks=1, timeout_ms=100, topic_data=[data]), 9)
    code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
    assert code in EXPECTED, f"{code.name} for {records!r} on {topic}"
    return code


def look_at(node: FuzzNode, topic: str) -> None:
    """Everything a client can ask about the partition; stored nonsense must not hurt anybody."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    partition = node.ask(request, 11).responses[0].partitions[0]
    assert partition.error_code == 0
    data = bytes(partition.records or b"")
    offset = 0
    for header in iter_batches(data):
        assert header.checksum_matches(data)
        assert header.base_offset == offset
        offset = header.next_offset
    for timestamp in (-1, -2, -3, 0, 1_700_000_000_500, 2**62):
        ask_offset(node, topic, timestamp)
    node.ask(DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])]), 0)


def ask_offset(node: FuzzNode, topic: str, timestamp: int) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    answer = node.ask(request, 7).topics[0].partitions[0]
    assert answer.error_code == 0, f"{ErrorCode(answer.error_code).name} for timestamp {timestamp} of {topic}"
    return answer


@pytest.mark.parametrize("topic", TOPICS)
def test_changed_batches_are_refused_or_do_no_harm(topic: str) -> None:
    outcomes: Counter[ErrorCode] = Counter()
    with FuzzNode() as node:
        node.node.clock.advance(1_700_000_000_000 - node.node.clock.now_ms())

        @given(seed=st.integers(0, 2**32))
        @settings(QUICK, max_examples=120 * EFFORT)
        def check(seed: int) -> None:
            chance = random.Random(seed)
            batch = sample_batch(chance)
            outcomes[produce(node, topic, batch)] += 1
            for _ in range(8):
                outcomes[produce(node, topic, changed(batch, chance))] += 1
            look_at(node, topic)

        check()
        # A start after a crash reads everything again.
        node.node.restart()
        look_at(node, topic)
        assert produce(node, topic, sample_batch_with_key()) is ErrorCode.NONE
        node.alive()
    assert outcomes[ErrorCode.NONE]
    assert len(outcomes) > 3


def sample_batch_with_key() -> bytes:
    return build_batch([Record(0, 1_700_000_000_000, b"key", b"value", ())])


def test_a_search_by_time_gets_past_a_batch_that_nobody_can_open() -> None:
    """A batch is stored as it came: its header and checksum are right, its body may be anything."""
    with FuzzNode() as node:
        node.node.clock.advance(1_700_000_000_000 - node.node.clock.now_ms())
        early, late = 1_600_000_000_000, 1_650_000_000_000
        assert produce(node, "plain", build_batch([Record(0, early, None, b"first", ())])) is ErrorCode.NONE
        junk = build_batch([Record(0, late, None, b"second", ())], codec=1)
        assert produce(node, "plain", sealed(junk[: HEADER.size] + b"not gzip")) is ErrorCode.NONE
        assert produce(node, "plain", build_batch([Record(0, late + 5, None, b"third", ())])) is ErrorCode.NONE
        assert ask_offset(node, "plain", early).offset == 0
        assert (ask_offset(node, "plain", early + 1).offset, ask_offset(node, "plain", late).offset) == (1, 1)
        assert ask_offset(node, "plain", late + 1).offset == 2
        assert ask_offset(node, "plain", -3).offset == 2
