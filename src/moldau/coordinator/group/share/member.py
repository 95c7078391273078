"""One member of a share group, as its records say it. Never changed in place: a new value takes its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from moldau.coordinator.group.modern.assignment import Assignment

JOINING: Final = 0
LEFT: Final = -1
# The only state there is: what a share member has needs not be given up by others first.
STABLE: Final = 0


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    epoch: int = JOINING
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Assignment = field(default_factory=dict)
