"""The answers to one round of vote requests, and what they decide. One rule for one voter and for five."""

from __future__ import annotations

from moldau.quorum.voters import VoterSet, majority


class Ballot:
    __slots__ = ("_voters", "granted", "rejected")

    def __init__(self, voters: VoterSet, own_id: int) -> None:
        self._voters = voters
        self.granted: set[int] = {own_id} & voters.keys()
        self.rejected: set[int] = set()

    def record(self, voter_id: int, *, granted: bool) -> None:
        """An answer counts once, and only from a voter."""
        if voter_id in self._voters and voter_id not in self.granted and voter_id not in self.rejected:
            (self.granted if granted else self.rejected).add(voter_id)

    def has_answered(self, voter_id: int) -> bool:
        return voter_id in self.granted or voter_id in self.rejected

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= majority(len(self._voters))

    @property
    def is_lost(self) -> bool:
        return len(self._voters) - len(self.rejected) < majority(len(self._voters))
