"""The role of the voter that a majority elected: it alone appends, and it knows how far each replica has the log.

A record is committed when a majority of the voters holds it durably and a record of the leader's own epoch is among
what they hold (a leader must not count records of earlier epochs by themselves). For other replicas the end follows
their fetches, for the leader it follows its own syncs. What counts as a majority changes with the voters, also while
the change itself is not committed; the high watermark never goes back by that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moldau.quorum.state_file import ElectionState
from moldau.quorum.voters import ReplicaKey, VoterSet, majority

UNKNOWN = -1
# An observer that has not fetched for this long is no longer described.
OBSERVER_SESSION_MS = 300_000


@dataclass(slots=True)
class ReplicaProgress:
    """One replica as the leader sees it; times are wall-clock milliseconds, as DescribeQuorum tells them."""

    key: ReplicaKey
    end_offset: int = UNKNOWN
    last_fetch_ms: int = UNKNOWN
    last_caught_up_ms: int = UNKNOWN
    _leader_end_then: int = UNKNOWN

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = max(now_ms, self.last_caught_up_ms)
        elif offset >= self._leader_end_then:
            # It has all that the leader had when it fetched before.
            self.last_caught_up_ms = max(self.last_fetch_ms, self.last_caught_up_ms)
        self.end_offset = offset
        self.last_fetch_ms = now_ms
        self._leader_end_then = leader_end


class Leader:
    __slots__ = (
        "_heard",
        "_observers",
        "_voters",
        "election",
        "epoch_start_offset",
        "granted",
        "high_watermark",
        "own",
        "voters",
    )

    def __init__(
        self,
        election: ElectionState,
        own: ReplicaKey,
        voters: VoterSet,
        granted: frozenset[int],
        epoch_start_offset: int,
    ) -> None:
        self.election = election
        self.own = own
        self.granted = granted
        self.high_watermark = UNKNOWN
        self.epoch_start_offset = epoch_start_offset
        self._observers: dict[ReplicaKey, ReplicaProgress] = {}
        # Voters that fetched since a majority last had: who is missing for too long has lost its leader.
        self._heard: set[int] = set()
        self.voters: VoterSet = {}
        self._voters: dict[int, ReplicaProgress] = {}
        self.change_voters(voters)

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def grants(self, candidate: ReplicaKey, *, log_is_current: bool, pre_vote: bool) -> bool:
        return False

    @property
    def needs_others(self) -> bool:
        """Whether it could commit anything without another voter; one that is being removed never can."""
        return self.voters.keys() != {self.own.id}

    # ---- voters and observers

    def change_voters(self, voters: VoterSet) -> bool:
        """Others vote from here on; true when more became committed by that."""
        before = {**{p.key: p for p in self._voters.values()}, **self._observers}
        changed: dict[int, ReplicaProgress] = {}
        for voter in voters.values():
            known = next((p for key, p in before.items() if voter.is_replica(key)), None)
            if known is None:
                known = ReplicaProgress(voter.key)
            else:
                del before[known.key]
            changed[voter.id] = known
        self.voters = voters
        self._voters = changed
        self._observers = {key: p for key, p in before.items() if key != self.own}
        self._heard &= voters.keys()
        return self._commit()

    def progress_of(self, key: ReplicaKey) -> ReplicaProgress:
        voter = self.voters.get(key.id)
        if voter is not None and voter.is_replica(key):
            progress = self._voters[key.id]
            # A static voter tells its directory id with its first fetch.
            progress.key = key
            return progress
        found = self._observers.get(key)
        if found is None:
            found = self._observers[key] = ReplicaProgress(key)
        return found

    def voter_progress(self) -> Iterator[ReplicaProgress]:
        return iter(self._voters.values())

    def observer_progress(self, now_ms: int) -> list[ReplicaProgress]:
        self._observers = {
            key: each for key, each in self._observers.items() if now_ms - each.last_fetch_ms < OBSERVER_SESSION_MS
        }
        return list(self._observers.values())

    def end_of(self, voter_id: int) -> int:
        """How far that voter is known to hold the log durably."""
        progress = self._voters.get(voter_id)
        return UNKNOWN if progress is None else progress.end_offset

    def successors(self) -> list[ReplicaKey]:
        """The other voters, the one that is furthest first."""
        others = [p for p in self._voters.values() if p.key.id != self.own.id]
        return [p.key for p in sorted(others, key=lambda p: (-p.end_offset, p.key.id))]

    # ---- progress

    def holds(self, end_offset: int) -> bool:
        """The leader's own log is durable up to here; true when more became committed by that."""
        progress = self._voters.get(self.own.id)
        if progress is None:
            return False
        progress.end_offset = max(end_offset, progress.end_offset)
        return self._commit()

    def fetched(self, key: ReplicaKey, offset: int, leader_end: int, now_ms: int) -> bool:
        """A replica asks for what follows `offset`: it has everything before. True when more became committed."""
        progress = self.progress_of(key)
        progress.fetched(offset, leader_end, now_ms)
        return self._voters.get(key.id) is progress and self._commit()

    def hears(self, key: ReplicaKey) -> bool:
        """A replica was heard of; true when with it a majority was, and counting begins anew."""
        voter = self.voters.get(key.id)
        if voter is not None and voter.is_replica(key):
            self._heard.add(key.id)
        needed = majority(len(self.voters)) - (self.own.id in self.voters)
        if len(self._heard) < needed:
            return False
        self._heard.clear()
        return True

    def _commit(self) -> bool:
        ends = sorted((progress.end_offset for progress in self._voters.values()), reverse=True)
        if not ends:
            return False
        by_majority = ends[majority(len(ends)) - 1]
        if by_majority <= self.epoch_start_offset or by_majority <= self.high_watermark:
            return False
        self.high_watermark = by_majority
        return True
