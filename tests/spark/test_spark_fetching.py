"""Ranges of offsets read from a real node: codecs, transactions, gaps, and what is lost or damaged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from moldau.client.errors import MoldauError
from moldau.client.group_offsets import commit_group_offsets, group_offsets
from moldau.client.offsets import EARLIEST, LATEST, NO_OFFSET, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from moldau.spark.brokers import client_settings, shared_cluster
from moldau.spark.errors import DataLossError
from moldau.spark.fetching import OffsetRange, read_range
from moldau.testing import Cluster
from tests.spark.world import SCHEMA, fetch_settings, read_values, settings_for


def produce(cluster: Cluster, topic: str, values: list[str], **config: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, **config})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(moldau_cluster: Cluster, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic()
    values = [f"value {number:05}" for number in range(2000)]
    produce(moldau_cluster, topic, values, **{"compression.type": codec, "batch.size": "4000"})
    assert read_values(settings_for(moldau_cluster.bootstrap_servers), topic, 1) == values


def test_a_range_in_the_middle_of_batches_with_small_fetches(
    moldau_cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    produce(moldau_cluster, topic, [str(number) for number in range(3000)])
    produce(moldau_cluster, topic, [str(number) for number in range(3000, 4000)], **{"compression.type": "lz4"})
    client = settings_for(moldau_cluster.bootstrap_servers)
    batches = list(read_range(OffsetRange(topic, 0, 1234, 3456), fetch_settings(client, fetch_bytes=2000), SCHEMA))
    assert [value for batch in batches for value in batch.column("offset").to_pylist()] == list(range(1234, 3456))
    assert batches[0].column("value")[0].as_py() == b"1234"


def test_aborted_records_are_seen_only_by_those_who_want_to(
    moldau_cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": moldau_cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for number, commit in enumerate([True, False, True, False]):
        producer.begin_transaction()
        producer.produce(topic, value=f"{number} {'kept' if commit else 'dropped'}")
        producer.flush(60)
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    client = settings_for(moldau_cluster.bootstrap_servers)
    assert read_values(client, topic, 1, READ_COMMITTED) == ["0 kept", "2 kept"]
    assert read_values(client, topic, 1, READ_UNCOMMITTED) == ["0 kept", "1 dropped", "2 kept", "3 dropped"]


def test_records_that_were_deleted_are_lost_data_unless_that_is_fine(
    moldau_cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    produce(moldau_cluster, topic, [str(number) for number in range(100)])
    admin = AdminClient({"bootstrap.servers": moldau_cluster.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(topic, 0, 40)]).values():
        done.result(60)
    client = settings_for(moldau_cluster.bootstrap_servers)
    wanted = OffsetRange(topic, 0, 10, 60)
    with pytest.raises(DataLossError, match=r"before offset 40 are gone.*failOnDataLoss=false"):
        list(read_range(wanted, fetch_settings(client), SCHEMA))
    batches = list(read_range(wanted, fetch_settings(client, fail_on_data_loss=False), SCHEMA))
    assert [value for batch in batches for value in batch.column("offset").to_pylist()] == list(range(40, 60))


def test_a_topic_that_is_gone(moldau_cluster: Cluster) -> None:
    client = settings_for(moldau_cluster.bootstrap_servers)
    with pytest.raises(MoldauError, match="There is no topic 'nowhere'"):
        list(read_range(OffsetRange("nowhere", 0, 0, 1), fetch_settings(client), SCHEMA))


def test_nobody_there_is_said_with_the_address() -> None:
    client = client_settings({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "100"})
    with pytest.raises(MoldauError, match=r"127\.0\.0\.1:1: connection refused.*kafka\.bootstrap\.servers"):
        shared_cluster(client).topics(["t"])


def test_offsets_by_time_and_of_groups(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": moldau_cluster.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, value=b"x", partition=0, timestamp=1000 * (number + 1))
    assert producer.flush(60) == 0
    cluster = shared_cluster(settings_for(moldau_cluster.bootstrap_servers))
    first, second = (topic, 0), (topic, 1)
    assert list_offsets(cluster, {first: EARLIEST, second: LATEST}) == {first: 0, second: 0}
    assert list_offsets(cluster, {first: 4500, second: 4500}) == {first: 4, second: NO_OFFSET}
    commit_group_offsets(cluster, f"group-of-{topic}", {first: 7}, "note")
    assert group_offsets(cluster, f"group-of-{topic}", [first, second]) == {first: (7, "note")}
    admin = AdminClient({"bootstrap.servers": moldau_cluster.bootstrap_servers})
    latest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    assert next(iter(latest.values())).result(60).offset == 10


def test_a_restart_of_the_node_in_the_middle_of_a_range_is_survived() -> None:
    with Cluster(in_process=False) as cluster:
        cluster.create_topic("t")
        produce(cluster, "t", [str(number) for number in range(5000)])
        client = settings_for(cluster.bootstrap_servers)
        batches = read_range(OffsetRange("t", 0, 0, 5000), fetch_settings(client, fetch_bytes=2000), SCHEMA)
        found = next(batches).column("offset").to_pylist()
        cluster.kill()
        cluster.start()
        for batch in batches:
            found += batch.column("offset").to_pylist()
        assert found == list(range(5000))


def test_a_damaged_batch_is_an_error_and_not_a_gap() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        produce(cluster, "t", ["first"])
        produce(cluster, "t", ["to be damaged"])
        cluster.stop()
        (segment,) = cluster.data_dir.glob("**/t-0/00000000000000000000.log")
        segment.write_bytes(segment.read_bytes().replace(b"to be damaged", b"to be damagex"))
        cluster.start()
        client = settings_for(cluster.bootstrap_servers)
        with pytest.raises(MoldauError, match=r"offset 1 is corrupt: its checksum does not match"):
            list(read_range(OffsetRange("t", 0, 0, 2), fetch_settings(client), SCHEMA))
