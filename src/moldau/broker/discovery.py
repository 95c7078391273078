"""What is served here and who is in the cluster: ApiVersions (18), DescribeCluster (60), FindCoordinator (10).

Decides what a client is told before it knows anything. It must never advertise an API that the listener does not
serve, nor name a node by an address of another listener than the one the client came through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from moldau.broker.authorization import (
    NOT_ASKED,
    Operation,
    ResourceKind,
    authorized_operations,
)
from moldau.broker.context import Caller
from moldau.broker.departures import Departures
from moldau.broker.router import Handler, Route
from moldau.broker.services import BrokerServices
from moldau.metadata.access import CLUSTER_NAME
from moldau.metadata.features import KRAFT_VERSION, supported_features
from moldau.metadata.image import CLIENT_METRICS_RESOURCE, ClusterImage
from moldau.ports import Pending
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.errors import MESSAGES, ApiError, ErrorCode
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from moldau.protocol.generated.wire.describe_cluster_request import DescribeClusterRequest
from moldau.protocol.generated.wire.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.find_coordinator_response import Coordinator, FindCoordinatorResponse

_TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
_JMX: Final = "org.apache.kafka.common.metrics.JmxReporter"
BROKER_ENDPOINT: Final = 1
CONTROLLER_ENDPOINT: Final = 2
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
# "group:topic id:partition", what a share coordinator is looked up by; the group may contain colons itself.
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:[0-9]+", re.ASCII | re.DOTALL)


class ApiVersionsHandler:
    """ApiVersions for one kind of listener: whatever its router serves."""

    def __init__(
        self,
        services: BrokerServices,
        routes: Callable[[], Mapping[int, Route]],
        unstable_setting: str = "unstable.feature.versions.enable",
    ) -> None:
        """`unstable_setting` is the one that lets features show levels still in the making."""
        self._services = services
        self._routes = routes
        self._unstable_setting = unstable_setting
        # The table does not change while a node runs, and clients ask for it on every connection.
        self._served: list[ApiVersion] | None = None
        self._telemetry_wanted = False
        self._configs: object = None

    def handle(self, request: ApiVersionsRequest | None, caller: Caller) -> ApiVersionsResponse:
        if request is None:
            # A version from the future: the client looks for the range of this one API and tries again.
            spec = API_TABLE[ApiKey.API_VERSIONS]
            only = ApiVersion(ApiKey.API_VERSIONS, spec.min_version, spec.max_stable_version)
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[only])
        version = caller.api_version
        if version >= 3:
            if not (
                _SOFTWARE.fullmatch(request.client_software_name)
                and _SOFTWARE.fullmatch(request.client_software_version)
            ):
                raise ApiError(ErrorCode.INVALID_REQUEST)
            caller.connection.software_name = request.client_software_name
            caller.connection.software_version = request.client_software_version
        image = self._services.image
        return ApiVersionsResponse(
            api_keys=self._api_keys(),
            supported_features=self._supported(version),
            finalized_features_epoch=image.offset,
            finalized_features=self._finalized(image),
        )

    def _api_keys(self) -> list[ApiVersion]:
        wanted = self._is_telemetry_wanted()
        if self._served is None or wanted != self._telemetry_wanted:
            self._telemetry_wanted = wanted
            self._served = [
                ApiVersion(key, route.spec.advertised_min_version, route.max_version)
                for key, route in sorted(self._routes().items())
                if wanted or key not in _TELEMETRY
            ]
        return self._served

    def _is_telemetry_wanted(self) -> bool:
        """Clients push their metrics as soon as a broker offers to take them: it does so only where somebody asked
        for them, by a subscription or (as Kafka demands) by a reporter of their own."""
        configs = self._services.image.configs
        if configs is self._configs:
            return self._telemetry_wanted
        self._configs = configs
        reporters = set(self._services.config.words("metric.reporters"))
        return bool(reporters - {_JMX}) or any(kind == CLIENT_METRICS_RESOURCE for kind, _ in configs)

    def _supported(self, version: int) -> list[SupportedFeatureKey]:
        # Clients below version 4 cannot read a minimum of 0, so they are not told of such features at all.
        unstable = self._services.config.flag(self._unstable_setting)
        return [
            SupportedFeatureKey(name, levels.min, levels.max)
            for name, levels in supported_features(unstable=unstable).items()
            if version >= 4 or levels.min > 0
        ]

    def _finalized(self, image: ClusterImage) -> list[FinalizedFeatureKey]:
        levels = dict(image.features)
        kraft = self._services.kraft_version()
        if kraft > 0:
            levels[KRAFT_VERSION] = kraft
        return [FinalizedFeatureKey(name, level, level) for name, level in levels.items() if level > 0]


class DescribeClusterHandler:
    """DescribeCluster for brokers, or for the controllers when it stands on their listener."""

    def __init__(self, services: BrokerServices, endpoint_type: int = BROKER_ENDPOINT) -> None:
        self._services = services
        self._endpoint_type = endpoint_type

    def handle(self, request: DescribeClusterRequest, caller: Caller) -> DescribeClusterResponse:
        mine, wanted = self._endpoint_type, request.endpoint_type
        if wanted not in (BROKER_ENDPOINT, CONTROLLER_ENDPOINT):
            refused = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE if caller.api_version >= 1 else ErrorCode.INVALID_REQUEST
            raise ApiError(refused, f"Unsupported endpoint type {wanted}")
        if wanted != mine:
            refused = ErrorCode.MISMATCHED_ENDPOINT_TYPE if caller.api_version >= 1 else ErrorCode.INVALID_REQUEST
            raise ApiError(
                refused,
                f"The request was sent to an endpoint of type {_ENDPOINT_NAMES[mine]}, but we wanted an endpoint of "
                f"type {_ENDPOINT_NAMES[wanted]}",
            )
        services = self._services
        if mine == BROKER_ENDPOINT:
            nodes = self._brokers(caller.listener_name, include_fenced=request.include_fenced_brokers)
            controller_id = broker_for_administration(services)
        else:
            nodes = self._controllers(caller.listener_name)
            controller_id = services.controller.leader_id()
        operations = NOT_ASKED
        if request.include_cluster_authorized_operations:
            operations = cluster_operations(services, caller)
        return DescribeClusterResponse(
            endpoint_type=mine,
            cluster_id=services.cluster_id,
            controller_id=controller_id if any(node.broker_id == controller_id for node in nodes) else -1,
            brokers=nodes,
            cluster_authorized_operations=operations,
        )

    def _brokers(self, listener_name: str, *, include_fenced: bool) -> list[DescribeClusterBroker]:
        found: list[DescribeClusterBroker] = []
        for broker in self._services.image.brokers.values():
            endpoint = broker.listeners.get(listener_name)
            if endpoint is not None and (include_fenced or not broker.fenced):
                found.append(DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced))
        return found

    def _controllers(self, listener_name: str) -> list[DescribeClusterBroker]:
        found: list[DescribeClusterBroker] = []
        for controller in self._services.image.controllers.values():
            endpoint = controller.listeners.get(listener_name)
            if endpoint is not None:
                found.append(DescribeClusterBroker(controller.id, endpoint.host, endpoint.port))
        return found


_ENDPOINT_NAMES: Final = {BROKER_ENDPOINT: "BROKER", CONTROLLER_ENDPOINT: "CONTROLLER"}


class FindCoordinatorHandler:
    """FindCoordinator; without coordinators in this node's cluster nobody is found, and clients try again later."""

    def __init__(self, services: BrokerServices, departures: Departures | None = None) -> None:
        self._services = services
        self._departures = departures

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.FIND_COORDINATOR: self.handle}

    def handle(
        self, request: FindCoordinatorRequest, caller: Caller
    ) -> FindCoordinatorResponse | Pending[FindCoordinatorResponse]:
        coordinators = self._services.coordinators
        keys = request.coordinator_keys if caller.api_version >= 4 else [request.key]
        waits = None
        if coordinators is not None and any(self._may_find(request.key_type, key, caller) for key in keys):
            waits = coordinators.wait_for_topic(request.key_type, caller.principal)
        if waits is None and self._departures is not None:
            waits = self._departures.settled()
        if waits is None:
            return self._answer(request, caller)
        answer: Pending[FindCoordinatorResponse] = Pending()
        waits.then(lambda _: answer.resolve(self._answer(request, caller)))
        return answer

    def _answer(self, request: FindCoordinatorRequest, caller: Caller) -> FindCoordinatorResponse:
        if caller.api_version >= 4:
            found = [self._find(request.key_type, key, caller) for key in request.coordinator_keys]
            return FindCoordinatorResponse(coordinators=found)
        one = self._find(request.key_type, request.key, caller)
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def _may_find(self, key_type: int, key: str, caller: Caller) -> bool:
        guard = self._services.guard
        needed = _NEEDED.get(key_type)
        if guard is None or needed is None:
            return True
        operation, kind = needed
        return guard.allows(caller, operation, kind, CLUSTER_NAME if kind is ResourceKind.CLUSTER else key)

    def _find(self, key_type: int, key: str, caller: Caller) -> Coordinator:
        refused = _bad_key(key_type, key, caller.api_version)
        if refused is None and not self._may_find(key_type, key, caller):
            refused = _FORBIDDEN[key_type]
        if refused is None:
            coordinators = self._services.coordinators
            found = (
                ErrorCode.COORDINATOR_NOT_AVAILABLE
                if coordinators is None
                else coordinators.locate(key_type, key, caller.listener_name)
            )
            if not isinstance(found, ErrorCode):
                node_id, endpoint = found
                return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)
            refused = found
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=refused, error_message=MESSAGES[refused])


_NEEDED: Final[Mapping[int, tuple[Operation, ResourceKind]]] = {
    GROUP_KEY: (Operation.DESCRIBE, ResourceKind.GROUP),
    TRANSACTION_KEY: (Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID),
    SHARE_KEY: (Operation.CLUSTER_ACTION, ResourceKind.CLUSTER),
}
_FORBIDDEN: Final[Mapping[int, ErrorCode]] = {
    GROUP_KEY: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTION_KEY: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    SHARE_KEY: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def _bad_key(key_type: int, key: str, version: int) -> ErrorCode | None:
    if key_type not in (GROUP_KEY, TRANSACTION_KEY, SHARE_KEY):
        return ErrorCode.INVALID_REQUEST
    if key_type == SHARE_KEY and (version < 6 or _SHARE_KEY.fullmatch(key) is None):
        return ErrorCode.INVALID_REQUEST
    return None


def broker_for_administration(services: BrokerServices) -> int:
    """What clients are told is the controller: any broker will do, since every one forwards to the real one. This one
    is certainly alive, and another one may have died without anybody having noticed yet."""
    alive = [broker.id for broker in services.image.brokers.values() if not broker.fenced]
    if services.node_id in alive:
        return services.node_id
    return services.random.choice(alive) if alive else -1


def cluster_operations(services: BrokerServices, caller: Caller) -> int:
    guard = services.guard
    if guard is not None and not guard.allows(caller, Operation.DESCRIBE, ResourceKind.CLUSTER):
        return 0
    return authorized_operations(guard, caller, ResourceKind.CLUSTER)
