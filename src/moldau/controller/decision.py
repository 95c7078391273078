"""What a decision is: the records that make it true and the answer that says so, or the reason why not.

Decisions are functions of the state and the request. They must never change the state themselves, and never answer
before their records are committed: both are the controller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from moldau.config.node_config import NodeConfig
from moldau.controller.sessions import BrokerSessions
from moldau.controller.state import ControllerState
from moldau.metadata.features import VersionRange
from moldau.metadata.records import MetadataRecord
from moldau.protocol.errors import ApiError
from moldau.protocol.wire import WireMessage

R = TypeVar("R", covariant=True)


class Decision(NamedTuple, Generic[R]):
    """Records that take effect together or not at all, and what is answered when they are committed."""

    records: Sequence[MetadataRecord]
    response: R
    dynamic_voters: bool = False
    """The quorum's voters shall come from the log from now on (kraft.version 1), not from the configuration."""


@dataclass(slots=True)
class Situation:
    """Everything a decision may look at."""

    state: ControllerState
    sessions: BrokerSessions
    config: NodeConfig
    """The controller's own settings, with the cluster's dynamic ones over them."""
    random: Random
    node_id: int
    cluster_id: str
    next_offset: int
    """Where the first record of this decision will stand in the log."""
    supported: dict[str, VersionRange]
    voter_ids: tuple[int, ...]
    kraft_version: int
    api_version: int
    """The version of the request that is decided."""
    why_not_dynamic_voters: Callable[[], str | None] = lambda: None
    """What stands against kraft.version 1 in a quorum that has version 0."""


Decide: TypeAlias = Callable[[Situation, Any], Decision[WireMessage]]
Refuse: TypeAlias = Callable[[Any, ApiError], WireMessage]
