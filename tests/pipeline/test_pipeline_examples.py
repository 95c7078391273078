"""The examples on real Spark with real topics: what they write is what a few lines of plain Python compute."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from examples import feed
from moldau.testing import Cluster
from tests.pipeline.world import Stage, consume, produce

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

EXAMPLES = Path(feed.__file__).parent
RECORDS = 300
# Records for each second of the feed's clock, so that a few of them make hours of visits or minutes of measurements.
RATES = {"website_activity": 1.0, "metrics_alerting": 25.0, "log_analysis": 10.0}


def run_example(stage: Stage, name: str, last: feed.Sent | None = None, kind: str = "py") -> list[feed.Sent]:
    """Feed an example and run it to the end of its input; what it was fed. `last` closes the windows of all before."""
    feed.create_topics(name, stage.bootstrap)
    speed, rate = feed.SPEEDS.get(name, 1.0), RATES.get(name, 1.0)
    feed.feed(name, stage.bootstrap, records=RECORDS, rate=rate, speed=speed)
    if last is not None:
        produce(stage.bootstrap, last.topic, [(last.key, last.value)])
    outcome = stage.run(EXAMPLES / f"{name}.{kind}", name=f"{stage.directory.name}-{name}")
    assert outcome.code == 0, outcome.words
    count = [0]
    sent = []
    for each in islice(feed.EXAMPLES[name](random.Random(1), lambda: feed.START + count[0] / rate * speed), RECORDS):
        sent.append(each)
        count[0] += 1
    return sent


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize("kind", ["py", "sql"])
def test_website_activity(spark: Any, fresh_moldau_cluster: Cluster, tmp_path: Path, kind: str) -> None:
    # A node of its own: both write to the same topics.
    stage = Stage(spark, fresh_moldau_cluster.bootstrap_servers, tmp_path)
    end = feed.Sent("page-views", "end", {"user": "end", "page": "/", "at": "2026-01-04T12:00:00Z"})
    sent = run_example(stage, "website_activity", end, kind)
    sessions: dict[str, list[list[Any]]] = defaultdict(list)
    per_minute: dict[tuple[str, float], int] = defaultdict(int)
    for each in sent:
        assert isinstance(each.value, dict)
        at = seconds(each.value["at"])
        per_minute[each.value["page"], at // 60 * 60] += 1
        visits = sessions[each.value["user"]]
        if visits and at - visits[-1][-1][0] <= 1800:
            visits[-1].append((at, each.value["page"]))
        else:
            visits.append([(at, each.value["page"])])
    expected = sorted(
        (
            user,
            visit[0][0],
            visit[-1][0] + 1800,
            len(visit),
            len({page for _, page in visit}),
            visit[0][1],
            visit[-1][1],
        )
        for user, visits in sessions.items()
        for visit in visits
    )
    found = sorted(
        (key, seconds(v["window_start"]), seconds(v["window_end"]), v["views"], v["pages"], v["entry"], v["exit"])
        for key, v in consume(stage.bootstrap, "sessions")
    )
    assert len(expected) > 15
    assert found == expected
    counted = {
        (value["page"], seconds(value["window_start"])): value["count"]
        for _, value in consume(stage.bootstrap, "page-views-per-minute")
    }
    assert counted == per_minute


def test_metrics_and_alerting(stage: Stage) -> None:
    last = {"host": "end", "metric": "cpu", "value": 1.0, "at": "2026-01-02T12:00:00Z"}
    sent = run_example(stage, "metrics_alerting", feed.Sent("measurements", "end", last))
    minutes = windows(sent, 60, 60)
    found = {
        (v["host"], v["metric"], seconds(v["window_start"])): (round(v["average"], 6), v["highest"])
        for _, v in consume(stage.bootstrap, "averages-per-minute")
    }
    assert found == {place: (round(sum(vs) / len(vs), 6), max(vs)) for place, vs in minutes.items()}
    limits = {"cpu": 90.0, "memory": 95.0, "disk": 85.0}
    alerts = {(v["host"], v["metric"], seconds(v["window_start"])) for _, v in consume(stage.bootstrap, "alerts")}
    expected = {
        place
        for place, values in windows(sent, 60, 20).items()
        if len(values) >= 3 and sum(values) / len(values) > limits[place[1]]
    }
    assert alerts == expected
    assert alerts


def windows(sent: Iterable[feed.Sent], size: int, every: int) -> dict[tuple[str, str, float], list[float]]:
    found: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    for each in sent:
        value = each.value
        assert isinstance(value, dict)
        at = seconds(value["at"])
        start = at // every * every
        while start > at - size:
            found[value["host"], value["metric"], start].append(value["value"])
            start -= every
    return found


def test_log_analysis(stage: Stage) -> None:
    last = '10.0.0.1 - - [02/Jan/2026:12:00:00 +0000] "GET /end HTTP/1.1" 200 1'
    sent = run_example(stage, "log_analysis", feed.Sent("access-log", None, last))
    lines = [str(each.value) for each in sent]
    form = re.compile(r'^\S+ - - \[(.*)\] "GET (\S+) HTTP/1.1" (\d+) \d+$')
    requests = [match.groups() for line in lines if (match := form.match(line))]
    unreadable = [value for _, value in consume(stage.bootstrap, "unreadable-lines")]
    assert len(unreadable) > 1
    assert unreadable == [line for line in lines if not form.match(line)]
    errors = [value for _, value in consume(stage.bootstrap, "server-errors")]
    assert sorted(each["path"] for each in errors) == sorted(path for _, path, status in requests if status == "500")
    assert all(each["status"] == 500 and each["host"].startswith("10.0.0.") for each in errors)
    expected: dict[tuple[str, float], list[int]] = defaultdict(lambda: [0, 0])
    for time, path, status in requests:
        at = datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z").timestamp()
        counts = expected[path, at // 60 * 60]
        counts[0] += 1
        counts[1] += int(status) >= 400
    found = {
        (value["path"], seconds(value["window_start"])): [value["requests"], value["errors"]]
        for _, value in consume(stage.bootstrap, "requests-per-minute")
    }
    assert found == expected


def test_orders_with_customers(stage: Stage) -> None:
    sent = run_example(stage, "orders_with_customers")
    orders = {each.key: each.value for each in sent if each.topic == "orders"}
    known = consume(stage.bootstrap, "orders-with-customers")
    assert sorted(key or "" for key, _ in known) == sorted(key or "" for key in orders)
    names = dict(zip([f"c{number}" for number in range(1, 11)], feed.NAMES, strict=True))
    revenue: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for key, value in known:
        order = orders[key]
        assert isinstance(order, dict)
        assert {name: value[name] for name in order} == order
        assert value["customer_name"] == names[order["customer"]]
        assert value["customer_city"] in feed.CITIES
        counts = revenue[value["customer_city"]]
        counts[0] += 1
        counts[1] = round(counts[1] + value["amount"], 2)
    # The newest record of a key is what a table holds. Both queries saw customers and orders in one micro-batch.
    table = dict(consume(stage.bootstrap, "revenue-by-city"))
    assert {city: (v["orders"], round(v["revenue"], 2)) for city, v in table.items()} == {
        city: (count, round(amount, 2)) for city, (count, amount) in revenue.items()
    }


def test_recommendations(stage: Stage) -> None:
    sent = run_example(stage, "recommendations")
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for each in sent:
        assert isinstance(each.value, dict)
        items = set(each.value["items"])
        for item in items:
            for other in items - {item}:
                counts[item][other] += 1
    table = dict(consume(stage.bootstrap, "recommendations"))
    assert {item: value["counts"] for item, value in table.items()} == counts
    for item, value in table.items():
        ranked = sorted(counts[item], key=lambda other, item=item: (-counts[item][other], other))
        assert value["recommended"] == ranked[:3]
