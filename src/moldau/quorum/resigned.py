"""The role of a leader that gave up its epoch: it lost touch with the majority, was removed, stops, or was restarted.

It must not lead this epoch again (it may have forgotten what it wrote in it), and tells the voters so, the ones that
are furthest first.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.quorum.state_file import ElectionState
from moldau.quorum.voters import ReplicaKey


class Resigned:
    __slots__ = ("acknowledged", "election", "successors")

    def __init__(self, election: ElectionState, successors: Sequence[ReplicaKey]) -> None:
        self.election = election
        self.successors = successors
        self.acknowledged: set[int] = set()

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def grants(self, candidate: ReplicaKey, *, log_is_current: bool, pre_vote: bool) -> bool:
        return pre_vote and log_is_current
