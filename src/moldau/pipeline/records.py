"""Records of topics as columns that SQL can use: keys and values as text where they are text, headers by name.

Shared by SQL programs and single queries. Nothing here runs a job, except to look at a few values when JSON's schema is
to be found out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from moldau.pipeline.brokers import offset_bounds
from moldau.pipeline.errors import PipelineError

# How many of the newest records of each partition are looked at to find out the schema of JSON.
SAMPLE_RECORDS = 1000


def text(column: str) -> str:
    """SQL for bytes as text: UTF-8 as it is, anything else as hexadecimal digits behind 0x."""
    return f"coalesce(try_validate_utf8(cast({column} as string)), concat('0x', hex({column})))"


HEADERS = f"transform(headers, header -> named_struct('key', header.key, 'value', {text('header.value')}))"


def read_topic(spark: Any, topic: str, options: Mapping[str, str], *, streaming: bool) -> Any:
    """A topic's records as they are, headers included."""
    reader = spark.readStream if streaming else spark.read
    return reader.format("moldau").options(**{"includeHeaders": "true", **options, "subscribe": topic}).load()


def as_text(frame: Any, value: str | None = None) -> Any:
    """Keys, values and headers as text, beside where each record is; `value` is SQL for another value."""
    return frame.selectExpr(
        f"{text('key')} as key",
        f"{value or text('value')} as value",
        "partition",
        "offset",
        "timestamp",
        f"{HEADERS} as headers",
    )


def latest_by_key(frame: Any) -> Any:
    """The newest record of every key, without those keys whose newest record is a tombstone."""
    from pyspark.sql import functions

    newest = functions.max_by(functions.struct("*"), functions.col("offset")).alias("newest")
    grouped = frame.where("key is not null").groupBy(functions.col("key").alias("of_key")).agg(newest)
    return grouped.select("newest.*").where("value is not null")


def json_schema(spark: Any, topic: str, options: Mapping[str, str]) -> Any:
    """The schema of the newest JSON values of a topic."""
    parts = offset_bounds(options, topic)
    if all(first == last for first, last in parts.values()):
        raise PipelineError(f"Topic '{topic}' is empty, so the schema of its values cannot be found out")
    starts = {str(index): max(first, last - SAMPLE_RECORDS) for index, (first, last) in parts.items()}
    ends = {str(index): last for index, (_, last) in parts.items()}
    bounds = {"startingOffsets": json.dumps({topic: starts}), "endingOffsets": json.dumps({topic: ends})}
    values = read_topic(spark, topic, {**options, **bounds}, streaming=False)
    schema = spark.read.json(values.selectExpr("cast(value as string) as value").where("value is not null")).schema
    if schema.fieldNames() in ([], ["_corrupt_record"]):
        raise PipelineError(f"The values of topic '{topic}' are not JSON objects", hint="Leave --format json out.")
    return schema
