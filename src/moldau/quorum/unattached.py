"""The role of a voter that knows an epoch, perhaps whom it voted for in it, and no leader.

Every voter starts here. It grants votes, and stands for election itself when no leader is heard of for too long.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.protocol.uuids import ZERO_UUID
from moldau.quorum.state_file import NOBODY, ElectionState
from moldau.quorum.voters import ReplicaKey


def may_vote_for(election: ElectionState, candidate: ReplicaKey, *, log_is_current: bool) -> bool:
    """The rule of one vote an epoch, for roles that have not voted for themselves. `log_is_current` says that the
    candidate's log has everything this node's log has."""
    if election.leader_id != NOBODY:
        return False
    if election.voted_id != NOBODY:
        # Under kraft.version 0 the file does not keep the directory id.
        return election.voted_id == candidate.id and election.voted_directory_id in (ZERO_UUID, candidate.directory_id)
    return log_is_current


@dataclass(frozen=True, slots=True)
class Unattached:
    election: ElectionState
    just_started: bool = False

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def grants(self, candidate: ReplicaKey, *, log_is_current: bool, pre_vote: bool) -> bool:
        if pre_vote:
            return log_is_current
        return may_vote_for(self.election, candidate, log_is_current=log_is_current)
