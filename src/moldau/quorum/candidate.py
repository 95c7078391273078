"""The role of a voter that asks for votes in a new epoch.

It votes for itself, durably, before anything else. Votes of other voters arrive through `grant`; the majority rule is
the same for one voter and for five.
"""

from __future__ import annotations

from moldau.quorum.state_file import ElectionState
from moldau.quorum.voters import Voter, VoterSet


def majority(voter_count: int) -> int:
    return voter_count // 2 + 1


class Candidate:
    __slots__ = ("_voters", "election", "granted")

    def __init__(self, epoch: int, own: Voter, voters: VoterSet) -> None:
        assert own.id in voters, "only a voter stands for election"
        self.election = ElectionState(epoch, voted_id=own.id, voted_directory_id=own.directory_id)
        self._voters = voters
        self.granted: set[int] = set()

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def grant(self, voter_id: int) -> None:
        if voter_id in self._voters:
            self.granted.add(voter_id)

    @property
    def is_elected(self) -> bool:
        return len(self.granted) >= majority(len(self._voters))
