"""Apache Kafka's own tools read the metadata log, its snapshots and the bootstrap file that Moldau writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from codegen.kafka_jars import can_fetch, classpath
from quorum_world import QuorumWorld

from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
from moldau.protocol.generated.metadata.partition_record import PartitionRecord
from moldau.protocol.generated.metadata.topic_record import TopicRecord

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(not can_fetch(), reason="needs Java and Apache Kafka's jars"),
    pytest.mark.timeout(600),
]
TOPIC_ID = bytes(range(16))


def dump(path: Path) -> str:
    command = ["java", "-cp", classpath(), "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder"]
    done = subprocess.run([*command, "--files", str(path)], capture_output=True, text=True, timeout=120, check=True)
    assert "isvalid: false" not in done.stdout
    return done.stdout


def payloads(text: str) -> list[tuple[str, dict[str, object]]]:
    found = []
    for line in text.splitlines():
        if "payload: " in line:
            record = json.loads(line.partition("payload: ")[2])
            found.append((record["type"], record["data"]))
    return found


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A formatted directory with a log of two epochs and a snapshot, as files."""
    world = QuorumWorld()
    world.start()
    world.append(FeatureLevelRecord(name="metadata.version", feature_level=30))
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[1, 2],
        isr=[1],
        leader=1,
        leader_epoch=3,
        partition_epoch=4,
        directories=[TOPIC_ID, bytes(16)],
        eligible_leader_replicas=[2],
    )
    world.append(TopicRecord(name="orders", topic_id=TOPIC_ID), partition)
    world.emitter.emit()
    world.quorum.shutdown()
    world.start()
    world.quorum.shutdown()
    target = tmp_path_factory.mktemp("data")
    (target / "__cluster_metadata-0").mkdir()
    for name in world.disk.list_dir("/data"):
        if name != "__cluster_metadata-0":
            (target / name).write_bytes(world.disk.read_bytes(f"/data/{name}"))
    for name in world.files():
        data = world.disk.read_bytes(f"/data/__cluster_metadata-0/{name}")
        (target / "__cluster_metadata-0" / name).write_bytes(data)
    return target


def test_the_log(directory: Path) -> None:
    text = dump(directory / "__cluster_metadata-0" / "00000000000000000000.log")
    kinds = [kind for kind, _ in payloads(text)]
    assert kinds == ["FEATURE_LEVEL_RECORD", "TOPIC_RECORD", "PARTITION_RECORD"]
    data = payloads(text)[2][1]
    assert data["replicas"] == [1, 2]
    assert data["eligibleLeaderReplicas"] == [2]
    assert data["partitionEpoch"] == 4
    assert text.count("LeaderChange") == 2
    assert '"voterId":1' in text
    assert "partitionLeaderEpoch: 2" in text


def test_the_snapshot(directory: Path) -> None:
    text = dump(directory / "__cluster_metadata-0" / "00000000000000000006-0000000001.checkpoint")
    assert "Snapshot end offset: 6, epoch: 1" in text
    assert [kind for kind, _ in payloads(text)] == ["FEATURE_LEVEL_RECORD", "TOPIC_RECORD", "PARTITION_RECORD"]
    for control in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"):
        assert text.count(f"[] {control} ") == 1


def test_the_bootstrap_records(directory: Path) -> None:
    text = dump(directory / "bootstrap.checkpoint")
    levels = {data["name"]: data["featureLevel"] for _, data in payloads(text)}
    assert levels["metadata.version"] == 30
    assert levels["transaction.version"] == 2


def test_the_storage_tool_knows_the_directory(directory: Path, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        f"log.dirs={directory}\n",
        encoding="utf-8",
    )
    command = ["java", "-cp", classpath(), "kafka.tools.StorageTool", "info", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Found problem" not in done.stdout, done.stdout + done.stderr
    assert "directory.id=ZGVmZ2hpamtsbW5vcHFycw" in done.stdout.replace(" ", "")
