"""Everything about transactions on one broker, put together: loaded when the first transactional client comes, or when
there are transactions to take over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from moldau.broker.producers import ProducerIds
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.transaction_coordinator import TransactionCoordinator
from moldau.broker.transaction_gate import TransactionGate
from moldau.broker.transaction_markers import Marker, MarkerHandlers, MarkerWriter
from moldau.broker.transaction_peers import RemoteCoordinators, RemoteMarkers
from moldau.broker.transaction_queries import TransactionQueryHandlers
from moldau.broker.transactions import TransactionHandlers
from moldau.coordinator.decision import Transaction
from moldau.metadata.delta import ImageDelta
from moldau.metadata.image import ClusterImage
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime


class TransactionFamily:
    def __init__(
        self, services: BrokerServices, ids: ProducerIds, groups: Callable[[], CoordinatorRuntime[GroupShard]]
    ) -> None:
        self._services = services
        self._groups = groups
        self._markers = MarkerWriter(services, self._end_group_transaction)
        network = services.network
        self.coordinator = TransactionCoordinator(
            services, ids, self._markers, None if network is None else RemoteMarkers(services, network)
        )
        self.gate = TransactionGate(
            services, self.coordinator, None if network is None else RemoteCoordinators(services, network)
        )
        self.producers = TransactionHandlers(services, self.coordinator)
        self.image_published(ImageDelta(), services.image)

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        self.coordinator.image_published(delta, image)
        self.gate.image_published()

    def _end_group_transaction(
        self, index: int, transaction: Transaction, marker: Marker
    ) -> ErrorCode | Pending[ErrorCode | ApiError]:
        groups = self._groups()
        return groups.end_transaction(
            groups.host(index),
            transaction,
            marker.coordinator_epoch,
            committed=marker.committed,
            version=marker.transaction_version,
        )

    def handlers(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.transaction_offsets import TransactionOffsetHandlers

        return {
            **self.producers.handlers(),
            **TransactionQueryHandlers(self._services, self.coordinator).handlers(),
            **MarkerHandlers(self._services, self._markers).handlers(),
            **TransactionOffsetHandlers(self._services, self._groups(), self.gate).handlers(),
        }
