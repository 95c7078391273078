"""Snapshots: when they are written, that a restart reads them, what goes when they are there, and damaged ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quorum_world import QuorumWorld, own_voter, topic

from moldau.metadata.image import NO_PROVENANCE
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
from moldau.protocol.generated.metadata.remove_topic_record import RemoveTopicRecord
from moldau.quorum.metadata_log import MetadataLogSettings
from moldau.quorum.snapshot_emitter import SnapshotSettings
from moldau.quorum.snapshots import (
    CorruptSnapshot,
    SnapshotId,
    read_snapshot,
    snapshot_batches,
    snapshot_id_of,
    snapshot_name,
)

DIRECTORY = "/data/__cluster_metadata-0"
NEVER = SnapshotSettings(max_bytes=1 << 40, max_interval_ms=0)


def started(snapshots: SnapshotSettings = NEVER, settings: MetadataLogSettings | None = None) -> QuorumWorld:
    world = QuorumWorld(snapshots=snapshots, settings=settings)
    world.start()
    world.append(FeatureLevelRecord(name="metadata.version", feature_level=30))
    return world


def snapshots_of(world: QuorumWorld) -> list[SnapshotId]:
    return [found for name in world.files() if (found := snapshot_id_of(name)) is not None]


def test_names() -> None:
    assert snapshot_name(SnapshotId(123, 4)) == "00000000000000000123-0000000004.checkpoint"
    assert snapshot_id_of("00000000000000000123-0000000004.checkpoint") == SnapshotId(123, 4)
    for other in (
        "00000000000000000123.log",
        "00000000000000000123-0000000004.checkpoint.part",
        "bootstrap.checkpoint",
    ):
        assert snapshot_id_of(other) is None


def test_a_snapshot_after_enough_bytes() -> None:
    world = started(SnapshotSettings(max_bytes=2000, max_interval_ms=0))
    for i in range(40):
        world.append_topics(f"t{i}")
    ids = snapshots_of(world)
    assert ids[0] == SnapshotId(0, 0)
    assert len(ids) >= 2
    assert all(snapshot_id.epoch == 1 for snapshot_id in ids[1:])


def test_a_snapshot_after_enough_time_with_something_new() -> None:
    world = started(SnapshotSettings(max_bytes=1 << 40, max_interval_ms=60_000))
    world.clock.advance(60_001)
    assert len(snapshots_of(world)) == 1
    world.append_topics("a")
    assert snapshots_of(world)[-1] == SnapshotId(5, 1)
    world.append_topics("b")
    assert len(snapshots_of(world)) == 2


def test_a_restart_reads_the_snapshot_and_only_the_log_after_it() -> None:
    world = started()
    world.append_topics("a", "b")
    world.append(RemoveTopicRecord(topic_id=topic("a").topic_id))
    assert world.emitter.emit()
    world.append_topics("c")
    image = world.loader.image
    snapshot = snapshots_of(world)[-1]
    assert snapshot == SnapshotId(7, 1)
    world.quorum.shutdown()
    published: list[int] = []
    world.start()
    world.loader.add_publisher(lambda delta, newer: published.append(newer.offset))
    assert world.topics == ["b", "c"]
    assert replace(world.loader.image, provenance=NO_PROVENANCE) == replace(image, provenance=NO_PROVENANCE)
    assert world.quorum.epoch == 2
    assert world.quorum.voters == {1: own_voter()}
    assert world.quorum.kraft_version == 1


def test_nothing_new_means_no_snapshot() -> None:
    world = started()
    assert world.emitter.emit()
    assert not world.emitter.emit()


def test_old_snapshots_and_segments_go() -> None:
    settings = MetadataLogSettings(segment_bytes=4096, retention_bytes=12_000)
    world = started(SnapshotSettings(max_bytes=3000, max_interval_ms=0), settings)
    for i in range(200):
        world.append_topics(f"topic-{i % 5}-{i}")
        if i >= 5:
            world.append(RemoveTopicRecord(topic_id=topic(f"topic-{(i - 5) % 5}-{i - 5}").topic_id))
    world.clock.advance(120_000)
    names = world.files()
    assert "00000000000000000000.log" not in names
    assert SnapshotId(0, 0) not in snapshots_of(world)
    logs = [name for name in names if name.endswith(".log")]
    assert sum(world.disk.file_size(f"{DIRECTORY}/{name}") for name in names) < 25_000
    first_offset = int(logs[0][:20])
    assert first_offset <= snapshots_of(world)[0].offset
    before = world.topics
    world.quorum.shutdown()
    world.start()
    assert sorted(world.topics) == sorted(before)


def test_snapshots_older_than_the_retention_go() -> None:
    settings = MetadataLogSettings(retention_bytes=-1, retention_ms=1000)
    world = started(settings=settings)
    world.append_topics("a")
    world.emitter.emit()
    world.clock.advance(2000)
    world.append_topics("b")
    world.emitter.emit()
    assert len(snapshots_of(world)) == 1


def test_a_crash_while_a_snapshot_is_written_leaves_no_snapshot() -> None:
    world = started()
    world.append_topics("a")
    world.disk.fail("write", ending=".checkpoint.part", after=1)
    world.emitter.emit()
    assert snapshots_of(world) == [SnapshotId(0, 0)]
    world.disk.crash(keep_unsynced=True)
    world.start()
    assert world.topics == ["a"]
    assert not any(name.endswith(".part") for name in world.files())
    assert world.emitter.emit()


def test_a_log_that_ends_before_its_snapshot_goes_on_after_it() -> None:
    """Whoever keeps only a snapshot of a lost disk still has all that it says."""
    world = started()
    world.append_topics("a", "b")
    world.emitter.emit()
    snapshot = snapshots_of(world)[-1]
    world.quorum.shutdown()
    world.disk.remove(f"{DIRECTORY}/00000000000000000000.log")
    world.start()
    assert world.topics == ["a", "b"]
    assert world.quorum.next_offset == snapshot.offset + 1
    world.append_topics("c")
    world.quorum.shutdown()
    world.start()
    assert world.topics == ["a", "b", "c"]


def small_snapshot() -> bytes:
    return b"".join(
        snapshot_batches(
            [topic("a"), topic("b")],
            30,
            epoch=3,
            timestamp_ms=5,
            last_timestamp_ms=4,
            kraft_version=1,
            voters={1: own_voter()},
        )
    )


def test_a_snapshot_says_what_was_written() -> None:
    found = read_snapshot(small_snapshot())
    assert (found.last_timestamp_ms, found.kraft_version, found.voters) == (4, 1, {1: own_voter()})
    assert found.records == [topic("a"), topic("b")]


def test_a_cut_snapshot_is_refused_at_every_length() -> None:
    whole = small_snapshot()
    for size in range(len(whole)):
        with pytest.raises(CorruptSnapshot):
            read_snapshot(whole[:size])


def test_a_flipped_byte_is_noticed() -> None:
    whole = small_snapshot()
    # From the attributes of the first batch on, every byte is under a checksum; magic and length are tested as such.
    for position in range(21, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        try:
            found = read_snapshot(bytes(damaged))
        except CorruptSnapshot:
            continue
        # Base offset and epoch of a batch are outside of its checksum, and say nothing here.
        assert found.records == [topic("a"), topic("b")]
