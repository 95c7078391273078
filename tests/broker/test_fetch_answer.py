"""The answer with one partition's records has a way of its own: byte for byte what the general one writes."""

from __future__ import annotations

import pytest
from broker_node import SimulatedNode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.broker.context import Caller, ClientConnection
from moldau.broker.fetch_answer import PartitionRead, encode_answer, one_partition
from moldau.broker.fetch_partition import FetchPartition
from moldau.broker.fetch_session import FetchContext, FetchSession
from moldau.protocol.api import ApiKey
from moldau.protocol.frames import decode_response

TOPIC_IDS_SINCE, NEWEST = 13, 18
OFFSETS = st.integers(-1, 2**63 - 1)


@pytest.mark.parametrize("version", range(TOPIC_IDS_SINCE, NEWEST + 1))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    session_id=st.integers(0, 2**31 - 1),
    topic_id=st.binary(min_size=16, max_size=16),
    index=st.integers(0, 2**31 - 1),
    positions=st.tuples(OFFSETS, OFFSETS, OFFSETS),
    preferred_replica=st.integers(-1, 9),
    # Short answers leave in one piece, others in several.
    pieces=st.lists(st.binary(max_size=200) | st.just(bytes(3000)), max_size=4),
)
def test_both_ways_write_the_same(
    node: SimulatedNode,
    version: int,
    correlation_id: int,
    session_id: int,
    topic_id: bytes,
    index: int,
    positions: tuple[int, int, int],
    preferred_replica: int,
    pieces: list[bytes],
) -> None:
    caller = Caller(ClientConnection(1, "PLAINTEXT", "client.example", 1), ApiKey.FETCH, version, correlation_id, None)
    context = FetchContext({}, session=FetchSession(session_id, uses_ids=True, now_ms=0))
    read = PartitionRead(FetchPartition(topic_id, index))
    read.high_watermark, read.last_stable, read.log_start = positions
    read.preferred_replica = preferred_replica
    read.records = list(pieces)
    read.size = sum(map(len, pieces))

    short = b"".join(one_partition(caller, context, read, read.records))
    assert short == b"".join(encode_answer(node.services, caller, context, [read]))
    assert len(short) == 4 + int.from_bytes(short[:4])
    _, answer = decode_response(ApiKey.FETCH, version, short[4:])
    ((partition,),) = (topic.partitions for topic in answer.responses)
    assert (answer.session_id, answer.responses[0].topic_id) == (session_id, topic_id)
    assert (partition.partition_index, partition.high_watermark) == (index, positions[0])
    assert (partition.last_stable_offset, partition.log_start_offset) == positions[1:]
    assert bytes(partition.records) == b"".join(pieces)
