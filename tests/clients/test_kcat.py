"""kcat writes with every codec and reads what the others wrote; it also lists and looks up offsets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from moldau.testing import Cluster
from tests.clients.kcat import Kcat
from tests.clients.python_clients import CONSUMERS, PRODUCERS
from tests.clients.sample import CODECS, Sample, samples

# What kcat can be given on its standard input: text, and no timestamps of one's own.
WRITTEN = [
    Sample(b"key", b"value", (), 0),
    Sample(None, b"no key", (), 0),
    Sample(b"tombstone", None, (), 0),
    Sample("žluť".encode(), "kůň 🐎".encode(), (("trace", b"abc"), ("twice", b"1"), ("twice", b"2")), 0),
    *(Sample(b"k%d" % i, b"v" * 300 * (i + 1), (("n", b"same"),), 0) for i in range(20)),
]


def without_time(records: list[Sample]) -> list[Sample]:
    return [Sample(each.key, each.value, each.headers, 0) for each in records]


@pytest.mark.parametrize("codec", CODECS)
def test_what_kcat_writes_every_client_reads(
    moldau_cluster: Cluster, new_topic: Callable[..., str], kcat: Kcat, codec: str
) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    began = time.time_ns() // 1_000_000
    kcat.produce(servers, topic, codec, WRITTEN)
    ended = time.time_ns() // 1_000_000
    found = kcat.consume(servers, topic, len(WRITTEN))
    assert without_time(found) == WRITTEN
    assert all(began <= each.timestamp <= ended for each in found)
    for name, consume in CONSUMERS.items():
        assert consume(servers, topic, len(WRITTEN)) == found, f"read by {name}"


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_every_client_writes(
    moldau_cluster: Cluster, new_topic: Callable[..., str], kcat: Kcat, codec: str
) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    for produce in PRODUCERS.values():
        produce(servers, topic, codec, samples())
    found = kcat.consume(servers, topic, len(PRODUCERS) * len(samples()))
    assert found == len(PRODUCERS) * samples()


def test_kcat_lists_the_cluster(moldau_cluster: Cluster, new_topic: Callable[..., str], kcat: Kcat) -> None:
    topic = new_topic(partitions=3)
    listed = json.loads(kcat.run("-L", "-J", "-b", moldau_cluster.bootstrap_servers))
    assert listed["brokers"] == [{"id": 1, "name": moldau_cluster.bootstrap_servers}]
    (found,) = (each for each in listed["topics"] if each["topic"] == topic)
    assert [(each["partition"], each["leader"]) for each in found["partitions"]] == [(0, 1), (1, 1), (2, 1)]


def test_kcat_looks_up_offsets_by_time(moldau_cluster: Cluster, new_topic: Callable[..., str], kcat: Kcat) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    written = samples()
    PRODUCERS["confluent-kafka"](servers, topic, "none", written)
    looked_up = kcat.run("-Q", "-b", servers, "-t", f"{topic}:0:{written[7].timestamp}")
    assert b"[0] offset 7" in looked_up
    assert kcat.consume(servers, topic, 3, start=f"s@{written[7].timestamp}") == written[7:10]
    assert kcat.consume(servers, topic, 5, start="-5") == written[-5:]


def test_an_idempotent_kcat(moldau_cluster: Cluster, new_topic: Callable[..., str], kcat: Kcat) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    kcat.produce(servers, topic, "lz4", WRITTEN, ["enable.idempotence=true", "batch.num.messages=3"])
    assert without_time(kcat.consume(servers, topic, len(WRITTEN))) == WRITTEN
