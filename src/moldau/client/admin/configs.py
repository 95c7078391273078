"""Configurations of topics, brokers, groups and client metrics: reading and changing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from moldau.client.admin.client import Admin
from moldau.client.errors import raise_for
from moldau.protocol.api import ApiKey

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from, by the names Kafka's tools print."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


TYPE_NAMES = (
    "unknown",
    "boolean",
    "string",
    "int",
    "short",
    "long",
    "double",
    "list",
    "class",
    "password",
)


@dataclass(slots=True)
class Synonym:
    source: Source
    name: str
    value: str | None


@dataclass(slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: Source
    sensitive: bool
    read_only: bool
    synonyms: list[Synonym]
    type_name: str
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source == Source.DEFAULT_CONFIG


def source_of(code: int) -> Source:
    try:
        return Source(code)
    except ValueError:
        return Source.UNKNOWN


def describe_configs(
    admin: Admin,
    kind: ResourceType,
    names: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> dict[str, list[ConfigEntry]]:
    """The entries of each named resource, in the broker's order. A broker's own settings only that broker knows."""
    from moldau.protocol.generated.wire.describe_configs_request import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )

    def request_for(wanted: Sequence[str]) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=int(kind),
                    resource_name=name,
                    configuration_keys=None if keys is None else list(keys),
                )
                for name in wanted
            ],
            include_synonyms=synonyms,
            include_documentation=documentation,
        )

    local = [name for name in names if name and kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)]
    answers = [_ask_about_broker(admin, int(name), request_for([name])) for name in local]
    elsewhere = [name for name in names if name not in local]
    if elsewhere:
        answers.append(admin.ask(request_for(elsewhere)))
    described: dict[str, list[ConfigEntry]] = {}
    for answer in answers:
        for result in answer.results:
            raise_for(result.error_code, result.error_message)
            described[result.resource_name] = [_entry(each) for each in result.configs]
    return described


def _ask_about_broker(admin: Admin, node_id: int, request: Any) -> Any:
    return admin.ask(request) if admin.controllers else admin.ask_node(node_id, request)


def _entry(each: Any) -> ConfigEntry:
    return ConfigEntry(
        name=each.name,
        value=each.value,
        source=source_of(each.config_source),
        sensitive=each.is_sensitive,
        read_only=each.read_only,
        synonyms=[Synonym(source_of(one.source), one.name, one.value) for one in each.synonyms],
        type_name=TYPE_NAMES[each.config_type] if 0 <= each.config_type < len(TYPE_NAMES) else "unknown",
        documentation=each.documentation,
    )


def alter_configs(
    admin: Admin,
    kind: ResourceType,
    name: str,
    *,
    set_to: Mapping[str, str] | None = None,
    delete: Sequence[str] = (),
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Change single settings of one resource and leave the others alone."""
    from moldau.protocol.generated.wire.incremental_alter_configs_request import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    changes = [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in delete]
    for operation, values in ((_SET, set_to), (_APPEND, append), (_SUBTRACT, subtract)):
        changes += [
            AlterableConfig(name=key, config_operation=operation, value=value) for key, value in (values or {}).items()
        ]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=int(kind), resource_name=name, configs=changes)],
        validate_only=validate_only,
    )
    if kind == ResourceType.BROKER_LOGGER or (kind == ResourceType.BROKER and name and not admin.controllers):
        answer = admin.ask_node(int(name), request)
    else:
        answer = admin.ask_controller(request, codes=lambda reply: [each.error_code for each in reply.responses])
    for result in answer.responses:
        raise_for(result.error_code, result.error_message)


def list_config_resources(admin: Admin, kind: ResourceType) -> list[str]:
    """Names of resources of a kind that have a configuration of their own."""
    from moldau.protocol.generated.wire.list_config_resources_request import ListConfigResourcesRequest

    if not admin.supports(ApiKey.LIST_CONFIG_RESOURCES):
        return []
    first_with_types = 1
    version = admin.any_connection().choose_version(ApiKey.LIST_CONFIG_RESOURCES)
    if version < first_with_types and kind != ResourceType.CLIENT_METRICS:
        return []
    types = [int(kind)] if version >= first_with_types else []
    answer = admin.ask(ListConfigResourcesRequest(resource_types=types))
    raise_for(answer.error_code)
    return sorted(each.resource_name for each in answer.config_resources)
