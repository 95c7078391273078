"""Replay gives the same image however it is split, and a snapshot of an image gives that image again."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_strategies import RecordSource

from moldau.metadata.delta import ImageDelta, difference
from moldau.metadata.image import EMPTY_IMAGE, NO_PROVENANCE, ClusterImage, Provenance
from moldau.metadata.records import MetadataRecord, record_version
from moldau.metadata.replay import REPLAY, ImageBuilder, ReplayError
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
from moldau.protocol.generated.metadata.partition_change_record import PartitionChangeRecord
from moldau.protocol.generated.metadata.partition_record import PartitionRecord
from moldau.protocol.generated.metadata.remove_topic_record import RemoveTopicRecord
from moldau.protocol.generated.metadata.topic_record import TopicRecord
from moldau.protocol.metadata_records import decode_record, encode_record

SEEDS = st.integers(0, 2**32)
LEVELS = st.sampled_from([7, 12, 15, 17, 23, 26, 30, 31])
TOPIC = bytes(range(16))


def replayed(records: list[MetadataRecord], image: ClusterImage = EMPTY_IMAGE) -> tuple[ClusterImage, ImageDelta]:
    builder = ImageBuilder(image)
    builder.replay_all(records)
    return builder.build(NO_PROVENANCE)


@settings(max_examples=60, deadline=None)
@given(SEEDS, LEVELS)
def test_a_snapshot_of_an_image_gives_the_image_again(seed: int, level: int) -> None:
    image, _ = replayed(RecordSource(seed, level).draw(150))
    again, _ = replayed(list(image.records()))
    assert again == image


@settings(max_examples=60, deadline=None)
@given(SEEDS, LEVELS)
def test_every_record_survives_its_version_for_the_release(seed: int, level: int) -> None:
    """What a cluster at an older level writes loses nothing that level can express."""
    for record in RecordSource(seed, level).draw(80):
        version = record_version(record, level)
        assert decode_record(encode_record(record, version)) == (record, version)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_images_are_never_changed_and_deltas_miss_nothing(seed: int, sizes: list[int]) -> None:
    source = RecordSource(seed)
    builder = ImageBuilder()
    image = EMPTY_IMAGE
    records: list[MetadataRecord] = []
    published = []
    for offset, size in enumerate(sizes):
        drawn = source.draw(size)
        records += drawn
        builder.replay_all(drawn)
        newer, delta = builder.build(Provenance(offset, 1, 0))
        real = difference(image, newer)
        assert real.created_topics == delta.created_topics
        assert real.deleted_topics.keys() == delta.deleted_topics.keys()
        for topic_id, partitions in real.changed_partitions.items():
            assert partitions <= delta.changed_partitions[topic_id]
        assert delta.changed_partitions.keys() <= newer.topics_by_id.keys()
        for field in ("configs", "features", "brokers", "controllers", "client_quotas", "acls", "scram"):
            assert getattr(real, field) <= getattr(delta, field), field
        published.append((newer, replayed(records)[0]))
        image = newer
    for early, afresh in published:
        assert replace(early, provenance=NO_PROVENANCE) == afresh


def test_unchanged_sections_are_shared() -> None:
    image, _ = replayed(RecordSource(3).draw(200))
    newer, delta = replayed([FeatureLevelRecord(name="group.version", feature_level=1)], image)
    assert delta.features == {"group.version"}
    shared = [f.name for f in fields(ClusterImage) if f.name not in ("provenance", "features", "producer_ids")]
    for section in shared:
        assert getattr(newer, section) is getattr(image, section)


def test_a_change_touches_only_its_topic() -> None:
    first = [TopicRecord(name="a", topic_id=TOPIC), PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1])]
    other = bytes(16)[:-1] + b"\x09"
    second = [TopicRecord(name="b", topic_id=other), PartitionRecord(partition_id=0, topic_id=other, replicas=[1])]
    image, _ = replayed([*first, *second])
    change = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=1, isr=[1])
    newer, delta = replayed([change], image)
    assert newer.topics_by_name["b"] is image.topics_by_name["b"]
    assert delta.changed_partitions == {TOPIC: {0}}
    assert not delta.created_topics
    before, after = image.partition("a", 0), newer.partition("a", 0)
    assert before is not None
    assert after is not None
    assert (before.leader, before.leader_epoch, before.partition_epoch) == (-1, -1, -1)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 0, 0)


def test_a_topic_made_and_removed_in_one_go_leaves_no_trace() -> None:
    _, delta = replayed([TopicRecord(name="a", topic_id=TOPIC), RemoveTopicRecord(topic_id=TOPIC)])
    assert delta == ImageDelta()


def test_a_recreated_topic_is_deleted_and_created() -> None:
    image, _ = replayed([TopicRecord(name="a", topic_id=TOPIC)])
    other = TOPIC[::-1]
    newer, delta = replayed([RemoveTopicRecord(topic_id=TOPIC), TopicRecord(name="a", topic_id=other)], image)
    assert list(delta.deleted_topics) == [TOPIC]
    assert delta.created_topics == {other}
    assert newer.topics_by_name["a"].id == other


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(partition_id=0, topic_id=TOPIC),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC),
        RemoveTopicRecord(topic_id=TOPIC),
    ],
)
def test_records_that_do_not_fit_are_refused(record: MetadataRecord) -> None:
    with pytest.raises(ReplayError):
        replayed([record])


def test_every_record_type_is_replayed() -> None:
    from moldau.protocol.generated.api_table import METADATA_RECORDS

    assert {kind.API_KEY for kind in REPLAY} == set(METADATA_RECORDS)
