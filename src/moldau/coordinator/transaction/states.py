"""The states of a transaction, as one table: which may follow which, and what ending one in each of them means.

Only data. Ids and names are Kafka's, because both are visible: ids in the log, names in what tools are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    # Kafka's moment before a tombstone, and its moment between bumping an epoch and aborting. Here both happen within
    # one decision, so no transaction is ever seen in them; clients may still ask for them.
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_S = TransactionState

NAMES: Final[Mapping[TransactionState, str]] = {
    _S.EMPTY: "Empty",
    _S.ONGOING: "Ongoing",
    _S.PREPARE_COMMIT: "PrepareCommit",
    _S.PREPARE_ABORT: "PrepareAbort",
    _S.COMPLETE_COMMIT: "CompleteCommit",
    _S.COMPLETE_ABORT: "CompleteAbort",
    _S.DEAD: "Dead",
    _S.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
BY_NAME: Final[Mapping[str, TransactionState]] = {name: state for state, name in NAMES.items()}

IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open: one may begin, the producer may be replaced, the id may expire."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""Decided and written down; markers are under way. Nothing but finishing may happen."""

FOLLOWED_BY: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    # An abort may come before any partition was added (transactions v2 bumps the epoch all the same).
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT}),
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT}),
}


class Ending(Enum):
    """What a request to end the transaction comes to."""

    PREPARE = "write the decision down, then the markers"
    DONE = "it was ended this way already"
    UNDER_WAY = "it is being ended this way"
    REFUSED = "it cannot be ended this way"


_UNDER_WAY_OR_REFUSED: Final = {
    (_S.PREPARE_COMMIT, True): Ending.UNDER_WAY,
    (_S.PREPARE_ABORT, False): Ending.UNDER_WAY,
}

# (state, commit) -> what happens; what is missing is refused. Without an epoch per transaction a repetition cannot be
# told from a new request, so that a finished transaction may be "ended" the same way again.
ENDINGS_WITHOUT_BUMP: Final[Mapping[tuple[TransactionState, bool], Ending]] = {
    (_S.ONGOING, True): Ending.PREPARE,
    (_S.ONGOING, False): Ending.PREPARE,
    (_S.COMPLETE_COMMIT, True): Ending.DONE,
    (_S.COMPLETE_ABORT, False): Ending.DONE,
    **_UNDER_WAY_OR_REFUSED,
}
# With it, a request of the current epoch is about a transaction that has no partitions yet: it may only be aborted.
ENDINGS_OF_CURRENT_EPOCH: Final[Mapping[tuple[TransactionState, bool], Ending]] = {
    (_S.ONGOING, True): Ending.PREPARE,
    (_S.ONGOING, False): Ending.PREPARE,
    (_S.EMPTY, False): Ending.PREPARE,
    (_S.COMPLETE_COMMIT, False): Ending.PREPARE,
    (_S.COMPLETE_ABORT, False): Ending.PREPARE,
}
# And a request of the epoch before is a repetition.
ENDINGS_OF_PREVIOUS_EPOCH: Final[Mapping[tuple[TransactionState, bool], Ending]] = {
    (_S.COMPLETE_COMMIT, True): Ending.DONE,
    (_S.COMPLETE_ABORT, False): Ending.DONE,
    **_UNDER_WAY_OR_REFUSED,
}
