"""`moldau sql` on real Spark: topics by name, their columns, JSON, following; and names that are not there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from moldau.cli.commands.sql import _print_rows
from moldau.pipeline.brokers import topic_names
from moldau.pipeline.errors import PipelineError
from moldau.pipeline.sql_query import QuerySettings, follow, plan_query
from moldau.testing import Cluster
from tests.pipeline.world import PATIENCE, Stage, produce

pytestmark = pytest.mark.timeout(300)


def rows(stage: Stage, query: str, form: str = "string") -> list[tuple[Any, ...]]:
    return [tuple(row) for row in plan_query(stage.spark, query, QuerySettings(stage.options, form)).collect()]


def test_topics_are_tables(stage: Stage, moldau_cluster: Cluster) -> None:
    moldau_cluster.create_topic("sql.web-clicks", 2)
    moldau_cluster.create_topic("sql_users", 1)
    produce(stage.bootstrap, "sql.web-clicks", [(f"k{n}", {"user": f"u{n % 2}", "n": n}) for n in range(10)])
    produce(stage.bootstrap, "sql.web-clicks", [("bytes", b"\xff\x00")], headers=[("h", b"x"), ("h", None)])
    produce(stage.bootstrap, "sql_users", [("u0", "Ada"), ("u1", None)])
    assert rows(stage, "SELECT count(*), count(DISTINCT partition), max(offset) > 3 FROM `sql.web-clicks`") == [
        (11, 2, True)
    ]
    ((value, headers),) = rows(stage, "SELECT value, headers FROM `sql.web-clicks` WHERE key = 'bytes'")
    assert value == "0xFF00"
    assert [tuple(each) for each in headers] == [("h", "x"), ("h", None)]
    # Joins, common table expressions and subqueries find their topics too.
    joined = """
        WITH clicks AS (SELECT get_json_object(value, '$.user') AS user FROM `sql.web-clicks`)
        SELECT name, count(*) FROM clicks JOIN (SELECT key, value AS name FROM sql_users) ON user = key GROUP BY name
        ORDER BY 1 NULLS LAST"""
    assert rows(stage, joined) == [("Ada", 5), (None, 5)]
    stage.spark.catalog.dropTempView("sql.web-clicks")
    parsed = "SELECT value.user, sum(value.n) FROM `sql.web-clicks` WHERE value IS NOT NULL GROUP BY 1 ORDER BY 1"
    assert [each for each in rows(stage, parsed, "json") if each[0]] == [("u0", 20), ("u1", 25)]


@pytest.mark.parametrize(
    ("query", "complaint", "hint"),
    [
        ("SELECT * FROM sql_order", "There is no topic 'sql_order'", "Did you mean sql_orders"),
        ("SELECT * FROM a.b", "'a.b' is not the name of one topic", "Write it in backquotes: `a.b`."),
        ("SELECT nothing FROM sql_orders", "A column, variable, or function parameter with name `nothing`", None),
        ("SELEC 1", "Syntax error at or near 'SELEC'", None),
    ],
)
def test_mistakes_are_explained(
    stage: Stage, moldau_cluster: Cluster, query: str, complaint: str, hint: str | None
) -> None:
    if "sql_orders" not in moldau_topics(stage):
        moldau_cluster.create_topic("sql_orders", 1)
    with pytest.raises(PipelineError) as caught:
        rows(stage, query)
    assert complaint in caught.value.message
    assert hint is None if caught.value.hint is None else caught.value.hint.startswith(str(hint))


def moldau_topics(stage: Stage) -> list[str]:
    return topic_names(stage.options)


def test_an_empty_topic_has_no_json(stage: Stage, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    with pytest.raises(PipelineError, match="is empty, so the schema of its values cannot be found out"):
        rows(stage, f"SELECT * FROM `{topic}`", "json")
    produce(stage.bootstrap, topic, [(None, "no JSON")])
    with pytest.raises(PipelineError, match="are not JSON objects"):
        rows(stage, f"SELECT * FROM `{topic}`", "json")


def test_following_gives_new_rows_and_changed_sums(stage: Stage, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    produce(stage.bootstrap, topic, [("a", "1"), ("b", "2")])
    settings = QuerySettings(stage.options, follow=True, from_beginning=True)
    frame = plan_query(stage.spark, f"SELECT key, sum(int(value)) AS total FROM `{topic}` GROUP BY key", settings)
    found: dict[str, int] = {}
    query = follow(frame, lambda rows: found.update({row.key: row.total for row in rows}))
    try:
        wait_for(lambda: found == {"a": 1, "b": 2}, query)
        produce(stage.bootstrap, topic, [("a", "10")])
        wait_for(lambda: found == {"a": 11, "b": 2}, query)
    finally:
        query.stop()
    with pytest.raises(PipelineError, match="nothing to follow"):
        follow(stage.spark.sql("SELECT 1"), lambda _: None)


def wait_for(condition: Callable[[], bool], query: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)


def test_rows_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from datetime import datetime
    from decimal import Decimal

    from pyspark.sql import Row

    row = (Row(a=1, b=[b"\x01"]), None, True, datetime(2026, 1, 1, 12), Decimal("1.50"), {"x": "ž"}, "[bold]")
    columns = ("struct", "none", "yes", "at", "price", "map", "text")
    _print_rows(columns, [row], "json", header=True)
    assert json.loads(capsys.readouterr().out) == {
        "struct": {"a": 1, "b": ["0x01"]},
        "none": None,
        "yes": True,
        "at": "2026-01-01T12:00:00.000",
        "price": "1.50",
        "map": {"x": "ž"},
        "text": "[bold]",
    }
    _print_rows(columns, [row], "csv", header=True)
    assert capsys.readouterr().out.splitlines() == [
        "struct,none,yes,at,price,map,text",
        '"{""a"": 1, ""b"": [""0x01""]}",,true,2026-01-01T12:00:00.000,1.50,"{""x"": ""ž""}",[bold]',
    ]
    _print_rows(columns, [row], "table", header=True)
    assert "[bold]" in capsys.readouterr().out
