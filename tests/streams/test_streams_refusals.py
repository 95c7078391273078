"""What cannot work is refused when the pipeline is written, with what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from moldau.client.errors import MoldauError
from moldau.spark.state_store import PROVIDER
from moldau.spark.values import Json, String
from moldau.streams import Streams, session, sliding, tumbling
from moldau.streams.testing import Driver

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def driver(spark: Any) -> Any:
    """No query is started in it."""
    with Driver(spark) as made:
        yield made


def clicks(streams: Streams, **more: Any) -> Any:
    return streams.stream("clicks", value=Json("user string, page string, at timestamp"), **more)


def in_time(streams: Streams) -> Any:
    return clicks(streams, event_time="at", watermark="1 minute")


def users(streams: Streams) -> Any:
    return streams.table("users", key=String(), value=Json("user string, name string"))


REFUSED: list[tuple[str, Callable[[Streams], Any]]] = [
    ("no column 'when' to be the event time", lambda s: clicks(s, event_time="when")),
    ("'page' is string, so it cannot be the event time", lambda s: clicks(s, event_time="page")),
    ('key_name="..."', lambda s: clicks(s, key_name="user")),
    ("errors='ignore' is not one of fail, drop, permissive", lambda s: clicks(s, errors="ignore")),
    ("watermark=", lambda s: clicks(s).window(tumbling("1 minute"))),
    ("emit='often' is not one of", lambda s: in_time(s).window(tumbling("1 minute"), emit="often")),
    ("session windows only when they are final", lambda s: in_time(s).window(session("1 minute"), emit="updates")),
    ("sliding windows only when they are final", lambda s: in_time(s).window(sliding("1 minute"), emit="updates")),
    ("A session is somebody's", lambda s: in_time(s).window(session("1 minute")).group_by()),
    ("no column 'pages' to group by", lambda s: clicks(s).group_by("pages").count()),
    ("agg needs at least one", lambda s: clicks(s).group_by("page").agg()),
    ("say within=", lambda s: in_time(s).join(in_time(s), on="user")),
    ("watermark=", lambda s: clicks(s).join(in_time(s), on="user", within="1 minute")),
    ("say prefix=", lambda s: in_time(s).join(in_time(s), on="user", within="1 minute")),
    ("how='cross' is not one of", lambda s: in_time(s).join(in_time(s), on="user", within="1 minute", how="cross")),
    ("leave `within` out", lambda s: clicks(s).join(users(s), on="user", within="1 minute")),
    ("how='outer' is not one of inner, left", lambda s: clicks(s).join(users(s), on="key", how="outer", prefix="u_")),
    ("joined with a table by the table's key", lambda s: clicks(s).join(users(s), on="user")),
    ("no column 'age' to be the foreign key", lambda s: users(s).join(users(s), foreign_key="age", prefix="o_")),
    (
        "by a foreign key",
        lambda s: users(s).join(users(s), foreign_key="name", how="outer", prefix="o_"),
    ),
    ("Both sides of the join have name, user", lambda s: users(s).join(users(s))),
    (
        "one stateful operator in update mode: write",
        lambda s: clicks(s).join(users(s), on="key", prefix="u_").group_by("page").count(),
    ),
    ("one stateful operator in update mode: write", lambda s: clicks(s).group_by("key").count().join(users(s))),
    ("needs the column 'key'", lambda s: clicks(s).transform(lambda df: df.select("page")).to("pages")),
    ("needs the column 'who'", lambda s: clicks(s).key_by("who")),
    ("needs a key: say", lambda s: s.of(clicks(s).df).to_table()),
    ("same columns on both sides", lambda s: clicks(s).merge(clicks(s).with_columns(n=F.lit(1)))),
    ("time='moon' is not one of", lambda s: clicks(s).process(None, "n long", time="moon")),
    ("select gives a value the name of the key", lambda s: users(s).select(F.col("name").alias("key"))),
    ("which cannot be summed here", lambda s: users(s).group_by("name").sum("user")),
]


@pytest.mark.parametrize(("complaint", "pipeline"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_refused(driver: Driver, complaint: str, pipeline: Callable[[Streams], Any]) -> None:
    with pytest.raises(MoldauError) as refusal:
        pipeline(driver.streams)
    assert complaint in str(refusal.value)


def test_state_needs_rocksdb(spark: Any) -> None:
    plain = spark.newSession()
    plain.conf.unset(PROVIDER)
    with Driver(spark) as driver:
        driver.streams.spark.conf.unset(PROVIDER)
        with pytest.raises(MoldauError, match=r"spark\.conf\.set\(.*RocksDB"):
            clicks(driver.streams).join(users(driver.streams), on="key", prefix="u_")


def test_brokers_must_be_known(spark: Any) -> None:
    with pytest.raises(MoldauError, match="Where the brokers are is not said"):
        clicks(Streams(spark.newSession()))
