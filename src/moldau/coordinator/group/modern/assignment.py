"""Partitions by topic, and what an assignor is told and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id. Topics without partitions are left out."""

NOTHING: Final[Assignment] = {}


class Assignee(NamedTuple):
    """One member, as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    # What it has been assigned so far; nobody else has any of it.
    owned: Assignment


class Assignor(Protocol):
    """Shares partitions out among members; a pure function of what it is given."""

    def __call__(self, members: Sequence[Assignee], partitions: Mapping[bytes, int]) -> dict[str, Assignment]:
        """What each member gets. `partitions` has the number of partitions of every topic that a member reads."""
        ...


def reads_the_same(members: Sequence[Assignee]) -> bool:
    topics = members[0].topics
    return all(member.topics is topics or member.topics == topics for member in members)
