"""Combining state batches: for every offset the most advanced state counts, however the batches overlap."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.share.batches import NO_START_OFFSET, StateBatch, combine

BATCHES = st.lists(
    st.builds(
        lambda first, length, count, state: StateBatch(first, first + length, count, state),
        st.integers(0, 25),
        st.integers(0, 8),
        st.integers(1, 3),
        st.sampled_from([0, 2, 4]),
    ),
    max_size=5,
)


def by_offset(batches: Iterable[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """What counts for each offset, computed the slow way."""
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
            found[offset] = max(found.get(offset, (0, 0)), (batch.delivery_count, batch.delivery_state))
    return found


@given(BATCHES, BATCHES, st.sampled_from([NO_START_OFFSET, 0, 7, 40]))
def test_the_most_advanced_state_counts(before: list[StateBatch], new: list[StateBatch], start: int) -> None:
    combined = combine(before, new, start)
    assert by_offset(combined, 0) == by_offset([*before, *new], max(start, 0))
    for earlier, later in pairwise(combined):
        assert earlier.last_offset < later.first_offset, "no offset twice, in order"


@given(BATCHES, BATCHES, st.sampled_from([NO_START_OFFSET, 3]))
def test_an_update_may_be_applied_twice(before: list[StateBatch], new: list[StateBatch], start: int) -> None:
    once = combine(before, new, start)
    assert by_offset(combine(once, new, start), 0) == by_offset(once, 0)


@pytest.mark.parametrize(
    ("before", "new", "expected"),
    [
        ([(0, 9, 1, 0)], [(10, 19, 1, 0)], [(0, 19, 1, 0)]),
        ([(0, 9, 1, 0)], [(10, 19, 2, 0)], [(0, 9, 1, 0), (10, 19, 2, 0)]),
        ([(0, 9, 1, 0)], [(3, 5, 1, 2)], [(0, 2, 1, 0), (3, 5, 1, 2), (6, 9, 1, 0)]),
        ([(0, 9, 2, 0)], [(3, 5, 1, 2)], [(0, 9, 2, 0)]),
        ([(0, 9, 1, 0)], [(5, 15, 1, 2)], [(0, 4, 1, 0), (5, 15, 1, 2)]),
        ([(0, 9, 3, 0)], [(5, 15, 1, 2)], [(0, 9, 3, 0), (10, 15, 1, 2)]),
        ([(0, 9, 1, 0)], [(0, 15, 2, 0)], [(0, 15, 2, 0)]),
        ([(0, 9, 1, 0)], [(0, 9, 1, 0)], [(0, 9, 1, 0)]),
    ],
)
def test_two_batches(
    before: list[tuple[int, int, int, int]],
    new: list[tuple[int, int, int, int]],
    expected: list[tuple[int, int, int, int]],
) -> None:
    assert combine([StateBatch(*each) for each in before], [StateBatch(*each) for each in new], -1) == expected


def test_what_is_before_the_start_is_dropped() -> None:
    assert combine([StateBatch(0, 4, 1, 2), StateBatch(5, 9, 1, 0)], [], 7) == [(7, 9, 1, 0)]
