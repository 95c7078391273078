"""Pipelines in tests: records go in with the times they happened at, results come out, and no broker is there.

    def test_clicks_are_counted(spark):
        with Driver(spark) as driver:
            driver.run(pipeline)
            driver.feed("clicks", [record({"page": "/a"}, at="2026-01-01T10:00:05")])
            driver.advance("clicks", to="2026-01-01T10:20:00")
            assert driver.results("clicks-per-minute") == [...]

Everything that is fed at once is one micro-batch, so the same test always computes the same. Event time moves with the
records, or with `advance`. Processing time is Spark's own and cannot be set; processors that use it are tested with
`pyspark.sql.streaming.tws_tester.TwsTester`, which has a clock to set.

Inputs are files that Spark reads in order; all inputs of a pipeline are one source, or Spark could take a new record of
one topic for this micro-batch and one of another for the next.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, Row, StructField, StructType, TimestampType

from moldau.client.errors import MoldauError
from moldau.spark.source import SCHEMA_WITH_HEADERS
from moldau.spark.state_store import PROVIDER, ROCKSDB
from moldau.spark.values import Json, String, decode, encode
from moldau.streams.entry import ADVANCE, Streams
from moldau.streams.records import encoded
from moldau.streams.topics import Output

_FED = StructType([*SCHEMA_WITH_HEADERS.fields, StructField(ADVANCE, TimestampType())])
_SETTINGS = {
    PROVIDER: ROCKSDB,
    "spark.sql.session.timeZone": "UTC",
    # For a handful of rows, compiling code for them takes longer than anything else.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_ATTEMPTS = 10
_ROUNDS = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Time = datetime | str | int | float


@dataclass(slots=True, frozen=True)
class Record:
    """A record to feed. `value` None deletes the key of a table."""

    value: Any = None
    key: Any = None
    at: Time | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    # Where it is in its topic, unless the next free place will do.
    offset: int | None = None
    partition: int = 0


@dataclass(slots=True, frozen=True)
class Result:
    """A record that came out: key and value as the pipeline had them in columns, and the bytes they were written as."""

    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes]] = ()
    raw_key: bytes | None = field(default=None, compare=False, repr=False)
    raw_value: bytes | None = field(default=None, compare=False, repr=False)


def record(value: Any = None, key: Any = None, at: Time | None = None, **more: Any) -> Record:
    """A record to feed: its value (a dictionary, a text, bytes, or None), key, and time.

    record({"page": "/a"}, key="alice", at="2026-01-01T10:00:00")
    """
    return Record(value, key, at, **more)


class Driver:
    """Runs a pipeline without brokers.

        with Driver(spark) as driver:
            driver.run(pipeline)
            driver.feed("orders", [record({"customer": "c1"}, key="o1")])
            assert driver.results("orders-with-customers") == []

    spark   a session to work beside; a new one unless given. The pipeline gets a session of its own on the same Spark,
            so settings that it makes stay in the test
    start   the time of records that are fed without one; each is a second later than the one before
    partitions  over how many partitions keys are spread; with several, results of different keys come in any order
    """

    def __init__(self, spark: Any = None, *, start: Time = "2026-01-01T00:00:00", partitions: int = 1) -> None:
        own = Streams(spark).spark.newSession()
        for name, value in {**_SETTINGS, "spark.sql.shuffle.partitions": str(partitions)}.items():
            own.conf.set(name, value)
        self._directory = Path(tempfile.mkdtemp(prefix="moldau-driver-"))
        self._topics = _Memory(own, self._directory)
        self._clock = moment(start)
        self.streams = Streams(own, topics=self._topics, name="driver")

    def run(self, pipeline: Callable[..., Any], *args: Any, **kwargs: Any) -> Driver:
        """Call a pipeline with this driver's streams, which starts its queries."""
        pipeline(self.streams, *args, **kwargs)
        return self

    def feed(self, topic: str, records: Iterable[Record | Any]) -> list[Result]:
        """Put records into a topic, let the pipeline take them as one micro-batch, and return what came out."""
        return self.feed_all({topic: records})

    def feed_all(self, records: Mapping[str, Iterable[Record | Any]]) -> list[Result]:
        """Put records into several topics, let the pipeline take all as one micro-batch, and return what came out.

        driver.feed_all({"customers": [record({"city": "Brno"}, key="c1")], "orders": [record({...}, key="o1")]})
        """
        rows = []
        for topic, given in records.items():
            self._topics.check_read(topic)
            rows += [self._row(topic, each if isinstance(each, Record) else Record(each)) for each in given]
        return self._topics.take(rows, self._clock)

    def advance(self, topic: str, to: Time) -> list[Result]:
        """Let event time reach `to` in a topic without a record there, and return what came out."""
        self._topics.check_read(topic)
        row = dict.fromkeys(_FED.names) | {"topic": topic, "partition": 0, ADVANCE: moment(to)}
        self._clock = max(self._clock, moment(to))
        return self._topics.take([row], self._clock)

    def results(self, topic: str) -> list[Result]:
        """All that came out into a topic so far."""
        if topic not in self._topics.results:
            written = ", ".join(self._topics.results) or "nothing yet: call run first"
            raise MoldauError(f"The pipeline does not write to '{topic}'; it writes to {written}")
        return list(self._topics.results[topic])

    def table(self, topic: str) -> dict[Any, Any]:
        """What a table in a topic holds now: the newest value of each key that is not deleted."""
        held: dict[Any, Any] = {}
        for each in self.results(topic):
            key = _hashable(each.key)
            held.pop(key, None)
            if each.value is not None:
                held[key] = each.value
        return held

    def close(self) -> None:
        """Stop the pipeline and remove what it kept."""
        self.streams.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _row(self, topic: str, given: Record) -> dict[str, Any]:
        at = self._clock if given.at is None else moment(given.at)
        self._clock = max(self._clock, at) + timedelta(seconds=1)
        key_codec, value_codec = self._topics.codecs.get(topic, (None, None))
        return {
            "key": self._topics.bytes_of(given.key, key_codec, "key"),
            "value": self._topics.bytes_of(given.value, value_codec, "value"),
            "topic": topic,
            "partition": given.partition,
            "offset": self._topics.place(topic, given.partition, given.offset),
            "timestamp": at,
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in given.headers] or None,
            ADVANCE: None,
        }


def moment(time: Time) -> datetime:
    """A time that is given as such, as ISO text (in UTC unless it says otherwise) or as seconds since the epoch."""
    if isinstance(time, int | float):
        return _EPOCH + timedelta(seconds=time)
    found = datetime.fromisoformat(time) if isinstance(time, str) else time
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


class _Running:
    """A query of the pipeline. Spark gives a Python process ten seconds to start, which can be too little on a busy
    machine: then the query is started again where it was."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._writer: Any = None
        self._query: Any = None
        # How many micro-batches have come out.
        self.batches = 0

    def start(self, writer: Any) -> None:
        self._writer = writer
        self._query = writer.start()

    def catch_up(self) -> None:
        """Wait until it has taken all there is."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                return self._query.processAllAvailable()  # type: ignore[no-any-return]
            except Exception as error:
                # After this come the plans, which are many pages.
                reason = str(error).partition("=== Streaming Query ===")[0].strip()
                if "failed to connect back" not in reason or not attempts_left:
                    raise MoldauError(f"The query '{self._name}' has failed: {reason}") from None
                self._query = self._writer.start()
        raise AssertionError("unreachable")

    def stop(self) -> None:
        self._query.stop()


class _Memory:
    """Topics that are files on the way in and lists on the way out. What a pipeline writes to a topic that it also
    reads is fed to it again."""

    def __init__(self, spark: Any, directory: Path) -> None:
        self._spark = spark
        self._inputs = directory / "inputs"
        self._inputs.mkdir()
        self._checkpoints = directory / "checkpoints"
        self._source: Any = None
        self._schema = to_arrow_schema(_FED, timezone="UTC")
        self._next: dict[tuple[str, int], int] = {}
        self._files = 0
        # Whether anything was fed yet.
        self._fed = False
        self._queries: list[_Running] = []
        # One query computes at a time: each needs several processes, and a test's machine may be small.
        self._turn = threading.Lock()
        self._fresh: list[tuple[str, Result]] = []
        self.codecs: dict[str, tuple[Any, Any]] = {}
        self.results: dict[str, list[Result]] = {}

    # ---- what a pipeline sees

    def read(self, topic: str, key: Any, value: Any, options: Mapping[str, str]) -> Any:
        if self._source is None:
            self._source = self._spark.readStream.schema(_FED).parquet(str(self._inputs))
        self.codecs[topic] = (key, value)
        headers = options.get("includeHeaders", "false").lower() == "true"
        wanted = [name for name in _FED.names if headers or name != "headers"]
        # New names for the columns, so that Spark sees one source however often it is read.
        return self._source.where(F.col("topic") == topic).select(*[F.col(name).alias(name) for name in wanted])

    def write(self, output: Output) -> Any:
        plain = output.frame.withColumns({"_key": F.col("key"), "_value": F.col("value")})
        frame = encoded(plain, key=output.key, value=output.value)
        running = _Running(output.query)

        def keep(batch: Any, number: int) -> None:
            with self._turn:
                rows = batch.collect()
                # A micro-batch may be repeated, by a query that was started again.
                if number >= running.batches and self._fed:
                    self._fresh += [(output.topic, _result(row)) for row in rows]
                running.batches = max(running.batches, number + 1)

        writer = frame.writeStream.queryName(output.query).outputMode(output.mode).foreachBatch(keep)
        if not self._files:
            self._put([])
        # A query plans and starts its processes with its first micro-batch, which is empty: one query at a time.
        running.start(writer.option("checkpointLocation", str(self._checkpoints / output.query)))
        running.catch_up()
        self._queries.append(running)
        self.results.setdefault(output.topic, [])
        return running

    # ---- what the driver does

    def take(self, rows: list[dict[str, Any]], now: datetime) -> list[Result]:
        """Let the pipeline compute with these rows, and what it makes of them (now), until nothing comes any more."""
        came: list[Result] = []
        self._fed = True
        rounds = 0
        while rows:
            rounds += 1
            if rounds > _ROUNDS:
                raise MoldauError(
                    "The pipeline writes to a topic that it reads, and what comes of that makes it write again, "
                    "without end: give its results a topic of their own"
                )
            self._put(rows)
            for query in self._queries:
                query.catch_up()
            fresh, self._fresh = self._fresh, []
            rows = []
            for topic, result in fresh:
                self.results[topic].append(result)
                came.append(result)
                if topic in self.codecs:
                    rows.append(self._again(topic, result, now))
        return came

    def check_read(self, topic: str) -> None:
        if topic not in self.codecs:
            read = ", ".join(self.codecs) or "nothing yet: call run first"
            raise MoldauError(f"The pipeline does not read '{topic}'; it reads {read}")

    def place(self, topic: str, partition: int, wanted: int | None) -> int:
        offset = self._next.get((topic, partition), 0) if wanted is None else wanted
        self._next[topic, partition] = max(offset + 1, self._next.get((topic, partition), 0))
        return offset

    def bytes_of(self, given: Any, codec: Any, name: str) -> bytes | None:
        """A key or value as a record has it."""
        if given is None or isinstance(given, bytes):
            return given
        if isinstance(given, str) and isinstance(codec, String | None):
            return given.encode()
        if codec is None or (isinstance(codec, Json) and codec.registry is None):
            return json.dumps(given, default=_json).encode()
        return self._encode(given, codec, name)

    def _encode(self, given: Any, codec: Any, name: str) -> bytes | None:
        """By the codec itself, through Spark, from the type that it would read."""
        nothing = self._spark.createDataFrame([], StructType([StructField(name, BinaryType())]))
        kind = decode(nothing, **{name: codec}).schema[name].dataType
        frame = self._spark.createDataFrame([(given,)], StructType([StructField(name, kind)]))
        return _bytes(encode(frame, **{name: codec}).first()[name])

    def _again(self, topic: str, result: Result, now: datetime) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(_FED.names)
        row |= {"key": result.raw_key, "value": result.raw_value, "topic": topic, "partition": 0, "timestampType": 0}
        return row | {"offset": self.place(topic, 0, None), "timestamp": now}

    def _put(self, rows: list[dict[str, Any]]) -> None:
        """One file, which is there at once."""
        self._files += 1
        hidden = self._inputs / f".{self._files:06}"
        pq.write_table(pa.Table.from_pylist(rows, schema=self._schema), hidden)
        os.replace(hidden, self._inputs / f"{self._files:06}.parquet")


def _result(row: Any) -> Result:
    headers = row.asDict().get("headers")
    return Result(
        _plain(row["_key"]),
        _plain(row["_value"]),
        tuple((each["key"], bytes(each["value"])) for each in headers or ()),
        _bytes(row["key"]),
        _bytes(row["value"]),
    )


def _plain(value: Any) -> Any:
    """Rows as dictionaries, and times with their zone: Spark gives them in the one of this machine."""
    if isinstance(value, Row):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)


def _hashable(key: Any) -> Any:
    return tuple(key.values()) if isinstance(key, dict) else key


def _json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    raise MoldauError(f"A {type(value).__name__} cannot be fed as JSON: give it as text or bytes")
