"""How offsets become tasks, how limits are shared out, and which filters make a query read less."""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, StringContains

from moldau.spark.fetching import OffsetRange
from moldau.spark.planning import TASK_OFFSETS_MIN, from_json, limit, pack, split, to_json
from moldau.spark.pushdown import Narrowing, push

spans = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500)), max_size=8)


@given(spans, st.none() | st.integers(1, 40), st.none() | st.integers(1, 100))
def test_pieces_cover_exactly_what_the_ranges_cover(
    sizes: list[tuple[int, int]], wanted: int | None, most: int | None
) -> None:
    ranges = [OffsetRange("t", index, start, start + size) for index, (start, size) in enumerate(sizes)]
    pieces = split(ranges, wanted, most)
    assert all(piece.start < piece.end for piece in pieces)
    for whole in ranges:
        own = [piece for piece in pieces if piece.partition == whole.partition]
        covered = [offset for piece in own for offset in range(piece.start, piece.end)]
        assert covered == list(range(whole.start, whole.end))
    if most is not None:
        assert all(piece.end - piece.start <= most for piece in pieces)


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    small = [OffsetRange("t", index, 0, 100) for index in range(8)]
    assert pack(small, None, None) == [tuple(small)]
    assert pack(small, 3, None) == pack(small, None, 500) == [(each,) for each in small]
    large = [OffsetRange("t", index, 0, TASK_OFFSETS_MIN) for index in range(4)]
    assert pack(large, None, None) == [(each,) for each in large]
    assert pack([*small, *large], None, None) == [(*small, large[0]), *[(each,) for each in large[1:]]]
    assert pack([], None, None) == []


def test_one_large_partition_is_cut_into_as_many_tasks_as_wanted() -> None:
    assert len(split([OffsetRange("t", 0, 0, 1000)], 8, None)) == 8


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10_000)), min_size=1, max_size=8), st.integers(1, 5000))
def test_a_limit_moves_every_partition_but_not_past_its_end(sizes: list[tuple[int, int]], budget: int) -> None:
    start = {("t", index): at for index, (at, _) in enumerate(sizes)}
    end = {("t", index): at + size for index, (at, size) in enumerate(sizes)}
    limited = limit(start, end, budget)
    assert all(start[part] <= limited[part] <= end[part] for part in end)
    assert all(limited[part] > start[part] for part in end if end[part] > start[part])
    assert sum(limited[part] - start[part] for part in end) <= budget + len(sizes)


def test_a_limit_in_bytes_counts_what_an_offset_costs() -> None:
    start, end = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 1000, ("t", 1): 1000}
    limited = limit(start, end, 11_000, {("t", 0): 10.0, ("t", 1): 100.0})
    assert limited == {("t", 0): 100, ("t", 1): 100}


def test_offsets_have_the_shape_of_sparks_own_checkpoints() -> None:
    shaped = to_json({("b", 10): 1, ("b", 9): 2, ("a", 0): 3})
    assert shaped == {"a": {"0": 3}, "b": {"9": 2, "10": 1}}
    assert list(shaped["b"]) == ["9", "10"]
    assert from_json(shaped) == {("a", 0): 3, ("b", 9): 2, ("b", 10): 1}


def test_a_thousand_partitions_are_planned_at_once() -> None:
    began = perf_counter()
    ranges = [OffsetRange("t", index, 0, 1_000_000) for index in range(1000)]
    assert len(split(ranges, 2000, None)) == 2000
    assert perf_counter() - began < 5


def test_filters_on_offsets_and_partitions_are_done_with() -> None:
    narrowing = Narrowing()
    filters = [
        GreaterThan(("offset",), 4),
        LessThan(("offset",), 9),
        EqualTo(("partition",), 2),
        IsNotNull(("offset",)),
    ]
    assert push(narrowing, filters) == []
    assert (narrowing.first_offset, narrowing.end_offset) == (5, 9)
    assert narrowing.keeps(("t", 2))
    assert not narrowing.keeps(("t", 1))


def test_filters_that_only_help_are_left_to_spark_too() -> None:
    narrowing = Narrowing()
    filters = [
        In(("offset",), (3, 7)),
        GreaterThanOrEqual(("timestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
        StringContains(("topic",), "x"),
        IsNotNull(("key",)),
    ]
    assert push(narrowing, filters) == filters
    assert (narrowing.first_offset, narrowing.end_offset) == (3, 8)
    assert narrowing.min_timestamp == 1_767_225_600_000
