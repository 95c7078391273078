"""`Streams`: the place where a pipeline gets its streams and tables.

It decides how a topic's records become columns, and checks that the Spark session can keep the state that tables need.
It starts nothing: queries are started by `to`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType, TimestampType

from moldau.client.errors import MoldauError
from moldau.spark.state_store import PROVIDER, ROCKSDB
from moldau.spark.values import Bytes, dead_letters
from moldau.streams.packing import quoted
from moldau.streams.records import DROP, FAIL, PERMISSIVE, decoded
from moldau.streams.stream import Stream
from moldau.streams.table import Table
from moldau.streams.topics import BrokerTopics, Output, Topics

_SERVERS = "kafka.bootstrap.servers"
_SERVERS_SETTING = "spark.moldau.bootstrap.servers"

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "headers")
# In a test's streams: a time to which event time moves on without a record.
ADVANCE = "_advance"


class Streams:
    """Streams and tables from topics, on a Spark session.

        s = Streams(bootstrap_servers="localhost:9092", checkpoint_dir="/var/lib/clicks")
        clicks = s.stream("clicks", value=Json("user string, page string, at timestamp"), event_time="at",
                          watermark="10 minutes")
        clicks.window(tumbling("1 minute")).group_by("page").count().to("clicks-per-minute")
        s.wait()

    spark               a session; without one, the running one is used or a new one made
    bootstrap_servers   the brokers
    checkpoint_dir      where queries keep their progress, each in a directory of its own
    options             options of format("moldau") for reading; those that begin with "kafka." are for writing, too
    name                begins the transactional ids of this pipeline; the application's name unless given
    """

    def __init__(
        self,
        spark: Any = None,
        *,
        bootstrap_servers: str | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        options: Mapping[str, str] | None = None,
        name: str | None = None,
        topics: Topics | None = None,
    ) -> None:
        self.spark = spark if spark is not None else _session(name)
        self.name = name or self.spark.conf.get("spark.app.name", "streams")
        servers = bootstrap_servers or self.spark.conf.get(_SERVERS_SETTING, None)
        connection = {**({_SERVERS: servers} if servers else {}), **(options or {})}
        place = None if checkpoint_dir is None else os.fspath(checkpoint_dir)
        self._topics = topics or BrokerTopics(self.spark, self.name, connection, place)
        self.queries: list[Any] = []

    def stream(
        self,
        topic: str,
        *,
        value: Any = None,
        key: Any = None,
        event_time: str | None = None,
        watermark: str | None = None,
        key_name: str = "key",
        errors: str = FAIL,
        dead_letters: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Stream:
        """The records of a topic, one after the other.

            clicks = s.stream("clicks", value=Json("user string, page string, at timestamp"), key=String(),
                              event_time="at", watermark="10 minutes")

        Columns: the key under `key_name`, the value's fields (or `value`, if it has none), and `_record` with the
        record's topic, partition, offset, timestamp and, if asked for, headers. Columns whose names begin with an
        underscore are not written by `to`.

        event_time  which column says when it happened; the record's timestamp unless given
        watermark   how long to wait for late records. Without one nothing is late, and no window is ever complete
        errors      what becomes of records that cannot be decoded: the query fails ("fail"), they are left out
                    ("drop"), or they stay, with nulls and a column `_error` that says why ("permissive")
        dead_letters    a topic where they go instead, with the reason in their headers; a query of its own does that
        options     further options of format("moldau"), such as {"maxOffsetsPerTrigger": "100000"}
        """
        frame, fields = self._decoded(topic, key, value, key_name, _Errors(errors, dead_letters), options)
        time = event_time or "_time"
        if event_time is None:
            frame = frame.withColumn(time, F.col("_record.timestamp"))
        elif event_time not in frame.columns:
            raise MoldauError(
                f"There is no column '{event_time}' to be the event time of '{topic}': it has {', '.join(fields)}"
            )
        if not isinstance(frame.schema[time].dataType, TimestampType):
            kind = frame.schema[time].dataType.simpleString()
            raise MoldauError(
                f"Column '{time}' is {kind}, so it cannot be the event time: declare it as timestamp, or leave "
                "event_time out to take the record's"
            )
        frame = _with_watermark(frame, time, watermark)
        return Stream(self, frame, key=(key_name,), record_key=key_name, event_time=time, watermark=watermark)

    def table(
        self,
        topic: str,
        *,
        value: Any,
        key: Any = None,
        key_name: str = "key",
        errors: str = FAIL,
        dead_letters: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Table:
        """The newest value of each key of a topic, best a compacted one. A record without a value deletes its key.

            customers = s.table("customers", key=String(), value=Json("name string, city string"))

        Records without a key are left out. The topic is read from its beginning unless options say otherwise. For
        `errors` and `dead_letters` see `stream`; a record that cannot be decoded never changes the table.
        """
        how = _Errors(DROP if errors == PERMISSIVE else errors, dead_letters)
        frame, fields = self._decoded(topic, key, value, key_name, how, options)
        changes = (
            frame.where(F.col(quoted(key_name)).isNotNull())
            .withColumns(
                {
                    "_partition": F.col("_record.partition"),
                    "_offset": F.col("_record.offset"),
                    "_micros": F.unix_micros("_record.timestamp"),
                }
            )
            .drop("_record", ADVANCE)
        )
        return Table(self, changes, keys=(key_name,), values=tuple(fields))

    def of(
        self,
        frame: Any,
        *,
        key: str | Sequence[str] = (),
        event_time: str | None = None,
        watermark: str | None = None,
    ) -> Stream:
        """Any streaming DataFrame as a stream.

        readings = s.of(spark.readStream.schema(...).parquet("/in"), key="sensor", event_time="at",
                        watermark="1 minute")
        """
        keys = (key,) if isinstance(key, str) else tuple(key)
        if event_time is not None:
            frame = _with_watermark(frame, event_time, watermark)
        return Stream(self, frame, key=keys, record_key=None, event_time=event_time, watermark=watermark)

    # ---- running

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a query ends, and raise what ended it. False if none did in time (seconds)."""
        if timeout is None:
            self.spark.streams.awaitAnyTermination()
            return True
        return bool(self.spark.streams.awaitAnyTermination(timeout))

    def stop(self) -> None:
        """Stop all queries of this pipeline."""
        for query in self.queries:
            query.stop()

    # ---- for streams and tables

    def start(self, output: Output) -> Any:
        query = self._topics.write(output)
        self.queries.append(query)
        return query

    def check_state_store(self, what: str) -> None:
        """Tables and processors keep state that only RocksDB can hold."""
        found = self.spark.conf.get(PROVIDER, "")
        if "RocksDB" not in found:
            raise MoldauError(
                f"{what} keeps its state in RocksDB, but this Spark session is not set up for it: call "
                f'spark.conf.set("{PROVIDER}", "{ROCKSDB}") before any query starts, or let Streams() make the session'
            )

    def struct(self, schema: Any) -> Any:
        """A schema that is given as such or in Spark's words ("user string, count long")."""
        return schema if isinstance(schema, StructType) else StructType.fromDDL(schema)

    def _decoded(
        self, topic: str, key: Any, value: Any, key_name: str, errors: _Errors, options: Mapping[str, str] | None
    ) -> tuple[Any, list[str]]:
        """A topic with its records in columns, and the names of those that are the value's."""
        raw = self._topics.read(topic, key, value, options or {})
        frame = decoded(raw.withColumn("_deleted", F.col("value").isNull()), key=key, value=value, mode=errors.mode)
        if errors.dead_letters is not None and "_raw" in frame.columns:
            _, bad = dead_letters(frame, errors.dead_letters, name=self.name)
            self.start(Output(errors.dead_letters, errors.dead_letters, bad.drop("topic"), Bytes(), Bytes()))
        if errors.mode == DROP:
            frame = frame.where(F.col("_error").isNull()).drop("_error")
        kind = frame.schema["value"].dataType
        if isinstance(kind, StructType):
            names = [each.name for each in kind.fields]
            fields = [F.col(f"value.{quoted(name)}").alias(name) for name in names]
        else:
            names, fields = ["value"], [F.col("value")]
        _check_names(topic, names, key_name)
        record = F.struct(*[F.col(name) for name in RECORD_COLUMNS if name in raw.columns]).alias("_record")
        hidden = [name for name in ("_deleted", "_error", ADVANCE) if name in frame.columns]
        return frame.select(F.col("key").alias(key_name), *fields, record, *hidden), names


@dataclass(slots=True, frozen=True)
class _Errors:
    """What becomes of records that cannot be decoded."""

    given: str
    dead_letters: str | None

    @property
    def mode(self) -> str:
        if self.dead_letters is None:
            return self.given
        return PERMISSIVE if self.given == PERMISSIVE else DROP


def _check_names(topic: str, names: Sequence[str], key_name: str) -> None:
    if key_name in names:
        raise MoldauError(
            f"The value of '{topic}' has a field '{key_name}', which is what the key's column is called: choose "
            'another name for the key\'s with key_name="..."'
        )
    hidden = [name for name in names if name.startswith("_")]
    if hidden:
        raise MoldauError(
            f"The value of '{topic}' has a field '{hidden[0]}': names that begin with an underscore are kept for "
            "columns that are not written. Leave it out of the schema"
        )


def _with_watermark(frame: Any, time: str, watermark: str | None) -> Any:
    """All records of the topic move its time, also those that the pipeline does not want."""
    if ADVANCE in frame.columns:
        frame = frame.withColumn(time, F.coalesce(F.col(ADVANCE), F.col(quoted(time))))
    if watermark is not None:
        # The condition is always true. Since Spark does not know, it lets no filter that comes later pass it, and they
        # see records after the watermark did.
        frame = frame.withWatermark(time, watermark).where(F.spark_partition_id() >= 0)
    if ADVANCE in frame.columns:
        frame = frame.where(F.col(ADVANCE).isNull())
    return frame.drop(ADVANCE, "_deleted")


def _session(name: str | None) -> Any:
    """The running session, or one that can do all that streams need."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.appName(name or "streams")
        .config(PROVIDER, ROCKSDB)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(max(2, os.cpu_count() or 2)))
        .getOrCreate()
    )
