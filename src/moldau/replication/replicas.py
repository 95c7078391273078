"""This node's part in replication: each partition it holds either leads, follows or rests, as the image says.

Decides only which of these a partition does; leading is `leader_state.py` and `in_sync.py`, following is `fetcher.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.config.node_config import NodeConfig
from moldau.log.manager import LogManager
from moldau.metadata.image import BrokerRegistration, ClusterImage
from moldau.ports import Address, Clock, Network, Pending
from moldau.replication.fetcher import ReplicaFetchers
from moldau.replication.in_sync import InSyncSets
from moldau.replication.partition import Partition
from moldau.replication.partition_table import PartitionTable
from moldau.replication.throttles import ReplicationThrottles


class Replication:
    """Joins a partition table with the other brokers of the cluster."""

    def __init__(
        self,
        node_id: int,
        table: PartitionTable,
        logs: LogManager,
        clock: Clock,
        network: Network,
        *,
        config: Callable[[], NodeConfig],
        image: Callable[[], ClusterImage],
        broker_epoch: Callable[[], int],
        ask_controller: Callable[[Any, int], Pending[Any]],
    ) -> None:
        """Before the first image is applied to `table`."""
        self._config = config
        self._image = image
        # Where other brokers are reached, and the registration that says so.
        self._addresses: dict[int, tuple[BrokerRegistration, Address]] = {}
        self.throttles = ReplicationThrottles(clock, config)
        self.in_sync = InSyncSets(node_id, clock, ask_controller, broker_epoch, image, self.throttles.leader)
        self.fetchers = ReplicaFetchers(
            node_id, logs, clock, network, config, broker_epoch, self._address_of, self.throttles.follower
        )
        self.in_sync.readers_at_followers = bool(config().original("replica.selector.class"))
        table.duties = self.in_sync
        table.changed = self._changed
        table.removed = self.fetchers.unfollow
        table.reconfigured = self.throttles.reconfigure
        self.in_sync.watch(lambda: table, lambda: config().integer("replica.lag.time.max.ms"))

    def _address_of(self, broker_id: int) -> Address | None:
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            return None
        known = self._addresses.get(broker_id)
        if known is not None and known[0] is broker:
            return known[1]
        endpoint = broker.listeners.get(self._config().inter_broker_listener)
        if endpoint is None:
            return None
        address = Address(endpoint.host, endpoint.port)
        self._addresses[broker_id] = (broker, address)
        return address

    def lost_since(self, broker_id: int) -> int | None:
        """Since when (monotonic) another broker, from which this one copies, cannot be reached; None if it can."""
        return self.fetchers.lost_since.get(broker_id)

    def _changed(self, partition: Partition) -> None:
        if partition.leader_id < 0 or partition.is_leader or partition.offline:
            self.fetchers.unfollow(partition)
        else:
            self.fetchers.follow(partition)

    def close(self) -> None:
        self.fetchers.close()
        self.in_sync.close()
