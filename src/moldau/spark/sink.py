"""Writing DataFrames to topics: what a task does with its rows, and what the driver does when all tasks are done.

It decides between the two guarantees: at least once (an idempotent producer; nothing to commit) and exactly once (see
`exactly_once`). Spark creates a writer in the process that plans a batch, pickles it to the tasks, and, for streams,
creates another one in the process that commits. So what must happen once for each batch happens when the writer is
pickled for the first time, and all that the commit needs travels in the tasks' messages.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from moldau.client.errors import MoldauError
from moldau.client.transactions import Transaction
from moldau.records.compression import CODEC_BY_NAME, NONE
from moldau.spark.brokers import client_settings
from moldau.spark.exactly_once import (
    CommitSettings,
    Decision,
    Plan,
    TaskWork,
    abort,
    commit,
    commit_without_history,
    plan,
)
from moldau.spark.options import SINK_OPTIONS, Options
from moldau.spark.worker_memory import settle
from moldau.spark.worker_socket import acknowledge_now
from moldau.spark.write_settings import SINK_COLUMNS, EncodingSettings, WriteSettings

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
GUARANTEES = (EXACTLY_ONCE, AT_LEAST_ONCE)

# What Spark tells its tasks about the micro-batch they belong to.
_BATCH_PROPERTY, _QUERY_PROPERTY = "streaming.sql.batchId", "sql.streaming.queryId"

# Before compression. A packed batch is mostly much smaller; at worst it is still within a topic's max.message.bytes.
DEFAULT_BATCH_BYTES, DEFAULT_PACKED_BATCH_BYTES = 512 * 1024, 1_000_000
DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
DEFAULT_DELIVERY_TIMEOUT_MS = 120_000


@dataclass(slots=True, frozen=True)
class SinkOptions:
    write: WriteSettings
    # None for at least once.
    commits: CommitSettings | None
    # A batch write that belongs to a micro-batch (foreachBatch) says to which.
    batch: int | None


@dataclass(slots=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver."""

    driver: Transaction | None = None
    query: str = ""
    batch: int = -1
    work: TaskWork | None = None
    # The batch was committed by an earlier run.
    counted_before: bool = False


def sink_options(given: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    options = Options(given)
    options.check(SINK_OPTIONS, "a sink")
    _check_columns(schema, options.text("topic"))
    kafka = options.kafka()
    codec = kafka.get("compression.type", "none").lower()
    if codec not in CODEC_BY_NAME:
        raise MoldauError(f"kafka.compression.type={codec} is not one of {', '.join(CODEC_BY_NAME)}")
    if kafka.get("acks", "all") not in ("all", "-1") or kafka.get("enable.idempotence", "true").lower() != "true":
        raise MoldauError(
            "kafka.acks must be all and kafka.enable.idempotence true: the sink never writes without them"
        )
    level = kafka.get(f"compression.{codec}.level")
    packed = CODEC_BY_NAME[codec] != NONE
    batch = options.number("batchId", least=0)
    guarantee = options.text("deliveryGuarantee") or (EXACTLY_ONCE if streaming or batch is not None else AT_LEAST_ONCE)
    if guarantee not in GUARANTEES:
        raise MoldauError(f"deliveryGuarantee={guarantee} is not one of {', '.join(GUARANTEES)}")
    client = client_settings(kafka)
    write = WriteSettings(
        client=client,
        encoding=EncodingSettings(
            topic=options.text("topic"),
            codec=CODEC_BY_NAME[codec],
            level=None if level is None else int(level),
            batch_bytes=int(kafka.get("batch.size", DEFAULT_PACKED_BATCH_BYTES if packed else DEFAULT_BATCH_BYTES)),
        ),
        delivery_timeout=int(kafka.get("delivery.timeout.ms", DEFAULT_DELIVERY_TIMEOUT_MS)) / 1000,
    )
    commits = None
    if guarantee == EXACTLY_ONCE:
        commits = CommitSettings(
            client=client,
            transactional_id=_transactional_id(options, needed=streaming or batch is not None),
            timeout_ms=int(kafka.get("transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS)),
            ignore_missing_history=options.flag("ignoreMissingHistory", False),
        )
    return SinkOptions(write, commits, batch)


def _transactional_id(options: Options, *, needed: bool) -> str:
    """The id that all runs of a query share: given, or derived from where its checkpoint is."""
    given = options.text("transactionalId")
    if given:
        return given
    checkpoint = options.text("checkpointLocation")
    if checkpoint:
        return f"spark-{sha256(checkpoint.rstrip('/').encode()).hexdigest()[:16]}"
    if needed:
        raise MoldauError(
            'Exactly once needs a name that stays the same when the query is restarted: set .option("transactionalId", '
            '...) or .option("checkpointLocation", ...) on the writer, or .option("deliveryGuarantee", "at-least-once")'
        )
    return f"spark-batch-{secrets.token_hex(8)}"


def _check_columns(schema: StructType, topic: str | None) -> None:
    types: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    text = (StringType, BinaryType)
    unknown = sorted(set(types) - set(SINK_COLUMNS))
    if unknown:
        raise MoldauError(f"Columns {', '.join(unknown)} cannot be written: a sink takes {', '.join(SINK_COLUMNS)}")
    if "value" not in types:
        raise MoldauError("There is no column 'value': a sink needs it (select(to_json(...).alias('value')))")
    if "topic" not in types and not topic:
        raise MoldauError("Where to write is not said: set the option topic, or add a column 'topic'")
    for name, allowed in (("value", text), ("key", text), ("topic", (StringType,)), ("partition", (IntegerType,))):
        if name in types and not isinstance(types[name], allowed):
            wanted = " or ".join(each().simpleString() for each in allowed)
            raise MoldauError(f"Column '{name}' is {types[name].simpleString()} where {wanted} is needed: cast it")
    if "headers" in types:
        kind = types["headers"]
        entry = kind.elementType if isinstance(kind, ArrayType) else None
        shape = [type(each.dataType) for each in entry.fields] if isinstance(entry, StructType) else []
        if shape != [StringType, BinaryType]:
            raise MoldauError(
                f"Column 'headers' is {kind.simpleString()} where array<struct<key:string,value:binary>> is needed"
            )


class _Writer:
    """What batch and stream writers have in common."""

    _options: SinkOptions
    _plan: Plan | None
    _streaming: bool

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_now()

    def _prepare(self) -> None:
        """Once for each batch, in the process that plans it."""
        commits = self._options.commits
        if self._plan is None and commits is not None and (self._streaming or self._options.batch is not None):
            self._plan = plan(commits)
        settle()

    def _write(self, rows: Iterator[Any]) -> TaskDone:
        acknowledge_now()
        done = self._write_task(rows)
        settle()
        return done

    def _write_task(self, rows: Iterator[Any]) -> TaskDone:
        # Here and not above: the processes that plan and commit have no use for the compiled loops.
        from moldau.spark.task_writing import TaskWriter

        context = TaskContext.get()
        assert context is not None, "a task runs in Spark"
        task = context.partitionId()
        commits = self._options.commits
        writer = TaskWriter(self._options.write, task)
        if commits is None:
            writer.write_at_least_once(rows)
            return TaskDone()
        if self._plan is None:
            # A batch write that is no part of a stream: all tasks or none, and nobody to remember it.
            return TaskDone(work=writer.write_in_transaction(rows, commits, None))
        query = context.getLocalProperty(_QUERY_PROPERTY) or ""
        batch = self._batch_number(context)
        work, counted_before = writer.write_exactly_once(rows, commits, self._plan, query, batch)
        return TaskDone(self._plan.driver, query, batch, work, counted_before)

    def _batch_number(self, context: TaskContext) -> int:
        if self._options.batch is not None:
            return self._options.batch
        text = context.getLocalProperty(_BATCH_PROPERTY)
        if text is None or not text.isdigit():
            raise MoldauError(
                "This version of Spark does not tell its tasks which micro-batch they belong to, so exactly once is "
                "not possible: write in foreachBatch (moldau.spark.sink.each_batch), or set "
                "deliveryGuarantee=at-least-once"
            )
        return int(text)

    def _commit(self, messages: list[Any]) -> None:
        commits = self._options.commits
        done = [each for each in messages if isinstance(each, TaskDone)]
        if commits is None or not done or any(each.counted_before for each in done):
            return
        work = tuple(each.work for each in done if each.work is not None)
        if done[0].driver is None:
            commit_without_history(commits, work)
            return
        commit(commits, done[0].driver, Decision(done[0].batch, done[0].query, work))
        settle()

    def _abort(self, messages: list[Any]) -> None:
        if self._options.commits is not None:
            done = [each for each in messages if isinstance(each, TaskDone) and not each.counted_before]
            abort(self._options.commits, [each.work for each in done if each.work is not None])


class MoldauBatchWriter(_Writer, DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._plan = None
        self._streaming = False

    def __getstate__(self) -> dict[str, Any]:
        self._prepare()
        return self.__dict__

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._write(iterator)

    def commit(self, messages: list[Any]) -> None:
        self._commit(messages)

    def abort(self, messages: list[Any]) -> None:
        self._abort(messages)


class MoldauStreamWriter(_Writer, DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._plan = None
        self._streaming = True

    def __getstate__(self) -> dict[str, Any]:
        self._prepare()
        return self.__dict__

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._commit(messages)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._abort(messages)


def each_batch(**options: str) -> Any:
    """A function for `foreachBatch` that writes every micro-batch exactly once, in any output mode.

    For update mode on a compacted topic: a row is the newest value of its key. `transactionalId` must be given.

        upsert = each_batch(topic="counts", transactionalId="counts", **{"kafka.bootstrap.servers": "localhost:9092"})
        query = counts.writeStream.outputMode("update").foreachBatch(upsert).start()
    """

    def write(frame: Any, batch: int) -> None:
        frame.write.format("moldau").options(**options, batchId=str(batch)).mode("append").save()

    return write
