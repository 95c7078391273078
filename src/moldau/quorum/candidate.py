"""The role of a voter that asks for votes in a new epoch. It votes for itself, durably, before anything else."""

from __future__ import annotations

from moldau.quorum.ballot import Ballot
from moldau.quorum.state_file import ElectionState
from moldau.quorum.voters import ReplicaKey, VoterSet


class Candidate:
    __slots__ = ("attempt", "ballot", "election")

    def __init__(self, epoch: int, own: ReplicaKey, voters: VoterSet, attempt: int = 1) -> None:
        self.election = ElectionState(epoch, voted_id=own.id, voted_directory_id=own.directory_id)
        self.ballot = Ballot(voters, own.id)
        self.attempt = attempt
        """How many elections this node has stood in since there was a leader: it waits longer after each."""

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def grants(self, candidate: ReplicaKey, *, log_is_current: bool, pre_vote: bool) -> bool:
        """Its own vote of this epoch is given."""
        return pre_vote and log_is_current
