"""Records that lie or hurt, and the exact answer each of them gets (attack checklist 9 and 10)."""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
from crc32c import crc32c

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.batch import iter_batches
from moldau.records.builder import build_batch
from moldau.records.record import Record, read_records
from moldau.testing import Cluster
from tests.security.wire_client import WireClient, answer_seconds, complaints, resident_bytes

MIB = 1 << 20
HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = (
    "base_offset",
    "length",
    "epoch",
    "magic",
    "crc",
    "attributes",
    "last_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "sequence",
    "count",
)
HOUR = 3_600_000


def now() -> int:
    return int(time.time() * 1000)


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with Cluster(in_process=False) as cluster:
        cluster.create_topic("plain")
        cluster.create_topic("compacted", 1, {"cleanup.policy": "compact"})
        cluster.create_topic("recompressed", 1, {"compression.type": "lz4"})
        cluster.create_topic("small", 1, {"max.message.bytes": "2000"})
        cluster.create_topic(
            "timely",
            1,
            {"message.timestamp.before.max.ms": str(HOUR), "message.timestamp.after.max.ms": str(HOUR)},
        )
        yield cluster
        assert complaints(cluster) == []


def good(*keys: bytes | None, timestamp: int | None = None, value: bytes = b"value") -> bytes:
    when = now() if timestamp is None else timestamp
    return build_batch([Record(i, when, key, value, ()) for i, key in enumerate(keys or (b"k",))])


def altered(batch: bytes, *, seal: bool = True, body: bytes | None = None, **fields: int) -> bytes:
    """The batch with other header fields (and another body), its checksum right unless a test wants it wrong."""
    values = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True))
    content = batch[HEADER.size :] if body is None else body
    values["length"] = HEADER.size - 12 + len(content)
    values.update(fields)
    changed = bytearray(HEADER.pack(*values.values()) + content)
    if seal:
        struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def produce(node: Cluster, topic: str, records: bytes | None, *, acks: int = -1, version: int = 9) -> Any:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
    with WireClient(node.bootstrap_servers) as client:
        return client.ask(request, version).responses[0].partition_responses[0]


def end_offset(node: Cluster, topic: str) -> int:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])
        ],
    )
    with WireClient(node.bootstrap_servers) as client:
        offset: int = client.ask(request, 11).responses[0].partitions[0].high_watermark
        return offset


def refused(node: Cluster, topic: str, records: bytes | None, code: ErrorCode, **options: int) -> Any:
    before = end_offset(node, topic)
    answer = produce(node, topic, records, **options)
    assert ErrorCode(answer.error_code) is code, answer.error_message
    assert answer.base_offset == -1
    assert end_offset(node, topic) == before, "a refused batch left something behind"
    return answer


def test_a_good_batch_is_accepted(node: Cluster) -> None:
    assert produce(node, "plain", good()).error_code == 0
    assert produce(node, "compacted", good()).error_code == 0


WRONG = {
    "a wrong checksum": (lambda: altered(good(), seal=False, crc=1), ErrorCode.CORRUPT_MESSAGE),
    "a flipped bit in the body": (lambda: good()[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (lambda: altered(good(), magic=0), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: altered(good(), magic=1), ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: altered(good(), magic=3), ErrorCode.CORRUPT_MESSAGE),
    "magic -1": (lambda: altered(good(), magic=-1), ErrorCode.CORRUPT_MESSAGE),
    "a length larger than the bytes": (lambda: altered(good(), length=1000), ErrorCode.INVALID_RECORD),
    "a length of 2^31-1": (lambda: altered(good(), length=2**31 - 1), ErrorCode.INVALID_RECORD),
    "a negative length": (lambda: altered(good(), length=-1), ErrorCode.CORRUPT_MESSAGE),
    "a length of 0": (lambda: altered(good(), length=0), ErrorCode.CORRUPT_MESSAGE),
    "a length smaller than the header": (lambda: altered(good(), length=20), ErrorCode.CORRUPT_MESSAGE),
    "a cut batch": (lambda: good()[:-1], ErrorCode.INVALID_RECORD),
    "half a header": (lambda: good()[:30], ErrorCode.INVALID_RECORD),
    "a few bytes": (lambda: b"abc", ErrorCode.INVALID_RECORD),
    "no bytes": (lambda: b"", ErrorCode.INVALID_RECORD),
    "null": (lambda: None, ErrorCode.INVALID_RECORD),
    "two batches": (lambda: good() + good(), ErrorCode.INVALID_RECORD),
    "no records": (lambda: altered(good(), count=0, last_delta=-1), ErrorCode.INVALID_RECORD),
    "more records than offsets": (lambda: altered(good(), count=5), ErrorCode.INVALID_RECORD),
    "a negative record count": (lambda: altered(good(), count=-1, last_delta=-2), ErrorCode.INVALID_RECORD),
    "an offset of its own": (lambda: altered(good(), base_offset=7), ErrorCode.INVALID_RECORD),
    "a control batch": (lambda: altered(good(), attributes=0x20), ErrorCode.INVALID_RECORD),
    "append time of the client": (lambda: altered(good(), attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
    "codec 5": (lambda: altered(good(), attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (lambda: altered(good(), attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a producer without sequence": (
        lambda: altered(good(), producer_id=5, producer_epoch=0, sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_a_batch_that_is_wrong_is_refused(node: Cluster, topic: str, what: str) -> None:
    make, code = WRONG[what]
    refused(node, topic, make(), code)


def test_without_an_answer_only_the_closed_connection_tells(node: Cluster) -> None:
    data = TopicProduceData(name="plain", partition_data=[PartitionProduceData(index=0, records=b"nonsense")])
    with WireClient(node.bootstrap_servers) as client:
        client.send(client.encode(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]), 9))
        assert client.is_closed_by_node()


@pytest.mark.parametrize("acks", [-2, 2, 32767, -32768])
def test_acks_that_do_not_exist(node: Cluster, acks: int) -> None:
    refused(node, "plain", good(), ErrorCode.INVALID_REQUIRED_ACKS, acks=acks)


def test_a_batch_larger_than_the_topic_takes(node: Cluster) -> None:
    refused(node, "small", good(value=bytes(3000)), ErrorCode.MESSAGE_TOO_LARGE)


def test_zstd_from_a_client_too_old_for_it(node: Cluster) -> None:
    records = build_batch([Record(0, now(), None, b"x", ())], codec=4)
    refused(node, "plain", records, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, version=6)
    assert produce(node, "plain", records, version=7).error_code == 0


@pytest.mark.parametrize(("topic", "index"), [("nobody", 0), ("plain", 1), ("plain", -1), ("plain", 2**31 - 1)])
def test_a_partition_that_does_not_exist(node: Cluster, topic: str, index: int) -> None:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=good())])
    with WireClient(node.bootstrap_servers) as client:
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_without_a_key_are_not_for_compacted_topics(node: Cluster) -> None:
    answer = refused(node, "compacted", good(b"k", None, b"k", None), ErrorCode.INVALID_RECORD)
    assert [error.batch_index for error in answer.record_errors] == [1, 3]


@pytest.mark.parametrize("hours", [-2, 2])
def test_timestamps_out_of_range(node: Cluster, hours: int) -> None:
    refused(node, "timely", good(timestamp=now() + hours * HOUR), ErrorCode.INVALID_TIMESTAMP)


def test_timestamps_of_the_far_future_on_any_topic(node: Cluster) -> None:
    refused(node, "plain", good(timestamp=now() + 3 * 24 * HOUR), ErrorCode.INVALID_TIMESTAMP)
    refused(node, "plain", altered(good(), max_timestamp=2**63 - 1), ErrorCode.INVALID_TIMESTAMP)


# ---- bodies that are opened: compacted topics look at every key


def opened(body: bytes, codec: int = 0, count: int = 1) -> bytes:
    return altered(good(), body=body, attributes=codec, count=count, last_delta=count - 1)


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def record(delta: int = 0, key: bytes | None = b"k", value: bytes = b"v", length: int | None = None) -> bytes:
    body = b"\0" + varint(0) + varint(delta)
    body += varint(-1) if key is None else varint(len(key)) + key
    body += varint(len(value)) + value + varint(0)
    return varint(len(body) if length is None else length) + body


def test_the_record_builder_of_this_file_is_right(node: Cluster) -> None:
    batch = opened(record(0) + record(1), count=2)
    assert [each.value for header in iter_batches(batch) for each in read_records(batch, header)] == [b"v", b"v"]
    assert produce(node, "compacted", batch).error_code == 0


INSIDE = {
    "an empty body": b"",
    "one record where two are promised": record(),
    "three records where two are promised": record(0) + record(1) + record(2),
    "offset deltas that skip": record(0) + record(2),
    "offset deltas backwards": record(1) + record(0),
    "a record longer than the batch": record(0) + record(1, length=1000),
    "a record of negative length": record(0) + record(1, length=-5),
    "a record shorter than its fields": record(0) + record(1, length=3),
    "a varint without an end": record(0) + b"\x80" * 30,
    "a key of 2^31 bytes": record(0) + varint(20) + b"\0\0" + varint(1) + varint(2**31 - 1) + bytes(20),
    "a key of -2 bytes": record(0) + varint(20) + b"\0\0" + varint(1) + varint(-2) + bytes(20),
    "2^31 headers": record(0)
    + varint(20)
    + b"\0\0"
    + varint(1)
    + varint(0)
    + varint(0)
    + varint(2**31 - 1)
    + bytes(20),
    "zeros": bytes(100),
    "ones": b"\xff" * 100,
}


@pytest.mark.parametrize("what", INSIDE)
def test_a_body_that_lies_is_refused_where_it_is_opened(node: Cluster, what: str) -> None:
    refused(node, "compacted", opened(INSIDE[what], count=2), ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("topic", ["compacted", "recompressed"])
def test_a_compressed_body_that_does_not_unpack(node: Cluster, topic: str, codec: int) -> None:
    if topic == "recompressed" and codec == 3:
        pytest.skip("what has the topic's codec is not opened")
    for body in (b"", b"nonsense", b"\xff" * 200, bytes(200)):
        refused(node, topic, opened(body, codec), ErrorCode.INVALID_RECORD)


def snappy_stream(blocks: bytes) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + blocks


def bombs() -> dict[str, tuple[int, bytes]]:
    """Small bodies that unpack to a gigabyte or say that they do."""
    gigabyte = 1 << 30
    zeros = bytes(MIB)
    zstd = cramjam.zstd.Compressor()
    lz4 = cramjam.lz4.Compressor()
    packer = gzip.GzipFile(fileobj=(out := __import__("io").BytesIO()), mode="wb", mtime=0)
    for _ in range(gigabyte // MIB):
        zstd.compress(zeros)
        packer.write(zeros)
    for _ in range(200):
        lz4.compress(zeros)
    packer.close()
    block = bytes(cramjam.snappy.compress_raw(bytes(4 * MIB)))
    return {
        "gzip": (1, out.getvalue()),
        "gzip in gzip": (1, gzip.compress(gzip.compress(bytes(64 * MIB)))),
        "snappy": (2, snappy_stream((struct.pack(">i", len(block)) + block) * 5)),
        "snappy, one block that claims 4 GiB": (2, b"\xff\xff\xff\xff\x0f" + bytes(50)),
        "snappy, blocks that claim 2 GiB": (2, snappy_stream(struct.pack(">i", 10) + b"\xff\xff\xff\xff\x07aaaaa")),
        "lz4": (3, bytes(lz4.finish())),
        "zstd": (4, bytes(zstd.finish())),
        "zstd, a content size of 2^63": (4, b"\x28\xb5\x2f\xfd\xe0" + (2**63).to_bytes(8, "little") + bytes(20)),
        "zstd, a window of 3.75 TiB": (4, b"\x28\xb5\x2f\xfd\x00\xff" + bytes(20)),
        "lz4, a content size of 2^63": (
            3,
            b"\x04\x22\x4d\x18\x68\x40" + (2**63).to_bytes(8, "little") + b"\0" + bytes(20),
        ),
    }


BOMBS = (
    "gzip",
    "gzip in gzip",
    "snappy",
    "snappy, one block that claims 4 GiB",
    "snappy, blocks that claim 2 GiB",
    "lz4",
    "zstd",
    "zstd, a content size of 2^63",
    "zstd, a window of 3.75 TiB",
    "lz4, a content size of 2^63",
)


@pytest.fixture(scope="module")
def made_bombs() -> dict[str, tuple[int, bytes]]:
    return bombs()


@pytest.mark.parametrize("what", BOMBS)
@pytest.mark.parametrize("topic", ["compacted", "recompressed"])
def test_a_bomb_does_not_go_off(node: Cluster, made_bombs: dict[str, tuple[int, bytes]], topic: str, what: str) -> None:
    codec, body = made_bombs[what]
    if topic == "recompressed" and codec == 3:
        pytest.skip("what has the topic's codec is not opened")
    answer_seconds(node.bootstrap_servers)
    before = resident_bytes(node.pid)
    began = time.monotonic()
    answer = produce(node, topic, opened(body, codec))
    seconds = time.monotonic() - began
    held = resident_bytes(node.pid) - before
    print(f"{len(body)} bytes of {what} on {topic}: {seconds:.2f} s, {held / MIB:.0f} MiB kept")
    assert ErrorCode(answer.error_code) in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    assert seconds < 5
    assert held < 20 * MIB
    assert peak_bytes(node.pid) < 900 * MIB


def test_many_small_bombs_in_one_request(node: Cluster) -> None:
    """Each would be let through alone: all together they would hold up the node for minutes."""
    bomb = opened(bytes(cramjam.zstd.compress(bytes(30 * MIB))), 4)
    partitions = [PartitionProduceData(index=0, records=bomb) for _ in range(300)]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="compacted", partition_data=partitions)]
    )
    began = time.monotonic()
    with WireClient(node.bootstrap_servers) as client:
        answers = client.ask(request, 9).responses[0].partition_responses
    seconds = time.monotonic() - began
    print(f"300 bombs of {len(bomb)} bytes in one request: {seconds:.2f} s")
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_RECORD}
    assert seconds < 5


def peak_bytes(pid: int) -> int:
    """The most this process ever had in memory."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
