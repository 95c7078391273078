"""`Table`: the newest value of each key, as a stream of changes.

Its frame has the key's columns, the value's columns and hidden ones that say whether the key was deleted, and where and
when the change was made. What must be remembered from one micro-batch to the next is in `state_tables`; here are only
the frames that go in and come out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from moldau.client.errors import MoldauError
from moldau.streams import state_tables as state
from moldau.streams.packing import key_schema, packed, packed_key, quoted, schema_of, unpacked
from moldau.streams.state_tables import INNER, LEFT, LEFT_JOIN, OUTER, RIGHT
from moldau.streams.topics import APPEND, UPDATE, Output

if TYPE_CHECKING:
    from moldau.streams.entry import Streams
    from moldau.streams.stream import Stream

HIDDEN = ("_deleted", "_partition", "_offset", "_micros")


class Table:
    """The newest value of each key. Made by `Streams.table`, by aggregating, or by `Stream.to_table`.

    df      the changes: `keys`, `values`, and hidden columns of which `_deleted` says that the key is gone
    keys    the names of the columns that are the key
    values  the names of the others
    """

    def __init__(
        self, home: Streams, frame: Any, *, keys: Sequence[str], values: Sequence[str], mode: str = APPEND
    ) -> None:
        self._home = home
        self.df = frame.select(*[quoted(name) for name in (*keys, *values, *HIDDEN)])
        self.keys = tuple(keys)
        self.values = tuple(values)
        self.mode = mode

    def __repr__(self) -> str:
        return f"Table({', '.join(self.keys)} -> {', '.join(self.values)})"

    # ---- rows by themselves

    def where(self, condition: Any) -> Table:
        """Only rows for which the condition holds: one that ceases to be so is deleted from the result.

        big = orders.where("amount > 1000")
        """
        holds = F.expr(condition) if isinstance(condition, str) else condition
        gone = F.col("_deleted") | ~F.coalesce(holds, F.lit(False))
        return Table(
            self._home, self.df.withColumn("_deleted", gone), keys=self.keys, values=self.values, mode=self.mode
        )

    def select(self, *columns: Any) -> Table:
        """Other values made of the row's columns; the key stays.

        names = customers.select("name", F.upper("city").alias("city"))
        """
        keys = [F.col(quoted(name)).alias(f"_key{index}") for index, name in enumerate(self.keys)]
        chosen = self.df.select(*keys, *columns, *HIDDEN)
        values = [name for name in chosen.columns if name not in HIDDEN and not name.startswith("_key")]
        _refuse_clash(self.keys, values, "select gives a value the name of the key")
        renamed = chosen.withColumnsRenamed({f"_key{index}": name for index, name in enumerate(self.keys)})
        return Table(self._home, renamed, keys=self.keys, values=values, mode=self.mode)

    def with_columns(self, **columns: Any) -> Table:
        """More values, or others by the same names.

        priced = orders.with_columns(total=F.col("price") * F.col("pieces"))
        """
        _refuse_clash(self.keys, list(columns), "a value cannot have the name of the key")
        frame = self.df.withColumns(columns)
        values = [*self.values, *[name for name in columns if name not in self.values]]
        return Table(self._home, frame, keys=self.keys, values=values, mode=self.mode)

    def to_stream(self, *, deletions: bool = False) -> Stream:
        """The changes as records of a stream; deletions are left out, or told by a column `deleted`."""
        from moldau.streams.stream import Stream

        self._refuse_updates("to_stream")
        frame = self.df if deletions else self.df.where(~F.col("_deleted"))
        shown = [quoted(name) for name in (*self.keys, *self.values)]
        told = [F.col("_deleted").alias("deleted")] if deletions else []
        time = F.timestamp_micros("_micros").alias("_time")
        chosen = frame.select(*shown, *told, time)
        return Stream(self._home, chosen, key=self.keys, record_key=None, event_time=None, watermark=None, stateful=1)

    # ---- joins

    def join(self, other: Table, *, foreign_key: str | None = None, how: str = INNER, prefix: str = "") -> Table:
        """This table with another one: by their keys, or by a column of this one that refers to the other's key.

            profiles.join(settings, how="outer")
            orders.join(customers, foreign_key="customer", prefix="customer_")

        The result is a table by this table's key, and changes whenever one of the two does. `how` is inner, left or
        outer; by a foreign key, inner or left. `prefix` begins the names of the other table's columns.
        """
        kinds = (INNER, LEFT_JOIN) if foreign_key else (INNER, LEFT_JOIN, OUTER)
        if how not in kinds:
            raise MoldauError(
                f"how='{how}' is not one of {', '.join(kinds)}, which are the joins of tables"
                + (" by a foreign key" if foreign_key else "")
            )
        for each in (self, other):
            each._refuse_updates("join")
        self._home.check_state_store("A join of tables")
        values = joined_names([*self.keys, *self.values], other.values, prefix)
        return (
            self._join_by_foreign_key(other, foreign_key, how, values)
            if foreign_key
            else self._join_by_key(other, how, values)
        )

    def _join_by_key(self, other: Table, how: str, values: Sequence[str]) -> Table:
        if len(self.keys) != len(other.keys):
            raise MoldauError(
                f"The tables' keys are ({', '.join(self.keys)}) and ({', '.join(other.keys)}): join by key needs the "
                "same columns on both sides; say foreign_key=... if one refers to the other"
            )
        types = self.key_types()
        both = self.changes(LEFT, types).unionByName(other.changes(RIGHT, types))
        result = both.groupBy("key").transformWithState(state.TableJoin(how), state.JOINED, "Append", "None")
        return self._joined(result, other, values)

    def _join_by_foreign_key(self, other: Table, column: str, how: str, values: Sequence[str]) -> Table:
        if column not in (*self.keys, *self.values):
            raise MoldauError(
                f"There is no column '{column}' to be the foreign key: there are {', '.join(self.values)}"
            )
        if len(other.keys) != 1:
            raise MoldauError(f"A foreign key refers to a key of one column, not of {', '.join(other.keys)}")
        types = other.key_types()
        placed = self.changes(LEFT, self.key_types(), place=packed_key([column], types))
        routed = placed.groupBy("key").transformWithState(state.ForeignKeyRoute(how), state.ROUTED, "Append", "None")
        right = other.changes(RIGHT, types).select(
            F.col("key").alias("foreign"), "side", F.lit(0).alias("kind"), F.lit(None).cast("string").alias("key"),
            "value", "partition", "offset", "micros",
        )  # fmt: skip
        both = routed.unionByName(right)
        result = both.groupBy("foreign").transformWithState(state.ForeignKeyJoin(how), state.JOINED, "Append", "None")
        return self._joined(result, other, values)

    def _joined(self, result: Any, other: Table, values: Sequence[str]) -> Table:
        left, right = schema_of(self.df, self.values), schema_of(other.df, other.values)
        keys = key_schema(self.key_types())
        opened = result.select(
            unpacked(F.col("key"), keys).alias("_key"),
            unpacked(F.col("left"), left).alias("_left"),
            unpacked(F.col("right"), right).alias("_right"),
            F.col("deleted").alias("_deleted"),
            "micros",
        )
        frame = opened.select(
            *[F.col(f"_key.k{index}").alias(name) for index, name in enumerate(self.keys)],
            *[F.col(f"_left.{quoted(name)}").alias(name) for name in self.values],
            *[F.col(f"_right.{quoted(old)}").alias(new) for old, new in zip(other.values, values, strict=True)],
            *derived(F.col("_deleted"), F.col("micros")),
        )
        return Table(self._home, frame, keys=self.keys, values=[*self.values, *values])

    # ---- aggregates

    def group_by(self, *columns: str) -> GroupedTable:
        """Groups of rows, for a table by other columns. A row whose columns are null is in none.

        customers.group_by("city").count()
        """
        self._refuse_updates("group_by")
        missing = [name for name in columns if name not in (*self.keys, *self.values)]
        if missing or not columns:
            raise MoldauError(f"group_by needs columns of the table, of which there are {', '.join(self.values)}")
        return GroupedTable(self._home, self, columns)

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
        """Start a query that writes every change to a topic, best a compacted one: the key and its new value, or the
        key and no value when it is deleted. A row whose key is null is not written.

            orders.join(customers, foreign_key="customer").to("orders-with-customers")

        key, value      how they are encoded; JSON, and plain text for a key of one column, unless given
        query           the query's name, of which its checkpoint and transactional id are made; the topic unless given
        trigger         Spark's, such as {"processingTime": "10 seconds"} or {"availableNow": True}
        """
        names = list(self.values)
        row = F.col("value") if names == ["value"] else F.struct(*[F.col(quoted(name)) for name in names])
        # Compacted topics take no record without a key.
        keyed = self.df.where(F.col(quoted(self.keys[0])).isNotNull()) if len(self.keys) == 1 else self.df
        frame = keyed.select(key_column(self.keys).alias("key"), F.when(~F.col("_deleted"), row).alias("value"))
        return self._home.start(
            Output(
                query=query or topic,
                topic=topic,
                frame=frame,
                key=key,
                value=value,
                mode=self.mode,
                exactly_once=exactly_once,
                trigger=trigger or {},
                checkpoint=checkpoint,
                options=options or {},
            )
        )

    # ---- for operators

    def key_types(self) -> list[Any]:
        return [self.df.schema[name].dataType for name in self.keys]

    def changes(self, side: int, types: Sequence[Any], place: Any = None) -> Any:
        """The changes as operators read them. With `place`, that instead of the side, at the end."""
        row = F.when(~F.col("_deleted"), packed(self.values)).alias("value")
        where_and_when = [F.col("_partition").alias("partition"), F.col("_offset").alias("offset")]
        where_and_when.append(F.col("_micros").alias("micros"))
        key = packed_key(self.keys, types).alias("key")
        if place is not None:
            frame = self.df.select(key, row, *where_and_when, place.alias("place"))
        else:
            frame = self.df.select(key, F.lit(side).alias("side"), row, *where_and_when)
        return frame.where(F.col("key").isNotNull())

    def _refuse_updates(self, what: str) -> None:
        if self.mode == UPDATE:
            raise MoldauError(
                f"{what} after an aggregate that emits every update is not possible in one query, because Spark allows "
                "one stateful operator in update mode: write the aggregate to a topic with .to(...) and read that with "
                "s.table(...), or use aggregate(...), which can be followed by anything"
            )


class GroupedTable:
    """Rows of a table in groups; what they add up to is a table by the group's columns."""

    def __init__(self, home: Streams, table: Table, columns: Sequence[str]) -> None:
        self._home = home
        self._table = table
        self._columns = tuple(columns)

    def count(self) -> Table:
        """How many rows each group has."""
        return self.aggregate({"count": 0}, _one_more, _one_less, "count long")

    def sum(self, column: str) -> Table:
        """The sum of a column of whole numbers or of floating point numbers in each group."""
        kind = self._table.df.schema[column].dataType.simpleString()
        result = "double" if kind in ("double", "float") else "long"
        if kind not in ("double", "float", "bigint", "int", "smallint", "tinyint"):
            raise MoldauError(f"Column '{column}' is {kind}, which cannot be summed here: cast it, or use aggregate")
        return self.aggregate({"sum": 0}, _Plus(column, 1), _Plus(column, -1), f"sum {result}")

    def aggregate(
        self,
        zero: Any,
        add: Callable[[Any, Any], Any],
        subtract: Callable[[Any, Any], Any],
        schema: Any,
    ) -> Table:
        """A value of each group: `zero`, and what `add` and `subtract` make of it as rows come and go.

            by_city = customers.group_by("city").aggregate(
                {"names": []},
                lambda group, row: {"names": sorted([*group["names"], row["name"]])},
                lambda group, row: {"names": [name for name in group["names"] if name != row["name"]]},
                "names array<string>",
            )

        Rows and groups are what JSON makes of them: dictionaries with texts and numbers. A group that becomes None is
        deleted.
        """
        self._home.check_state_store("An aggregate of a table")
        table = self._table
        types = [table.df.schema[name].dataType for name in self._columns]
        row = F.when(~F.col("_deleted"), packed([*table.keys, *table.values])).alias("value")
        frame = table.df.select(
            packed_key(table.keys, table.key_types()).alias("key"),
            row,
            F.col("_partition").alias("partition"),
            F.col("_offset").alias("offset"),
            F.col("_micros").alias("micros"),
            packed_key(self._columns, types).alias("place"),
        ).where(F.col("key").isNotNull())
        moved = frame.groupBy("key").transformWithState(state.TableGroups(), state.MOVED, "Append", "None")
        return folded(self._home, moved, self._columns, types, state.Fold(zero, add, subtract), schema)


def folded(home: Any, moved: Any, columns: Sequence[str], types: Sequence[Any], fold: Any, schema: Any) -> Table:
    """The table of what groups have become."""
    kind = home.struct(schema)
    result = moved.groupBy("group").transformWithState(fold, state.FOLDED, "Append", "None")
    opened = result.select(
        *([unpacked(F.col("key"), key_schema(types)).alias("_key")] if columns else []),
        unpacked(F.col("value"), kind).alias("_value"),
        F.col("value").isNull().alias("_gone"),
        "micros",
    )
    names = [each.name for each in kind.fields]
    _refuse_clash(columns, names, "the aggregate gives a value the name of a group's column")
    frame = opened.select(
        *[F.col(f"_key.k{index}").alias(name) for index, name in enumerate(columns)],
        *[F.col(f"_value.{quoted(name)}").alias(name) for name in names],
        *derived(F.col("_gone"), F.col("micros")),
    )
    return Table(home, frame, keys=columns, values=names)


def derived(deleted: Any, micros: Any) -> list[Any]:
    """The hidden columns of a table that is no topic: it has at most one change of a key in a micro-batch."""
    return [
        deleted.alias("_deleted"),
        F.lit(-1).alias("_partition"),
        F.lit(0).cast("long").alias("_offset"),
        F.coalesce(micros, F.lit(0)).cast("long").alias("_micros"),
    ]


def key_column(names: Sequence[str]) -> Any:
    if not names:
        return F.lit(None).cast("string")
    if len(names) == 1:
        return F.col(quoted(names[0]))
    return F.struct(*[F.col(quoted(name)) for name in names])


def joined_names(left: Sequence[str], right: Sequence[str], prefix: str) -> list[str]:
    """What the right side's columns are called in a join."""
    names = [prefix + name for name in right]
    clash = sorted(set(left) & set(names))
    if clash:
        raise MoldauError(
            f"Both sides of the join have {', '.join(clash)}: say prefix=..., which begins the names of the right "
            "side's columns"
        )
    return names


def _refuse_clash(keys: Sequence[str], values: Sequence[str], what: str) -> None:
    clash = sorted(set(keys) & set(values))
    if clash:
        raise MoldauError(f"{what}: {', '.join(clash)}. Give it another name with alias")


def _one_more(group: Any, _row: Any) -> Any:
    return {"count": group["count"] + 1}


def _one_less(group: Any, _row: Any) -> Any:
    return {"count": group["count"] - 1}


class _Plus:
    def __init__(self, column: str, sign: int) -> None:
        self._column = column
        self._sign = sign

    def __call__(self, group: Any, row: Any) -> Any:
        return {"sum": group["sum"] + self._sign * (row[self._column] or 0)}
