"""One SELECT over topics, for `moldau sql`: topics are found by the names that the query uses.

Spark says which table it does not know; if there is a topic of that name it becomes a view, and the query is tried
again. So whatever Spark understands is understood here: joins, subqueries, common table expressions.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from moldau.pipeline.brokers import topic_names
from moldau.pipeline.errors import PipelineError
from moldau.pipeline.failures import explain
from moldau.pipeline.records import as_text, json_schema, read_topic
from moldau.pipeline.sql_statements import AVRO, PROTOBUF, RAW, STRING_FORMAT, values_of
from moldau.pipeline.sql_values import decoded

_NAME_PARTS = re.compile(r"`((?:[^`]|``)+)`")
# In the order in which they are tried: what changed, what is new, everything anew (for ORDER BY).
_MODES = ("update", "append", "complete")


@dataclass(slots=True, frozen=True)
class QuerySettings:
    """How topics are reached and read. `from_beginning` matters only to a query that follows them."""

    options: Mapping[str, str]
    format: str = STRING_FORMAT
    follow: bool = False
    from_beginning: bool = False
    # More about values, as in WITH (...) of a program: schema, registry, ...
    values: Mapping[str, str] = field(default_factory=dict)


def plan_query(spark: Any, query: str, settings: QuerySettings) -> Any:
    """The DataFrame of a query, with every topic it names as a view."""
    from pyspark.errors import AnalysisException, PySparkException

    topics: list[str] | None = None
    while True:
        try:
            return spark.sql(query)
        except AnalysisException as error:
            name = _missing_name(error)
            if name is None:
                raise PipelineError(explain(error).message) from None
            topics = topics if topics is not None else topic_names(settings.options)
            if name not in topics:
                raise _no_topic(name, topics) from None
            _add_view(spark, name, settings)
        except PySparkException as error:
            raise PipelineError(explain(error).message) from None


def _missing_name(error: Any) -> str | None:
    """The table that Spark did not find, when that is what is wrong."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    parts: list[str] = [
        each.replace("``", "`") for each in _NAME_PARTS.findall(str(error.getMessageParameters()["relationName"]))
    ]
    if len(parts) > 1:
        joined = ".".join(parts)
        raise PipelineError(f"'{joined}' is not the name of one topic", hint=f"Write it in backquotes: `{joined}`.")
    return parts[0]


def _no_topic(name: str, topics: list[str]) -> PipelineError:
    shown = [each for each in topics if not each.startswith("__")]
    near = get_close_matches(name, shown, n=3, cutoff=0.5)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    else:
        hint = "'moldau topic list' shows what there is." if shown else "There is no topic at all yet."
    return PipelineError(f"There is no topic '{name}'", hint)


def _add_view(spark: Any, topic: str, settings: QuerySettings) -> None:
    options = dict(settings.options)
    if settings.follow:
        options["startingOffsets"] = "earliest" if settings.from_beginning else "latest"
    records = read_topic(spark, topic, options, streaming=settings.follow)
    if settings.format == RAW:
        frame = records.drop("topic", "timestampType")
    elif settings.format == STRING_FORMAT:
        frame = as_text(records)
    elif settings.format in (AVRO, PROTOBUF) or settings.values:
        frame = as_text(decoded(records, values_of(topic, settings.format, settings.values), Path.cwd()), value="value")
    else:
        from pyspark.sql import functions

        schema = json_schema(spark, topic, settings.options)
        parsed = functions.from_json(records["value"].cast("string"), schema)
        frame = as_text(records.withColumn("parsed", parsed), value="parsed")
    frame.createOrReplaceTempView(f"`{topic.replace('`', '``')}`")


def follow(frame: Any, rows: Callable[[list[Any]], None]) -> Any:
    """Run a query over streams; `rows` gets what every micro-batch brings. Spark's query, for the caller to stop."""
    from pyspark.errors import AnalysisException

    if not frame.isStreaming:
        raise PipelineError("The query names no topic, so there is nothing to follow")
    failure: PipelineError | None = None

    def take(batch: Any, _: int) -> None:
        found = batch.collect()
        if found:
            rows(found)

    for mode in _MODES:
        checkpoint = tempfile.mkdtemp(prefix="moldau-sql-")
        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", checkpoint)
        try:
            return writer.foreachBatch(take).start()
        except AnalysisException as error:
            failure = failure or PipelineError(explain(error).message)
    assert failure is not None
    raise failure
