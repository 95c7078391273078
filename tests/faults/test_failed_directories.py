"""A log directory that fails takes its partitions offline, and nothing else."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.node.directory_assignments import DirectoryAssignments
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.describe_log_dirs_request import DescribeLogDirsRequest
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.testing import Cluster
from tests.faults.faulty_disk import Faults, faulty_disk
from tests.faults.raw_logs import partition_directories
from tests.security.wire_client import Disconnected, WireClient, answer_seconds, ask

TOPIC = "t"
PARTITIONS = 6
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class World:
    """A node with two log directories; the metadata is in the good one."""

    faults: Faults

    def __init__(self, root: Path, faults: Faults | None, *, in_process: bool = True) -> None:
        self.root = root
        if faults is not None:
            self.faults = faults
        self.good, self.bad = root / "good", root / "bad"
        self.cluster = Cluster(
            {"log.dirs": f"{self.good},{self.bad}", "metadata.log.dir": str(self.good)},
            data_dir=root,
            in_process=in_process,
        )

    @property
    def servers(self) -> str:
        return self.cluster.bootstrap_servers

    def create(self, name: str = TOPIC, **config: str) -> None:
        self.cluster.create_topic(name, PARTITIONS, {key.replace("_", "."): value for key, value in config.items()})
        for index in range(PARTITIONS):
            assert self.produce(index, name) == ErrorCode.NONE

    def partitions_in(self, directory: Path, topic: str = TOPIC) -> set[int]:
        return {int(path.name.rpartition("-")[2]) for path in partition_directories(directory, topic)}

    def produce(self, index: int, topic: str = TOPIC, *, timeout_ms: int = 3000) -> ErrorCode:
        records = build_batch([Record(0, int(time.time() * 1000), None, b"x" * 100, ())])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])
        answer = ask(self.servers, ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data]), 9)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def fetch(self, index: int, topic: str = TOPIC, *, offset: int = 0, wait_ms: int = 0) -> Any:
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        return ask(self.servers, request, 11).responses[0].partitions[0]

    def described(self) -> dict[str, ErrorCode]:
        answer = ask(self.servers, DescribeLogDirsRequest(topics=None), 4)
        return {result.log_dir: ErrorCode(result.error_code) for result in answer.results}

    def metadata(self) -> dict[int, Any]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        return {each.partition_index: each for each in ask(self.servers, request, 12).topics[0].partitions}

    def assert_only_bad_is_offline(self) -> None:
        """The bad directory's partitions are offline for everybody, the others go on."""
        lost, kept = self.partitions_in(self.bad), self.partitions_in(self.good)
        assert lost
        assert kept
        for index in lost:
            assert self.produce(index) == STORAGE_ERROR
            assert self.fetch(index).error_code == STORAGE_ERROR
        for index in kept:
            before = self.fetch(index).high_watermark
            assert self.produce(index) == ErrorCode.NONE
            assert self.fetch(index).high_watermark == before + 1
        assert self.described() == {str(self.good): ErrorCode.NONE, str(self.bad): STORAGE_ERROR}
        deadline = time.monotonic() + 10
        while True:
            known = self.metadata()
            if all(known[index].leader_id == -1 for index in lost):
                break
            assert time.monotonic() < deadline, "the controller was not told"
            time.sleep(0.05)
        for index in lost:
            assert known[index].offline_replicas == [1]
            assert ErrorCode(known[index].error_code) is ErrorCode.LEADER_NOT_AVAILABLE
            # Also after the controller has taken the leadership away it is the disk that is to blame.
            assert self.produce(index) == STORAGE_ERROR
            assert self.fetch(index).error_code == STORAGE_ERROR
        for index in kept:
            assert known[index].leader_id == 1
        self.create("later")
        assert self.partitions_in(self.good, "later") == set(range(PARTITIONS))
        answer_seconds(self.servers)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with faulty_disk(monkeypatch) as faults:
        world = World(tmp_path, faults)
        with world.cluster:
            yield world
            faults.mend()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_writes_fail(world: World, code: int) -> None:
    world.create()
    world.faults.fail(world.bad, "write", code=code)
    world.assert_only_bad_is_offline()


def test_reads_fail(world: World) -> None:
    world.create()
    world.faults.fail(world.bad, "read")
    (lost, *_) = world.partitions_in(world.bad)
    assert world.fetch(lost).error_code == STORAGE_ERROR
    world.assert_only_bad_is_offline()


def test_syncs_fail_and_nothing_is_acknowledged(world: World) -> None:
    """After a failed fsync nobody knows what is on the disk: the record must not be acknowledged, now or later."""
    world.create(flush_messages="1")
    world.faults.fail(world.bad, "sync")
    (lost, *_) = world.partitions_in(world.bad)
    began = time.monotonic()
    assert world.produce(lost, timeout_ms=30_000) == STORAGE_ERROR
    assert time.monotonic() - began < 5, "the producer was left waiting"
    world.faults.mend()
    assert world.produce(lost) == STORAGE_ERROR, "a directory does not come back by itself"
    world.assert_only_bad_is_offline()


def test_who_waits_for_records_is_told(world: World) -> None:
    world.create()
    (lost, other, *_) = world.partitions_in(world.bad)
    with WireClient(world.servers) as reader:
        wanted = FetchPartition(partition=lost, fetch_offset=1, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=30_000,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
        )
        reader.send(reader.encode(request, 11))
        time.sleep(0.1)
        world.faults.fail(world.bad)
        world.produce(other)
        answer = reader.answer_to(request, 11)
        assert answer.responses[0].partitions[0].error_code == STORAGE_ERROR


def test_everything_fails_while_a_topic_is_created(world: World) -> None:
    world.create()
    world.faults.fail(world.bad)
    topic = CreatableTopic(name="new", num_partitions=PARTITIONS, replication_factor=1)
    assert ask(world.servers, CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0].error_code == 0
    outcomes = [world.produce(index, "new") for index in range(PARTITIONS)]
    assert set(outcomes) <= {ErrorCode.NONE, STORAGE_ERROR}
    assert ErrorCode.NONE in outcomes
    world.assert_only_bad_is_offline()


def test_topics_can_be_deleted_while_a_directory_is_offline(world: World) -> None:
    world.create()
    world.faults.fail(world.bad)
    world.assert_only_bad_is_offline()
    from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

    answer = ask(world.servers, DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)]), 6)
    assert answer.responses[0].error_code == 0
    assert world.produce(0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer_seconds(world.servers)


def test_after_a_repair_and_a_restart_everything_is_there(world: World) -> None:
    world.create()
    world.faults.fail(world.bad, "write")
    world.assert_only_bad_is_offline()
    counts = {index: world.fetch(index).high_watermark for index in world.partitions_in(world.good)}
    world.faults.mend()
    world.cluster.restart()
    for index in range(PARTITIONS):
        assert world.fetch(index).high_watermark == counts.get(index, 1)
        assert world.produce(index) == ErrorCode.NONE
    assert set(world.described().values()) == {ErrorCode.NONE}


def test_a_node_starts_without_one_of_its_directories(world: World) -> None:
    world.create()
    world.cluster.stop()
    world.faults.fail(world.bad)
    world.cluster.start()
    world.assert_only_bad_is_offline()
    world.faults.mend()
    world.cluster.restart()
    for index in range(PARTITIONS):
        assert world.fetch(index).high_watermark >= 1
        assert world.produce(index) == ErrorCode.NONE


def test_a_directory_is_missed_whose_partitions_the_controller_never_heard_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash can come before a broker has said what is where; without the directory nobody may believe all is well."""
    with monkeypatch.context() as crashed_too_early:
        crashed_too_early.setattr(DirectoryAssignments, "tell", lambda *_: None)
        world.create()
        world.cluster.stop()
    world.faults.fail(world.bad)
    world.cluster.start()
    world.assert_only_bad_is_offline()
    counts = {index: world.fetch(index).high_watermark for index in world.partitions_in(world.good)}
    world.faults.mend()
    world.cluster.restart()
    deadline = time.monotonic() + 30
    while any(each.leader_id == -1 for each in world.metadata().values()):
        assert time.monotonic() < deadline, "the partitions did not come back with their directory"
        time.sleep(0.05)
    for index in range(PARTITIONS):
        assert world.fetch(index).high_watermark == counts.get(index, 1)
        assert world.produce(index) == ErrorCode.NONE


def test_without_its_metadata_log_a_node_stops(world: World) -> None:
    world.create()
    world.faults.fail(world.good)
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    try:
        answer = ask(world.servers, CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        assert answer.topics[0].error_code != 0, "a decision that was not written down was confirmed"
    except Disconnected:
        pass
    deadline = time.monotonic() + 10
    while True:
        try:
            answer_seconds(world.servers)
        except (Disconnected, ConnectionRefusedError):
            break
        assert time.monotonic() < deadline, "the node goes on without its metadata log"
        time.sleep(0.05)
    world.faults.mend()
    world.cluster.stop()
    world.cluster.start()
    for index in range(PARTITIONS):
        assert world.fetch(index).high_watermark == 1
        assert world.produce(index) == ErrorCode.NONE
