"""The same pipeline in the driver and on a real node: the same results, each once, whatever is repeated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.client.errors import MoldauError
from moldau.spark.values import Json, String
from moldau.streams import Streams
from moldau.streams.testing import record
from moldau.testing import Cluster
from tests.spark.world import read_values, settings_for

pytestmark = pytest.mark.timeout(900)

TRIES = 15
CUSTOMERS = {"c1": {"name": "Ada"}, "c2": {"name": "Bob"}}
ORDERS = [(f"o{number}", {"customer": f"c{number % 3}", "amount": number}) for number in range(20)]


def pipeline(streams: Streams, prefix: str = "") -> None:
    once = {"availableNow": True}
    orders = streams.stream(
        f"{prefix}orders", key=String(), key_name="order", value=Json("customer string, amount long")
    )
    customers = streams.table(f"{prefix}customers", key=String(), value=Json("name string"))
    orders.join(customers, on="customer", how="left").to(f"{prefix}named", trigger=once)
    orders.group_by("customer").count().to(f"{prefix}counts", trigger=once)


def run(spark: Any, servers: str, checkpoints: Path, prefix: str) -> None:
    """Run the pipeline until nothing is left to read; again if a process of Spark's took too long to start."""
    for tries_left in reversed(range(TRIES)):
        streams = Streams(spark, bootstrap_servers=servers, checkpoint_dir=checkpoints, name=f"{prefix}test")
        pipeline(streams, prefix)
        try:
            for query in streams.queries:
                assert query.awaitTermination(300), "the query did not end"
            return
        except Exception as error:
            if "failed to connect back" not in str(error) or not tries_left:
                raise
        finally:
            streams.stop()


@pytest.mark.long
@pytest.mark.longest
def test_the_same_on_a_cluster_and_in_the_driver(
    spark: Any, moldau_cluster: Cluster, start: Callable[..., Any], new_topic: Callable[..., str], tmp_path: Path
) -> None:
    prefix = f"{new_topic()}-"
    for name in ("orders", "customers", "named", "counts"):
        moldau_cluster.create_topic(prefix + name, 2)
    servers = moldau_cluster.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers})
    for topic, rows in (("customers", CUSTOMERS.items()), ("orders", ORDERS)):
        for key, value in rows:
            producer.produce(prefix + topic, key=key, value=json.dumps(value))
        assert producer.flush(60) == 0

    session = spark.newSession()
    run(session, servers, tmp_path, prefix)
    named, counts = (read_values(settings_for(servers), prefix + topic, 2) for topic in ("named", "counts"))

    driver = start(pipeline)
    driver.feed_all(
        {
            "customers": [record(value, key=key) for key, value in CUSTOMERS.items()],
            "orders": [record(value, key=key) for key, value in ORDERS],
        }
    )
    for topic, found in (("named", named), ("counts", counts)):
        assert sorted(each.raw_value.decode() for each in driver.results(topic)) == found
    assert len(named) == len(ORDERS)

    # As after a crash between the sinks' commits and Spark's note of them: the last micro-batches run again.
    for commits in tmp_path.glob("*/commits"):
        last = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)
    run(session, servers, tmp_path, prefix)
    assert read_values(settings_for(servers), f"{prefix}named", 2) == named
    assert read_values(settings_for(servers), f"{prefix}counts", 2) == counts


def test_a_missing_topic_is_told_before_anything_is_computed(
    spark: Any, moldau_cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    streams = Streams(spark, bootstrap_servers=moldau_cluster.bootstrap_servers, checkpoint_dir=tmp_path)
    with pytest.raises(MoldauError, match="There is no topic 'not-there': check its name, or create it"):
        streams.stream(new_topic(), value=Json("page string")).to("not-there")
    assert streams.queries == []
    assert not list(tmp_path.iterdir())
