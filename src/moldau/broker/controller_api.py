"""What a controller's listener serves: its own APIs, those brokers forward, and what tools need to find the quorum.

Clients never come here for records or metadata, and nothing that nodes say among themselves (votes, registrations,
heartbeats) is ever served on a listener for clients: that is decided here and in `broker.py`, by what is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller, ClientConnection
from moldau.broker.discovery import CONTROLLER_ENDPOINT, ApiVersionsHandler, DescribeClusterHandler
from moldau.broker.envelope import open_envelope
from moldau.broker.request_metrics import RequestMetrics
from moldau.broker.router import Handler, Outcome, Router
from moldau.broker.security import security_handlers
from moldau.broker.services import BrokerServices, ControllerChannel
from moldau.config.alter import AlterOp
from moldau.controller.configs import CORDONED
from moldau.metadata.image import BROKER_RESOURCE
from moldau.ports import Pending
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest
from moldau.protocol.generated.wire.envelope_request import EnvelopeRequest
from moldau.protocol.generated.wire.envelope_response import EnvelopeResponse
from moldau.protocol.generated.wire.incremental_alter_configs_request import IncrementalAlterConfigsRequest

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
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
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


# What only the nodes of the quorum say to each other.
QUORUM_APIS: Final = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
)
_BROKER: Final = "broker"


class ControllerApi:
    """Answers the requests of controller listeners."""

    def __init__(
        self,
        services: BrokerServices,
        quorum: Mapping[ApiKey, Callable[[Any, int], Any]] | None = None,
        *,
        local: ControllerChannel | None = None,
        broker_lost: Callable[[int, int], None] | None = None,
    ) -> None:
        """`quorum` are the handlers of the quorum's own requests, `local` is the controller of this process, which
        answers for itself, active or not; `broker_lost` is told (broker id, epoch) when a broker's connection ends."""
        self.services = services
        self._local = local or services.controller
        self._broker_lost = broker_lost
        self.metrics = RequestMetrics()
        self.router = router = Router(
            self.metrics, guard=services.guard, unstable=services.config.flag("unstable.api.versions.enable")
        )
        router.serve(
            {
                # Kafka's controllers go by the setting of the APIs here, though it is about features.
                ApiKey.API_VERSIONS: ApiVersionsHandler(
                    services, lambda: router.routes, "unstable.api.versions.enable"
                ).handle,
                ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(services, CONTROLLER_ENDPOINT).handle,
            }
        )
        router.serve({key: self.decide for key in CONTROLLER_APIS if services.controller.serves(key)})
        router.serve_family((ApiKey.DESCRIBE_CONFIGS,), self._configs)
        router.serve_family((ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,), self._cluster)
        router.serve(security_handlers(services, on_controller=True))
        router.serve({ApiKey.ENVELOPE: self._open_envelope})
        if quorum is not None:
            router.serve({key: self._quorum_handler(quorum[key]) for key in QUORUM_APIS})
        assert all("controller" in API_TABLE[key].listeners for key in router.routes), "an API in the wrong place"

    def _configs(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.configs import ConfigHandlers

        return ConfigHandlers(self.services).handlers()

    def _cluster(self) -> Mapping[ApiKey, Handler]:
        from moldau.broker.cluster import ClusterHandlers

        return ClusterHandlers(self.services).handlers()

    def _quorum_handler(self, handler: Callable[[Any, int], Any]) -> Handler:
        def handle(request: Any, caller: Caller) -> Any:
            guard = self.services.guard
            if guard is not None and not guard.allows(caller, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER):
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return handler(request, caller.api_version)

        return handle

    def _open_envelope(self, request: EnvelopeRequest, caller: Caller) -> Pending[EnvelopeResponse]:
        if self._local.leader_id() != self.services.config.node_id:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return open_envelope(self.router, request, caller)

    def decide(self, request: Any, caller: Caller) -> Pending[Any]:
        if isinstance(request, IncrementalAlterConfigsRequest) and not caller.connection.is_forwarded:
            self._refuse_cordons(request)
        answer = self._ask_local(request, caller)
        if isinstance(request, BrokerHeartbeatRequest):
            # The connection stands for the broker from here on: it dies with its process.
            caller.connection.remembered[_BROKER] = (request.broker_id, request.broker_epoch)
        return answer

    def _ask_local(self, request: Any, caller: Caller) -> Pending[Any]:
        def ask(allowed: Any) -> Pending[Any]:
            return self._local.ask(allowed, caller.api_version, caller.principal)

        guard = self.services.guard
        if guard is None:
            return ask(request)
        from moldau.broker.topic_permissions import ask_about_permitted_topics

        return ask_about_permitted_topics(guard, self.services.image, request, caller, ask)

    def _refuse_cordons(self, request: IncrementalAlterConfigsRequest) -> None:
        """Only a broker itself can tell whether it has a directory; here, cordons can only be taken away."""
        for resource in request.resources:
            if resource.resource_type != BROKER_RESOURCE:
                continue
            now = self.services.image.config_overrides(BROKER_RESOURCE, resource.resource_name).get(CORDONED)
            for config in resource.configs:
                adds = config.name == CORDONED and config.config_operation in (AlterOp.SET, AlterOp.APPEND)
                if adds and not _directories(config.value) <= _directories(now):
                    reason = f"{CORDONED} must be set through the broker; directly at a controller it can only shrink"
                    raise ApiError(ErrorCode.INVALID_CONFIG, reason)

    # ---- the node's calls

    def dispatch(self, frame: memoryview, connection: ClientConnection) -> Outcome:
        """Answer one request. ProtocolError means that the connection must be closed."""
        return self.router.dispatch(frame, connection)

    def after_requests(self) -> None:
        """Nothing waits here for other requests."""

    def disconnected(self, connection: ClientConnection) -> None:
        broker = connection.remembered.get(_BROKER)
        if broker is not None and self._broker_lost is not None:
            self._broker_lost(*broker)


def _directories(value: str | None) -> set[str]:
    return {each.strip() for each in (value or "").split(",") if each.strip()}
