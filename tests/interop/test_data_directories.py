"""A data directory changes hands between Apache Kafka and Moldau: nothing is lost, nothing changes, both go on."""

from __future__ import annotations

import pytest

from tests.interop.conftest import Journey, Stop
from tests.interop.filling import TOPICS
from tests.interop.observed import Observed

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


def check_handing_over(before: Stop, after: Stop) -> None:
    """What the next broker serves at first is what the one before served at last."""
    # Looking at a broker may create its internal topics.
    left, found = before.left, after.found.restricted_to(before.left.topics)
    assert found.cluster_id == left.cluster_id
    assert found.topics == left.topics
    assert found.settings == left.settings
    assert found.quotas == left.quotas
    assert found.positions == left.positions
    assert found.offsets == left.offsets
    assert found.records == left.records
    assert found.committed == left.committed


def check_appending(stop: Stop) -> None:
    """What was there stays, and what was written comes after it."""
    for key, before in stop.found.records.items():
        after = stop.left.records[key]
        assert after[: len(before)] == before
        assert [each.offset for each in after] == sorted({each.offset for each in after})
    written = {("orders", 60), ("stamped", 60), ("compacted", 60), ("trimmed", 60), ("empty", 60), ("idempotent", 10)}
    for topic, count in written | {("codecs", 60)}:
        assert total(stop.left, topic) - total(stop.found, topic) == count, topic


def total(observed: Observed, topic: str) -> int:
    return sum(len(records) for (name, _), records in observed.records.items() if name == topic)


def check_steady_producer(journey: Journey) -> None:
    (records,) = (found for (topic, _), found in journey.stops[-1].left.records.items() if topic == "idempotent")
    assert [each.value for each in records] == journey.steady.written


def test_the_filling_is_worth_looking_at(from_kafka: Journey, from_moldau: Journey) -> None:
    for journey in (from_kafka, from_moldau):
        left = journey.stops[0].left
        assert set(TOPICS) - {"gone"} <= set(left.topics)
        assert "gone" not in left.topics
        assert left.offsets[("trimmed", 0)][0] == 33
        assert (
            left.settings[("topic", "orders")].items() >= {"max.message.bytes": "600000", "flush.ms": "900000"}.items()
        )
        assert left.settings[("topic", "codecs")]["max.message.bytes"] == "2000000"
        assert (
            left.settings[("broker", "1")].items()
            >= {"log.cleaner.threads": "2", "message.max.bytes": "2000000"}.items()
        )
        assert "ada" in left.quotas
        assert sum(left.positions.values()) == 25
        segments = [file for each in journey.directories for file in each.glob("codecs-0/*.log")]
        assert len(segments) > 3
        # The transaction that was taken back.
        assert len(left.records[("orders", 0)]) - len(left.committed[("orders", 0)]) == 5


def test_what_is_served_is_served_in_kafkas_versions(from_kafka: Journey) -> None:
    theirs, ours = from_kafka.stops[0].versions, from_kafka.stops[1].versions
    assert len(ours) > 40
    assert ours.items() <= theirs.items()


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_directory_of_kafkas_is_served_as_it_was(from_kafka: Journey, stop: int) -> None:
    check_handing_over(from_kafka.stops[stop - 1], from_kafka.stops[stop])


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_directory_of_kafkas_is_written_on(from_kafka: Journey, stop: int) -> None:
    check_appending(from_kafka.stops[stop])


@pytest.mark.parametrize("stop", [1, 2])
def test_a_directory_of_ours_is_served_as_it_was(from_moldau: Journey, stop: int) -> None:
    check_handing_over(from_moldau.stops[stop - 1], from_moldau.stops[stop])


@pytest.mark.parametrize("stop", [1, 2])
def test_a_directory_of_ours_is_written_on(from_moldau: Journey, stop: int) -> None:
    check_appending(from_moldau.stops[stop])


def test_idempotent_producers_do_not_notice(from_kafka: Journey, from_moldau: Journey) -> None:
    check_steady_producer(from_kafka)
    check_steady_producer(from_moldau)
