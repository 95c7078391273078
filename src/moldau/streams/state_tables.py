"""What is kept by key for tables and their joins: functions that Spark calls in its workers, a key at a time.

A table is a stream of changes: the newest value of a key, or that there is none any more. All changes of a key in one
micro-batch become one, so an operator emits at most one change of a key for each micro-batch, and whoever reads its
output needs no order inside a micro-batch. Values are texts that nobody here looks into (see `packing`); whether a
change is older than what is held is decided by its offset, since a key lives in one partition.

Kafka Streams' rules for joins hold: a deletion is passed on only if there was a result to delete, and a null key never
matches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

LEFT, RIGHT = 0, 1
INNER, LEFT_JOIN, OUTER = "inner", "left", "outer"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TEXT, LONG = StringType(), LongType()


def struct(**fields: Any) -> Any:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


HELD = struct(value=TEXT, partition=IntegerType(), offset=LONG)
# Operators on tables read changes: the packed key, which side, the packed value (null: deleted), partition, offset and
# microseconds. Joins give this:
JOINED = struct(key=TEXT, left=TEXT, right=TEXT, deleted=BooleanType(), micros=LONG)


class Held(NamedTuple):
    """The newest value of a key, and where in its topic it was. Tables that are no topics have partition -1."""

    value: str | None
    partition: int
    offset: int


def newest(held: Held | None, changes: Iterable[Held]) -> Held | None:
    """What is held after some changes that come in any order. Older ones than what is held change nothing."""
    for change in sorted(changes, key=lambda each: (each.partition, each.offset)):
        known = held is not None and change.partition == held.partition >= 0
        if not known or held is None or change.offset > held.offset:
            held = change
    return held


class Side:
    """One table's value of the key at hand, as it was before the micro-batch and as it is now."""

    __slots__ = ("_state", "before", "now")

    def __init__(self, state: Any) -> None:
        self._state = state
        found = state.get()
        self.before: Held | None = None if found is None else Held(*found)
        self.now = self.before

    def take(self, changes: list[Held]) -> bool:
        """Apply changes; False if all of them were older than what is known."""
        self.now = newest(self.before, changes)
        if self.now is self.before:
            return False
        if self.now is None or self.now.value is None:
            if self.before is not None:
                self._state.clear()
        else:
            self._state.update(tuple(self.now))
        return True

    @property
    def value_before(self) -> str | None:
        return None if self.before is None else self.before.value

    @property
    def value(self) -> str | None:
        return None if self.now is None else self.now.value


def exists(how: str, left: str | None, right: str | None) -> bool:
    """Whether a join has a result for a key."""
    if how == INNER:
        return left is not None and right is not None
    return left is not None or (how == OUTER and right is not None)


class TableJoin(StatefulProcessor):
    """Two tables by their keys. Reads changes, gives JOINED."""

    def __init__(self, how: str) -> None:
        self._how = how

    def init(self, handle: Any) -> None:
        self._left = handle.getValueState("left", HELD)
        self._right = handle.getValueState("right", HELD)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        changes: tuple[list[Held], list[Held]] = ([], [])
        latest = 0
        for _, side, value, partition, offset, micros in rows:
            changes[side].append(Held(value, partition, offset))
            latest = max(latest, micros)
        left, right = Side(self._left), Side(self._right)
        taken = [left.take(changes[LEFT]), right.take(changes[RIGHT])]
        if any(taken):
            if exists(self._how, left.value, right.value):
                yield Row(key=key[0], left=left.value, right=right.value, deleted=False, micros=latest)
            elif exists(self._how, left.value_before, right.value_before):
                yield Row(key=key[0], left=None, right=None, deleted=True, micros=latest)


class StreamTableJoin(StatefulProcessor):
    """Each record of a stream with what the table holds at that moment. Inside a micro-batch, moments are told by the
    records' times; a change of the table comes before a record of the same time.

    Reads key, side (LEFT: the stream), value, partition, offset, micros, and the event time that Spark's watermark is
    on; gives the stream's row, the table's, and the event time under the name it had.
    """

    def __init__(self, how: str, time_name: str) -> None:
        self._how = how
        self._time_name = time_name

    def init(self, handle: Any) -> None:
        self._table = handle.getValueState("table", HELD)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        # Right before left at the same time.
        ordered = sorted(rows, key=lambda row: (row[5], -row[1], row[3], row[4]))
        table = Side(self._table)
        for row in ordered:
            if row[1] == RIGHT:
                if table.take([Held(row[2], row[3], row[4])]):
                    table.before = table.now
            elif table.value is not None or self._how != INNER:
                yield Row(left=row[2], right=table.value, **{self._time_name: row[6]})


# ---- foreign keys

JOIN, MOVE, LEAVE, DELETE = range(4)
ROUTED = struct(
    foreign=TEXT,
    side=IntegerType(),
    kind=IntegerType(),
    key=TEXT,
    value=TEXT,
    partition=IntegerType(),
    offset=LONG,
    micros=LONG,
)
PLACED = struct(place=TEXT, value=TEXT, partition=IntegerType(), offset=LONG)


class Placed:
    """A row of a table that is put somewhere by another key: where it was and is, and its value.

    Rows to take are key, value, partition, offset, micros, and the other key (null: nowhere).
    """

    __slots__ = ("_state", "before", "micros", "now", "place", "was")

    def __init__(self, state: Any, rows: Iterator[Any]) -> None:
        self._state = state
        found = state.get()
        self.before = None if found is None else Held(*found[1:])
        self.was: str | None = None if found is None else found[0]
        self.micros = 0
        place_of: dict[Held, str | None] = {}
        for _, value, partition, offset, micros, place in rows:
            place_of[Held(value, partition, offset)] = place
            self.micros = max(self.micros, micros)
        self.now = newest(self.before, place_of)
        self.place = None if self.value is None or self.unchanged or self.now is None else place_of[self.now]

    @property
    def unchanged(self) -> bool:
        return self.now is self.before

    @property
    def value(self) -> str | None:
        return None if self.now is None else self.now.value

    @property
    def value_before(self) -> str | None:
        return None if self.before is None else self.before.value

    def keep(self, place: str | None) -> None:
        """Remember the row and where it is."""
        if self.value is not None and self.now is not None:
            self._state.update((place, *self.now))
        elif self.before is not None:
            self._state.clear()


class ForeignKeyRoute(StatefulProcessor):
    """Sends each change of the left table to the row of the right table that it refers to, and takes it away from the
    one it referred to before. Reads key, value, partition, offset, micros and the packed foreign key; gives ROUTED.

    Of one left key, at most one of the places it is sent to has something to say about the result: the new one, or the
    old one if there is no new one. So results cannot overtake each other.
    """

    def __init__(self, how: str) -> None:
        self._how = how

    def init(self, handle: Any) -> None:
        self._held = handle.getValueState("left", PLACED)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        placed = Placed(self._held, rows)
        if placed.unchanged:
            return
        old, new = placed.was, placed.place
        if new is None and placed.value is not None and self._how != INNER:
            # It refers to nothing and is a result all the same: at a place of its own, which no right key is called.
            new = f"-{key[0]}"
        placed.keep(new)

        def sent(to: str, kind: int, value: str | None) -> Any:
            return Row(
                foreign=to, side=LEFT, kind=kind, key=key[0], value=value, partition=-1, offset=0, micros=placed.micros
            )

        if new is None:
            if old is not None:
                yield sent(old, DELETE, None)
        elif old is None or old == new:
            yield sent(new, JOIN, placed.value)
        else:
            yield sent(old, LEAVE, None)
            yield sent(new, MOVE, placed.value)


class ForeignKeyJoin(StatefulProcessor):
    """One row of the right table and all rows of the left one that refer to it. Reads ROUTED, gives JOINED."""

    def __init__(self, how: str) -> None:
        self._how = how

    def init(self, handle: Any) -> None:
        self._right = handle.getValueState("right", HELD)
        self._referring = handle.getMapState("referring", struct(key=TEXT), struct(value=TEXT))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        changes: list[Held] = []
        sent: dict[str, tuple[int, str | None]] = {}
        latest = 0
        for _, side, kind, left_key, value, partition, offset, micros in rows:
            latest = max(latest, micros)
            if side == RIGHT:
                changes.append(Held(value, partition, offset))
            else:
                sent[left_key] = (kind, value)
        right = Side(self._right)
        changed = bool(changes) and right.take(changes)
        for left_key, (kind, value) in sent.items():
            yield from self._answer(left_key, kind, value, right, latest)
        if changed:
            for (left_key,), (value,) in self._referring.iterator():
                if left_key not in sent:
                    yield from self._result(left_key, value, right, right.value_before is not None, latest)

    def _answer(self, key: str, kind: int, value: str | None, right: Side, micros: int) -> Iterator[Any]:
        if kind in (JOIN, MOVE):
            known = kind == JOIN and right.value_before is not None and self._referring.containsKey((key,))
            self._referring.updateValue((key,), (value,))
            yield from self._result(key, value, right, known or kind == MOVE, micros)
            return
        self._referring.removeKey((key,))
        if kind == DELETE and exists(self._how, "", right.value_before):
            yield Row(key=key, left=None, right=None, deleted=True, micros=micros)

    def _result(self, key: str, value: str | None, right: Side, had_one: bool, micros: int) -> Iterator[Any]:
        if exists(self._how, value, right.value):
            yield Row(key=key, left=value, right=right.value, deleted=False, micros=micros)
        elif had_one:
            yield Row(key=key, left=None, right=None, deleted=True, micros=micros)


# ---- aggregates that are tables

MOVED = struct(group=TEXT, old=TEXT, new=TEXT, order=LONG, micros=LONG)
FOLDED = struct(key=TEXT, value=TEXT, micros=LONG)


class TableGroups(StatefulProcessor):
    """Tells each group which rows of a table left it and which came. Reads key, value, partition, offset, micros and
    the packed group; gives MOVED."""

    def init(self, handle: Any) -> None:
        self._held = handle.getValueState("row", PLACED)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        placed = Placed(self._held, rows)
        if placed.unchanged:
            return
        old, new = placed.was, placed.place
        placed.keep(new)
        if old is not None:
            value = placed.value if old == new else None
            yield Row(group=old, old=placed.value_before, new=value, order=0, micros=placed.micros)
        if new is not None and old != new:
            yield Row(group=new, old=None, new=placed.value, order=0, micros=placed.micros)


class Fold(StatefulProcessor):
    """A value of each group's own, made by a function that adds a row to it and one that takes a row away. Reads MOVED,
    gives FOLDED. Rows and the value are what JSON makes of them: dictionaries, lists, texts and numbers."""

    def __init__(
        self, zero: Any, add: Callable[[Any, Any], Any], subtract: Callable[[Any, Any], Any] | None = None
    ) -> None:
        self._zero = json.dumps(zero)
        self._add = add
        self._subtract = subtract

    def init(self, handle: Any) -> None:
        self._value = handle.getValueState("value", struct(value=TEXT))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        found = self._value.get()
        value = json.loads(self._zero if found is None else found[0])
        latest = 0
        for _, old, new, _, micros in sorted(rows, key=lambda row: (row[3], row[1] or "", row[2] or "")):
            latest = max(latest, micros)
            if old is not None and self._subtract is not None:
                value = self._subtract(value, json.loads(old))
            if new is not None:
                value = self._add(value, json.loads(new))
        if value is None:
            if found is not None:
                self._value.clear()
                yield Row(key=key[0], value=None, micros=latest)
            return
        text = json.dumps(value)
        self._value.update((text,))
        yield Row(key=key[0], value=text, micros=latest)


def moment(micros: int) -> datetime:
    """A time as Spark takes it from Python without regard to any zone."""
    return EPOCH + timedelta(microseconds=micros)


TIME = TimestampType()
