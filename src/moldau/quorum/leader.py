"""The role of the voter that a majority elected: it alone appends, and it knows how far each voter has the log.

A record is committed when a majority of the voters holds it durably and a record of the leader's own epoch is among
what they hold (a leader must not count records of earlier epochs by themselves). For other voters `ends` follows
their fetches; for the leader it follows its own syncs.
"""

from __future__ import annotations

from moldau.quorum.candidate import majority
from moldau.quorum.state_file import ElectionState
from moldau.quorum.voters import VoterSet

UNKNOWN = -1


class Leader:
    __slots__ = ("_ends", "_epoch_start_offset", "election", "granted", "high_watermark", "voters")

    def __init__(
        self, election: ElectionState, voters: VoterSet, granted: frozenset[int], epoch_start_offset: int
    ) -> None:
        self.election = election
        self.voters = voters
        self.granted = granted
        self.high_watermark = UNKNOWN
        self._epoch_start_offset = epoch_start_offset
        self._ends = dict.fromkeys(voters, UNKNOWN)

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def end_of(self, voter_id: int) -> int:
        """How far that voter is known to hold the log durably."""
        return self._ends.get(voter_id, UNKNOWN)

    def holds(self, voter_id: int, end_offset: int) -> bool:
        """Note that a voter holds everything below `end_offset`; true when more became committed by that."""
        self._ends[voter_id] = max(end_offset, self._ends[voter_id])
        by_majority = sorted(self._ends.values(), reverse=True)[majority(len(self._ends)) - 1]
        if by_majority <= self._epoch_start_offset or by_majority <= self.high_watermark:
            return False
        self.high_watermark = by_majority
        return True
