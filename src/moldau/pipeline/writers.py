"""The place where a program's queries come under supervision: Spark's stream writer, with a few things added.

While a program runs, `DataFrame.writeStream` gives a writer that names the query, places its checkpoint, gives the
exactly-once sink a name that stays the same from run to run, counts the rows that leave, and hands the query to the
supervisor. What a program has set itself is never changed. Nothing else of Spark is touched.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.functions import count, lit
from pyspark.sql.streaming import DataStreamWriter, StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQueryManager

from moldau.pipeline.progress import OBSERVATION, OBSERVED_ROWS, Board
from moldau.pipeline.supervision import SupervisedQuery, Supervisor

# Sinks for looking at things: Spark does not let them go on from a checkpoint.
_WITHOUT_CHECKPOINT = frozenset({"console", "memory", "noop"})


@dataclass(slots=True, frozen=True)
class Placement:
    """Where the queries of a run keep their progress, and what the run is called."""

    run_name: str
    checkpoints: str
    # Read what is there, then end.
    once: bool = False

    def checkpoint_of(self, query: str) -> str:
        return f"{self.checkpoints.rstrip('/')}/{query}"


class SupervisedWriter(DataStreamWriter):
    """Spark's writer; `start` begins a query that is kept alive."""

    def __init__(self, frame: Any, supervisor: Supervisor, placement: Placement) -> None:
        super().__init__(frame.observe(OBSERVATION, count(lit(1)).alias(OBSERVED_ROWS)))
        self._supervisor = supervisor
        self._placement = placement
        self._given: dict[str, str] = {}
        self._name: str | None = None
        self._format = ""

    # ---- what the program sets

    def queryName(self, queryName: str) -> SupervisedWriter:  # noqa: N802, N803 - Spark's names
        self._name = queryName
        return self

    def format(self, source: str) -> SupervisedWriter:
        self._format = source.lower()
        super().format(source)
        return self

    def option(self, key: str, value: Any) -> SupervisedWriter:
        self._given[key.lower()] = str(value)
        super().option(key, value)
        return self

    def options(self, **options: Any) -> SupervisedWriter:
        for key, value in options.items():
            self.option(key, value)
        return self

    def trigger(self, **given: Any) -> SupervisedWriter:
        super().trigger(**({"availableNow": True} if self._placement.once else given))
        return self

    # ---- starting

    def start(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - Spark's name
        outputMode: str | None = None,  # noqa: N803 - Spark's name
        partitionBy: Any = None,  # noqa: N803 - Spark's name
        queryName: str | None = None,  # noqa: N803 - Spark's name
        **options: Any,
    ) -> SupervisedQuery:
        self._take(format, outputMode, partitionBy, queryName, options)
        return self._begin(lambda: self._jwrite.start() if path is None else self._jwrite.start(path))

    def toTable(  # noqa: N802 - Spark's name
        self,
        tableName: str,  # noqa: N803 - Spark's name
        format: str | None = None,  # noqa: A002 - Spark's name
        outputMode: str | None = None,  # noqa: N803 - Spark's name
        partitionBy: Any = None,  # noqa: N803 - Spark's name
        queryName: str | None = None,  # noqa: N803 - Spark's name
        **options: Any,
    ) -> SupervisedQuery:
        self._take(format, outputMode, partitionBy, queryName, options)
        return self._begin(lambda: self._jwrite.toTable(tableName))

    def _take(self, form: str | None, mode: str | None, by: Any, name: str | None, options: dict[str, Any]) -> None:
        self.options(**options)
        if mode is not None:
            self.outputMode(mode)
        if by is not None:
            self.partitionBy(by)
        if form is not None:
            self.format(form)
        if name is not None:
            self.queryName(name)

    def _begin(self, begin: Callable[[], Any]) -> SupervisedQuery:
        name = self._supervisor.free_name(self._name or self._given.get("topic") or "query")
        DataStreamWriter.queryName(self, name)
        if self._placement.once:
            DataStreamWriter.trigger(self, availableNow=True)
        if "checkpointlocation" not in self._given and self._format not in _WITHOUT_CHECKPOINT:
            self.option("checkpointLocation", self._placement.checkpoint_of(name))
        if self._format == "moldau" and "transactionalid" not in self._given:
            self.option("transactionalId", f"{self._placement.run_name}-{name}")

        def begin_here() -> Any:
            # Spark looks data sources up in the session of the calling thread, and a supervisor's has none.
            sessions = SparkSession._get_j_spark_session_class(self._spark._jvm)
            sessions.setActiveSession(self._spark._jsparkSession)
            return self._sq(begin())

        return self._supervisor.supervise(name, begin_here)


@contextlib.contextmanager
def supervised_writers(supervisor: Supervisor, placement: Placement) -> Iterator[None]:
    """Inside, queries that are started in this process are supervised; waiting for one waits for all its lives."""
    write_stream, await_any = DataFrame.writeStream, StreamingQueryManager.awaitAnyTermination

    def wait(_: Any, timeout: float | None = None) -> bool | None:
        return supervisor.wait_for_any(timeout)

    DataFrame.writeStream = property(lambda frame: SupervisedWriter(frame, supervisor, placement))
    StreamingQueryManager.awaitAnyTermination = wait
    try:
        yield
    finally:
        DataFrame.writeStream = write_stream
        StreamingQueryManager.awaitAnyTermination = await_any


class BoardListener(StreamingQueryListener):
    """Passes Spark's progress reports on to a board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._board.report(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass
