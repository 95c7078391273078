"""What publishers are told: whole decisions, in order, each once."""

from __future__ import annotations

import pytest

from moldau.metadata.delta import ImageDelta
from moldau.metadata.image import ClusterImage, Provenance
from moldau.metadata.publisher import CommittedBatch, MetadataLoader
from moldau.metadata.records import MetadataRecord
from moldau.metadata.replay import ReplayError
from moldau.protocol.generated.metadata.abort_transaction_record import AbortTransactionRecord
from moldau.protocol.generated.metadata.begin_transaction_record import BeginTransactionRecord
from moldau.protocol.generated.metadata.end_transaction_record import EndTransactionRecord
from moldau.protocol.generated.metadata.remove_topic_record import RemoveTopicRecord
from moldau.protocol.generated.metadata.topic_record import TopicRecord


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big"))


class World:
    def __init__(self) -> None:
        self.loader = MetadataLoader()
        self.heard: list[tuple[int, list[str], ImageDelta]] = []
        self.next_offset = 0
        self.loader.add_publisher(self.published)

    def published(self, delta: ImageDelta, image: ClusterImage) -> None:
        self.heard.append((image.offset, sorted(image.topics_by_name), delta))

    def batch(self, *records: MetadataRecord) -> CommittedBatch:
        base = self.next_offset
        self.next_offset += max(len(records), 1)
        return CommittedBatch(base, self.next_offset - 1, 1, 0, 100, records)

    def topics(self) -> list[list[str]]:
        return [names for _, names, _ in self.heard]


def test_one_publication_for_a_run_of_batches() -> None:
    world = World()
    world.loader.load_batches([world.batch(topic(1)), world.batch()], more_follows=True)
    assert not world.heard
    world.loader.load_batches([world.batch(topic(2))])
    assert world.topics() == [["t1", "t2"]]
    assert world.heard[0][2].created_topics == {topic(1).topic_id, topic(2).topic_id}


def test_a_transaction_appears_as_a_whole() -> None:
    world = World()
    world.loader.load_batches([world.batch(topic(1), BeginTransactionRecord(), topic(2))])
    assert world.loader.transaction_open
    world.loader.load_batches([world.batch(topic(3))])
    assert not world.heard
    world.loader.load_batches([world.batch(topic(4), EndTransactionRecord())])
    assert world.topics() == [["t1", "t2", "t3", "t4"]]
    assert len(world.heard[0][2].created_topics) == 4


def test_an_aborted_transaction_never_appears() -> None:
    world = World()
    world.loader.load_batches([world.batch(topic(1))])
    world.loader.load_batches([world.batch(topic(2), BeginTransactionRecord(), topic(3))])
    world.loader.load_batches([world.batch(RemoveTopicRecord(topic_id=topic(1).topic_id))])
    world.loader.load_batches([world.batch(AbortTransactionRecord(), topic(4))])
    assert world.topics() == [["t1"], ["t1", "t2", "t4"]]
    delta = world.heard[-1][2]
    assert delta.created_topics == {topic(2).topic_id, topic(4).topic_id}
    assert not delta.deleted_topics


def test_a_transaction_inside_another_is_corruption() -> None:
    world = World()
    with pytest.raises(ReplayError, match="inside another"):
        world.loader.load_batches([world.batch(BeginTransactionRecord(), BeginTransactionRecord())])


def test_a_snapshot_replaces_everything() -> None:
    world = World()
    world.loader.load_batches([world.batch(topic(1), topic(2))])
    world.loader.load_snapshot([topic(2), topic(3)], Provenance(50, 2, 0))
    offset, names, delta = world.heard[-1]
    assert (offset, names) == (50, ["t2", "t3"])
    assert list(delta.deleted_topics) == [topic(1).topic_id]
    assert delta.created_topics == {topic(3).topic_id}


def test_a_late_publisher_hears_everything() -> None:
    world = World()
    world.loader.load_batches([world.batch(topic(1))])
    late: list[ImageDelta] = []
    world.loader.add_publisher(lambda delta, image: late.append(delta))
    assert late[0].created_topics == {topic(1).topic_id}
