"""The role of a voter that asks whether it could win before it disturbs anybody (pre-vote, KIP-996).

Its epoch stays as it is, so a node that was cut off comes back without forcing an election on a healthy quorum. It
may still know the leader of its epoch, which it has lost contact with.
"""

from __future__ import annotations

from moldau.ports import Address
from moldau.quorum.ballot import Ballot
from moldau.quorum.state_file import ElectionState
from moldau.quorum.unattached import may_vote_for
from moldau.quorum.voters import ReplicaKey, VoterSet


class Prospective:
    __slots__ = ("ballot", "election", "leader_address")

    def __init__(self, election: ElectionState, own_id: int, voters: VoterSet, leader_address: Address | None) -> None:
        self.election = election
        self.leader_address = leader_address
        self.ballot = Ballot(voters, own_id)

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def grants(self, candidate: ReplicaKey, *, log_is_current: bool, pre_vote: bool) -> bool:
        if pre_vote:
            return log_is_current
        return may_vote_for(self.election, candidate, log_is_current=log_is_current)
