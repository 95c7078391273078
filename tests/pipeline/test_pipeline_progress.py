"""The board: rates, lag, state and watermark from Spark's reports; the same as Prometheus' text."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from moldau.pipeline.failures import explain
from moldau.pipeline.metrics import serve_metrics
from moldau.pipeline.progress import RESTARTING, RUNNING, STARTING, Board, lag_of


def report(name: str = "q", batch: int = 0, rows: int = 10, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "runId": "r",
        "batchId": batch,
        "timestamp": f"t{batch}",
        "numInputRows": rows,
        "batchDuration": 1500,
        "durationMs": {"addBatch": 1000},
        "sources": [
            {"endOffset": {"t": {"0": 10, "1": 20}}, "latestOffset": {"t": {"0": 15, "1": 20, "2": 3}}},
            {"endOffset": '{"u": {"0": 1}}', "latestOffset": '{"u": {"0": 2}}'},
            {"endOffset": 12, "latestOffset": 13},
        ],
        "sink": {"numOutputRows": 4},
        **more,
    }


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_reports_become_a_status() -> None:
    board = Board(Clock())
    board.add("q")
    assert board.snapshot()[0].state == STARTING
    board.report(report())
    board.report(report())  # Spark tells it, and so does the query that ended
    operators = [
        {"numRowsTotal": 7, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 3, "memoryUsedBytes": 100, "customMetrics": {"rocksdbSstFileSize": 900}},
    ]
    times = {"watermark": "2026-01-01T00:00:00.000Z"}
    board.report(report(batch=1, rows=5, stateOperators=operators, eventTime=times))
    board.report(report("somebody else's"))
    (status,) = board.snapshot()
    assert status.as_json() == {
        "query": "q",
        "state": RUNNING,
        "batchId": 1,
        "inputRows": 15,
        "outputRows": 8,
        "inputRowsPerSecond": 15.0,
        "outputRowsPerSecond": 8.0,
        "lag": 9,
        "batchSeconds": 1.5,
        "stateRows": 10,
        "stateBytes": 1000,
        "watermark": "2026-01-01T00:00:00.000Z",
        "lateRows": 2,
        "restarts": 0,
        "message": None,
    }
    assert board.batches("q") == 2


def test_rates_fall_when_nothing_comes() -> None:
    clock = Clock()
    board = Board(clock)
    board.add("q")
    clock.now += 5
    board.report(report(rows=100))
    assert board.snapshot()[0].rows_in_per_second == 20.0
    clock.now += 9
    assert board.snapshot()[0].rows_in_per_second == 10.0
    clock.now += 9
    assert board.snapshot()[0].rows_in_per_second == 0.0


def test_rows_that_no_sink_counts_are_observed() -> None:
    board = Board(Clock())
    board.add("q")
    board.report(report(sink={"numOutputRows": -1}, observedMetrics={"moldau": {"rows": 6}}))
    assert board.snapshot()[0].rows_out == 6


def test_a_trigger_without_work_is_no_batch() -> None:
    board = Board(Clock())
    board.add("q")
    board.set_state("q", RESTARTING, "broken")
    board.report(
        report(batch=3, rows=0, durationMs={"latestOffset": 1}, eventTime={"watermark": "1970-01-01T00:00:00.000Z"})
    )
    (status,) = board.snapshot()
    assert (status.batch, status.batches, status.state, status.message, status.watermark) == (
        None,
        0,
        RUNNING,
        None,
        None,
    )


@pytest.mark.parametrize(
    "sources", [[], [{"endOffset": None, "latestOffset": None}], [{"endOffset": "5", "latestOffset": "x"}]]
)
def test_no_lag_without_offsets(sources: list[Any]) -> None:
    assert lag_of({"sources": sources}) is None


def test_metrics_over_http() -> None:
    board = Board(Clock())
    board.add("q")
    board.report(report(rows=1234))
    port, stop = serve_metrics(board, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page = answer.read().decode()
    finally:
        stop()
    assert 'moldau_query_rows_in_total{query="q"} 1234.0' in page
    assert 'moldau_query_lag_records{query="q"} 9.0' in page
    assert 'moldau_query_up{query="q"} 1.0' in page
    assert 'moldau_query_watermark_timestamp_seconds{query="q"}' not in page
    assert "process_resident_memory_bytes" in page


FROM_A_SOURCE = """[STREAM_FAILED] Query [id = 9e6f, runId = cff2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset: \
Traceback (most recent call last):
  File "planning.py", line 58, in find_partitions
    raise unknown_topic(name, views[name].error)
moldau.client.errors.MoldauError: There is no topic 'nope': check its name, or create it before the query starts
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 9e6f]
"""
FROM_JAVA = """An error occurred while calling o16.start.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: moldau.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.dataSourceNotFoundError(QueryExecutionErrors.scala:770)
"""
FROM_A_FUNCTION = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "app.py", line 12, in parse
    raise ValueError("not a number")
ValueError: not a number

	at org.apache.spark.api.python.BasePythonRunner
"""


def test_plans_and_places_are_left_out() -> None:
    text = (
        "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project ['x]\n+- Range"
    )
    assert explain(text).message == "A column `x` cannot be resolved"


@pytest.mark.parametrize(
    ("text", "message", "permanent"),
    [
        (FROM_A_SOURCE, "There is no topic 'nope': check its name, or create it before the query starts", True),
        (FROM_A_FUNCTION, "ValueError: not a number", False),
        (FROM_JAVA, "Failed to find the data source: moldau.", False),
        (FROM_A_FUNCTION.replace("ValueError", "NameError"), "NameError: not a number", True),
        (
            "moldau.client.errors.MoldauError: Cannot reach a broker (x:1: refused)",
            "Cannot reach a broker (x:1: refused)",
            False,
        ),
        ("x\nmoldau.client.errors.FencedError: Another run has taken over", "Another run has taken over", True),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Connection reset SQLSTATE: XXKST",
            "Connection reset",
            False,
        ),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703\n\nplan",
            "A column `x` cannot be resolved.",
            True,
        ),
    ],
)
def test_failures_in_one_sentence(text: str, message: str, permanent: bool) -> None:
    found = explain(text)
    assert (found.message, found.permanent) == (message, permanent)


def test_statuses_can_be_printed_as_json() -> None:
    board = Board(Clock())
    board.add("q")
    assert json.loads(json.dumps(board.snapshot()[0].as_json()))["lag"] is None
