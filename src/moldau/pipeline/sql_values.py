"""Values of SQL streams: from bytes to columns and back, in the formats that have columns."""

from __future__ import annotations

from typing import Any

from moldau.pipeline.sql_statements import JSON, Relation, TopicInsert


def decoded(records: Any, relation: Relation) -> Any:
    """Records with one column more, `decoded`: the value as a struct."""
    from pyspark.sql import functions

    assert relation.format == JSON
    mode = "FAILFAST" if relation.options.get("errors") == "fail" else "PERMISSIVE"
    parsed = functions.from_json(records["value"].cast("string"), relation.columns, {"mode": mode})
    return records.withColumn("decoded", parsed)


def encoded(frame: Any, insert: TopicInsert, values: list[str], places: list[str]) -> Any:
    """Columns `value` and what `places` says, from a SELECT's rows."""
    raise NotImplementedError
