"""Every planted bug is found: first in the seed that found it when it was planted, else in the ones that follow."""

from __future__ import annotations

import pytest

from .planted import BUGS, SEEDS_MAX, find

# Where each was found last. The code changes, and with it the stories: then the search goes on from 0.
FOUND_IN = {
    "acknowledge-before-the-others-have-it": 6,
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    found = find(name, 1, FOUND_IN.get(name, 0)) or find(name, SEEDS_MAX)
    assert found is not None, f"{SEEDS_MAX} seeds did not find it"


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 20
