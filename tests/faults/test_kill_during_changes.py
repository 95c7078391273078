"""kill -9 while topics are created, deleted and reconfigured: what the controller confirmed stays decided.

An operation whose answer never came may have happened or not; but once a start has shown one or the other, it stays so.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from pathlib import Path

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.generated.wire.metadata_request import MetadataRequest
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.testing import Cluster
from tests.security.wire_client import Disconnected, WireClient, ask, complaints

KILLS = 8
SETTING = "max.message.bytes"
TOPIC_RESOURCE = 2


class Topic:
    """What may be true of one topic: more than one value means that an answer never came."""

    def __init__(self) -> None:
        self.exists = {True, False}
        self.partitions = {1}
        # Records in partition 0: a topic that was deleted and made anew must not show the old ones.
        self.records = {0}
        self.setting = {1_048_588}


class Changes:
    """Changes one topic after the other, and keeps account of what was confirmed."""

    def __init__(self, servers: str, seed: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.confirmed = 0
        self._servers = servers
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._refused: list[str] = []

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert self._refused == []

    def _run(self) -> None:
        with contextlib.suppress(Disconnected, ConnectionRefusedError), WireClient(self._servers) as client:
            while not self._stop.is_set():
                alive = [name for name, topic in self.topics.items() if topic.exists == {True}]
                gone = [name for name, topic in self.topics.items() if topic.exists == {False}]
                changes = [self._create, self._delete, self._enlarge, self._configure, self._write]
                change = self._random.choice(changes)
                if change == self._create or not alive:
                    self._create(client, self._random.choice([*gone, f"topic-{len(self.topics)}"]))
                else:
                    change(client, self._random.choice(alive))
                self.confirmed += 1

    def _create(self, client: WireClient, name: str) -> None:
        topic = self.topics[name] = Topic()
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
        self._check(client.ask(request, 7).topics[0].error_code)
        topic.exists = {True}

    def _delete(self, client: WireClient, name: str) -> None:
        topic = self.topics[name]
        topic.exists = {True, False}
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        self._check(client.ask(request, 6).responses[0].error_code)
        topic.exists = {False}

    def _enlarge(self, client: WireClient, name: str) -> None:
        topic = self.topics[name]
        count = max(topic.partitions) + 1
        topic.partitions.add(count)
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])
        self._check(client.ask(request, 3).results[0].error_code)
        topic.partitions = {count}

    def _configure(self, client: WireClient, name: str) -> None:
        topic = self.topics[name]
        value = self._random.randrange(1000, 1_000_000)
        topic.setting.add(value)
        change = AlterableConfig(name=SETTING, config_operation=0, value=str(value))
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[change])
        answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        self._check(answer.responses[0].error_code)
        topic.setting = {value}

    def _write(self, client: WireClient, name: str) -> None:
        topic = self.topics[name]
        (count,) = topic.records
        topic.records = {count, count + 1}
        records = build_batch([Record(0, int(time.time() * 1000), None, name.encode(), ())])
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 12)
        self._check(answer.responses[0].partition_responses[0].error_code)
        topic.records = {count + 1}

    def _check(self, code: int) -> None:
        if code != ErrorCode.NONE:
            self._refused.append(ErrorCode(code).name)


def settle(servers: str, topics: dict[str, Topic]) -> None:
    """Compare the restarted node with what is known, and take what it says as decided from now on."""
    found = {topic.name: len(topic.partitions) for topic in ask(servers, MetadataRequest(topics=None), 12).topics}
    assert set(found) <= set(topics), "a topic that nobody created"
    for name, topic in topics.items():
        assert (name in found) in topic.exists, f"{name}: exists is {name in found}"
        topic.exists = {name in found}
        if name in found:
            assert found[name] in topic.partitions, f"{name} has {found[name]} partitions, not {topic.partitions}"
            topic.partitions = {found[name]}
    for name, value in settings(servers, list(found)).items():
        assert value in topics[name].setting, f"{name}: {SETTING} is {value}, not {topics[name].setting}"
        topics[name].setting = {value}
    for name, count in ends(servers, list(found)).items():
        assert count in topics[name].records, f"{name} has {count} records, not {topics[name].records}"
        topics[name].records = {count}


def ends(servers: str, names: list[str]) -> dict[str, int]:
    """The end offset of every topic's first partition."""
    wanted = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted) for name in names]
    )
    return {topic.name: topic.partitions[0].offset for topic in ask(servers, request, 7).topics}


def settings(servers: str, names: list[str]) -> dict[str, int]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[SETTING])
            for name in names
        ]
    )
    return {result.resource_name: int(result.configs[0].value) for result in ask(servers, request, 4).results}


def leftover_directories(data_dir: Path, topics: dict[str, Topic]) -> list[str]:
    """Partition directories in use that belong to no topic."""
    gone = {name for name, topic in topics.items() if topic.exists == {False}}
    found = [path.name for path in (data_dir / "data").iterdir() if path.is_dir() and "." not in path.name]
    return [name for name in found if name.rpartition("-")[0] in gone]


def test_confirmed_changes_survive_kills(tmp_path: Path) -> None:
    chance = random.Random(3)
    # Snapshots all the time: they replace the log's beginning while records are appended to its end.
    config = {
        "metadata.log.max.snapshot.interval.ms": "100",
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "file.delete.delay.ms": "100",
        "log.segment.delete.delay.ms": "100",
    }
    with Cluster(config, in_process=False, data_dir=tmp_path) as cluster:
        changes = Changes(cluster.bootstrap_servers, 4)
        for _ in range(KILLS):
            changes.start()
            time.sleep(chance.uniform(0.02, 0.4))
            cluster.kill()
            changes.stop()
            cluster.start()
            settle(cluster.bootstrap_servers, changes.topics)
        changes.start()
        time.sleep(0.2)
        changes.stop()
        cluster.stop()
        cluster.start()
        settle(cluster.bootstrap_servers, changes.topics)
        assert changes.confirmed > 5 * KILLS
        assert leftover_directories(tmp_path, changes.topics) == []
        assert complaints(cluster) == []
