"""Programs of all kinds on real Spark: functions, scripts and SQL; failures that pass, and failures that do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.pipeline.errors import PipelineError
from moldau.pipeline.programs import ProgramInputs, arguments_for, read_program
from moldau.pipeline.spark_session import hiding_modules
from tests.pipeline.world import Stage, consume, produce

pytestmark = pytest.mark.timeout(300)


def values_of(stage: Stage, topic: str) -> list[str]:
    return sorted(value for _, value in consume(stage.bootstrap, topic))


@pytest.mark.long
@pytest.mark.longest
def test_a_failing_query_is_started_again_and_counts_everything_once(
    stage: Stage, new_topic: Callable[..., str]
) -> None:
    source, target = new_topic(1), new_topic(1)
    produce(stage.bootstrap, source, [(None, f"v{number}") for number in range(100)])
    program = stage.program(f"""
        import os
        from pyspark.sql.functions import udf
        from pyspark.sql.types import BinaryType

        MARKER = {str(stage.directory / "failed")!r}

        def fail_at_first(value):
            if value == b"v60" and not os.path.exists(MARKER):
                raise RuntimeError("on purpose")
            return value

        def pipeline(spark, options, arguments):
            assert arguments == ["one", "two"]
            source = dict(options, subscribe="{source}", startingOffsets="earliest", maxOffsetsPerTrigger="50")
            frame = spark.readStream.format("moldau").options(**source).load()
            checked = udf(fail_at_first, BinaryType(), useArrow=False)
            written = frame.select("key", checked("value").alias("value"))
            written.writeStream.format("moldau").options(**options, topic="{target}").start()
        """)
    marker = stage.directory / "failed"

    def mend_after(said: str) -> None:
        """The reason for the failure goes away once it has been reported."""
        if "on purpose" in said:
            marker.touch()

    outcome = stage.run(program, "one", "two", listen=mend_after)
    assert outcome.code == 0, outcome.words
    status = outcome.queries[target]
    assert (status.restarts, status.rows_out, status.state) == (1, 100, "finished")
    assert outcome.said[0] == f"{target}: RuntimeError: on purpose; starting again in 0.1 s"
    assert values_of(stage, target) == sorted(f"v{number}" for number in range(100))
    # The next run finds nothing to do.
    again = stage.run(program, "one", "two")
    assert (again.code, again.queries[target].rows_in) == (0, 0)
    assert len(values_of(stage, target)) == 100


@pytest.mark.long
def test_a_script_that_waits_for_its_queries(
    stage: Stage, new_topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = new_topic(1), new_topic(1)
    produce(stage.bootstrap, source, [("k", "one"), ("k", "two")])
    program = stage.program(f"""
        from pyspark.sql import SparkSession

        def main():
            spark = SparkSession.builder.getOrCreate()
            servers = spark.conf.get("spark.moldau.bootstrap.servers")
            options = {{"kafka.bootstrap.servers": servers}}
            frame = spark.readStream.format("moldau").options(**options).load(
                subscribe="{source}", startingOffsets="earliest"
            )
            query = frame.select("key", "value").writeStream.start(
                format="moldau", queryName="copy", topic="{target}", **options
            )
            query.awaitTermination()
            print(query.name, query.lastProgress["batchId"], query.isActive)

        if __name__ == "__main__":
            main()
        """)
    outcome = stage.run(program)
    assert outcome.code == 0, outcome.words
    assert values_of(stage, target) == ["one", "two"]
    assert "copy 0 False" in capsys.readouterr().out
    checkpoint = stage.directory / "checkpoints" / f"{stage.directory.name}-app" / "copy"
    assert (checkpoint / "commits" / "0").exists()


def test_a_missing_topic_is_told_at_once(stage: Stage) -> None:
    program = stage.program("""
        def pipeline(spark, options):
            frame = spark.readStream.format("moldau").options(**options, subscribe="not-there").load()
            frame.writeStream.format("noop").queryName("reader").start()
        """)
    outcome = stage.run(program)
    assert outcome.code == 1
    assert outcome.said == [
        "reader: There is no topic 'not-there': check its name, or create it before the query starts"
    ]
    assert outcome.queries["reader"].state == "failed"


def test_mistakes_in_a_program_are_shown_where_they_are(stage: Stage) -> None:
    wrong_column = stage.program("""
        def pipeline(spark):
            spark.range(1).select("nothing")
        """)
    outcome = stage.run(wrong_column)
    assert outcome.code == 1
    assert outcome.words.startswith(f"Error: {wrong_column}, line 3: A column, variable, or function parameter")
    assert "JVM" not in outcome.words
    bug = stage.program("""
        def pipeline(spark):
            return 1 / 0
        """)
    outcome = stage.run(bug)
    assert outcome.code == 1
    assert outcome.words.endswith(f"Error: {bug}, line 3: ZeroDivisionError: division by zero")
    nothing = stage.program("print('nothing to do')")
    outcome = stage.run(nothing)
    assert (outcome.code, outcome.said) == (0, [f"{nothing} has started no query; nothing is left to do"])


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("app.txt", "", "neither a Python nor an SQL program"),
        ("app.py", "def pipeline(:", r"app.py, line 1: "),
        ("app.sql", "SELECT 1", "app.sql writes nothing"),
        ("app.sql", "SELECT 1;\nCREATE STREAM x", "app.sql, line 2: expected WITH"),
    ],
)
def test_programs_that_are_none(stage: Stage, name: str, text: str, complaint: str) -> None:
    with pytest.raises(PipelineError, match=complaint):
        stage.run(stage.program(text, name))
    with pytest.raises(PipelineError, match="Cannot read"):
        stage.run(stage.directory / "missing.py")


def test_a_function_gets_what_its_parameters_name(tmp_path: Path) -> None:
    inputs = ProgramInputs("session", "run", {"kafka.bootstrap.servers": "a:1", "kafka.client.id": "x"}, ["1"])

    def pipeline(
        bootstrap: str, options: dict[str, str], arguments: list[str], spark: object, size: int = 3
    ) -> None: ...

    assert arguments_for(pipeline, tmp_path, inputs) == {
        "bootstrap": "a:1",
        "options": {"kafka.bootstrap.servers": "a:1", "kafka.client.id": "x"},
        "arguments": ["1"],
        "spark": "session",
    }
    with pytest.raises(PipelineError, match="asks for 'sesion'"):
        arguments_for(lambda sesion: None, tmp_path, inputs)


def test_files_that_hide_modules_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    assert hiding_modules(tmp_path) == []
    (tmp_path / "copy.py").touch()
    assert hiding_modules(tmp_path) == ["copy.py"]


def test_what_a_file_is_shows_in_its_text(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("def pipeline(spark): ...\n")
    assert read_program(path).has_entry
    path.write_text("class A:\n    def pipeline(self): ...\n")
    assert not read_program(path).has_entry


SQL = """
-- What people look at; with where they live.
CREATE STREAM views (user STRING, page STRING, at TIMESTAMP)
  WITH (topic = '{views}', timestamp = 'at', watermark = '1 minute', kafka.client.id = 'sql');
CREATE TABLE people (name STRING, city STRING) WITH (topic = '{people}');

CREATE OR REPLACE TEMPORARY VIEW at_home AS
  SELECT views._key, user, page, city, views._headers FROM views JOIN people ON user = people._key WHERE _error IS NULL;

INSERT INTO TOPIC '{homes}' WITH (key = 'user')
SELECT user, upper(page) AS page, city, _headers FROM at_home;

INSERT INTO TOPIC '{counts}' WITH (key = 'page', mode = 'update', name = 'counts')
SELECT page, count(*) AS n FROM views WHERE _error IS NULL GROUP BY page;

INSERT INTO TOPIC '{minutes}' WITH (format = 'string')
SELECT concat_ws(' ', date_format(window.start, 'HH:mm'), count(*)) AS line, '{{k}}' AS _key
FROM views GROUP BY window(at, '1 minute');

INSERT INTO TOPIC '{dead}' WITH (format = 'raw')
SELECT _raw.key AS key, _raw.value AS value FROM views WHERE _error IS NOT NULL;
"""


@pytest.mark.long
def test_an_sql_program(stage: Stage, new_topic: Callable[..., str]) -> None:
    topics = {name: new_topic(1) for name in ("views", "people", "homes", "counts", "minutes", "dead")}
    produce(stage.bootstrap, topics["people"], [("ada", {"name": "Ada", "city": "Oslo"})])
    produce(stage.bootstrap, topics["people"], [("ada", {"name": "Ada", "city": "Brno"})])
    produce(stage.bootstrap, topics["people"], [("bob", {"name": "Bob", "city": "Lima"}), ("bob", None)])
    views = [("ada", "/a", "00:10"), ("bob", "/a", "00:20"), ("ada", "/b", "01:30"), ("ada", "/end", "59:00")]
    produce(
        stage.bootstrap,
        topics["views"],
        [(user, {"user": user, "page": page, "at": f"2026-01-01T10:{at}Z"}) for user, page, at in views],
        headers=[("trace", b"t1")],
    )
    produce(stage.bootstrap, topics["views"], [("bad", "no JSON")])
    program = stage.program(SQL.format(**topics).replace("{k}", "minutes"), "app.sql")
    outcome = stage.run(program)
    assert outcome.code == 0, outcome.words
    homes = consume(stage.bootstrap, topics["homes"])
    assert homes == [("ada", {"user": "ada", "page": page, "city": "Brno"}) for page in ("/A", "/B", "/END")]
    assert dict(consume(stage.bootstrap, topics["counts"])) == {
        "/a": {"page": "/a", "n": 2},
        "/b": {"page": "/b", "n": 1},
        "/end": {"page": "/end", "n": 1},
    }
    assert sorted(consume(stage.bootstrap, topics["minutes"])) == [("minutes", "10:00 2"), ("minutes", "10:01 1")]
    assert consume(stage.bootstrap, topics["dead"]) == [("bad", "no JSON")]
    assert outcome.queries["counts"].rows_out == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\nINSERT INTO TOPIC 'o' SELECT * FROM nowhere", "line 2: The table or view `nowhere` cannot be found"),
        ("INSERT INTO TOPIC 'o' SELECT 1 AS a", "line 1: what goes to topic 'o' reads no stream"),
        (
            "CREATE STREAM s WITH (topic = 't');\nINSERT INTO TOPIC 'o' WITH (key = 'x') SELECT value FROM s",
            "line 2: key = 'x': the SELECT has no such column",
        ),
        (
            "CREATE STREAM s (a INT) WITH (topic = 't', timestamp = 'at');\nINSERT INTO TOPIC 'o' SELECT a FROM s",
            "line 1: 's' has no column 'at'",
        ),
        (
            "CREATE STREAM s WITH (topic = 't');\nSELECT * FROM s;\nINSERT INTO TOPIC 'o' SELECT value FROM s",
            "line 2: this SELECT reads a stream",
        ),
        (
            "CREATE STREAM s WITH (topic = 't');\nINSERT INTO TOPIC 'o' SELECT value FROM s",
            "line 2: There is no topic 'o': check its name, or create it",
        ),
        (
            "CREATE STREAM s (a NOTYPE) WITH (topic = 't');\nINSERT INTO TOPIC 'o' SELECT a FROM s",
            "line 1: ",
        ),
    ],
)
def test_mistakes_in_sql_are_told_with_their_line(stage: Stage, text: str, complaint: str) -> None:
    outcome = stage.run(stage.program(text, "app.sql"))
    assert outcome.code == 1
    assert complaint in outcome.words
