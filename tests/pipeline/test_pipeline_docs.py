"""docs/running.md: its programs run, its questions are answered, and every metric and option it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moldau.pipeline.metrics import _COUNTERS, _GAUGES
from moldau.pipeline.sql_program import read_sql_program
from moldau.pipeline.sql_query import QuerySettings, plan_query
from moldau.pipeline.sql_statements import _STREAM_OPTIONS, _TOPIC_OPTIONS, Relation, TopicInsert
from moldau.testing import Cluster
from tests.pipeline.world import Stage, consume, produce

pytestmark = pytest.mark.timeout(300)

TEXT = (Path(__file__).parents[2] / "docs" / "running.md").read_text()
CLICKS = [
    ("ada", "/", "10:00:01"),
    ("bob", "/checkout", "10:00:02"),
    ("ada", "/", "10:01:30"),
    ("ada", "/x", "11:00:00"),
]


def block(name: str) -> str:
    """The program that begins with a comment of its name."""
    found = re.search(rf"```\w+\n((?:#|--) {re.escape(name)}\n.*?)```", TEXT, re.DOTALL)
    assert found is not None, name
    return found[1]


@pytest.mark.long
def test_the_programs_run_and_the_questions_are_answered(stage: Stage, moldau_cluster: Cluster) -> None:
    outputs = ("checkouts", "clicks-per-minute", "clicks-copy", "clicks-with-country", "clicks-per-page")
    for topic in ("clicks", "users", *outputs):
        moldau_cluster.create_topic(topic, 1)
    produce(
        stage.bootstrap,
        "clicks",
        [(user, {"user": user, "page": page, "at": f"2026-01-01T{at}Z"}) for user, page, at in CLICKS],
    )
    produce(stage.bootstrap, "users", [("ada", {"name": "Ada", "country": "NO"})])
    for name in ("clicks.py", "mirror.py", "clicks.sql"):
        outcome = stage.run(stage.program(block(name), name), name=f"docs-{name}")
        assert outcome.code == 0, outcome.words
    assert [key for key, _ in consume(stage.bootstrap, "checkouts")] == ["bob"]
    minutes = {
        (value["page"], value["window_start"][11:16]): value["count"]
        for _, value in consume(stage.bootstrap, "clicks-per-minute")
    }
    assert minutes == {("/", "10:00"): 1, ("/checkout", "10:00"): 1, ("/", "10:01"): 1}
    assert len(consume(stage.bootstrap, "clicks-copy")) == 4
    countries = [value.get("country") for _, value in consume(stage.bootstrap, "clicks-with-country")]
    assert sorted(map(str, countries)) == ["NO", "NO", "NO", "None"]
    assert dict(consume(stage.bootstrap, "clicks-per-page"))["/"] == {"page": "/", "clicks": 2}
    # Those that need no registry.
    questions = re.findall(r"^\$ moldau sql ((?:(?!--with).)*?)(['\"])(SELECT.*)\2$", TEXT, re.MULTILINE)
    assert len(questions) == 4
    for options, _, query in questions:
        # A process of its own would know nothing of the programs' views, nor of the other questions'.
        for view in ("clicks", "users", "known", "clicks-per-minute"):
            stage.spark.catalog.dropTempView(view)
        form = "json" if "--format json" in options else "string"
        assert plan_query(stage.spark, query, QuerySettings(stage.options, form)).count() > 0


def test_values_with_schemas_are_written_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret")
    program = tmp_path / "payments.sql"
    program.write_text(block("payments.sql"))
    payments, accounts, insert = read_sql_program(program)
    assert isinstance(payments, Relation)
    assert isinstance(accounts, Relation)
    assert isinstance(insert, TopicInsert)
    assert (payments.format, payments.options["schema"]) == ("avro", "payment.avsc")
    assert (accounts.is_table, accounts.options["registry.password"]) == (True, "secret")
    assert (insert.topic, insert.format) == ("payments-of-people", "avro")


def test_every_metric_is_named() -> None:
    named = set(re.findall(r"moldau_query_\w+", TEXT))
    assert named == {f"{name}_total" for name, _, _ in _COUNTERS} | {name for name, _, _ in _GAUGES}


def test_every_option_of_sql_is_named() -> None:
    for option in (*_STREAM_OPTIONS, *_TOPIC_OPTIONS):
        assert f"`{option}`" in TEXT, option


def test_every_example_is_named() -> None:
    from examples import feed

    for name in feed.EXAMPLES:
        assert f"`{name}`" in TEXT
        assert (Path(feed.__file__).parent / f"{name}.py").exists()
