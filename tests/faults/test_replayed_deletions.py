"""A node that starts hears of deletions again; they must not hit the log of a later topic of the same name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from moldau.config.node_config import NodeConfig
from moldau.config.one_node import defaults_for_one_node
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.log.manager_settings import LogManagerSettings
from moldau.metadata.image import Provenance
from moldau.metadata.publisher import CommittedBatch, MetadataLoader
from moldau.protocol.generated.metadata.partition_record import PartitionRecord
from moldau.protocol.generated.metadata.remove_topic_record import RemoveTopicRecord
from moldau.protocol.generated.metadata.topic_record import TopicRecord
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.replication.partition_table import PartitionTable
from moldau.testing.background import SteppedBackground
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk

FIRST, SECOND = b"first topic's id", b"second topic's i"
CONFIG = NodeConfig.load(defaults_for_one_node())


def topic(topic_id: bytes) -> list[object]:
    return [
        TopicRecord(name="t", topic_id=topic_id),
        PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0),
    ]


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.clock)

    def start(self, load: Callable[[MetadataLoader], None]) -> PartitionTable:
        logs = LogManager(
            self.disk,
            self.clock,
            SteppedBackground(),
            {"/data": bytes(16)},
            LogManagerSettings(),
            configs=lambda _: LogConfig(),
            random=Random(1),
        )
        logs.load()
        table = PartitionTable(1, logs, lambda: CONFIG)
        loader = MetadataLoader()
        loader.add_publisher(table.apply)
        load(loader)
        return table


def committed(offset: int, records: list[object]) -> list[CommittedBatch]:
    return [CommittedBatch(offset, offset + len(records) - 1, 1, 0, 100, records)]  # type: ignore[arg-type]


def test_a_deletion_after_a_snapshot_spares_the_successors_log() -> None:
    world = World()

    def live(loader: MetadataLoader) -> None:
        loader.load_snapshot(topic(FIRST), Provenance(10, 1, 0))  # type: ignore[arg-type]

    def changes(loader: MetadataLoader) -> None:
        loader.load_batches(committed(11, [RemoveTopicRecord(topic_id=FIRST)]))
        loader.load_batches(committed(12, topic(SECOND)))

    def both(loader: MetadataLoader) -> None:
        live(loader)
        changes(loader)

    partition = world.start(both).get("t", 0)
    partition.append(memoryview(build_batch([Record(0, 1_700_000_000_000, None, b"kept", ())])), -1)
    world.disk.crash(keep_unsynced=True)
    # The snapshot is older than the second topic, so the next start goes through the deletion once more.
    assert world.start(both).get("t", 0).log.log_end_offset == 1


def test_a_deletion_removes_the_topics_own_log() -> None:
    world = World()
    table = world.start(lambda loader: loader.load_snapshot(topic(FIRST), Provenance(10, 1, 0)))  # type: ignore[arg-type]
    table.get("t", 0).append(memoryview(build_batch([Record(0, 1_700_000_000_000, None, b"gone", ())])), -1)
    world.disk.crash(keep_unsynced=True)

    def replaced(loader: MetadataLoader) -> None:
        loader.load_snapshot(topic(FIRST), Provenance(10, 1, 0))  # type: ignore[arg-type]
        loader.load_batches(committed(11, [RemoveTopicRecord(topic_id=FIRST), *topic(SECOND)]))

    assert world.start(replaced).get("t", 0).log.log_end_offset == 0
    assert [name for name in world.disk.list_dir("/data") if name.endswith("-delete")] != []
