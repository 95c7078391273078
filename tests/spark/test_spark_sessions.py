"""Real Spark in local mode against a real node: what a user types, and what comes out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

from moldau.client.group_offsets import group_offsets
from moldau.spark.brokers import shared_cluster
from moldau.testing import Cluster
from tests.spark.world import read_values, settings_for

pytestmark = pytest.mark.timeout(600)

START_ATTEMPTS = 5


class Session:
    """A Spark session and a node, with the options that every test would repeat."""

    def __init__(self, spark: Any, cluster: Cluster) -> None:
        self.spark = spark
        self.servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        self.client = settings_for(cluster.bootstrap_servers)

    def read(self, topic: str, **options: str) -> Any:
        return self.spark.read.format("moldau").options(**self.servers, subscribe=topic, **options).load()

    def stream(self, topic: str, **options: str) -> Any:
        options = {"startingOffsets": "earliest", **options}
        return self.spark.readStream.format("moldau").options(**self.servers, subscribe=topic, **options).load()

    def copy(self, frame: Any, topic: str, checkpoint: Path, **options: str) -> Any:
        """Run a stream into a topic until nothing is left to read."""
        writer = frame.writeStream.format("moldau").options(**self.servers, topic=topic, **options)
        return run_to_end(writer.option("checkpointLocation", str(checkpoint)))


def run_to_end(writer: Any) -> Any:
    """Run a query until nothing is left to read. Spark gives a Python process ten seconds to start, which can be too
    little on a busy machine: such a query is started again, as its user would do."""
    for attempts_left in reversed(range(START_ATTEMPTS)):
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(300), "the query did not end"
            return query
        except Exception as error:
            if "failed to connect back" not in str(error) or not attempts_left:
                raise
        finally:
            query.stop()
    raise AssertionError("unreachable")


@pytest.fixture
def session(spark: Any, moldau_cluster: Cluster) -> Session:
    return Session(spark, moldau_cluster)


def produce(session: Session, topic: str, numbers: range, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": session.servers["kafka.bootstrap.servers"]})
    for number in numbers:
        headers = [("n", str(number).encode()), ("empty", None)] if number % 2 else None
        value = None if number == 7 else f"v{number}"
        producer.produce(topic, value=value, key=f"k{number}", partition=number % partitions, headers=headers)
    assert producer.flush(60) == 0


def test_a_batch_read_with_headers_filters_and_nulls(session: Session, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    produce(session, topic, range(1000), 2)
    frame = session.read(topic, includeHeaders="true", minPartitions="3")
    found = {(row.partition, row.offset): row for row in frame.collect()}
    assert len(found) == 1000
    row = found[1, 3]
    assert (row.key, row.value, row.topic, row.timestampType) == (b"k7", None, topic, 0)
    assert [(each.key, each.value) for each in row.headers] == [("n", b"7"), ("empty", None)]
    assert found[0, 0].headers is None
    # Spark would not say so if filters were only applied by itself: the scan must have become smaller.
    narrow = frame.where("partition = 1 and offset >= 10 and offset < 15 and timestamp > timestamp'2001-01-01'")
    assert sorted(row.offset for row in narrow.collect()) == [10, 11, 12, 13, 14]
    assert narrow.rdd.getNumPartitions() <= 3
    assert frame.where("timestamp > timestamp'2101-01-01'").count() == 0


def test_filters_may_be_left_to_spark(session: Session, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    produce(session, topic, range(20), 2)
    session.spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert session.read(topic).where("partition = 1 and offset < 4").count() == 4
    finally:
        session.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_batch_write_is_partitioned_as_kafka_does(session: Session, new_topic: Callable[..., str]) -> None:
    topic = new_topic(4)
    frame = session.spark.range(200).selectExpr("cast(id as string) as key", "cast(id * 2 as string) as value")
    options = {"topic": topic, "kafka.compression.type": "lz4", "deliveryGuarantee": "exactly-once"}
    frame.write.format("moldau").options(**session.servers, **options).mode("append").save()
    from kafka.partitioner.default import murmur2

    rows = session.read(topic, **{"kafka.isolation.level": "read_committed"}).collect()
    assert {row.key: row.value for row in rows} == {str(n).encode(): str(n * 2).encode() for n in range(200)}
    assert all(row.partition == (murmur2(row.key) & 0x7FFFFFFF) % 4 for row in rows)


def test_a_stream_goes_on_where_it_was_and_counts_every_batch_once(
    session: Session, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic(2)
    produce(session, source, range(8, 308), 2)
    group = f"group-{source}"
    options = {"maxOffsetsPerTrigger": "200", "kafka.group.id": group}

    def run() -> Any:
        frame = session.stream(source, **options).select("key", "value")
        return session.copy(frame, target, tmp_path)

    query = run()
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    assert [each["numInputRows"] for each in batches] == [200, 100]
    # The same shape as in the checkpoints of Spark's own source.
    offsets = json.loads((tmp_path / "offsets" / "1").read_text().splitlines()[2])
    assert offsets == {source: {"0": 150, "1": 150}}
    expected = sorted(f"v{number}" for number in range(8, 308))
    assert read_values(session.client, target, 2) == expected

    # As after a crash between the sink's commit and Spark's note of it: the last batch runs again.
    for name in ("1", ".1.crc"):
        (tmp_path / "commits" / name).unlink()
    run()
    assert read_values(session.client, target, 2) == expected

    produce(session, source, range(308, 318), 2)
    run()
    assert read_values(session.client, target, 2) == sorted(f"v{number}" for number in range(8, 318))

    admin = AdminClient({"bootstrap.servers": session.servers["kafka.bootstrap.servers"]})
    groups = {each.group_id for each in admin.list_consumer_groups().result(60).valid}
    assert group in groups
    committed = group_offsets(shared_cluster(session.client), group, [(source, 0), (source, 1)])
    assert {part: offset for part, (offset, _) in committed.items()} == {(source, 0): 155, (source, 1): 155}

    # Who starts where that group is finds nothing left, until something comes.
    from_group = {"startingOffsets": "group", "kafka.group.id": group}
    assert session.read(source, **from_group).count() == 0
    produce(session, source, range(318, 321), 2)
    # A new read: the offsets of a DataFrame are fixed when it is first planned.
    assert {row.value for row in session.read(source, **from_group).collect()} == {b"v318", b"v319", b"v320"}


def test_a_failing_task_leaves_no_rows(session: Session, new_topic: Callable[..., str], tmp_path: Path) -> None:
    source, target = new_topic(1), new_topic(1)
    produce(session, source, range(100, 400), 1)
    marker = str(tmp_path / "failed-once")

    def fail_once(value: bytes) -> bytes:
        """Lets rows through until one in the middle, where it fails the first time."""
        import os

        if value == b"v350" and not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("on purpose")
        return value

    checked = udf(fail_once, BinaryType(), useArrow=False)
    frame = session.stream(source).select("key", checked("value").alias("value"))
    session.copy(frame, target, tmp_path / "checkpoint")
    assert Path(marker).exists()
    assert read_values(session.client, target, 1) == sorted(f"v{number}" for number in range(100, 400))


def test_updates_are_written_exactly_once_through_each_batch(
    session: Session, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    from moldau.spark.sink import each_batch

    source, target = new_topic(1), new_topic(1)
    produce(session, source, range(10, 20), 1)

    def run() -> None:
        counts = session.stream(source).groupBy("topic").count()
        upserts = counts.selectExpr("topic as key", "cast(count as string) as value")
        writer = upserts.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path / "checkpoint"))
        write = each_batch(topic=target, transactionalId=f"upserts-{target}", **session.servers)
        run_to_end(writer.foreachBatch(write))

    run()
    assert read_values(session.client, target, 1) == ["10"]
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    run()
    assert read_values(session.client, target, 1) == ["10"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribe": "not-there"}, "There is no topic 'not-there'"),
        ({"subscribe": "t", "maxOffsets": "3"}, "(?i)there is no option 'maxOffsets'"),
    ],
)
def test_mistakes_reach_the_user(session: Session, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        session.spark.read.format("moldau").options(**session.servers, **options).load().count()


def test_columns_that_cannot_be_written_are_named(session: Session) -> None:
    frame = session.spark.range(1)
    with pytest.raises(Exception, match="Columns id cannot be written"):
        frame.write.format("moldau").options(**session.servers, topic="t").mode("append").save()
