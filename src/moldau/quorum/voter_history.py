"""Who votes, as of each offset of the log: the control records say it, and a truncation may take it back.

The newest entry counts as soon as it is in the log, committed or not (KRaft demands that). Under kraft.version 0 the
voters are those of the configuration, whatever the log says.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.protocol.codec import decode
from moldau.protocol.generated.wire.kraft_version_record import KRaftVersionRecord
from moldau.protocol.generated.wire.voters_record import VotersRecord
from moldau.quorum.voters import ReplicaKey, VoterSet, is_voter, voters_from_record
from moldau.records.batch import CONTROL_KRAFT_VERSION, CONTROL_KRAFT_VOTERS, BatchHeader
from moldau.records.record import read_control_records

# Where the voters of the formatting stand: before the log.
BEFORE_THE_LOG = -1


class _Entry(NamedTuple):
    offset: int
    kraft_version: int
    voters: VoterSet


class VoterHistory:
    __slots__ = ("_entries", "_static")

    def __init__(self, static: VoterSet | None) -> None:
        self._static: VoterSet = static or {}
        self._entries = [_Entry(BEFORE_THE_LOG, 0, {})]

    @property
    def kraft_version(self) -> int:
        return self._entries[-1].kraft_version

    @property
    def voters(self) -> VoterSet:
        return self._voters_of(self._entries[-1])

    @property
    def last_offset(self) -> int:
        """Where the newest voters stand in the log; `BEFORE_THE_LOG` when it has none."""
        return self._entries[-1].offset

    def at(self, end_offset: int) -> tuple[int, VoterSet]:
        """(kraft.version, voters) as of everything before an offset, for a snapshot that ends there."""
        entry = next((e for e in reversed(self._entries) if e.offset < end_offset), self._entries[0])
        return entry.kraft_version, self._voters_of(entry)

    def may_vote(self, key: ReplicaKey, high_watermark: int) -> bool:
        """Whether a replica is a voter, or stays one until its removal is known to be committed: it may be the only
        one whose log lets the removal be committed at all."""
        if is_voter(self.voters, key):
            return True
        entries = self._entries
        committed = next((e for e in reversed(entries) if e.offset < high_watermark), entries[0])
        return is_voter(self._voters_of(committed), key)

    def _voters_of(self, entry: _Entry) -> VoterSet:
        return entry.voters if entry.kraft_version >= 1 else self._static

    def begin(self, offset: int, kraft_version: int, voters: VoterSet | None) -> None:
        """What a snapshot says stands in for everything before it."""
        self._entries = [_Entry(offset, kraft_version, voters or {})]

    def read(self, header: BatchHeader, batch: memoryview) -> bool:
        """Take over what a batch of the log says; whether it said anything."""
        if not header.is_control:
            return False
        found = False
        for offset, record in enumerate(read_control_records(batch), header.base_offset):
            last = self._entries[-1]
            if record.type == CONTROL_KRAFT_VERSION:
                version = decode(KRaftVersionRecord, record.value, 0).kraft_version
                self._entries.append(_Entry(offset, version, last.voters))
                found = True
            elif record.type == CONTROL_KRAFT_VOTERS:
                voters = voters_from_record(decode(VotersRecord, record.value, 0))
                self._entries.append(_Entry(offset, last.kraft_version, voters))
                found = True
        return found

    def truncate(self, end_offset: int) -> bool:
        """Forget what stood at this offset or later; whether anything did."""
        before = len(self._entries)
        while len(self._entries) > 1 and self._entries[-1].offset >= end_offset:
            self._entries.pop()
        return len(self._entries) != before

    def forget_before(self, offset: int) -> None:
        """A snapshot covers everything before this offset: older entries are of no use."""
        while len(self._entries) > 1 and self._entries[1].offset < offset:
            del self._entries[0]
