"""Groups of a stream's records, with or without windows, and what they add up to.

It decides which of Spark's output modes an aggregate needs: results that are final come in append mode, updates in
update mode, in which Spark allows nothing else that keeps state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from moldau.client.errors import MoldauError
from moldau.streams import state_tables as state
from moldau.streams.packing import packed, packed_key, quoted, schema_of, unpacked
from moldau.streams.state_streams import Slide
from moldau.streams.stream import Stream
from moldau.streams.table import Table, derived, folded
from moldau.streams.topics import UPDATE
from moldau.streams.windows import Kind, Window, milliseconds

FINAL, UPDATES = "final", "updates"
BOUNDS = ("window_start", "window_end")
_SLIDE_RESULT = state.struct(value=state.TEXT, window_start=state.TIME, window_end=state.TIME)


class Grouped:
    """Records in groups; what they add up to is a table that changes with every record."""

    def __init__(self, stream: Stream, columns: Sequence[Any]) -> None:
        self._stream = stream
        self._frame, self._columns = named(stream.df, columns)

    def count(self) -> Table:
        """How many records each group has.

        clicks.group_by("page").count().to("clicks-by-page")
        """
        return self.agg(F.count("*").alias("count"))

    def agg(self, *columns: Any, **named_columns: Any) -> Table:
        """Spark's aggregate functions, as columns with an alias or by name.

        payments.group_by("shop").agg(total=F.sum("amount"), largest=F.max("amount"))
        """
        stream = self._stream
        _one_stateful_operator(stream, "An aggregate that emits every update")
        frame = self._frame.groupBy(*[quoted(name) for name in self._columns]).agg(*aggregates(columns, named_columns))
        values = [name for name in frame.columns if name not in self._columns]
        return _table_of_updates(stream._home, frame, self._columns, values)

    def aggregate(self, zero: Any, add: Callable[[Any, Any], Any], schema: Any) -> Table:
        """A value of each group: `zero`, and what the function `add` makes of it with each record.

            baskets = items.group_by("order").aggregate(
                {"items": []}, lambda basket, row: {"items": [*basket["items"], row["item"]]}, "items array<string>"
            )

        Records and values are what JSON makes of them: dictionaries with texts and numbers. A value that becomes None
        is deleted. In a micro-batch, records come in the order of their event times. Unlike the table that `agg` gives,
        this one can be joined and grouped further.
        """
        stream = self._stream
        stream._home.check_state_store("aggregate")
        types = [self._frame.schema[name].dataType for name in self._columns]
        micros = F.coalesce(stream._micros(), F.lit(0))
        shown = [name for name in self._frame.columns if not name.startswith("_")]
        moved = self._frame.select(
            packed_key(self._columns, types).alias("group"),
            F.lit(None).cast("string").alias("old"),
            packed(shown).alias("new"),
            micros.alias("order"),
            micros.alias("micros"),
        ).where(F.col("group").isNotNull())
        return folded(stream._home, moved, self._columns, types, state.Fold(zero, add), schema)


class WindowedStream:
    """Records in windows, to be grouped."""

    def __init__(self, stream: Stream, window: Window, emit: str) -> None:
        if emit not in (FINAL, UPDATES):
            raise MoldauError(f"emit='{emit}' is not one of {FINAL}, {UPDATES}")
        if emit == UPDATES and window.kind in (Kind.SESSION, Kind.SLIDING):
            raise MoldauError(
                f'Spark gives results of {window.kind.value} windows only when they are final: leave emit="updates" '
                "out, or keep the window's state yourself with process(...)"
            )
        if stream.event_time is None:
            raise MoldauError("Windows need an event time, which these records do not have (any more)")
        if emit == FINAL:
            stream._need_watermark('A window\'s final result (or emit="updates")')
        self._stream = stream
        self._window = window
        self._emit = emit

    def group_by(self, *columns: Any) -> WindowedGroups:
        """Groups inside each window; without columns, each window is one."""
        if self._window.kind is Kind.SESSION and not columns:
            raise MoldauError("A session is somebody's: group_by needs a column, such as the user")
        return WindowedGroups(self._stream, self._window, self._emit, columns)

    def count(self) -> Any:
        """How many records each window has."""
        return self.group_by().count()

    def agg(self, *columns: Any, **named_columns: Any) -> Any:
        """Spark's aggregate functions over each window."""
        return self.group_by().agg(*columns, **named_columns)


class WindowedGroups:
    """Records in groups and windows. Results have the group's columns, `window_start` and `window_end`."""

    def __init__(self, stream: Stream, window: Window, emit: str, columns: Sequence[Any]) -> None:
        self._stream = stream
        self._window = window
        self._emit = emit
        self._frame, self._columns = named(stream.df, columns)

    def count(self) -> Any:
        """How many records each group has in each window.

        clicks.window(tumbling("1 minute")).group_by("page").count().to("clicks-per-minute")
        """
        return self.agg(F.count("*").alias("count"))

    def agg(self, *columns: Any, **named_columns: Any) -> Any:
        """Spark's aggregate functions, as columns with an alias or by name.

            readings.window(tumbling("1 minute")).group_by("sensor").agg(highest=F.max("celsius"))

        Final results are a stream, by the group's key and with the window's end as its event time: it can be joined,
        grouped into longer windows, and so on. Updates are a table by the group's columns and the window's bounds.
        """
        wanted = aggregates(columns, named_columns)
        if self._window.kind is Kind.SLIDING:
            return self._slide(wanted)
        time = F.col(quoted(str(self._stream.event_time)))
        window = self._window
        if window.kind is Kind.SESSION:
            column = F.session_window(time, window.size)
        elif window.every is not None:
            column = F.window(time, window.size, window.every)
        else:
            column = F.window(time, window.size)
        groups = [F.col(quoted(name)) for name in self._columns]
        frame = self._frame.groupBy(column.alias("_window"), *groups).agg(*wanted)
        values = [name for name in frame.columns if name not in (*self._columns, "_window")]
        bounds = [F.col("_window.start").alias(BOUNDS[0]), F.col("_window.end").alias(BOUNDS[1])]
        shown = [*groups, *bounds, *[F.col(quoted(name)) for name in values]]
        if self._emit == UPDATES:
            _one_stateful_operator(self._stream, "A window that emits every update")
            keys = [*self._columns, *BOUNDS]
            return _table_of_updates(self._stream._home, frame.select(*shown), keys, values)
        return self._finals(frame.select(*shown, F.window_time("_window").alias("_time")))

    def _slide(self, wanted: list[Any]) -> Stream:
        """Records are copied into each window they are in; then these are windows like any other."""
        stream = self._stream
        stream._home.check_state_store("A sliding window")
        time = str(stream.event_time)
        types = [self._frame.schema[name].dataType for name in self._columns]
        kept = [name for name in self._frame.columns if name != "_record"]
        key = packed_key(self._columns, types) if self._columns else F.lit("-")
        frame = self._frame.select(
            key.alias("key"),
            packed(kept).alias("value"),
            F.unix_millis(F.col(quoted(time))).alias("millis"),
            quoted(time),
        ).where(F.col("key").isNotNull())
        slid = frame.groupBy("key").transformWithState(
            Slide(milliseconds(self._window.size)),
            _SLIDE_RESULT,
            "Append",
            "EventTime",
            eventTimeColumnName="window_end",
        )
        opened = slid.select(unpacked(F.col("value"), schema_of(self._frame, kept)).alias("_row"), *BOUNDS)
        members = opened.select(*[F.col(f"_row.{quoted(name)}").alias(name) for name in kept], *BOUNDS)
        groups = [quoted(name) for name in self._columns]
        result = members.groupBy(*groups, *BOUNDS).agg(*wanted)
        values = [name for name in result.columns if name not in (*self._columns, *BOUNDS)]
        shown = [*groups, *BOUNDS, *[quoted(name) for name in values], F.col("window_end").alias("_time")]
        return self._finals(result.select(*shown), stateful=2)

    def _finals(self, frame: Any, stateful: int = 1) -> Stream:
        stream = self._stream
        return Stream(
            stream._home,
            frame,
            key=self._columns,
            record_key=None,
            event_time="_time",
            watermark=stream.watermark,
            stateful=stream.stateful + stateful,
        )


def _table_of_updates(home: Any, frame: Any, keys: Sequence[str], values: Sequence[str]) -> Table:
    """The table that an aggregate of Spark's own is."""
    hidden = derived(F.lit(False), F.lit(0))
    shown = [F.col(quoted(name)) for name in (*keys, *values)]
    return Table(home, frame.select(*shown, *hidden), keys=keys, values=values, mode=UPDATE)


def aggregates(columns: Sequence[Any], named_columns: dict[str, Any]) -> list[Any]:
    wanted = [*columns, *[column.alias(name) for name, column in named_columns.items()]]
    if not wanted:
        raise MoldauError('agg needs at least one aggregate, such as total=F.sum("amount")')
    return wanted


def named(frame: Any, columns: Sequence[Any]) -> tuple[Any, tuple[str, ...]]:
    """A frame that has what to group by as columns, and their names. What is given may be names or expressions."""
    names = []
    for column in columns:
        if isinstance(column, str):
            if column not in frame.columns:
                shown = ", ".join(name for name in frame.columns if not name.startswith("_"))
                raise MoldauError(f"There is no column '{column}' to group by: there are {shown}")
            names.append(column)
            continue
        name = frame.select(column).columns[0]
        frame = frame.withColumn(name, column)
        names.append(name)
    return frame, tuple(names)


def _one_stateful_operator(stream: Stream, what: str) -> None:
    if stream.stateful:
        raise MoldauError(
            f"{what} cannot follow a join, a window or anything else that keeps state, because Spark allows one "
            "stateful operator in update mode: write what comes before to a topic with .to(...) and read it again, use "
            'emit="final", or use aggregate(...)'
        )
