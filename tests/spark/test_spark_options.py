"""Options: what they mean, and what a mistake in them is answered with."""

from __future__ import annotations

import json

import pytest

from moldau.client.errors import MoldauError
from moldau.client.offsets import EARLIEST, LATEST, READ_COMMITTED
from moldau.spark.options import Bound, source_options

BASE = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "a, b"}


def options(streaming: bool = False, **changed: str):
    return source_options({**BASE, **changed}, streaming=streaming)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    batch, stream = options(), options(streaming=True)
    assert batch.subscription.topics == ("a", "b")
    assert (batch.start, batch.end) == (Bound(everywhere=EARLIEST), Bound(everywhere=LATEST))
    assert stream.start == Bound(everywhere=LATEST)
    assert stream.max_trigger_delay == 900
    assert batch.fail_on_data_loss
    assert batch.group is None


def test_names_are_known_in_any_case_and_client_settings_are_passed_on() -> None:
    found = options(STARTINGOFFSETS="earliest", **{"kafka.isolation.level": "read_committed", "Kafka.Group.Id": "g"})
    assert found.isolation == READ_COMMITTED
    assert found.group == "g"


def test_a_time_wins_over_times_by_partition_and_these_over_offsets() -> None:
    by_time = json.dumps({"a": {"0": 5}})
    offsets = json.dumps({"a": {"0": 23, "1": -2}})
    assert options(startingOffsets=offsets).start.offsets == ((("a", 0), 23), (("a", 1), -2))
    assert options(startingOffsets=offsets, startingOffsetsByTimestamp=by_time).start.timestamps == ((("a", 0), 5),)
    every = options(startingOffsets=offsets, startingOffsetsByTimestamp=by_time, startingTimestamp="7")
    assert every.start.timestamp == 7


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("10 seconds", 10), ("200ms", 0.2), ("2h", 7200), ("5", 0.005)]
)
def test_durations(text: str, seconds: float) -> None:
    assert options(maxTriggerDelay=text).max_trigger_delay == seconds


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"bootstrap.servers": "x"}, r"did you mean kafka\.bootstrap\.servers"),
        ({"subscribePattern": "a.*"}, "Exactly one of"),
        ({"subscribe": " , "}, "names no topic"),
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"startingOffsets": "sometimes"}, "is not JSON"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "-2 is the earliest"),
        ({"startingOffsets": '{"a": [1]}'}, "neither a known word nor JSON"),
        ({"startingOffsets": "group"}, r"kafka\.group\.id"),
        ({"endingOffsets": "earliest"}, "must be latest or JSON"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is above"),
        ({"maxTriggerDelay": "soon"}, "is not a duration"),
        ({"kafka.auto.offset.reset": "latest"}, "set startingOffsets instead"),
        ({"kafka.enable.auto.commit": "true"}, "Spark's checkpoint"),
        ({"kafka.isolation.level": "dirty"}, "neither read_uncommitted"),
        ({"kafka.bootstrap.servers": "a:b:c"}, "not a server address"),
        ({"kafka.bootstrap.servers": ""}, "brokers are not named"),
        ({"kafka.security.protocol": "SASL_SSL"}, "is not supported"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}, "needs credentials"),
        ({"kafka.ssl.truststore.location": "x.jks"}, "type=PEM"),
    ],
)
def test_mistakes_are_explained(changed: dict[str, str], complaint: str) -> None:
    with pytest.raises(MoldauError, match=complaint):
        options(**changed)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(MoldauError, match="availableNow"):
        options(streaming=True, endingOffsets="latest")


def test_secrets_do_not_show_in_the_settings() -> None:
    jaas = 'PlainLoginModule required username="u" password="s3cret";'
    found = options(
        **{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": jaas}
    )
    assert found.client.password == "s3cret"
    assert "s3cret" not in repr(found)
