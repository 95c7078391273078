"""Settings: DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

A broker answers for itself: it describes its own settings and checks changes to them, because only it knows its
server.properties; log levels never leave it. Every other change is the controller's decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moldau.broker import log_levels
from moldau.broker.context import Caller
from moldau.broker.forwarding import forward_change
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import validate
from moldau.config.alter import Alteration, AlterOp, apply_incremental
from moldau.config.describe import (
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from moldau.config.sources import ConfigSource
from moldau.config.table import ALL_NODE_KEYS
from moldau.config.types import ConfigError, ConfigRequestError
from moldau.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire import alter_configs_response, incremental_alter_configs_response
from moldau.protocol.generated.wire.alter_configs_request import AlterConfigsRequest
from moldau.protocol.generated.wire.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.generated.wire.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from moldau.protocol.generated.wire.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from moldau.protocol.generated.wire.list_config_resources_request import ListConfigResourcesRequest
from moldau.protocol.generated.wire.list_config_resources_response import ConfigResource, ListConfigResourcesResponse

_FORWARDED: Final = (TOPIC_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
# In the order in which Kafka lists them.
_LISTABLE: Final = (
    GROUP_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
)
_ALL_KINDS_SINCE: Final = 1


class ConfigHandlers:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.ALTER_CONFIGS: self.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
            ApiKey.LIST_CONFIG_RESOURCES: self.list_config_resources,
        }

    # ---- describing

    def describe_configs(self, request: DescribeConfigsRequest, caller: Caller) -> DescribeConfigsResponse:
        for resource in request.resources:
            if resource.resource_type not in _LISTABLE:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unexpected resource type {resource.resource_type} for resource {resource.resource_name}",
                )
        return DescribeConfigsResponse(results=[self._describe(resource, request) for resource in request.resources])

    def _describe(self, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            if resource.resource_type == BROKER_LOGGER_RESOURCE:
                result.configs = self._describe_loggers(resource)
            else:
                result.configs = [
                    _shaped(config, synonyms=request.include_synonyms)
                    for config in self._described(resource, documentation=request.include_documentation)
                ]
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        except ConfigError as error:
            result.error_code, result.error_message = ErrorCode.INVALID_CONFIG, str(error)
        return result

    def _described(self, resource: DescribeConfigsResource, *, documentation: bool) -> list[DescribedConfig]:
        services = self._services
        image, config = services.image, services.config
        name, keys = resource.resource_name, resource.configuration_keys
        if resource.resource_type == TOPIC_RESOURCE:
            validate(name)
            if image.topic(name) is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(config, image.topic_config_overrides(name), keys, documentation=documentation)
        if resource.resource_type == BROKER_RESOURCE:
            if not name:
                return describe_cluster_default(config, keys, documentation=documentation)
            self._require_own_id(name, " or empty string,")
            return describe_broker(config, keys, documentation=documentation)
        overrides = image.config_overrides(resource.resource_type, name)
        if resource.resource_type == CLIENT_METRICS_RESOURCE:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return describe_client_metrics(overrides, keys, documentation=documentation)
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(config, overrides, keys, documentation=documentation)

    def _describe_loggers(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        if not resource.resource_name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        self._require_own_id(resource.resource_name, "")
        wanted = resource.configuration_keys
        return [
            DescribeConfigsResourceResult(
                name=name, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER, documentation=None
            )
            for name, level in log_levels.levels().items()
            if not wanted or name in wanted
        ]

    def _require_own_id(self, name: str, alternative: str) -> None:
        own = self._services.node_id
        if _number(name, "Broker id") != own:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own}{alternative} but received {name}"
            )

    # ---- altering

    def alter_configs(self, request: AlterConfigsRequest, caller: Caller) -> Any:
        def check(resource: Any) -> bool:
            _check_configs(resource.configs, lambda config: config.value is None)
            if resource.resource_type == BROKER_RESOURCE:
                wanted = {config.name: config.value for config in resource.configs}
                self._check_broker_settings(resource.resource_name, wanted)
            elif resource.resource_type not in _FORWARDED:
                raise _unknown_kind(resource)
            return False

        return self._alter(request, caller, alter_configs_response, check)

    def incremental_alter_configs(self, request: IncrementalAlterConfigsRequest, caller: Caller) -> Any:
        def check(resource: Any) -> bool:
            _check_configs(
                resource.configs, lambda config: config.value is None and config.config_operation != AlterOp.DELETE
            )
            if resource.resource_type == BROKER_LOGGER_RESOURCE:
                self._alter_loggers(resource, validate_only=request.validate_only)
                return True
            if resource.resource_type == BROKER_RESOURCE:
                self._check_broker_changes(resource)
            elif resource.resource_type not in _FORWARDED:
                raise _unknown_kind(resource)
            return False

        return self._alter(request, caller, incremental_alter_configs_response, check)

    def _alter(self, request: Any, caller: Caller, messages: Any, check: Callable[[Any], bool]) -> Any:
        """Settle here what can be settled here, and let the controller decide about the rest.

        `check` raises for what must be refused, and says True of what is done already.
        """
        settled: dict[int, ApiError | None] = {}
        named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
        for position, resource in enumerate(request.resources):
            try:
                if named[resource.resource_type, resource.resource_name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                if check(resource):
                    settled[position] = None
            except ApiError as error:
                settled[position] = error
        remaining = [resource for position, resource in enumerate(request.resources) if position not in settled]

        def assemble(answered: Mapping[tuple[int, str], ApiError | None]) -> Any:
            responses = []
            for position, resource in enumerate(request.resources):
                key = (resource.resource_type, resource.resource_name)
                error = settled[position] if position in settled else answered.get(key, _NO_ANSWER)
                responses.append(
                    messages.AlterConfigsResourceResponse(
                        error_code=ErrorCode.NONE if error is None else error.code,
                        error_message=None if error is None else error.message,
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                )
            name = type(request).__name__.removesuffix("Request")
            return getattr(messages, f"{name}Response")(responses=responses)

        if not remaining:
            return assemble({})
        answer: Pending[Any] = Pending()

        def decided(response: Any) -> None:
            if isinstance(response, ApiError):
                answer.resolve(assemble({(r.resource_type, r.resource_name): response for r in remaining}))
            else:
                answer.resolve(assemble(_results(response.responses)))

        forwarded = type(request)(resources=remaining, validate_only=request.validate_only)
        forward_change(self._services, forwarded, caller).then(decided)
        return answer

    def _check_broker_changes(self, resource: Any) -> None:
        """The broker's settings as they would be after incremental changes must be allowed."""
        current = self._services.image.config_overrides(BROKER_RESOURCE, resource.resource_name)
        try:
            alterations = [Alteration.asked(c.name, c.config_operation, c.value) for c in resource.configs]
            wanted = apply_incremental(current, alterations, ALL_NODE_KEYS)
        except ConfigRequestError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        self._check_broker_settings(resource.resource_name, wanted)

    def _check_broker_settings(self, name: str, wanted: Mapping[str, str]) -> None:
        services = self._services
        image = services.image
        try:
            if not name:
                services.config.with_dynamic(wanted, image.broker_config_overrides(services.node_id))
                return
            if _number(name, "Node id") != services.node_id:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unexpected broker id, expected {services.node_id}, but received {name}",
                )
            services.config.with_dynamic(image.broker_config_defaults, wanted)
        except ConfigError as error:
            # INVALID_CONFIG would say it better; this is what Kafka's clients are used to.
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _alter_loggers(self, resource: Any, *, validate_only: bool) -> None:
        own = self._services.node_id
        if _number(resource.resource_name, "Node id") != own:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {own}, but received {resource.resource_name}",
            )
        for config in resource.configs:
            log_levels.check(config.name, config.config_operation, config.value)
        if not validate_only:
            for config in resource.configs:
                log_levels.change(config.name, config.config_operation, config.value)

    # ---- listing

    def list_config_resources(self, request: ListConfigResourcesRequest, caller: Caller) -> ListConfigResourcesResponse:
        supported = _LISTABLE if caller.api_version >= _ALL_KINDS_SINCE else (CLIENT_METRICS_RESOURCE,)
        wanted = request.resource_types or supported
        if any(kind not in supported for kind in wanted):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        found = [
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in supported
            if kind in wanted
            for name in self._names(kind, caller.listener_name)
        ]
        return ListConfigResourcesResponse(config_resources=found)

    def _names(self, kind: int, listener_name: str) -> Sequence[str]:
        image = self._services.image
        if kind == TOPIC_RESOURCE:
            return list(image.topics_by_name)
        if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
            return [str(broker.id) for broker in image.brokers.values() if listener_name in broker.listeners]
        return [name for resource_kind, name in image.configs if resource_kind == kind]


_NO_ANSWER: Final = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller did not say what became of this resource")


def _results(responses: Sequence[Any]) -> dict[tuple[int, str], ApiError | None]:
    return {
        (r.resource_type, r.resource_name): ApiError(error_code(r.error_code), r.error_message)
        if r.error_code
        else None
        for r in responses
    }


def _shaped(config: DescribedConfig, *, synonyms: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.sensitive,
        synonyms=[DescribeConfigsSynonym(s.name, s.value, s.source) for s in config.synonyms] if synonyms else [],
        config_type=config.type,
        documentation=config.documentation,
    )


def _check_configs(configs: Sequence[Any], is_null: Callable[[Any], bool]) -> None:
    names = [config.name for config in configs]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [config.name for config in configs if is_null(config)]
    if missing:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {text}") from None


def _unknown_kind(resource: Any) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
