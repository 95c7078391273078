"""Throttled replication (KIP-73): how fast replicas that are not in sync may catch up.

Two rates of a broker, for what it sends as a leader and for what it takes as a follower; and for each topic which of
its replicas they hold for. Replicas that are in sync are never held back: committing must not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from moldau.config.node_config import NodeConfig
from moldau.log.pacing import Throttle
from moldau.ports import Clock

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_ALL: Final = "*"


class ReplicationThrottles:
    """The rates of this broker, which may change at any time."""

    __slots__ = ("_config", "_seen", "follower", "leader")

    def __init__(self, clock: Clock, config: Callable[[], NodeConfig]) -> None:
        self._config = config
        self._seen = (0, 0)
        self.leader = Throttle(clock, float("inf"))
        self.follower = Throttle(clock, float("inf"))
        self.reconfigure()

    def reconfigure(self) -> None:
        config = self._config()
        rates = config.integer(LEADER_RATE), config.integer(FOLLOWER_RATE)
        if rates != self._seen:
            self._seen = rates
            self.leader.set_rate(rates[0])
            self.follower.set_rate(rates[1])


def is_throttled(replicas: Iterable[str], index: int, broker_id: int) -> bool:
    """Whether a topic's list (`partition:broker,...`, or a star for all) names this replica."""
    own = f"{index}:{broker_id}"
    return any(each in (_ALL, own) for each in replicas)
