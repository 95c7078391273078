"""`Stream`: records one after the other, and what can be done with them.

Spark does the work: windows, aggregates, joins of streams and duplicates are its own operators, called with what a
pipeline's author would otherwise have to remember (which column is the event time, which the key, which output mode
goes with what). What Spark does not have is built on its state (`state_streams`, `state_tables`). What cannot work is
refused here, with what to do instead, rather than by Spark when the query starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from moldau.client.errors import MoldauError
from moldau.streams import state_tables as state
from moldau.streams.packing import packed, packed_key, quoted, schema_of, time_of, unpacked
from moldau.streams.state_streams import Deduplicate
from moldau.streams.state_tables import INNER, LEFT, LEFT_JOIN, OUTER, RIGHT
from moldau.streams.table import Table, joined_names, key_column
from moldau.streams.topics import Output
from moldau.streams.windows import Window, milliseconds

if TYPE_CHECKING:
    from moldau.streams.entry import Streams
    from moldau.streams.grouping import Grouped, WindowedStream

_SPARK_JOINS = {INNER: "inner", LEFT_JOIN: "left_outer", OUTER: "full_outer"}
_TIME_MODES = {"event": "EventTime", "processing": "ProcessingTime", "none": "None"}
_LAST_MICROS = (1 << 63) - 1


class Stream:
    """Records one after the other. Made by `Streams.stream`, or by an operator on another one.

    df          the records as a DataFrame; columns whose names begin with an underscore are not written by `to`
    key         the names of the columns that are the key
    event_time  the name of the column that says when it happened, or None
    watermark   how long late records are waited for, or None
    """

    def __init__(
        self,
        home: Streams,
        frame: Any,
        *,
        key: Sequence[str],
        record_key: str | None,
        event_time: str | None,
        watermark: str | None,
        stateful: int = 0,
    ) -> None:
        self._home = home
        self.df = frame
        self.key = tuple(key)
        self.event_time = event_time
        self.watermark = watermark
        # The column that was the key of the record that was read. It is no part of the value.
        self._record_key = record_key
        # How many operators before this one keep state.
        self.stateful = stateful

    def __repr__(self) -> str:
        return f"Stream({', '.join(self.columns)})"

    @property
    def columns(self) -> list[str]:
        """The columns that are not hidden."""
        return [name for name in self.df.columns if not name.startswith("_")]

    # ---- records by themselves

    def transform(self, function: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Stream:
        """Whatever Spark can do: a function from DataFrame to DataFrame. The columns of the key and of the event time
        should stay.

        clicks.transform(lambda df: df.withColumn("host", F.parse_url("page", F.lit("HOST"))))
        """
        return self._with(function(self.df, *args, **kwargs))

    def where(self, condition: Any) -> Stream:
        """Only records for which the condition holds.

        errors = logs.where("level = 'ERROR'")
        """
        return self._with(self.df.where(condition))

    def select(self, *columns: Any) -> Stream:
        """Other columns. Hidden ones stay; the event time and the key stay usable only if they are among the columns.

        pages = clicks.select("user", "page", "at", F.lower("page").alias("path"))
        """
        hidden = [name for name in self.df.columns if name.startswith("_")]
        return self._with(self.df.select(*columns, *hidden))

    def with_columns(self, **columns: Any) -> Stream:
        """More columns, or others by the same names.

        clicks.with_columns(path=F.lower("page"))
        """
        return self._with(self.df.withColumns(columns))

    def key_by(self, *columns: str) -> Stream:
        """The same records by another key: that is what a table is joined on, and the key that `to` writes.

        clicks.key_by("user").join(users)
        """
        self._need_columns(columns, "key_by")
        return self._with(self.df, key=columns)

    def merge(self, other: Stream) -> Stream:
        """The records of both streams, which have the same columns."""
        if set(self.columns) != set(other.columns):
            raise MoldauError(
                f"merge needs the same columns on both sides, not {', '.join(self.columns)} and "
                f"{', '.join(other.columns)}: select them first"
            )
        if self.event_time != other.event_time:
            raise MoldauError(
                f"merge needs one event time, not {self.event_time} and {other.event_time}: read both streams with the "
                "same event_time"
            )
        # Where a record was says nothing if it looks different on the two sides.
        theirs = {each.name: each.dataType for each in other.df.schema.fields}
        kept = [
            quoted(each.name)
            for each in self.df.schema.fields
            if not each.name.startswith("_") or theirs.get(each.name) == each.dataType
        ]
        return self._with(
            self.df.select(*kept).unionByName(other.df.select(*kept)), stateful=max(self.stateful, other.stateful)
        )

    def to_table(self) -> Table:
        """The newest record of each key as a table. In one micro-batch, the newest is the one with the highest offset,
        or the latest event time if the records are not those of a topic any more."""
        self._need_key("to_table")
        if "_record" in self.df.columns and self.stateful == 0:
            place = [F.col("_record.partition"), F.col("_record.offset")]
        else:
            place = [F.lit(-1), F.coalesce(self._micros(), F.lit(0))]
        values = [name for name in self.columns if name not in self.key and name != self._record_key]
        frame = self.df.withColumns(
            {
                "_deleted": F.lit(False),
                "_partition": place[0],
                "_offset": place[1].cast("long"),
                "_micros": F.coalesce(self._micros(), F.lit(0)),
            }
        )
        return Table(self._home, frame, keys=self.key, values=values)

    # ---- windows and groups

    def window(self, window: Window, *, emit: str = "final") -> WindowedStream:
        """Records in windows of event time, to be grouped and aggregated.

            clicks.window(tumbling("10 minutes")).group_by("page").count()

        emit    "final": each window's result once, when the watermark has passed it; late records are dropped.
                "updates": every change of a window's result as it happens, a table by group and window
        """
        from moldau.streams.grouping import WindowedStream

        return WindowedStream(self, window, emit)

    def group_by(self, *columns: Any) -> Grouped:
        """Groups of all records that there ever were; their aggregates are tables.

        clicks.group_by("page").count()
        """
        from moldau.streams.grouping import Grouped

        return Grouped(self, columns)

    def deduplicate(self, *columns: str, within: str | None = None) -> Stream:
        """The first of records that have the same values in some columns (those of the key unless given).

            payments.deduplicate("payment_id", within="1 hour")

        within  how long after the first one others are dropped, in event time. Without it they are dropped forever, and
                remembering them takes more and more room
        """
        names = columns or self.key
        self._need_columns(names, "deduplicate")
        if within is None:
            return self._with(self.df.dropDuplicates(list(names)), stateful=self.stateful + 1)
        time = self._need_watermark("deduplicate(within=...)")
        if self.watermark is not None and milliseconds(within) == milliseconds(self.watermark):
            return self._with(self.df.dropDuplicatesWithinWatermark(list(names)), stateful=self.stateful + 1)
        self._home.check_state_store("deduplicate(within=...) with another time than the watermark's")
        kept = [name for name in self.df.columns if name != time]
        types = [self.df.schema[name].dataType for name in names]
        frame = self.df.select(
            packed_key(names, types).alias("key"),
            packed(kept).alias("value"),
            F.unix_millis(F.col(quoted(time))).alias("millis"),
            quoted(time),
        )
        result = frame.groupBy("key").transformWithState(
            Deduplicate(milliseconds(within), time),
            StructType([StructField("value", state.TEXT), StructField(time, state.TIME)]),
            "Append",
            "EventTime",
            eventTimeColumnName=time,
        )
        row = unpacked(F.col("value"), schema_of(self.df, kept)).alias("_row")
        opened = result.select(row, quoted(time))
        columns_again = [
            F.col(f"_row.{quoted(name)}").alias(name) if name != time else time for name in self.df.columns
        ]
        return self._with(opened.select(*columns_again), stateful=self.stateful + 1)

    # ---- joins

    def join(
        self,
        other: Stream | Table,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        within: str | tuple[str, str] | None = None,
        how: str = INNER,
        prefix: str = "",
    ) -> Stream:
        """This stream with another one, or with a table.

            views.join(clicks, on="user", within="10 minutes")
            orders.join(customers, on="customer", how="left", prefix="customer_")

        on      the columns to compare: names, or names here with names there. With a table, this stream's columns that
                are compared with the table's key. The streams' keys unless given
        within  with a stream: how far apart in event time the two records may be; two durations if the other one may be
                that much earlier and that much later
        how     inner, left, or (with a stream) outer. A record without a partner appears, with nulls, when none can
                come any more; with a table at once
        prefix  begins the names of the other side's columns

        With a table, each record gets what the table holds when it comes; later changes of the table do not matter.
        """
        if isinstance(other, Table):
            if within is not None:
                raise MoldauError("A table has no time to be within: leave `within` out of a join with a table")
            return self._join_table(other, on, how, prefix)
        return self._join_stream(other, on, within, how, prefix)

    def _join_stream(self, other: Stream, on: Any, within: Any, how: str, prefix: str) -> Stream:
        if how not in _SPARK_JOINS:
            raise MoldauError(f"how='{how}' is not one of {', '.join(_SPARK_JOINS)}, which are the joins of streams")
        if within is None:
            raise MoldauError('A join of streams needs to know how far apart records may be: say within="10 minutes"')
        mine, theirs = self._need_watermark("A join of streams"), other._need_watermark("A join of streams")
        pairs = self._pairs(on, other.key, other.columns)
        taken = [name for name in other.columns if name not in pairs.values()]
        names = joined_names(self.columns, taken, prefix)
        inner_names = {name: f"_r{index}" for index, name in enumerate(other.df.columns)}
        right = other.df.withColumnsRenamed(inner_names)
        before, after = (within, within) if isinstance(within, str) else within
        earliest = F.expr(f"{quoted(mine)} - interval {milliseconds(before)} milliseconds")
        latest = F.expr(f"{quoted(mine)} + interval {milliseconds(after)} milliseconds")
        their_time = F.col(inner_names[theirs])
        condition = (their_time >= earliest) & (their_time <= latest)
        for left_name, right_name in pairs.items():
            condition = condition & (F.col(quoted(left_name)) == F.col(inner_names[right_name]))
        joined = self.df.join(right, condition, _SPARK_JOINS[how])
        ours: list[Any] = []
        for name in self.df.columns:
            if how == OUTER and name in pairs:
                ours.append(F.coalesce(F.col(quoted(name)), F.col(inner_names[pairs[name]])).alias(name))
            else:
                ours.append(F.col(quoted(name)))
        added = [
            # Spark takes one event time for a stream: the right one's becomes a plain column.
            (_plain(inner_names[name]) if name == theirs else F.col(inner_names[name])).alias(new)
            for name, new in zip(taken, names, strict=True)
        ]
        result = joined.select(*ours, *added)
        return Stream(
            self._home,
            result,
            key=tuple(pairs),
            record_key=self._record_key,
            event_time=None if how == OUTER else mine,
            watermark=None if how == OUTER else self.watermark,
            stateful=self.stateful + other.stateful + 1,
        )

    def _join_table(self, table: Table, on: Any, how: str, prefix: str) -> Stream:
        if how not in (INNER, LEFT_JOIN):
            raise MoldauError(f"how='{how}' is not one of inner, left, which are the joins of a stream with a table")
        table._refuse_updates("join")
        self._home.check_state_store("A join with a table")
        pairs = self._pairs(on, table.keys, [*table.keys, *table.values])
        if list(pairs.values()) != list(table.keys):
            raise MoldauError(
                f"A stream is joined with a table by the table's key ({', '.join(table.keys)}): say which columns of "
                f"the stream are compared with it, on={[*pairs]}"
            )
        names = joined_names(self.columns, table.values, prefix)
        time = self.event_time if self.event_time in self.df.columns else None
        with_watermark = time is not None and self.watermark is not None
        time_name = time or "_time"
        kept = [name for name in self.df.columns if name != time_name]
        types = table.key_types()
        ours = self.df.select(
            F.coalesce(packed_key(list(pairs), types), F.lit("-")).alias("key"),
            F.lit(LEFT).alias("side"),
            packed(kept).alias("value"),
            F.lit(-1).alias("partition"),
            F.lit(0).cast("long").alias("offset"),
            F.coalesce(self._micros(), F.lit(_LAST_MICROS)).alias("micros"),
            quoted(time_name) if time else F.lit(None).cast("timestamp").alias(time_name),
        )
        # No event time on the table's side: changes of a table are never late, and do not move the stream's time.
        theirs = table.changes(RIGHT, types).withColumn(time_name, F.lit(None).cast("timestamp"))
        result = (
            ours.unionByName(theirs)
            .groupBy("key")
            .transformWithState(
                state.StreamTableJoin(how, time_name),
                StructType(
                    [
                        StructField("left", state.TEXT),
                        StructField("right", state.TEXT),
                        StructField(time_name, state.TIME),
                    ]
                ),
                "Append",
                "EventTime" if with_watermark else "None",
                eventTimeColumnName=time_name if with_watermark else "",
            )
        )
        opened = result.select(
            unpacked(F.col("left"), schema_of(self.df, kept)).alias("_left"),
            unpacked(F.col("right"), schema_of(table.df, table.values)).alias("_right"),
            quoted(time_name),
        )
        frame = opened.select(
            *[
                quoted(name) if name == time_name else F.col(f"_left.{quoted(name)}").alias(name)
                for name in self.df.columns
            ],
            *[F.col(f"_right.{quoted(old)}").alias(new) for old, new in zip(table.values, names, strict=True)],
        )
        return self._with(frame, stateful=self.stateful + 1)

    # ---- state of one's own

    def process(
        self,
        processor: Any,
        schema: Any,
        *,
        by: str | Sequence[str] | None = None,
        time: str = "none",
        event_time: str | None = None,
    ) -> Stream:
        """Records by key through a `StatefulProcessor` of one's own, which keeps state and sets timers.

            alerts = readings.process(Silence(), "sensor string, silent_since timestamp", by="sensor", time="event")

        processor   an object of a subclass of `moldau.streams.StatefulProcessor` (Spark's own)
        schema      the columns of the rows it gives
        by          the columns that are its key; the stream's unless given
        time        what its timers run on: "event", "processing", or "none" if it sets no timers
        event_time  the column of the result that is its event time. Its rows must not be older than the watermark
        """
        names = (by,) if isinstance(by, str) else tuple(by or self.key)
        self._need_columns(names, "process")
        self._home.check_state_store("process")
        if time not in _TIME_MODES:
            raise MoldauError(f"time='{time}' is not one of {', '.join(_TIME_MODES)}")
        if time == "event" or event_time is not None:
            self._need_watermark("Timers of event time")
        kind = self._home.struct(schema)
        result = self.df.groupBy(*[quoted(name) for name in names]).transformWithState(
            processor, kind, "Append", _TIME_MODES[time], eventTimeColumnName=event_time or ""
        )
        given = {each.name for each in kind.fields}
        return Stream(
            self._home,
            result,
            key=names if given.issuperset(names) else (),
            record_key=None,
            event_time=event_time,
            watermark=self.watermark if event_time is not None else None,
            stateful=self.stateful + 1,
        )

    # ---- results

    def to(
        self,
        topic: str,
        *,
        key: Any = None,
        value: Any = None,
        query: str | None = None,
        exactly_once: bool = True,
        trigger: Mapping[str, Any] | None = None,
        checkpoint: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Any:
        """Start a query that writes the records to a topic.

            clicks.where("page = '/buy'").to("purchases", query="purchases")

        key, value      how they are encoded; JSON, and plain text for a key of one column, unless given
        query           the query's name, of which its checkpoint and transactional id are made; the topic unless given
        exactly_once    each micro-batch counts once, for those who read committed records; False: at least once
        trigger         Spark's, such as {"processingTime": "10 seconds"} or {"availableNow": True}
        """
        self._need_columns(self.key, "to")
        names = [name for name in self.columns if name != self._record_key]
        row = F.col("value") if names == ["value"] else F.struct(*[F.col(quoted(name)) for name in names])
        frame = self.df.select(key_column(self.key).alias("key"), row.alias("value"))
        return self._home.start(
            Output(
                query=query or topic,
                topic=topic,
                frame=frame,
                key=key,
                value=value,
                exactly_once=exactly_once,
                trigger=trigger or {},
                checkpoint=checkpoint,
                options=options or {},
            )
        )

    # ---- what operators share

    def _with(self, frame: Any, *, key: Sequence[str] | None = None, stateful: int | None = None) -> Stream:
        return Stream(
            self._home,
            frame,
            key=self.key if key is None else key,
            record_key=self._record_key,
            event_time=self.event_time,
            watermark=self.watermark,
            stateful=self.stateful if stateful is None else stateful,
        )

    def _micros(self) -> Any:
        """When a record happened; null if nobody knows."""
        if self.event_time is not None and self.event_time in self.df.columns:
            return time_of(self.event_time)
        return F.lit(None).cast("long")

    def _need_columns(self, names: Sequence[str], what: str) -> None:
        missing = [name for name in names if name not in self.df.columns]
        if missing:
            raise MoldauError(
                f"{what} needs the column '{missing[0]}', which is not among {', '.join(self.columns)}: keep it when "
                "selecting, or name others with key_by"
            )

    def _need_key(self, what: str) -> None:
        if not self.key:
            raise MoldauError(f"{what} needs a key: say which columns it is with key_by(...)")
        self._need_columns(self.key, what)

    def _need_watermark(self, what: str) -> str:
        if self.event_time is None:
            raise MoldauError(f"{what} needs an event time, which these records do not have (any more)")
        self._need_columns([self.event_time], what)
        if self.watermark is None:
            raise MoldauError(
                f"{what} needs to know how long to wait for late records, or its state would grow forever: read the "
                'stream with watermark="10 minutes", or whatever fits'
            )
        return self.event_time

    def _pairs(self, on: Any, their_key: Sequence[str], their_columns: Sequence[str]) -> dict[str, str]:
        """Which of our columns is compared with which of theirs."""
        if on is None:
            self._need_key("join without `on`")
            if len(self.key) != len(their_key):
                raise MoldauError(
                    f"The keys are ({', '.join(self.key)}) and ({', '.join(their_key)}): say which columns to compare "
                    "with on=..."
                )
            return dict(zip(self.key, their_key, strict=True))
        if isinstance(on, Mapping):
            pairs = dict(on)
        else:
            names = [on] if isinstance(on, str) else list(on)
            # The same name on both sides, or else the other side's key.
            same = all(name in their_columns for name in names)
            if not same and len(names) != len(their_key):
                raise MoldauError(f"on={names} does not fit the other side's key ({', '.join(their_key)})")
            pairs = dict(zip(names, names if same else their_key, strict=True))
        self._need_columns(list(pairs), "join")
        missing = [name for name in pairs.values() if name not in their_columns]
        if missing:
            raise MoldauError(
                f"The other side of the join has no column '{missing[0]}', only {', '.join(their_columns)}"
            )
        return pairs


def _plain(name: str) -> Any:
    """A timestamp that Spark does not take for an event time."""
    return F.timestamp_micros(F.unix_micros(F.col(name)))
