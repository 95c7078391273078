"""A log directory on a file system that really fills up; run by `test_full_disk.py` in a mount namespace of its own.

The node has one directory on a tmpfs of a few megabytes and one beside it. Records are written until the small one is
full; then the tmpfs grows, the node starts again, and everything that was acknowledged must be there.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.testing import Cluster
from tests.faults.raw_logs import partition_directories, read_batches
from tests.faults.test_damaged_segments import TOPIC, served
from tests.faults.test_failed_directories import PARTITIONS, World
from tests.security.wire_client import WireClient, answer_seconds

SMALL, LARGE = "4m", "64m"
RECORD_BYTES = 50_000


def number_of(value: bytes | None) -> int:
    assert value is not None
    return int(value.split(b"/")[0])


def fill(world: World) -> dict[int, list[int]]:
    """Write numbered records until a disk is full, and some more; what was acknowledged, by partition."""
    acknowledged: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    failed = 0
    with WireClient(world.servers) as client:
        for number in range(2000):
            index = number % PARTITIONS
            value = f"{number}/".encode() + bytes(RECORD_BYTES)
            records = build_batch([Record(0, int(time.time() * 1000), None, value, ())])
            data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=index, records=records)])
            answer = client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            if code is ErrorCode.NONE:
                acknowledged[index].append(number)
            else:
                assert code is ErrorCode.KAFKA_STORAGE_ERROR, code
                failed += 1
            if failed >= 20:
                return acknowledged
    raise AssertionError("the disk did not fill up")


def main(root: Path) -> None:
    small = root / "bad"
    small.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(small)], check=True)
    world = World(root, None, in_process=False)
    with world.cluster as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, {"segment.bytes": "1048576"})
        acknowledged = fill(world)
        assert all(acknowledged.values()), "every partition took some"
        world.assert_only_bad_is_offline()
        kept = {index: acknowledged[index] for index in world.partitions_in(world.bad)}
        cluster.kill()
        subprocess.run(["mount", "-o", f"remount,size={LARGE}", str(small)], check=True)
        cluster.start()
        for index, numbers in kept.items():
            found = [number_of(value) for value in served(world.servers, index)]
            # The record that did not fit any more may be there or not; it was not acknowledged.
            assert found[: len(numbers)] == numbers
            assert len(found) <= len(numbers) + 1
            assert world.produce(index) is ErrorCode.NONE
        answer_seconds(world.servers)
        check_log(cluster)
        cluster.stop()
        for index in kept:
            assert read_batches(partition_directories(world.bad, TOPIC)[sorted(kept).index(index)])
    print("a full disk was survived")


def check_log(cluster: Cluster) -> None:
    """The failed directory is an error of the disk; nothing else is to be complained about."""
    lines = (cluster.data_dir / "node.log").read_text().splitlines()
    errors = [line for line in lines if " ERROR " in line or "Traceback" in line]
    assert len(errors) == 1, errors
    assert "goes offline" in errors[0]
    assert "No space left on device" in errors[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
