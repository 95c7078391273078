"""One member of a consumer group, as its records say it. Never changed in place: a new value takes its place.

What a member has and what it must give up carries the epoch in which it was assigned; only commits that are not
older than that may touch the partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""For each topic id, partitions with the epoch in which they were assigned. Topics without partitions are left out."""

OWNS_NOTHING: Final[Owned] = {}

JOINING: Final = 0
LEFT: Final = -1
# A static member that will be back soon: what it has is kept for it.
AWAY: Final = -2


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    # It must give partitions up before it gets others.
    UNREVOKED_PARTITIONS = 1
    # It waits for partitions that others have not given up yet.
    UNRELEASED_PARTITIONS = 2
    # Written by a release that knows more states.
    UNKNOWN = 127


class ClassicSide(NamedTuple):
    """What is known of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        return self.protocols[0][0]

    @property
    def metadata(self) -> bytes:
        return self.protocols[0][1]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    # Empty (or None, in records of older releases) when there is none.
    regex: str | None = ""
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    classic: ClassicSide | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved_to(
        self, epoch: int, state: MemberState, assigned: Owned, revoking: Owned = OWNS_NOTHING
    ) -> ConsumerMember:
        return replace(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)

    def away(self) -> ConsumerMember:
        """A static member that has left for a short while; commits of any epoch are too old for what comes then."""
        assigned = {topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()}
        return replace(self, epoch=AWAY, assigned=assigned, revoking=OWNS_NOTHING)

    def replaced_by(self, member_id: str) -> ConsumerMember:
        """The same static member under a new id."""
        return replace(self, member_id=member_id, epoch=JOINING, previous_epoch=JOINING)

    def assigned_at(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which it got this partition; None when it does not have it."""
        epoch = self.assigned.get(topic_id, _NONE).get(partition)
        return self.revoking.get(topic_id, _NONE).get(partition) if epoch is None else epoch


_NONE: Final[Mapping[int, int]] = {}
