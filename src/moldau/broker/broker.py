"""The broker: which APIs a client listener serves, and what happens when the cluster's image changes.

The one place where the families of handlers are put together. It decides nothing about a request itself. Families
that a node does not need to get going are loaded when a client first asks for one of their APIs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.broker.auto_creation import TopicAutoCreator
from moldau.broker.context import ANONYMOUS, ClientConnection
from moldau.broker.coordinators import CoordinatorLocator, group_runtime
from moldau.broker.departures import Departures
from moldau.broker.discovery import ApiVersionsHandler, DescribeClusterHandler, FindCoordinatorHandler
from moldau.broker.fetch import FetchHandler
from moldau.broker.fetch_session import FetchSessionCache
from moldau.broker.forwarding import Forwarder
from moldau.broker.produce import ProduceHandler
from moldau.broker.produce_errors import ProduceErrors
from moldau.broker.request_metrics import RequestMetrics
from moldau.broker.router import Handler, Outcome, Router
from moldau.broker.security import security_handlers
from moldau.broker.services import BrokerServices
from moldau.broker.topic_metadata import TopicMetadataHandlers
from moldau.broker.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from moldau.metadata.delta import ImageDelta
from moldau.metadata.image import BROKER_RESOURCE, ClusterImage
from moldau.ports import Network
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.replication.replicas import Replication

if TYPE_CHECKING:
    from moldau.broker.producers import ProducerIds
    from moldau.broker.share_coordinator import ShareCoordinator
    from moldau.broker.share_fetch import ShareFetchHandlers
    from moldau.broker.share_groups import ShareGroupStates
    from moldau.broker.share_persister import SharePersister
    from moldau.broker.telemetry import TelemetryHandlers
    from moldau.broker.transaction_family import TransactionFamily
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

log: Final = logging.getLogger("moldau.broker")


class Broker:
    """Answers the requests of client listeners and follows the cluster's metadata."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services
        self.metrics = RequestMetrics()
        config = services.config
        self.fetch = FetchHandler(
            services,
            FetchSessionCache(
                config.integer("max.incremental.fetch.session.cache.slots"), services.clock, services.random
            ),
        )
        # Loaded when the first client comes with metrics.
        self.telemetry: TelemetryHandlers | None = None
        # Loaded when there are groups, or when the first client asks for one.
        self.groups: CoordinatorRuntime[GroupShard] | None = None
        # The same for transactions.
        self.transactions: TransactionFamily | None = None
        # And for the state of share groups.
        self.share: ShareCoordinator | None = None
        self._share_persister: SharePersister | None = None
        # Share partitions that are led here; loaded when the first member fetches.
        self.share_fetch: ShareFetchHandlers | None = None
        self._producer_ids: ProducerIds | None = None
        self._creator = TopicAutoCreator(services)
        self._replication = None if services.network is None else self._replicate(services.network)
        self._departures = None if self._replication is None else Departures(services, self._replication.lost_since)
        self.coordinators = services.coordinators = CoordinatorLocator(services, self._creator)
        self.router = Router(self.metrics, guard=services.guard, unstable=config.flag("unstable.api.versions.enable"))
        self._register()

    def _replicate(self, network: Network) -> Replication:
        services = self.services
        return Replication(
            services.node_id,
            services.partitions,
            services.logs,
            services.clock,
            network,
            config=lambda: services.config,
            image=lambda: services.image,
            broker_epoch=lambda: services.broker_epoch(),
            ask_controller=lambda request, version: services.controller.ask(request, version, ANONYMOUS),
        )

    def _register(self) -> None:
        self._serve_records()
        self._serve_cluster()
        self._serve_groups()
        self._serve_transactions()
        routes = self.router.routes
        assert all("broker" in API_TABLE[key].listeners for key in routes), "an API in the wrong place"

    def _serve_records(self) -> None:
        services, router = self.services, self.router
        errors = ProduceErrors(services)
        produce = ProduceHandler(
            services.partitions,
            services.clock,
            errors.shape,
            services.guard,
            lambda: self.transaction_family().gate,
        )
        router.serve_raw(ApiKey.PRODUCE, produce.handle)
        router.serve_raw(ApiKey.FETCH, self.fetch.handle)
        router.serve_raw(
            ApiKey.SHARE_FETCH, lambda frame, position, caller: self.share_fetches().fetch(frame, position, caller)
        )
        router.serve_family((ApiKey.SHARE_ACKNOWLEDGE,), lambda: self.share_fetches().handlers())
        router.serve_family((ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DELETE_RECORDS), self._offsets)
        router.serve_family((ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_PRODUCERS), self._producers)

    def _serve_cluster(self) -> None:
        """What clients and tools ask about the cluster, and what they change in it."""
        services, router = self.services, self.router
        router.serve(
            {
                ApiKey.API_VERSIONS: ApiVersionsHandler(services, lambda: router.routes).handle,
                ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(services).handle,
            }
        )
        router.serve(FindCoordinatorHandler(services, self._departures).handlers())
        router.serve(TopicMetadataHandlers(services, self._creator, self._departures).handlers())
        router.serve(Forwarder(services).handlers())
        router.serve_family(
            (
                ApiKey.DESCRIBE_CONFIGS,
                ApiKey.ALTER_CONFIGS,
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                ApiKey.LIST_CONFIG_RESOURCES,
            ),
            self._configs,
        )
        router.serve_family(
            (
                ApiKey.DESCRIBE_CLIENT_QUOTAS,
                ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ),
            self._cluster,
        )
        router.serve(security_handlers(services, on_controller=False))
        router.serve_family((ApiKey.DESCRIBE_LOG_DIRS, ApiKey.ALTER_REPLICA_LOG_DIRS), self._log_dirs)
        router.serve_family((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY), self._telemetry)

    def _serve_groups(self) -> None:
        router = self.router
        router.serve_family((ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE), self._group_offsets)
        router.serve_family(
            (
                ApiKey.JOIN_GROUP,
                ApiKey.SYNC_GROUP,
                ApiKey.HEARTBEAT,
                ApiKey.LEAVE_GROUP,
                ApiKey.DESCRIBE_GROUPS,
                ApiKey.LIST_GROUPS,
                ApiKey.DELETE_GROUPS,
            ),
            self._groups,
        )
        router.serve_family(
            (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
            self._consumer_groups,
        )
        router.serve_family(
            (
                ApiKey.SHARE_GROUP_HEARTBEAT,
                ApiKey.SHARE_GROUP_DESCRIBE,
                ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
                ApiKey.ALTER_SHARE_GROUP_OFFSETS,
                ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            ),
            self._share_groups,
        )
        router.serve_family(
            (ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE),
            self._streams_groups,
        )
        router.serve_family(
            (
                ApiKey.INITIALIZE_SHARE_GROUP_STATE,
                ApiKey.READ_SHARE_GROUP_STATE,
                ApiKey.WRITE_SHARE_GROUP_STATE,
                ApiKey.DELETE_SHARE_GROUP_STATE,
                ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            ),
            lambda: self.share_coordinator().handlers(),
        )

    def _serve_transactions(self) -> None:
        self.router.serve_family(
            (
                ApiKey.ADD_PARTITIONS_TO_TXN,
                ApiKey.ADD_OFFSETS_TO_TXN,
                ApiKey.END_TXN,
                ApiKey.WRITE_TXN_MARKERS,
                ApiKey.TXN_OFFSET_COMMIT,
                ApiKey.DESCRIBE_TRANSACTIONS,
                ApiKey.LIST_TRANSACTIONS,
            ),
            lambda: self.transaction_family().handlers(),
        )

    def _offsets(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.offsets import OffsetHandlers

        return OffsetHandlers(self.services).handlers()

    def _group_offsets(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.group_offsets import GroupOffsetHandlers

        return GroupOffsetHandlers(self.services, self.group_coordinator()).handlers()

    def _groups(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.groups import GroupHandlers

        return GroupHandlers(self.services, self.group_coordinator(), self._share_states()).handlers()

    def _consumer_groups(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.consumer_groups import ConsumerGroupHandlers

        return ConsumerGroupHandlers(self.services, self.group_coordinator()).handlers()

    def _share_groups(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.share_group_offsets import ShareGroupOffsetHandlers
        from moldau.broker.share_groups import ShareGroupHandlers

        services, groups, states = self.services, self.group_coordinator(), self._share_states()
        return {
            **ShareGroupHandlers(services, groups, states).handlers(),
            **ShareGroupOffsetHandlers(services, groups, states, self.share_persister).handlers(),
        }

    def _share_states(self) -> ShareGroupStates:
        from moldau.broker.share_groups import ShareGroupStates

        return ShareGroupStates(self.group_coordinator(), self.share_persister)

    def _streams_groups(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.streams_groups import StreamsGroupHandlers

        return StreamsGroupHandlers(self.services, self.group_coordinator()).handlers()

    def group_coordinator(self) -> CoordinatorRuntime[GroupShard]:
        groups = self.groups
        if groups is None:
            groups = self.groups = group_runtime(self.services)
            groups.image_published(ImageDelta(), self.services.image)
        return groups

    def _producers(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.producers import ProducerHandlers

        return ProducerHandlers(
            self.services, self.producer_ids(), lambda: self.transaction_family().producers
        ).handlers()

    def producer_ids(self) -> ProducerIds:
        from moldau.broker.producers import ProducerIds

        ids = self._producer_ids
        if ids is None:
            ids = self._producer_ids = ProducerIds(self.services)
        return ids

    def transaction_family(self) -> TransactionFamily:
        family = self.transactions
        if family is None:
            from moldau.broker.transaction_family import TransactionFamily

            family = TransactionFamily(self.services, self.producer_ids(), self.group_coordinator)
            self.transactions = family
        return family

    def share_coordinator(self) -> ShareCoordinator:
        coordinator = self.share
        if coordinator is None:
            from moldau.broker.share_coordinator import ShareCoordinator

            coordinator = self.share = ShareCoordinator(self.services)
        return coordinator

    def share_persister(self) -> SharePersister:
        """The way to the share coordinators, this broker's own among them."""
        persister = self._share_persister
        if persister is None:
            from moldau.broker.share_persister import persister_for

            persister = self._share_persister = persister_for(self.services, self.share_coordinator)
        return persister

    def share_fetches(self) -> ShareFetchHandlers:
        handlers = self.share_fetch
        if handlers is None:
            from moldau.broker.share_fetch import ShareFetchHandlers

            handlers = ShareFetchHandlers(self.services, self.share_persister, lambda: self.fetch.max_bytes)
            self.share_fetch = handlers
        return handlers

    def _configs(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.configs import ConfigHandlers

        return ConfigHandlers(self.services).handlers()

    def _cluster(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.cluster import ClusterHandlers

        return ClusterHandlers(self.services).handlers()

    def _log_dirs(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.log_dirs import LogDirHandlers

        return LogDirHandlers(self.services).handlers()

    def _telemetry(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.telemetry import TelemetryHandlers

        self.telemetry = TelemetryHandlers(self.services)
        return self.telemetry.handlers()

    # ---- the node's calls

    def dispatch(self, frame: memoryview, connection: ClientConnection) -> Outcome:
        """Answer one request. ProtocolError means that the connection must be closed."""
        return self.router.dispatch(frame, connection)

    def after_requests(self) -> None:
        """Called when a batch of requests was handled: answers the fetches that these have woken."""
        if self.fetch.has_ready:
            self.fetch.answer_ready()
        if self.share_fetch is not None and self.share_fetch.has_woken:
            self.share_fetch.look_again()

    def disconnected(self, connection: ClientConnection) -> None:
        if connection.remembered:
            self.fetch.disconnected(connection)
            if self.share_fetch is not None:
                self.share_fetch.disconnected(connection)
            if self.telemetry is not None:
                self.telemetry.disconnected(connection)

    def close(self) -> None:
        """The node stops: nothing is replicated, coordinators do nothing more on their own, nobody waits for them."""
        if self._replication is not None:
            self._replication.close()
        if self.share_fetch is not None:
            self.share_fetch.close()
        if self.groups is not None:
            self.groups.close()
        if self.transactions is not None:
            self.transactions.coordinator.close()
        if self.share is not None:
            self.share.close()

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """Publisher of the metadata loader: the cluster is now as `image` says."""
        services = self.services
        services.image = image
        if (BROKER_RESOURCE, "") in delta.configs or (BROKER_RESOURCE, str(services.node_id)) in delta.configs:
            self._reconfigure(image)
        services.partitions.apply(delta, image)
        if self.share_fetch is not None:
            self.share_fetch.image_published(delta, image)
        if self.groups is not None:
            self.groups.image_published(delta, image)
        elif image.topic(CONSUMER_OFFSETS) is not None:
            self.group_coordinator()
        if self.transactions is not None:
            self.transactions.image_published(delta, image)
        elif image.topic(TRANSACTION_STATE) is not None:
            self.transaction_family()
        if self.share is not None:
            self.share.image_published(delta, image)
        elif image.topic(SHARE_GROUP_STATE) is not None:
            self.share_coordinator()
        self.coordinators.image_published()
        if self._departures is not None:
            self._departures.image_published(image)
        self.after_requests()

    def _reconfigure(self, image: ClusterImage) -> None:
        """Put the cluster's dynamic broker settings over those of server.properties."""
        services = self.services
        before = services.config
        services.config = after = before.with_dynamic(
            image.broker_config_defaults, image.broker_config_overrides(services.node_id), ignore_invalid=True
        )
        changed = after.changes_from(before)
        if not changed:
            return
        log.info("settings changed: %s", ", ".join(sorted(changed)))
        for warning in set(after.warnings).difference(before.warnings):
            log.warning("%s", warning)
        self.fetch.reconfigure()
        if self.share_fetch is not None:
            self.share_fetch.partitions.node_config_changed()
        services.partitions.node_config_changed()
