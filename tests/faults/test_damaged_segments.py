"""A whole node that finds its files damaged after a crash: it serves what is whole, and goes on from there."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.batch import iter_batches
from moldau.records.builder import build_batch
from moldau.records.record import Record, read_records
from moldau.testing import Cluster
from tests.faults.raw_logs import partition_directories, read_batches, segments, whole_prefix
from tests.security.wire_client import WireClient, ask, complaints

TOPIC = "t"
BATCHES = 12
Damage = Callable[[Path, random.Random], None]


def last_segment(partition: Path) -> Path:
    return segments(partition)[-1]


def cut(partition: Path, chance: random.Random) -> None:
    path = last_segment(partition)
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])


def cut_in_last_batch(partition: Path, chance: random.Random) -> None:
    path = last_segment(partition)
    data = path.read_bytes()
    last = whole_prefix(data)[-1]
    path.write_bytes(data[: last.position + chance.randrange(len(last.data))])


def flip_bits(partition: Path, chance: random.Random) -> None:
    """Flip a bit somewhere in what a checksum covers, or in the checksum, the length or the magic byte."""
    path = last_segment(partition)
    data = bytearray(path.read_bytes())
    batch = chance.choice(whole_prefix(bytes(data)))
    at = chance.choice([*range(8, 12), *range(16, len(batch.data))])
    data[batch.position + at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def zeros_behind(partition: Path, chance: random.Random) -> None:
    with last_segment(partition).open("ab") as file:
        file.write(bytes(chance.randrange(1, 5000)))


def garbage_behind(partition: Path, chance: random.Random) -> None:
    with last_segment(partition).open("ab") as file:
        file.write(chance.randbytes(chance.randrange(1, 5000)))


def empty(partition: Path, chance: random.Random) -> None:
    last_segment(partition).write_bytes(b"")


def repeated_batch(partition: Path, chance: random.Random) -> None:
    """The last batch once more: whole, but its offsets were given away already."""
    path = last_segment(partition)
    data = path.read_bytes()
    path.write_bytes(data + whole_prefix(data)[-1].data)


def damaged_indexes(partition: Path, chance: random.Random) -> None:
    for kind in ("index", "timeindex"):
        for path in partition.glob(f"*.{kind}"):
            what = chance.randrange(4)
            if what == 0:
                path.unlink()
            elif what == 1:
                path.write_bytes(chance.randbytes(chance.randrange(200)))
            elif what == 2:
                path.write_bytes(bytes(chance.randrange(200)))
            else:
                path.write_bytes(path.read_bytes()[: chance.randrange(9)])


def damaged_notes(partition: Path, chance: random.Random) -> None:
    """Everything beside the segments: epochs, producer snapshots."""
    for path in [*partition.glob("*.snapshot"), partition / "leader-epoch-checkpoint"]:
        if chance.randrange(2):
            path.write_bytes(chance.randbytes(50))
        else:
            path.unlink(missing_ok=True)


def leftovers(partition: Path, chance: random.Random) -> None:
    """What an interrupted compaction, deletion or index rebuild leaves."""
    base = last_segment(partition).stem
    for suffix in (
        ".log.cleaned",
        ".index.cleaned",
        ".log.deleted",
        ".log.swap.tmp",
        ".timeindex.deleted",
        ".kafka.tmp",
    ):
        (partition / f"{base}{suffix}").write_bytes(chance.randbytes(100))
    (partition / "unknown").write_bytes(b"file")


DAMAGES: dict[str, Damage] = {
    "cut": cut,
    "cut in the last batch": cut_in_last_batch,
    "flipped bit": flip_bits,
    "zeros behind": zeros_behind,
    "garbage behind": garbage_behind,
    "empty": empty,
    "repeated batch": repeated_batch,
    "damaged indexes": damaged_indexes,
    "damaged notes": damaged_notes,
    "leftovers": leftovers,
}


def produce(servers: str, index: int, records: bytes) -> int:
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=index, records=records)])
    answer = ask(servers, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    partition = answer.responses[0].partition_responses[0]
    assert partition.error_code == 0, partition
    offset: int = partition.base_offset
    return offset


def batch(text: str, sequence: int, codec: int = 0) -> bytes:
    now = int(time.time() * 1000)
    records = [Record(i, now, None, f"{text} {i} ".encode() * 7, ()) for i in range(3)]
    return build_batch(records, codec=codec, producer_id=1000, producer_epoch=0, base_sequence=3 * sequence)


def served(servers: str, index: int) -> list[bytes | None]:
    """All values of a partition as a client reads them."""
    found: list[bytes | None] = []
    offset = 0
    with WireClient(servers) as client:
        while True:
            wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1 << 20,
                session_id=0,
                session_epoch=-1,
                topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
            )
            answer = client.ask(request, 11).responses[0].partitions[0]
            assert answer.error_code == 0
            data = bytes(answer.records or b"")
            if not data:
                return found
            for header in iter_batches(data):
                whole = data[header.position : header.end]
                assert header.checksum_matches(data), "a damaged batch was served"
                found += [record.value for record in read_records(whole)]
                offset = header.next_offset


def end_offset(servers: str, index: int, timestamp: int = -1) -> int:
    partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])])
    answer = ask(servers, request, 7).topics[0].partitions[0]
    assert answer.error_code == 0
    offset: int = answer.offset
    return offset


@pytest.mark.parametrize("seed", range(3))
def test_a_node_recovers_from_damage_of_every_kind(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    config = {"log.index.interval.bytes": "200"}
    with Cluster(config, in_process=False, data_dir=tmp_path) as cluster:
        cluster.create_topic(TOPIC, len(DAMAGES))
        servers = cluster.bootstrap_servers
        for index in range(len(DAMAGES)):
            for number in range(BATCHES):
                produce(servers, index, batch(f"{index}/{number}", number, codec=chance.randrange(5)))
        if chance.randrange(2):
            # Some of it is known to be good by now.
            cluster.restart()
            for index in range(len(DAMAGES)):
                produce(servers, index, batch(f"{index}/more", BATCHES))
        cluster.kill()
        expected = {}
        for (name, damage), partition in zip(DAMAGES.items(), partition_directories(tmp_path, TOPIC), strict=True):
            damage(partition, chance)
            expected[name] = whole_prefix(last_segment(partition).read_bytes())
        cluster.start()
        for index, (name, batches) in enumerate(expected.items()):
            end = batches[-1].last_offset + 1 if batches else 0
            values = [record.value for each in batches for record in read_records(each.data)]
            assert end_offset(servers, index) == end, name
            assert served(servers, index) == values, name
            # The producer goes on, with the sequence numbers of what survived.
            assert produce(servers, index, batch("after", end // 3)) == end, name
            assert produce(servers, index, batch("after", end // 3)) == end, f"{name}: a repetition is written again"
            assert produce(servers, index, batch("after", end // 3 + 1)) == end + 3, name
            assert len(served(servers, index)) == end + 6, name
        cluster.restart()
        for index, (name, batches) in enumerate(expected.items()):
            assert len(served(servers, index)) == 3 * len(batches) + 6, name
            assert end_offset(servers, index, timestamp=0) == 0, name
        assert complaints(cluster) == []
        cluster.stop()
        for partition in partition_directories(tmp_path, TOPIC):
            assert read_batches(partition)


def test_damaged_checkpoints_cost_no_records(tmp_path: Path) -> None:
    with Cluster(in_process=False, data_dir=tmp_path) as cluster:
        cluster.create_topic(TOPIC)
        servers = cluster.bootstrap_servers
        for number, content in enumerate((b"", b"nonsense", b"0\n1\n", b"7\n0\n", b"0\n1\nt 0 99999999\n")):
            produce(servers, 0, batch("kept", number))
            cluster.kill()
            names = ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint"]
            if b"9999" not in content:
                # A log start offset that was written down is meant: the records before it are deleted.
                names.append("log-start-offset-checkpoint")
            for name in names:
                (tmp_path / "data" / name).write_bytes(content)
            cluster.start()
            assert len(served(servers, 0)) == 3 * (number + 1), content
        assert complaints(cluster) == []


def test_a_log_cut_at_every_byte_of_its_last_batch(tmp_path: Path) -> None:
    """One partition for each byte, so that one start tries them all."""
    whole = batch("last", 1)
    with Cluster(in_process=False, data_dir=tmp_path) as cluster:
        cluster.create_topic(TOPIC, len(whole))
        servers = cluster.bootstrap_servers
        with WireClient(servers) as client:
            for sequence in range(2):
                data = [PartitionProduceData(index=i, records=batch("last", sequence)) for i in range(len(whole))]
                topic = TopicProduceData(name=TOPIC, partition_data=data)
                answer = client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9)
                assert {p.error_code for p in answer.responses[0].partition_responses} == {0}
        cluster.kill()
        for index, partition in enumerate(partition_directories(tmp_path, TOPIC)):
            path = last_segment(partition)
            path.write_bytes(path.read_bytes()[: len(whole) + index])
        cluster.start()
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=TOPIC,
                    partitions=[ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(len(whole))],
                )
            ],
        )
        assert {partition.offset for partition in ask(servers, request, 7).topics[0].partitions} == {3}
        for index in range(0, len(whole), 23):
            assert len(served(servers, index)) == 3
            assert produce(servers, index, batch("after", 1)) == 3
        cluster.stop()
        for partition in partition_directories(tmp_path, TOPIC):
            assert read_batches(partition)
        assert complaints(cluster) == []
