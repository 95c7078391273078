"""What is kept by key, against plain Python that keeps it all. Spark's tester calls the functions; no Spark runs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from moldau.streams.state_streams import Deduplicate, Slide, memberships, spans
from moldau.streams.state_tables import (
    INNER,
    LEFT,
    LEFT_JOIN,
    OUTER,
    RIGHT,
    Fold,
    ForeignKeyJoin,
    ForeignKeyRoute,
    Held,
    StreamTableJoin,
    TableGroups,
    TableJoin,
    moment,
    newest,
)

KEYS, FOREIGN, VALUES = ("a", "b", "c"), ("x", "y", None), (None, "1", "2")
left_changes = st.tuples(st.just(LEFT), st.sampled_from(KEYS), st.sampled_from(VALUES), st.sampled_from(FOREIGN))
right_changes = st.tuples(st.just(RIGHT), st.sampled_from(("x", "y")), st.sampled_from(VALUES), st.none())
batches_of_foreign_keys = st.lists(st.lists(st.one_of(left_changes, right_changes), max_size=6), max_size=6)
same_key = st.tuples(st.sampled_from((LEFT, RIGHT)), st.sampled_from(KEYS), st.sampled_from(VALUES))
batches_of_same_keys = st.lists(st.lists(same_key, max_size=6), max_size=6)


def shuffled(rows: list[Any]) -> list[Any]:
    """Another order than that of the offsets, the same in every run."""
    return rows[::-1]


def joined(how: str, left: str | None, right: str | None) -> Any:
    if how == INNER:
        return (left, right) if left is not None and right is not None else None
    if how == LEFT_JOIN:
        return (left, right) if left is not None else None
    return (left, right) if left is not None or right is not None else None


class Results:
    """A table made of what an operator gave; it may delete only what is there, and change a key once in a batch."""

    def __init__(self, may_delete_nothing: bool = False) -> None:
        self.held: dict[str, Any] = {}
        self._may_delete_nothing = may_delete_nothing

    def take(self, rows: list[Any]) -> None:
        assert all(count == 1 for count in Counter(row.key for row in rows).values())
        for row in rows:
            if row.deleted:
                assert self._may_delete_nothing or row.key in self.held, "a deletion of nothing"
                self.held.pop(row.key, None)
            else:
                self.held[row.key] = (row.left, row.right)


@pytest.mark.parametrize("how", [INNER, LEFT_JOIN, OUTER])
@given(batches_of_same_keys)
@settings(max_examples=60)
def test_two_tables_by_key(how: str, batches: list[list[tuple[int, str, str | None]]]) -> None:
    tester, results, offset = TwsTester(TableJoin(how)), Results(), 0
    tables: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for batch in batches:
        rows = defaultdict(list)
        for side, key, value in batch:
            offset += 1
            rows[key].append(Row(key=key, side=side, value=value, partition=0, offset=offset, micros=offset))
            tables[side][key] = value
        given_back = [row for key, some in rows.items() for row in tester.test(key, shuffled(some))]
        results.take(given_back)
        expected = {key: joined(how, tables[LEFT].get(key), tables[RIGHT].get(key)) for key in KEYS}
        assert results.held == {key: value for key, value in expected.items() if value is not None}


@pytest.mark.parametrize("how", [INNER, LEFT_JOIN])
@given(batches_of_foreign_keys)
@settings(max_examples=100)
def test_two_tables_by_a_foreign_key(how: str, batches: list[list[tuple[int, str, str | None, str | None]]]) -> None:
    routes, joins = TwsTester(ForeignKeyRoute(how)), TwsTester(ForeignKeyJoin(how))
    # As Kafka Streams': a row that moves to a place where nothing is may be deleted although it was not there.
    results, offset = Results(may_delete_nothing=True), 0
    left: dict[str, Any] = {}
    right: dict[str, Any] = {}
    for batch in batches:
        changes, routed = defaultdict(list), defaultdict(list)
        for side, key, value, foreign in batch:
            offset += 1
            if side == LEFT:
                row = Row(key=key, value=value, partition=0, offset=offset, micros=offset, place=foreign)
                changes[key].append(row)
                left[key] = (value, foreign)
            else:
                row = Row(foreign=key, side=RIGHT, kind=0, key=None, value=value, partition=0, offset=offset, micros=1)
                routed[key].append(row)
                right[key] = value
        for key, rows in changes.items():
            for row in routes.test(key, shuffled(rows)):
                routed[row.foreign].append(row)
        results.take([row for place, rows in routed.items() for row in joins.test(place, shuffled(rows))])
        expected = {key: joined(how, value, right.get(foreign)) for key, (value, foreign) in left.items()}
        assert results.held == {key: value for key, value in expected.items() if value is not None}


def test_a_stream_sees_the_table_as_it_was_when_the_record_happened() -> None:
    tester = TwsTester(StreamTableJoin(INNER, "at"))

    def record(name: str, micros: int) -> Row:
        return Row(key="k", side=LEFT, value=name, partition=-1, offset=0, micros=micros, at=moment(micros))

    def change(value: str | None, micros: int, offset: int) -> Row:
        return Row(key="k", side=RIGHT, value=value, partition=0, offset=offset, micros=micros, at=None)

    rows = [record("early", 5), record("same", 10), record("later", 15), change("1", 10, 0), change(None, 20, 1)]
    assert [(row.left, row.right) for row in tester.test("k", shuffled(rows))] == [("same", "1"), ("later", "1")]
    # Once the table has changed, it has, whatever the times of later records are.
    assert tester.test("k", [record("much too late", 1)]) == []
    assert [row.right for row in tester.test("k", [change("2", 30, 2), record("x", 30)])] == ["2"]


changes_of_one_key = st.lists(
    st.builds(Held, st.sampled_from(VALUES), st.just(3), st.integers(0, 20)), max_size=8, unique_by=lambda each: each[2]
)


@given(changes_of_one_key, st.randoms(use_true_random=False))
def test_the_highest_offset_wins_in_whatever_order_changes_come(changes: list[Held], random: Any) -> None:
    order = list(changes)
    random.shuffle(order)
    held: Held | None = None
    for change in order:
        held = newest(held, [change])
    assert held == newest(None, order) == max(changes, key=lambda each: each.offset, default=None)


def test_a_key_that_has_moved_to_another_partition_goes_on_there() -> None:
    assert newest(Held("old", 0, 100), [Held("new", 1, 3)]) == Held("new", 1, 3)


grouped = st.tuples(st.sampled_from(KEYS), st.sampled_from((None, 1, 5)), st.sampled_from(FOREIGN))


@given(st.lists(st.lists(grouped, max_size=6), max_size=6))
@settings(max_examples=100)
def test_groups_of_a_table_follow_rows_that_move(batches: list[list[tuple[str, int | None, str | None]]]) -> None:
    groups = TwsTester(TableGroups())
    sums = TwsTester(Fold(0, lambda total, row: total + row["n"], lambda total, row: total - row["n"]))
    table: dict[str, tuple[int | None, str | None]] = {}
    results: dict[str, int] = {}
    offset = 0
    for batch in batches:
        changes, moved = defaultdict(list), defaultdict(list)
        for key, number, group in batch:
            offset += 1
            value = None if number is None else json.dumps({"n": number})
            changes[key].append(Row(key=key, value=value, partition=0, offset=offset, micros=offset, place=group))
            table[key] = (number, group)
        for key, rows in changes.items():
            for row in groups.test(key, shuffled(rows)):
                moved[row.group].append(row)
        for group, rows in moved.items():
            results |= {row.key: json.loads(row.value) for row in sums.test(group, rows)}
        expected = Counter[str]()
        for number, group in table.values():
            if number is not None and group is not None:
                expected[group] += number
        assert {group: total for group, total in results.items() if total} == dict(expected)


def test_a_folded_value_that_becomes_none_is_deleted() -> None:
    tester = TwsTester(Fold({"n": 0}, lambda kept, row: None if row["end"] else {"n": kept["n"] + 1}))

    def row(end: bool) -> Row:
        return Row(group="g", old=None, new=json.dumps({"end": end}), order=1, micros=1)

    assert [each.value for each in tester.test("g", [row(False)])] == ['{"n": 1}']
    assert [each.value for each in tester.test("g", [row(True)])] == [None]
    assert tester.test("g", [row(True)]) == []


# ---- streams


def sliding_windows(times: list[int], size: int) -> dict[tuple[int, int], int]:
    """By the definition: how many records each window has."""
    ends = {(time - size, time) for time in times}
    begins = {(time + 1, time + 1 + size) for time in times if any(time < other <= time + 1 + size for other in times)}
    return {(first, last): sum(first <= time <= last for time in times) for first, last in ends | begins}


@given(st.lists(st.lists(st.integers(1, 60), max_size=5), max_size=5), st.integers(1, 20))
def test_sliding_windows_are_the_same_however_records_come(batches: list[list[int]], size: int) -> None:
    tester = TwsTester(Slide(size), timeMode="EventTime", eventTimeExtractor=lambda row: row.millis)
    found = Counter[Any]()
    for batch in batches:
        rows = [Row(key="k", value=str(time), millis=time) for time in batch]
        found.update((row.window_start, row.window_end) for row in (tester.test("k", rows) if rows else ()))
    everything = [time for batch in batches for time in batch]
    expected = sliding_windows(everything, size)
    assert found == {(moment(first * 1000), moment(last * 1000)): n for (first, last), n in expected.items()}


@given(st.lists(st.tuples(st.integers(1, 15), st.integers(0, 30)), max_size=12), st.integers(1, 10))
def test_records_of_sliding_windows_are_forgotten_only_when_nobody_misses_them(
    steps: list[tuple[int, int]], size: int
) -> None:
    """Records come in roughly in order and the watermark follows: what comes is what would come without forgetting."""
    tester = TwsTester(Slide(size), timeMode="EventTime", eventTimeExtractor=lambda row: row.millis)
    known: list[tuple[int, str]] = []
    watermark = 0
    for step, ahead in steps:
        time = watermark + 1 + ahead
        got = tester.test("k", [Row(key="k", value=str(time), millis=time)])
        expected = list(memberships(known, [(time, str(time))], size))
        assert sorted((row.window_end, row.value) for row in got) == sorted(
            (moment(last * 1000), value) for (_, last), value in expected
        )
        assert all(last > watermark for (_, last), _ in expected), "Spark refuses rows behind the watermark"
        known.append((time, str(time)))
        watermark += step
        tester.setWatermark(watermark)
    tester.setWatermark(10_000)
    assert tester.peekListState("records", "k") == []


def test_the_windows_of_the_documentation() -> None:
    # The example of Kafka Streams' documentation: a difference of five seconds, records at 8, 9.2, 12.4 and 20.
    assert sorted(spans({8000, 9200, 12400}, 5000)) == [
        (3000, 8000),
        (4200, 9200),
        (7400, 12400),
        (8001, 13001),
        (9201, 14201),
    ]


def test_duplicates_within_a_time() -> None:
    tester = TwsTester(Deduplicate(100, "at"), timeMode="EventTime", eventTimeExtractor=lambda row: row.millis)

    def come(*times: int) -> list[str]:
        rows = [Row(key="k", value=str(time), millis=time, at=moment(time * 1000)) for time in times]
        return [row.value for row in tester.test("k", rows)]

    assert come(50, 10, 60) == ["10"]
    assert come(109) == []
    assert come(110, 120) == ["110"]
    tester.setWatermark(110)
    assert come(209) == []
    tester.setWatermark(210)
    assert tester.peekValueState("until", "k") is None
    assert come(300) == ["300"]
