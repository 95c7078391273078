"""Dynamic configurations of topics, brokers, groups and client metrics.

Decides which values may be stored, by the rules of the configuration room, and turns changes into records. Each
resource of a request succeeds or fails by itself. What a value means is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.config.alter import MAX_VALUE_LENGTH, Alteration, apply_incremental
from moldau.config.client_config import validate_client_metrics
from moldau.config.dynamic import check_overrides
from moldau.config.group_config import validate_group_overrides
from moldau.config.key import ConfigKey
from moldau.config.table import ALL_NODE_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
from moldau.config.topic_config import validate_topic_overrides
from moldau.config.types import ConfigError, ConfigRequestError
from moldau.controller.decision import Decision, Situation
from moldau.controller.topic_names import reason_against
from moldau.metadata.features import CORDONED_DIRECTORIES_SINCE, release_of
from moldau.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigResource,
)
from moldau.metadata.records import MetadataRecord
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.clear_elr_record import ClearElrRecord
from moldau.protocol.generated.metadata.config_record import ConfigRecord
from moldau.protocol.generated.wire import alter_configs_response, incremental_alter_configs_response
from moldau.protocol.generated.wire.alter_configs_request import AlterConfigsRequest
from moldau.protocol.generated.wire.alter_configs_response import AlterConfigsResponse
from moldau.protocol.generated.wire.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from moldau.protocol.generated.wire.incremental_alter_configs_response import IncrementalAlterConfigsResponse

MIN_ISR: Final = "min.insync.replicas"
CORDONED: Final = "cordoned.log.dirs"
_KEYS: Final[Mapping[int, Mapping[str, ConfigKey]]] = {
    TOPIC_RESOURCE: TOPIC_KEYS,
    BROKER_RESOURCE: ALL_NODE_KEYS,
    CLIENT_METRICS_RESOURCE: CLIENT_METRICS_KEYS,
    GROUP_RESOURCE: GROUP_KEYS,
}


def incremental_alter_configs(
    s: Situation, request: IncrementalAlterConfigsRequest
) -> Decision[IncrementalAlterConfigsResponse]:
    records: list[MetadataRecord] = []
    responses = []
    seen: set[ConfigResource] = set()
    for asked in request.resources:
        resource = (asked.resource_type, asked.resource_name)
        error = ApiError(ErrorCode.NONE, "")
        try:
            _check_resource(resource, seen)
            current = s.state.configs(resource)
            try:
                alterations = [Alteration.asked(c.name, c.config_operation, c.value) for c in asked.configs]
                wanted = apply_incremental(current, alterations, _KEYS[asked.resource_type])
            except ConfigError as refused:
                raise _api_error(refused) from refused
            records += _changes(s, resource, wanted, named={alteration.name for alteration in alterations})
        except ApiError as refused:
            error = refused
        responses.append(
            incremental_alter_configs_response.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message or None,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    records = [] if request.validate_only else records + _cleared_elrs(s, records)
    return Decision(records, IncrementalAlterConfigsResponse(responses=responses))


def refuse_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, error: ApiError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs_response.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked in request.resources
        ]
    )


def alter_configs(s: Situation, request: AlterConfigsRequest) -> Decision[AlterConfigsResponse]:
    """The legacy request: what is named replaces everything the resource had."""
    records: list[MetadataRecord] = []
    responses = []
    seen: set[ConfigResource] = set()
    for asked in request.resources:
        resource = (asked.resource_type, asked.resource_name)
        error = ApiError(ErrorCode.NONE, "")
        try:
            _check_resource(resource, seen)
            missing = [config.name for config in asked.configs if config.value is None]
            if missing:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
            wanted = {config.name: config.value for config in asked.configs if config.value is not None}
            records += _changes(s, resource, wanted, named=set(wanted))
        except ApiError as refused:
            error = refused
        responses.append(
            alter_configs_response.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message or None,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    records = [] if request.validate_only else records + _cleared_elrs(s, records)
    return Decision(records, AlterConfigsResponse(responses=responses))


def refuse_alter_configs(request: AlterConfigsRequest, error: ApiError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            alter_configs_response.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked in request.resources
        ]
    )


def _api_error(error: ConfigError) -> ApiError:
    code = ErrorCode.INVALID_REQUEST if isinstance(error, ConfigRequestError) else ErrorCode.INVALID_CONFIG
    return ApiError(code, str(error))


def _check_resource(resource: ConfigResource, seen: set[ConfigResource]) -> None:
    if resource in seen:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    seen.add(resource)
    if resource[0] not in _KEYS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource[0]}.")


def _changes(
    s: Situation, resource: ConfigResource, wanted: Mapping[str, str], named: set[str]
) -> list[MetadataRecord]:
    """The records that give the resource exactly the wanted values; ApiError when it may not have them."""
    current = s.state.configs(resource)
    changed = {name: wanted.get(name) for name in current.keys() | wanted.keys()}
    changed = {name: value for name, value in changed.items() if value != current.get(name)}
    if resource[0] == BROKER_RESOURCE:
        # Naming a broker's setting again makes the broker look at it again: a file it points to may have changed.
        changed.update({name: wanted.get(name) for name in named})
    _check_values(s, resource, changed)
    _validate(s, resource, wanted, changed)
    kind, name_of_resource = resource
    return [
        ConfigRecord(resource_type=kind, resource_name=name_of_resource, name=name, value=value)
        for name, value in sorted(changed.items())
    ]


def _check_values(s: Situation, resource: ConfigResource, changed: Mapping[str, str | None]) -> None:
    for name, value in changed.items():
        if value is not None and len(value) > MAX_VALUE_LENGTH:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_VALUE_LENGTH} bytes.",
            )
        if resource[0] != BROKER_RESOURCE:
            continue
        if name == MIN_ISR and s.state.elr_enabled:
            if resource[1]:
                reason = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
                raise ApiError(ErrorCode.INVALID_CONFIG, reason)
            if value is None:
                reason = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
                raise ApiError(ErrorCode.INVALID_CONFIG, reason)
        if name == CORDONED and s.state.metadata_version < CORDONED_DIRECTORIES_SINCE:
            needed = release_of(CORDONED_DIRECTORIES_SINCE).name
            reason = f"{CORDONED} cannot be set because it requires metadata.version >= {needed}"
            raise ApiError(ErrorCode.INVALID_CONFIG, reason)


def _validate(
    s: Situation, resource: ConfigResource, wanted: Mapping[str, str], changed: Mapping[str, str | None]
) -> None:
    kind, name = resource
    try:
        if kind == TOPIC_RESOURCE:
            reason = reason_against(name)
            if reason is not None:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
            validate_topic_overrides(wanted, s.config, s.state.configs(resource))
            if name not in s.state.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        elif kind == BROKER_RESOURCE:
            _check_broker_name(s, name)
            stored = {key: value for key, value in changed.items() if value is not None}
            check_overrides(stored, per_broker=bool(name))
        elif kind == GROUP_RESOURCE:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            validate_group_overrides(wanted, s.config)
        else:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Default client metrics resources are not allowed.")
            validate_client_metrics(name, wanted)
    except ConfigError as error:
        raise _api_error(error) from error


def _check_broker_name(s: Situation, name: str) -> None:
    if not name:
        return
    if not name.isdigit():
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    node = int(name)
    if node not in s.state.brokers and node not in s.voter_ids:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node} found.")


def _cleared_elrs(s: Situation, records: list[MetadataRecord]) -> list[MetadataRecord]:
    """A changed minimum of in-sync replicas changes who counts as an eligible leader: those sets begin anew."""
    if not s.state.elr_enabled:
        return []
    return [
        ClearElrRecord(topic_name=record.resource_name if record.resource_type == TOPIC_RESOURCE else "")
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR
    ]
