"""What `kafka-configs` does to a cluster: describing and altering, with Kafka's lines as output."""

from __future__ import annotations

import re
from collections.abc import Sequence

from moldau.cli.errors import CliError
from moldau.cli.kafka import configs as kinds
from moldau.cli.kafka.configs import DEFAULT_NAME, Entities
from moldau.client.admin import Admin
from moldau.client.admin.configs import (
    ConfigEntry,
    ResourceType,
    Source,
    alter_configs,
    describe_configs,
    list_config_resources,
)
from moldau.client.admin.quotas import QuotaFilter, alter_quotas, alter_scram, describe_quotas, describe_scram
from moldau.security.mechanisms import SCRAM_MECHANISMS
from moldau.security.scram import MIN_ITERATIONS

CLIENT_QUOTAS = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
IP_QUOTAS = frozenset({"connection_creation_rate"})

RESOURCES = {
    kinds.TOPICS: (ResourceType.TOPIC, Source.DYNAMIC_TOPIC_CONFIG),
    kinds.BROKERS: (ResourceType.BROKER, Source.DYNAMIC_BROKER_CONFIG),
    kinds.LOGGERS: (ResourceType.BROKER_LOGGER, None),
    kinds.CLIENT_METRICS: (ResourceType.CLIENT_METRICS, Source.DYNAMIC_CLIENT_METRICS_CONFIG),
    kinds.GROUPS: (ResourceType.GROUP, Source.DYNAMIC_GROUP_CONFIG),
}
QUOTA_TYPES = {kinds.USERS: "user", kinds.CLIENTS: "client-id", kinds.IPS: "ip"}
QUOTA_LABELS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}


# Describing


def describe(admin: Admin, entities: Entities, *, everything: bool) -> None:
    kind = entities.types[0]
    if kind in RESOURCES:
        _describe_resources(admin, kind, entities.names, everything=everything)
        return
    _describe_quotas(admin, entities)
    if kind != kinds.IPS and kinds.CLIENTS not in entities.types and DEFAULT_NAME not in entities.names:
        _describe_scram(admin, entities.names)


def _describe_resources(admin: Admin, kind: str, names: Sequence[str], *, everything: bool) -> None:
    if names:
        if not _exists(admin, kind, names[0]):
            print(f"The {kind[:-1]} '{names[0]}' doesn't exist and doesn't have dynamic config.")
            return
        wanted = [names[0]]
    else:
        wanted = _all_names(admin, kind)
    for name in wanted:
        if name == DEFAULT_NAME:
            print(f"Default configs for {kind} in the cluster are:")
        else:
            print(f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {name} are:")
        for entry in _entries(admin, kind, name, everything=everything):
            print(format_entry(entry))


def _entries(admin: Admin, kind: str, name: str, *, everything: bool) -> list[ConfigEntry]:
    resource, source = RESOURCES[kind]
    if kind == kinds.BROKERS and name == DEFAULT_NAME:
        source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = describe_configs(admin, resource, [name], synonyms=True).get(name, [])
    chosen = [entry for entry in entries if everything or source is None or entry.source == source]
    return sorted(chosen, key=lambda entry: entry.name)


def format_entry(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{one.source.name}:{one.name}={_text(one.value)}" for one in entry.synonyms)
    sensitive = str(entry.sensitive).lower()
    return f"  {entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _exists(admin: Admin, kind: str, name: str) -> bool:
    if name == DEFAULT_NAME:
        return True
    if admin.controllers and kind in (kinds.TOPICS, kinds.GROUPS, kinds.CLIENT_METRICS):
        return True
    return name in _all_names(admin, kind)


def _all_names(admin: Admin, kind: str) -> list[str]:
    """Everything of a kind that exists or has settings; for brokers also the default entity."""
    from moldau.client.admin.groups import list_groups
    from moldau.client.admin.topics import list_topics
    from moldau.protocol.api import ApiKey

    if kind == kinds.TOPICS:
        return [topic.name for topic in list_topics(admin)]
    if kind in (kinds.BROKERS, kinds.LOGGERS):
        admin.refresh()
        return [*(str(node) for node in sorted(admin.nodes)), DEFAULT_NAME]
    if kind == kinds.GROUPS:
        groups = list_groups(admin) if admin.supports(ApiKey.LIST_GROUPS) else []
        return sorted({*(each.group_id for each in groups), *list_config_resources(admin, ResourceType.GROUP)})
    return list_config_resources(admin, ResourceType.CLIENT_METRICS)


def _describe_quotas(admin: Admin, entities: Entities) -> None:
    for quota in describe_quotas(admin, _quota_filters(entities)):
        parts = []
        for kind, label in QUOTA_LABELS.items():
            if kind in quota.entity:
                name = quota.entity[kind]
                parts.append(f"the default {label}" if name is None else f"{label} '{name}'")
        values = ", ".join(f"{key}={java_double(value)}" for key, value in quota.values.items())
        print(f"Quota configs for {', '.join(parts)} are {values}")


def _quota_filters(entities: Entities) -> list[QuotaFilter]:
    filters = []
    for index, kind in enumerate(entities.types):
        given = entities.names[index] if index < len(entities.names) else None
        filters.append(QuotaFilter(QUOTA_TYPES[kind], given or None, any_name=given is None))
    return filters


def java_double(value: float) -> str:
    """A number as Java prints a double: always with a fraction, with an exponent from ten million up."""
    if value and (abs(value) >= 1e7 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.16e}".split("e")
        shortest = repr(float(mantissa))
        for digits in range(17):
            candidate = f"{value:.{digits}e}"
            if float(candidate) == value:
                mantissa, exponent = candidate.split("e")
                shortest = repr(float(mantissa))
                break
        return f"{shortest}E{int(exponent)}"
    return repr(float(value))


def _describe_scram(admin: Admin, users: Sequence[str]) -> None:
    from moldau.cli.java_errors import java_name
    from moldau.protocol.api import ApiKey
    from moldau.protocol.errors import ErrorCode

    if not admin.supports(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
        # A cluster that has no SCRAM has no credentials to show; its quotas have been shown.
        return
    for described in describe_scram(admin, users):
        if described.error is not None:
            if described.error.code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            name = java_name(described.error).rpartition(".")[2]
            print(
                f"Error retrieving SCRAM credential configs for user-principal '{described.user}': "
                f"{name}: {described.error.message}"
            )
            continue
        text = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in described.credentials)
        print(f"SCRAM credential configs for user-principal '{described.user}' are {text}")


# Altering


def alter(admin: Admin, entities: Entities, add: dict[str, str], delete: list[str]) -> None:
    kind, name = entities.types[0], entities.names[0]
    if kind in RESOURCES:
        if kind == kinds.LOGGERS:
            _check_loggers(admin, name, [*add, *delete])
        alter_configs(admin, RESOURCES[kind][0], name, set_to=add, delete=delete)
    elif kind == kinds.IPS:
        unknown = [key for key in [*add, *delete] if key not in IP_QUOTAS]
        if unknown:
            raise CliError(
                f"Only connection quota configs can be added for '{kinds.IPS}' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
        _alter_quotas(admin, entities, add, delete)
    else:
        _alter_users_and_clients(admin, entities, add, delete)
    if name != DEFAULT_NAME:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


def _check_loggers(admin: Admin, broker: str, loggers: Sequence[str]) -> None:
    known = {entry.name for entry in _entries(admin, kinds.LOGGERS, broker, everything=True)}
    unknown = [name for name in loggers if name not in known]
    if unknown:
        raise CliError(f"Invalid broker logger(s): {','.join(unknown)}")


def _alter_users_and_clients(admin: Admin, entities: Entities, add: dict[str, str], delete: list[str]) -> None:
    scram = [key for key in [*add, *delete] if key in SCRAM_MECHANISMS]
    quotas = [key for key in [*add, *delete] if key in CLIENT_QUOTAS]
    clients = kinds.CLIENTS in entities.types
    allowed = "quota configs" if clients else "quota and SCRAM credential configs"
    for word, keys in (("added", [*add]), ("deleted", delete)):
        unknown = [key for key in keys if key not in CLIENT_QUOTAS and (clients or key not in SCRAM_MECHANISMS)]
        if unknown:
            raise CliError(
                f"Only {allowed} can be {word} for '{kinds.CLIENTS if clients else kinds.USERS}' using "
                f"--bootstrap-server. Unexpected config names: {','.join(unknown)}"
            )
    if not scram:
        _alter_quotas(admin, entities, add, delete)
        return
    if DEFAULT_NAME in entities.names:
        raise CliError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
            "--bootstrap-server."
        )
    if quotas:
        raise CliError(
            f"Cannot alter both quota and SCRAM credential configs simultaneously for '{kinds.USERS}' using "
            "--bootstrap-server."
        )
    credentials = {mechanism: parse_credential(mechanism, text) for mechanism, text in add.items()}
    alter_scram(admin, entities.names[0], credentials, delete)


def parse_credential(mechanism: str, text: str) -> tuple[int, str]:
    """`iterations=8192,password=secret` (the iterations are optional) as (iterations, password)."""
    match = re.fullmatch(r"(?:iterations=(-?[0-9]*),)?password=(.*)", text, re.DOTALL)
    if match is None:
        raise CliError(f"Invalid credential property {mechanism}: it must be [iterations=N,password=…]")
    iterations = int(match[1]) if match[1] and match[1] != "-1" else MIN_ITERATIONS
    if iterations < MIN_ITERATIONS:
        raise CliError(f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for {mechanism}")
    return iterations, match[2]


def _alter_quotas(admin: Admin, entities: Entities, add: dict[str, str], delete: list[str]) -> None:
    values = {}
    for key, text in add.items():
        try:
            values[key] = float(text)
        except ValueError:
            raise CliError(f"Cannot parse quota configuration value for {key}: {text}") from None
    existing = describe_quotas(admin, _quota_filters(entities))
    known = existing[0].values if existing else {}
    unknown = [key for key in delete if key not in known]
    if unknown:
        raise CliError(f"Invalid config(s): {','.join(unknown)}")
    entity = {QUOTA_TYPES[kind]: name or None for kind, name in zip(entities.types, entities.names, strict=True)}
    alter_quotas(admin, entity, values, delete)
