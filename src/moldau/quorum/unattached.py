"""The role every node starts in: it knows an epoch, perhaps whom it voted for in it, and no leader.

With more voters than this node, votes are granted and leaders are discovered from here.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.quorum.state_file import ElectionState


@dataclass(frozen=True, slots=True)
class Unattached:
    election: ElectionState

    @property
    def epoch(self) -> int:
        return self.election.epoch
