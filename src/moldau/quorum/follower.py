"""The role of a voter that knows the leader of its epoch and fetches from it."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.ports import Address
from moldau.quorum.state_file import ElectionState
from moldau.quorum.voters import ReplicaKey


@dataclass(slots=True)
class Follower:
    election: ElectionState
    leader_address: Address
    has_fetched: bool = False
    """Whether the leader has answered in this epoch: until then it is only hearsay."""
    leader_is_gone: bool = False
    """The leader's machine says that nobody listens there any more."""

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def grants(self, candidate: ReplicaKey, *, log_is_current: bool, pre_vote: bool) -> bool:
        """The epoch has its leader. A pre-vote is granted when that leader was never heard of, or is gone."""
        return pre_vote and log_is_current and (not self.has_fetched or self.leader_is_gone)
