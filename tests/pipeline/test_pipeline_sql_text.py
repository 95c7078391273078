"""Our statements among Spark's: where statements end, which are ours, and what is wrong with one that is not right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.pipeline.sql_statements import Parsed, Relation, SparkStatement, TopicInsert, parse
from moldau.pipeline.sql_text import SqlError, split_statements

STREAM = """
-- what people click; and when
CREATE STREAM clicks (user STRING, spent DECIMAL(10, 2), tags ARRAY<STRUCT<a: INT>>)
  WITH (topic = 'web.clicks', format = 'json', timestamp = 'at', watermark = '10 seconds',
        maxOffsetsPerTrigger = 1000, 'kafka.isolation.level' = 'read_committed', kafka.client.id = 'x');
"""


def only(text: str) -> Parsed:
    (statement,) = split_statements(text)
    return parse(statement)


def test_a_topic_as_a_stream() -> None:
    found = only(STREAM)
    assert isinstance(found, Relation)
    assert (found.name, found.is_table, found.topic, found.format) == ("clicks", False, "web.clicks", "json")
    assert found.columns == "user STRING, spent DECIMAL(10, 2), tags ARRAY<STRUCT<a: INT>>"
    assert found.options == {
        "topic": "web.clicks",
        "format": "json",
        "timestamp": "at",
        "watermark": "10 seconds",
    }
    assert found.source == {
        "maxOffsetsPerTrigger": "1000",
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "x",
    }
    assert found.line == 3


def test_a_table_of_ours_and_one_of_sparks() -> None:
    ours = only("create or replace table `my customers` (name STRING) with (topic = 'customers')")
    assert isinstance(ours, Relation)
    assert (ours.name, ours.is_table, ours.format) == ("my customers", True, "json")
    for text in (
        "CREATE TABLE t (a INT) USING parquet",
        "CREATE TABLE t AS WITH x AS (SELECT 1) SELECT * FROM x",
        "CREATE TABLE t USING parquet AS SELECT 1 AS `with`",
        "INSERT INTO topic SELECT 1",
        "CREATE TEMPORARY VIEW stream AS SELECT 1",
    ):
        assert only(text) == SparkStatement(text, 1)


def test_a_select_into_a_topic() -> None:
    found = only(
        "INSERT INTO TOPIC 'per-minute' WITH (key = 'page', mode = 'update') WITH x AS (SELECT ';') SELECT * FROM x ;"
    )
    assert isinstance(found, TopicInsert)
    assert (found.topic, found.mode, found.format) == ("per-minute", "update", "json")
    assert found.options["key"] == "page"
    assert found.query == "WITH x AS (SELECT ';') SELECT * FROM x"
    plain = only('insert into topic `out` select "a;b" as value')
    assert isinstance(plain, TopicInsert)
    assert (plain.topic, plain.query, plain.mode) == ("out", 'select "a;b" as value', "append")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("CREATE STREAM s", "line 1: expected WITH (topic = '...', ...) where the statement ends"),
        ("CREATE STREAM s\n(a INT) WITH topic", r"line 2: expected \( where 'topic' stands"),
        ("CREATE STREAM s (a INT) WITH (\n topik = 'x')", "line 2: there is no option 'topik' for a topic"),
        ("CREATE STREAM s (a INT) WITH (topic 'x')", "line 1: expected = where 'x' stands"),
        ("CREATE STREAM s (a INT) WITH (topic = 'x' format = 'json')", "line 1: expected , or"),
        ("CREATE STREAM s (a INT) WITH (format = 'jsn')", "line 1: format 'jsn' is not one of json, string"),
        ("CREATE STREAM s WITH (format = 'json')", "line 1: the columns of 's' are not known"),
        ("CREATE STREAM s (a INT) WITH (format = 'raw')", "line 1: values of format 'raw' have no columns"),
        ("CREATE TABLE s (a INT) WITH (format = 'avro')", "line 1: the columns of 's' are those of its avro schema"),
        ("CREATE STREAM s WITH (\nschema = '{}')", "line 2: format 'string' has no use for the option 'schema'"),
        ("CREATE STREAM s WITH (format = 'avro',\nmessage = 'A')", "line 2: format 'avro' has no use for the option"),
        ("CREATE STREAM s (a INT) WITH (\nsubject = 's')", "the option 'subject' is about a schema registry"),
        ("CREATE STREAM s (a INT) WITH (registry =\n'${env:NOT_SET_ANYWHERE}')", "line 2: the environment variable"),
        ("INSERT INTO TOPIC 'x' WITH (format = 'raw', registry = 'y') SELECT 1", "no use for the option 'registry'"),
        ("CREATE STREAM s (a INT) WITH (\nstart = 'now')", "line 2: start = 'now' is neither"),
        ("CREATE STREAM s (a INT) WITH (errors = 'x')", "line 1: errors = 'x' is neither"),
        ("CREATE STREAM s (a INT WITH (topic = 'x')", "line 1: this ( is never closed"),
        ("CREATE STREAM s (a INT) WITH (topic = 'x') SELECT", "line 1: expected the end of the statement"),
        ("INSERT INTO TOPIC 'x'", "line 1: expected a SELECT where the statement ends"),
        ("INSERT INTO TOPIC 'x' WITH (mode = 'upsert') SELECT 1", "line 1: mode = 'upsert' is not one of"),
        ("INSERT INTO TOPIC 'x' WITH (subscribe = 'y') SELECT 1", "line 1: there is no option 'subscribe'"),
    ],
)
def test_mistakes_are_told_with_their_line(text: str, complaint: str) -> None:
    with pytest.raises(SqlError) as caught:
        only(text)
    assert complaint.replace("\\", "") in caught.value.message


def test_a_misspelt_option_comes_with_the_right_one() -> None:
    with pytest.raises(SqlError) as caught:
        only("CREATE STREAM s (a INT) WITH (maxOffsetPerTrigger = 3)")
    assert caught.value.hint == "Did you mean maxOffsetsPerTrigger?"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SELECT 1;\nSELECT 'a", "line 2: this ' is never closed"),
        ("SELECT 1 /* a /* b */\n", "line 1: this comment is never closed"),
    ],
)
def test_what_never_ends(text: str, complaint: str) -> None:
    with pytest.raises(SqlError) as caught:
        split_statements(text)
    assert complaint in caught.value.message


def test_quotes_comments_and_escapes() -> None:
    text = r"""
    SELECT 'it''s; \'so\'', "x;\"", `a``;b` /* ; /* ; */ */ -- ; '
      , r'\', 1 ; ; /* only a comment; */
    SELECT 2
    """
    found = split_statements(text)
    assert [each.line for each in found] == [2, 4]
    assert found[1].text == "SELECT 2"
    assert [each.value for each in found[0].tokens if each.kind in ("string", "name")] == [
        "it's; 'so'",
        'x;"',
        "a`;b",
        "\\",
    ]


PIECES = st.sampled_from(["SELECT 1", "'a;b'", '"c;\\"d"', "`e;f`", "-- g;\n", "/* h; */", "\n", " ", "x"])


@given(st.lists(st.lists(PIECES, max_size=6), max_size=5))
def test_only_semicolons_between_statements_end_them(groups: list[list[str]]) -> None:
    """Whatever is put between semicolons comes out as one statement, exactly as it was written."""
    text = ";".join(" ".join(group) for group in groups)
    meaningful = [
        group for group in groups if any(not piece.isspace() and piece[:2] not in ("--", "/*") for piece in group)
    ]
    found = split_statements(text)
    assert len(found) == len(meaningful)
    at = 0
    for each in found:
        at = text.index(each.text, at)
        assert each.line == text.count("\n", 0, at) + 1
        at += len(each.text)
