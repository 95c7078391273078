"""The role of a node that is no voter, as far as its log says: it follows the log and never stands for election.

Brokers are observers all their life, and so is a controller until it is added. It votes when asked, all the same:
it may be a voter without knowing it yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.ports import Address
from moldau.quorum.state_file import ElectionState
from moldau.quorum.unattached import may_vote_for
from moldau.quorum.voters import ReplicaKey


@dataclass(slots=True)
class Observer:
    election: ElectionState
    leader_address: Address | None = None
    """None while it looks for the leader."""

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def grants(self, candidate: ReplicaKey, *, log_is_current: bool, pre_vote: bool) -> bool:
        if pre_vote:
            return log_is_current and self.leader_address is None
        return may_vote_for(self.election, candidate, log_is_current=log_is_current)
