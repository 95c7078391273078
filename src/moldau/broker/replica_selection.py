"""Which replica a consumer should read from (KIP-392): `replica.selector.class`.

Decides only where a reader is sent, and only to replicas that are in sync and have the offset it asks for. The leader
is always a right answer; a reader that finds its replica gone or behind comes back to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from moldau.broker.services import BrokerServices
from moldau.replication.partition import Partition

log = logging.getLogger("moldau.broker")

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"

Selector: TypeAlias = Callable[[Partition, str, int, str], int | None]
"""(partition led here, the client's rack, the offset it asks for, its listener) -> another broker, or None to stay."""


def replica_selector(services: BrokerServices) -> Selector | None:
    """The selector the node is configured with; None when everybody reads from leaders."""
    name = services.config.original("replica.selector.class")
    if not name or name == LEADER:
        return None
    if name == RACK_AWARE:
        return lambda partition, rack, offset, listener: _closest(services, partition, rack, offset, listener)
    log.warning("replica.selector.class: %s cannot be run here, everybody reads from leaders", name)
    return None


def _closest(services: BrokerServices, partition: Partition, rack: str, offset: int, listener: str) -> int | None:
    """The replica in the client's rack that has the most, unless the leader is in that rack itself."""
    leading = partition.leading
    brokers = services.image.brokers
    own = brokers.get(services.node_id)
    if leading is None or own is None or own.rack == rack:
        return None
    now = leading.now_ms()
    best: tuple[int, int, int] | None = None
    for replica, follower in leading.followers.items():
        broker = brokers.get(replica)
        if (
            broker is None
            or broker.rack != rack
            or broker.fenced
            or listener not in broker.listeners
            or replica not in partition.isr
            or not max(follower.log_start, 0) <= offset <= follower.end_offset
        ):
            continue
        rank = (follower.end_offset, follower.caught_up_ms - now, -replica)
        if best is None or rank > best:
            best = rank
    return None if best is None else -best[2]
