"""Pipelines in Spark, without brokers: windows and late records, joins as Kafka Streams documents them, state of one's
own. Each test runs several queries at once, because starting one is what takes time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812

from moldau.spark.values import Json, String
from moldau.streams import (
    StatefulProcessor,
    StatefulProcessorHandle,
    Streams,
    session,
    sliding,
    tumbling,
)
from moldau.streams.testing import Driver, Record, Result, moment, record

pytestmark = pytest.mark.timeout(600)
Start = Callable[..., Driver]
T0 = moment("2026-01-01T10:00:00")


def at(second: float) -> float:
    return T0.timestamp() + second


def seconds(time: Any) -> float:
    return (time - T0).total_seconds()


def windows(results: list[Result]) -> list[tuple[Any, ...]]:
    """(who, first second, last second, count) of windows."""
    rows = [each.value if "window_start" in each.value else each.key | each.value for each in results]
    found = [(row["who"], seconds(row["window_start"]), seconds(row["window_end"]), row["count"]) for row in rows]
    return sorted(found)


# ---- windows

EVENT = Json("who string, at timestamp")


def event(who: str, second: float) -> Record:
    return record({"who": who, "at": moment(at(second))}, at=at(second))


def all_windows(streams: Streams) -> None:
    events = streams.stream("events", value=EVENT, event_time="at", watermark="10 seconds")
    unhurried = streams.stream("events", value=EVENT, event_time="at")
    events.window(tumbling("10 seconds")).group_by("who").count().to("tumbling")
    events.window(session("5 seconds")).group_by("who").count().to("session")
    # A filter does not keep what it drops from moving the time.
    events.where("who = 'a'").window(sliding("4 seconds")).group_by("who").count().to("sliding")
    unhurried.window(tumbling("10 seconds"), emit="updates").group_by("who").count().to("updates")


@pytest.mark.long
def test_windows(start: Start) -> None:
    driver = start(all_windows)
    driver.feed("events", [event("a", 1), event("a", 4), event("b", 3), event("a", 12)])
    assert windows(driver.results("updates")) == [("a", 0, 10, 2), ("a", 10, 20, 1), ("b", 0, 10, 1)]
    assert driver.results("tumbling") == []
    # It comes late, but not too late, and is between two sessions, which become one.
    driver.feed("events", [event("a", 8)])
    assert windows(driver.results("updates"))[1] == ("a", 0, 10, 3)
    driver.advance("events", to=at(60))
    # Too late for windows that are final; those that emit updates without a watermark take it.
    driver.feed("events", [event("a", 5)])
    assert windows(driver.results("updates"))[2] == ("a", 0, 10, 4)
    driver.feed("events", [event("c", 200)])

    assert windows(driver.results("tumbling")) == [("a", 0, 10, 3), ("a", 10, 20, 1), ("b", 0, 10, 1)]
    assert windows(driver.results("session")) == [("a", 1, 17, 4), ("b", 3, 8, 1)]
    assert windows(driver.results("sliding")) == [
        ("a", -3, 1, 1),
        ("a", 0, 4, 2),
        ("a", 1.001, 5.001, 1),
        ("a", 4, 8, 2),
        ("a", 4.001, 8.001, 1),
        ("a", 8, 12, 2),
        ("a", 8.001, 12.001, 1),
    ]


# ---- tables


def customers_and_orders(streams: Streams) -> None:
    customers = streams.table("customers", key=String(), key_name="customer", value=Json("name string, city string"))
    orders = streams.table("orders", key=String(), key_name="order", value=Json("buyer string, amount long"))
    limits = streams.table("limits", key=String(), value=Json("most long"))
    payments = streams.stream("payments", key=String(), key_name="customer", value=Json("paid long"))

    customers.join(limits, how="outer").to("limited")
    orders.join(customers, foreign_key="buyer", how="left").to("orders-left")
    payments.join(customers, how="left").to("payments-left")
    elsewhere = customers.where("city <> 'Brno'").select("city", F.upper("name").alias("name"))
    elsewhere.group_by("city").count().to("elsewhere")


def customer(key: str, name: str | None, city: str = "Brno", **more: Any) -> Record:
    return record(None if name is None else {"name": name, "city": city}, key=key, **more)


def order(key: str, buyer: str | None, amount: int = 1) -> Record:
    return record({"buyer": buyer, "amount": amount}, key=key)


def by_key(results: list[Result], *fields: str) -> dict[Any, Any]:
    """What came, by key: None, or the fields in question. Of one key, nothing may have come twice."""
    assert len({each.key for each in results}) == len(results)
    return {each.key: each.value and tuple(each.value[name] for name in fields) for each in results}


class Watched:
    """What came into a topic since one last looked."""

    def __init__(self, driver: Driver, *fields: str) -> None:
        self._driver = driver
        self._fields = fields
        self._seen: dict[str, int] = {}

    def __call__(self, topic: str, *fields: str) -> dict[Any, Any]:
        results = self._driver.results(topic)
        fresh = results[self._seen.get(topic, 0) :]
        self._seen[topic] = len(results)
        return by_key(fresh, *(fields or self._fields))


@pytest.mark.long
def test_tables(start: Start) -> None:
    driver = start(customers_and_orders)
    new = Watched(driver, "name", "most")
    refers = ("buyer", "name")

    driver.feed_all(
        {
            # The second is an older change of c2 than the first, whatever came first.
            "customers": [customer("c1", "Ada"), customer("c2", "Bob", offset=6), customer("c2", "?", offset=5)],
            "orders": [order("o1", "c1"), order("o2", "c3"), order("o3", None)],
            "payments": [record({"paid": 1}, key="c1"), record({"paid": 2}, key="c9")],
        }
    )
    # Left joins say null first.
    assert new("limited") == {"c1": ("Ada", None), "c2": ("Bob", None)}
    assert new("orders-left", *refers) == {"o1": ("c1", "Ada"), "o2": ("c3", None), "o3": (None, None)}
    assert new("payments-left", "paid", "name") == {"c1": (1, "Ada"), "c9": (2, None)}
    assert new("elsewhere") == {}

    driver.feed_all(
        {
            "limits": [record({"most": 10}, key="c1"), record({"most": 30}, key="c3"), record(None, key="c9")],
            # A new buyer for o1, somebody for o2 to refer to, and a deletion of what is not there.
            "orders": [order("o1", "c2"), record(None, key="o9")],
            "customers": [customer("c3", "Cy", city="Praha")],
        }
    )
    # ... then the update. What was never there is not deleted.
    assert new("limited") == {"c1": ("Ada", 10), "c3": ("Cy", 30)}
    assert new("orders-left", *refers) == {"o1": ("c2", "Bob"), "o2": ("c3", "Cy")}
    assert new("payments-left") == {}
    assert new("elsewhere", "count") == {"Praha": (1,)}

    driver.feed_all(
        {
            "customers": [customer("c2", None), customer("c3", None), customer("c1", "Ada", city="Praha")],
            "orders": [order("o2", "c1", amount=5), record(None, key="o3")],
            "payments": [record({"paid": 3}, key="c3")],
        }
    )
    # Tombstones: left results lose their right side, outer ones go only when both sides are gone.
    assert new("limited") == {"c1": ("Ada", 10), "c2": None, "c3": (None, 30)}
    assert new("orders-left", *refers) == {"o1": ("c2", None), "o2": ("c1", "Ada"), "o3": None}
    assert new("payments-left", "paid", "name") == {"c3": (3, None)}
    # One went, another one came.
    assert driver.table("elsewhere") == {"Praha": {"count": 1}}


# ---- joins of streams, and state of one's own


class Silence(StatefulProcessor):
    """Says who has not been heard of for ten seconds."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._last = handle.getValueState("last", "millis long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803
        newest = max(int(row["at"].timestamp() * 1000) for row in rows)
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._last.update((newest,))
        self._handle.registerTimer(newest + 10_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N803
        self._last.clear()
        yield Row(who=key[0], since=expiredTimerInfo.getExpiryTimeInMs() - 10_000)


def views_and_clicks(streams: Streams) -> None:
    event = Json("who string, what string, at timestamp")
    views = streams.stream("views", value=event, event_time="at", watermark="5 seconds")
    clicks = streams.stream("clicks", value=event, event_time="at", watermark="5 seconds")
    users = streams.table("users", key=String(), value=Json("name string"))
    views.join(clicks, on="who", within="10 seconds", how="outer", prefix="click_").to("views-and-clicks")
    views.process(Silence(), "who string, since long", by="who", time="event").to("silent")
    views.deduplicate("who", "what", within="20 seconds").to("first-views")
    # Several operators that keep state, one after the other.
    known = views.join(users, on="who")
    minutes = known.window(tumbling("10 seconds")).group_by("name").agg(views=F.count("*"))
    minutes.window(tumbling("20 seconds")).agg(most=F.max("views")).to("most")
    baskets = clicks.group_by("who").aggregate(
        {"clicked": []}, lambda kept, row: {"clicked": [*kept["clicked"], row["what"]]}, "clicked array<string>"
    )
    baskets.join(users, how="left").to("baskets")


def happened(who: str, what: str, second: float) -> Record:
    return record({"who": who, "what": what, "at": moment(at(second))}, key=who, at=at(second))


@pytest.mark.long
def test_streams(start: Start) -> None:
    driver = start(views_and_clicks)

    def pairs(topic: str) -> list[Any]:
        return sorted(
            ((row["who"], row["what"], row["click_what"]) for row in (each.value for each in driver.results(topic))),
            key=str,
        )

    driver.feed_all(
        {
            "users": [record({"name": "Ada"}, key="a", at=at(0))],
            "views": [happened("a", "v1", 1), happened("b", "v2", 2), happened("a", "v1", 3)],
            "clicks": [happened("a", "c2", 9), happened("a", "c1", 8), happened("c", "c3", 2)],
        }
    )
    together = [("a", "v1", "c1"), ("a", "v1", "c1"), ("a", "v1", "c2"), ("a", "v1", "c2")]
    assert pairs("views-and-clicks") == together
    assert [(each.key, each.value) for each in driver.results("baskets")] == [
        ("a", {"clicked": ["c1", "c2"], "name": "Ada"}),
        ("c", {"clicked": ["c3"], "name": None}),
    ]
    driver.feed_all({"views": [happened("a", "v1", 40)], "clicks": [happened("a", "c4", 40)]})
    driver.feed_all({"views": [happened("z", "v", 100)], "clicks": [happened("z", "c", 100)]})

    more = [("a", "v1", "c4"), ("z", "v", "c")]
    assert pairs("views-and-clicks") == sorted([*together, *more, ("b", "v2", None), ("c", None, "c3")], key=str)
    silent = sorted((each.key, each.value["since"] / 1000 - at(0)) for each in driver.results("silent"))
    assert silent == [("a", 40), ("b", 2)]
    first = sorted((each.value["who"], seconds(each.value["at"])) for each in driver.results("first-views"))
    assert first == [("a", 1), ("a", 40), ("b", 2), ("z", 100)]
    assert [(seconds(each.value["window_start"]), each.value["most"]) for each in driver.results("most")] == [
        (0, 2),
        (40, 1),
    ]


# ---- what is written, and what cannot be read


def odds_and_ends(streams: Streams) -> None:
    numbers = streams.stream(
        "numbers", key=String(), value=Json("n long"), dead_letters="numbers.dead", options={"includeHeaders": "true"}
    )
    even = numbers.where("n % 2 = 0").with_columns(trace=F.col("_record.headers")[0]["value"].cast("string"))
    even.key_by("n").to("even")
    numbers.to_table().to("latest")
    # What a pipeline writes it can also read.
    streams.stream("even", key=String(), value=Json("n long")).merge(numbers.select("key", "n")).group_by().agg(
        sum=F.sum("n"), times=F.count("*"), newest=F.max("_time")
    ).to("sum")


def test_records_that_cannot_be_read_and_topics_in_between(start: Start) -> None:
    driver = start(odds_and_ends)
    four = record({"n": 4}, key="four", headers=[("trace", b"t4")])
    driver.feed("numbers", [four, record({"n": 5}, key="five"), record(b"six", key="six")])
    even = driver.results("even")
    assert [(each.key, each.value) for each in even] == [(4, {"n": 4, "trace": "t4"})]
    assert (even[0].raw_key, even[0].raw_value) == (b"4", b'{"n":4,"trace":"t4"}')
    [dead] = driver.results("numbers.dead")
    assert (dead.key, dead.value) == (b"six", b"six")
    assert "not JSON" in dict(dead.headers)["__connect.errors.exception.message"].decode()
    assert driver.table("latest") == {"four": {"n": 4}, "five": {"n": 5}}
    # Each record is a second after the one before; what comes of them is after all three.
    assert driver.results("sum")[-1].value == {"sum": 13, "times": 3, "newest": moment("2026-01-01T00:00:03")}
