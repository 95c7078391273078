"""SQL programs: our statements turned into Spark's streams and queries, everything else given to Spark as it is.

Every stream has its value's columns and, behind an underscore, what else a record has: `_key`, `_topic`, `_partition`,
`_offset`, `_timestamp`, `_headers`; and `_error` and `_raw` for values that could not be read. A table is read anew for
every micro-batch that needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moldau.client.errors import MoldauError
from moldau.pipeline.errors import PipelineError
from moldau.pipeline.failures import explain
from moldau.pipeline.records import HEADERS, latest_by_key, read_topic, text
from moldau.pipeline.sql_statements import (
    RAW,
    STRING_FORMAT,
    Parsed,
    Relation,
    SparkStatement,
    TopicInsert,
    parse,
)
from moldau.pipeline.sql_text import SqlError, split_statements
from moldau.pipeline.sql_values import UNREAD_COLUMNS, decoded, encoded

_RECORD = (
    f"{text('key')} as _key",
    "topic as _topic",
    "partition as _partition",
    "offset as _offset",
    "timestamp as _timestamp",
    f"{HEADERS} as _headers",
)
RECORD_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
# Columns of a SELECT that become something else of the record than its value.
_PLACES = {
    "_key": ("_key", "key"),
    "_headers": (
        "transform(_headers, header -> named_struct('key', header.key, 'value', cast(header.value as binary)))",
        "headers",
    ),
    "_partition": ("_partition", "partition"),
}
# What others have not committed is not there: a program that reads another's result counts it once.
_COMMITTED = {"kafka.isolation.level": "read_committed"}
_SPARKS_PLACE = re.compile(r"(?:line |\(line )(\d+)[, ]")


def read_sql_program(path: Path) -> list[Parsed]:
    """The statements of a file; a PipelineError with file and line when one is wrong."""
    try:
        statements = split_statements(path.read_text(encoding="utf-8"))
        parsed = [parse(each) for each in statements]
    except OSError as error:
        raise PipelineError(f"Cannot read {path}: {error.strerror}") from None
    except SqlError as error:
        raise PipelineError(f"{path}, {error.message}", error.hint) from None
    if not any(isinstance(each, TopicInsert) for each in parsed):
        raise PipelineError(
            f"{path} writes nothing",
            hint="Add INSERT INTO TOPIC '...' SELECT ...; a single SELECT is for 'moldau sql'.",
        )
    return parsed


@dataclass(slots=True)
class SqlProgram:
    """Runs the statements of one program on a session."""

    spark: Any
    path: Path
    # Options of format("moldau") with which the brokers are reached.
    options: Mapping[str, str]
    run_name: str
    show: Callable[[Any], None]

    def run(self, statements: list[Parsed]) -> None:
        from pyspark.errors import PySparkException

        for each in statements:
            try:
                self._run(each)
            except SqlError as error:
                raise PipelineError(f"{self.path}, {error.message}", error.hint) from None
            except MoldauError as error:
                raise PipelineError(f"{self.path}, line {each.line}: {error}") from None
            except PySparkException as error:
                # Lines of Spark's message count from the statement's first one.
                place = _SPARKS_PLACE.search(str(error))
                line = each.line + (int(place[1]) - 1 if place and isinstance(each, SparkStatement) else 0)
                raise PipelineError(f"{self.path}, line {line}: {explain(error).message}") from None

    def _run(self, statement: Parsed) -> None:
        if isinstance(statement, Relation):
            frame = self._table(statement) if statement.is_table else self._stream(statement)
            frame.createOrReplaceTempView(f"`{statement.name}`")
        elif isinstance(statement, TopicInsert):
            self._insert(statement)
        else:
            self._spark_statement(statement)

    def _spark_statement(self, statement: SparkStatement) -> None:
        frame = self.spark.sql(statement.text)
        if frame.isStreaming:
            raise SqlError(
                "this SELECT reads a stream, so it never ends",
                statement.line,
                hint="INSERT INTO TOPIC '...' SELECT ...",
            )
        if frame.columns:
            self.show(frame)

    def _stream(self, relation: Relation) -> Any:
        start = {"startingOffsets": relation.options.get("start", "earliest")}
        records = read_topic(
            self.spark, relation.topic, {**_COMMITTED, **self.options, **start, **relation.source}, streaming=True
        )
        frame = self._values(records, relation)
        delay = relation.options.get("watermark")
        column = relation.options.get("timestamp", "_timestamp")
        if column not in frame.columns:
            raise SqlError(f"'{relation.name}' has no column '{column}' to take the event time from", relation.line)
        return frame.withWatermark(column, delay) if delay else frame

    def _table(self, relation: Relation) -> Any:
        records = read_topic(
            self.spark, relation.topic, {**_COMMITTED, **self.options, **relation.source}, streaming=False
        )
        # Left alone, Spark may keep the stream's rows in a hash table and look the table's up in it, as their sizes
        # turn out: then the rows of a key leave a join in the reverse of the order they came in.
        return self._values(latest_by_key(records), relation).hint("merge")

    def _values(self, records: Any, relation: Relation) -> Any:
        """The columns of the value, then those of the record."""
        if relation.format == RAW:
            return records.selectExpr("value", *_RECORD)
        if relation.format == STRING_FORMAT:
            return records.selectExpr(f"{text('value')} as value", *_RECORD)
        from pyspark.sql.types import StructType

        values = decoded(records, relation, self.path.parent)
        columns = ["value.*"] if isinstance(values.schema["value"].dataType, StructType) else ["value"]
        unread = [name for name in UNREAD_COLUMNS if name in values.columns]
        if unread and relation.is_table:
            # Nothing to send anywhere, and one column of that name less to tell apart in joins.
            values, unread = values.where("_error is null"), []
        return values.selectExpr(*columns, *_RECORD, *unread)

    def _insert(self, insert: TopicInsert) -> None:
        from moldau.streams.topics import refuse_missing

        frame = self.spark.sql(insert.query)
        if not frame.isStreaming:
            raise SqlError(
                f"what goes to topic '{insert.topic}' reads no stream, so there is nothing to go on with",
                insert.line,
                hint="CREATE STREAM for one of its topics.",
            )
        records = self._records(frame, insert)
        options = {**self.options, **insert.sink, "topic": insert.topic}
        refuse_missing(insert.topic, options)
        writer = records.writeStream.outputMode(insert.mode)
        name = insert.options.get("name", insert.topic)
        writer = writer.queryName(name)
        if "trigger" in insert.options:
            writer = writer.trigger(processingTime=insert.options["trigger"])
        if insert.mode == "update":
            from moldau.spark.sink import each_batch

            options.setdefault("transactionalId", f"{self.run_name}-{name}")
            writer.foreachBatch(each_batch(**options)).start()
        else:
            writer.format("moldau").options(**options).start()

    def _records(self, frame: Any, insert: TopicInsert) -> Any:
        """Rows of a SELECT as records: a value from all columns but those that begin with an underscore."""
        if insert.format == RAW:
            return frame
        key = insert.options.get("key")
        if key is not None and key not in frame.columns:
            raise SqlError(
                f"key = '{key}': the SELECT has no such column, only {', '.join(frame.columns)}", insert.line
            )
        places = [f"{take} as {place}" for name, (take, place) in _PLACES.items() if name in frame.columns]
        if key is not None:
            places = [each for each in places if not each.endswith(" as key")] + [f"cast(`{key}` as string) as key"]
        values = [name for name in frame.columns if name not in (*RECORD_COLUMNS, *UNREAD_COLUMNS)]
        if not values:
            raise SqlError("the SELECT has no column for the value of its records", insert.line)
        if insert.format == STRING_FORMAT:
            if len(values) != 1:
                raise SqlError(f"format 'string' takes one column, not {', '.join(values)}", insert.line)
            return frame.selectExpr(f"cast(`{values[0]}` as string) as value", *places)
        return encoded(frame, insert, values, places, self.path.parent)
