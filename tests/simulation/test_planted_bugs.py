"""Every planted bug is found: first in the seed that found it when it was planted, else in the ones that follow."""

from __future__ import annotations

import pytest

from .planted import BUGS, SEEDS_MAX, find

# Where each was found last. The code changes, and with it the stories: then the search goes on from 0.
FOUND_IN = {
    "acknowledge-before-the-others-have-it": 2,
    "let-anybody-be-in-sync": 4,
    "cut-too-little": 2,
    "answer-waiting-producers-when-deposed": 8,
    "do-not-check-sequences": 2,
    "do-not-check-sums-after-a-crash": 4,
    "forget-aborted-transactions": 3,
    "do-not-sync-votes": 3,
    "vote-for-shorter-logs": 1,
    "commit-metadata-without-a-majority": 4,
    "trust-brokers-that-crashed": 4,
    "lose-markers": 2,
    "take-writes-of-zombies": 6,
    "commit-below-the-minimum-of-replicas": 4,
    "do-not-look-for-divergence": 2,
    "forget-producers-on-followers": 6,
    "read-open-transactions": 3,
    "do-not-write-votes-down": 6,
    "vote-for-whoever-asks": 14,
    "write-markers-the-other-way-round": 2,
    "read-what-is-not-committed": 74,
    "answer-before-metadata-is-committed": 41,
    "acknowledge-offsets-before-they-are-committed": 30,
    "do-not-count-whom-the-controller-may-have-let-in": 78,
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    found = find(name, 1, FOUND_IN.get(name, 0)) or find(name, SEEDS_MAX)
    assert found is not None, f"{SEEDS_MAX} seeds did not find it"


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 20
