"""What a controller's listener serves: its own APIs, those brokers forward, and what tools need to find the quorum.

Clients never come here for records or metadata, and nothing that nodes say among themselves (votes, registrations,
heartbeats) is ever served on a listener for clients: that is decided here and in `broker.py`, by what is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moldau.broker.context import Caller, ClientConnection
from moldau.broker.discovery import CONTROLLER_ENDPOINT, ApiVersionsHandler, DescribeClusterHandler
from moldau.broker.request_metrics import RequestMetrics
from moldau.broker.router import Handler, Outcome, Router
from moldau.broker.services import BrokerServices
from moldau.ports import Pending
from moldau.protocol.api import API_TABLE, ApiKey

# What the active controller decides; each is served as soon as the controller does.
CONTROLLER_APIS: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)


class ControllerApi:
    """Answers the requests of controller listeners."""

    def __init__(self, services: BrokerServices, quorum: Mapping[ApiKey, Handler] | None = None) -> None:
        """`quorum` are the handlers of the quorum's own requests (Vote, Fetch and so on), where it has other nodes."""
        self.services = services
        self.metrics = RequestMetrics()
        self.router = router = Router(
            self.metrics, guard=services.guard, unstable=services.config.flag("unstable.api.versions.enable")
        )
        router.serve(
            {
                ApiKey.API_VERSIONS: ApiVersionsHandler(services, lambda: router.routes).handle,
                ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(services, CONTROLLER_ENDPOINT).handle,
            }
        )
        router.serve({key: self.decide for key in CONTROLLER_APIS if services.controller.serves(key)})
        router.serve_family((ApiKey.DESCRIBE_CONFIGS,), self._configs)
        router.serve_family((ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS), self._cluster)
        router.serve(quorum or {})
        assert all("controller" in API_TABLE[key].listeners for key in router.routes), "an API in the wrong place"

    def _configs(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.configs import ConfigHandlers

        return ConfigHandlers(self.services).handlers()

    def _cluster(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.cluster import ClusterHandlers

        return ClusterHandlers(self.services).handlers()

    def decide(self, request: Any, caller: Caller) -> Pending[Any]:
        return self.services.controller.ask(request, caller.api_version, caller.principal)

    # ---- the node's calls

    def dispatch(self, frame: memoryview, connection: ClientConnection) -> Outcome:
        """Answer one request. ProtocolError means that the connection must be closed."""
        return self.router.dispatch(frame, connection)

    def after_requests(self) -> None:
        """Nothing waits here for other requests."""

    def disconnected(self, connection: ClientConnection) -> None:
        """Nothing here belongs to a connection."""
