"""Every planted bug is found: first in the seed that found it when it was planted, else in the ones that follow."""

from __future__ import annotations

import pytest

from tests.conftest import COMPILED

from .planted import BUGS, SEEDS_MAX, find

pytestmark = pytest.mark.skipif(
    COMPILED, reason="bugs are planted by replacing methods, which compiled code does not see"
)

# Where each was found last. The code changes, and with it the stories: then the search goes on from 0.
FOUND_IN = {
    "acknowledge-before-the-others-have-it": 20,
    "commit-below-the-minimum-of-replicas": 6,
    "do-not-count-whom-the-controller-may-have-let-in": 85,
    "do-not-look-for-divergence": 6,
    "write-to-followers": 12,
    "cut-too-little": 6,
    "answer-waiting-producers-when-deposed": 20,
    "keep-epochs-of-what-was-cut": 1,
    "do-not-check-sums-after-a-crash": 10,
    "compact-the-latest-values-away": 12,
    "do-not-write-votes-down": 5,
    "do-not-sync-votes": 5,
    "vote-for-shorter-logs": 17,
    "commit-metadata-without-a-majority": 43,
    "trust-brokers-that-crashed": 13,
    "accept-shares-without-storing-them": 7,
    "acknowledge-offsets-before-they-are-committed": 8,
    "forget-epochs-on-disk": 1,
    "answer-before-metadata-is-committed": 48,
    "vote-for-whoever-asks": 16,
    "take-writes-of-zombies": 23,
    "take-in-sync-sets-of-deposed-leaders": 154,
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    found = find(name, 1, FOUND_IN.get(name, 0)) or find(name, SEEDS_MAX)
    assert found is not None, f"{SEEDS_MAX} seeds did not find it"


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 20
