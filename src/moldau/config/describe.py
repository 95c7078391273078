"""What an administrator is told about settings: value, source, synonyms, in DescribeConfigs' shape.

Sources and synonyms follow Kafka to the letter, its oddities included, because tools compare them: a synonym keeps its
own unit, and a topic whose retention comes from log.retention.hours is described as having a default. Secrets never
leave: their value is None, and so is that of a name whose type is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from moldau.config.client_config import effective_client_metrics_values
from moldau.config.group_config import effective_group_values
from moldau.config.key import ConfigKey
from moldau.config.sources import ConfigSource
from moldau.config.table import (
    BROKER_KEYS,
    BROKER_SYNONYMS,
    CLIENT_METRICS_KEYS,
    DYNAMIC_ONLY_KEYS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
)
from moldau.config.topic_config import effective_values
from moldau.config.types import ConfigType, render
from moldau.config.unknown_keys import OWN_KEYS, base_of_listener_key

if TYPE_CHECKING:
    from moldau.config.node_config import NodeConfig


class DescribedSynonym(NamedTuple):
    """One place a value could come from, as it is written there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One setting as DescribeConfigs reports it."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    synonyms: tuple[DescribedSynonym, ...]
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


def describe_topic(
    node_config: NodeConfig,
    overrides: Mapping[str, str],
    keys: Collection[str] | None = None,
    *,
    documentation: bool = False,
) -> list[DescribedConfig]:
    """A topic's settings; all of them, or only those named in `keys`."""
    values = effective_values(node_config, overrides)

    def entry(name: str) -> DescribedConfig:
        key = TOPIC_KEYS.get(name)
        sensitive = key is None or key.sensitive
        value = None if key is None or sensitive else render(values[name])
        synonyms: list[DescribedSynonym] = []
        if name in overrides:
            synonyms.append(DescribedSynonym(name, value, ConfigSource.DYNAMIC_TOPIC))
        if name in TOPIC_SYNONYMS:
            synonyms += _broker_chain(node_config, TOPIC_SYNONYMS[name][0].name, sensitive)
        return _described(key, name, value, synonyms, documentation=documentation)

    return [entry(name) for name in _listed(TOPIC_KEYS, overrides, keys)]


def describe_group(
    node_config: NodeConfig,
    overrides: Mapping[str, str],
    keys: Collection[str] | None = None,
    *,
    documentation: bool = False,
) -> list[DescribedConfig]:
    """A group's settings as they were set, before the node's limits are applied."""
    values = effective_group_values(node_config, overrides)

    def entry(name: str) -> DescribedConfig:
        key = GROUP_KEYS.get(name)
        value = None if key is None else render(values[name])
        synonyms: list[DescribedSynonym] = []
        if name in overrides:
            synonyms.append(DescribedSynonym(name, value, ConfigSource.GROUP))
        if name in GROUP_SYNONYMS:
            synonyms += _broker_chain(node_config, GROUP_SYNONYMS[name], sensitive=False)
        elif key is not None:
            synonyms.append(DescribedSynonym(name, render(key.default), ConfigSource.DEFAULT))
        return _described(key, name, value, synonyms, documentation=documentation)

    return [entry(name) for name in _listed(GROUP_KEYS, overrides, keys)]


def describe_client_metrics(
    overrides: Mapping[str, str], keys: Collection[str] | None = None, *, documentation: bool = False
) -> list[DescribedConfig]:
    """A client-metrics subscription's settings."""
    values = effective_client_metrics_values(overrides)

    def entry(name: str) -> DescribedConfig:
        key = CLIENT_METRICS_KEYS.get(name)
        value = render(values[name]) if key is not None else overrides[name]
        synonyms = [DescribedSynonym(name, value, ConfigSource.CLIENT_METRICS)] if name in overrides else []
        return _described(key, name, value, synonyms, documentation=documentation, sensitive=False)

    return [entry(name) for name in _listed(CLIENT_METRICS_KEYS, overrides, keys)]


def describe_broker(
    node_config: NodeConfig, keys: Collection[str] | None = None, *, documentation: bool = False
) -> list[DescribedConfig]:
    """This broker's settings, custom ones included."""

    def entry(name: str) -> DescribedConfig:
        return _broker_entry(node_config, name, _broker_chain, documentation=documentation)

    return [entry(name) for name in _listed(BROKER_KEYS, node_config.originals, keys)]


def describe_cluster_default(
    node_config: NodeConfig, keys: Collection[str] | None = None, *, documentation: bool = False
) -> list[DescribedConfig]:
    """The settings that were changed for all brokers at once, and nothing else."""

    def only_cluster_wide(config: NodeConfig, name: str, sensitive: bool) -> list[DescribedSynonym]:
        return [
            synonym
            for synonym in _broker_chain(config, name, sensitive)
            if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
        ]

    return [
        _broker_entry(node_config, name, only_cluster_wide, documentation=documentation, text=text)
        for name, text in node_config.dynamic_default.items()
        if not keys or name in keys
    ]


def describe_created_topic(node_config: NodeConfig, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """What CreateTopics answers about a topic's settings: by name, each with the one source that won.

    Unlike DescribeConfigs, it gives the value of a synonym in the topic's unit, and names no synonyms.
    """
    layers = (
        (node_config.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
        (node_config.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (node_config.static, ConfigSource.STATIC_BROKER),
    )

    def entry(key: ConfigKey) -> DescribedConfig:
        value, source = render(key.default), ConfigSource.DEFAULT
        if key.name in overrides:
            value, source = overrides[key.name], ConfigSource.DYNAMIC_TOPIC
        else:
            for settings, layer in reversed(layers):
                for synonym in reversed(TOPIC_SYNONYMS.get(key.name, ())):
                    if synonym.name in settings:
                        text = settings[synonym.name]
                        value = str(int(text) * synonym.factor) if synonym.factor != 1 else text
                        source = layer
        return DescribedConfig(key.name, value, source, False, key.sensitive, key.type, ())

    return [entry(key) for name, key in sorted(TOPIC_KEYS.items()) if not key.internal or name in overrides]


def _broker_entry(
    config: NodeConfig,
    name: str,
    chain: Callable[[NodeConfig, str, bool], list[DescribedSynonym]],
    *,
    documentation: bool,
    text: str | None = None,
) -> DescribedConfig:
    key = BROKER_KEYS.get(name) or DYNAMIC_ONLY_KEYS.get(name)
    typed = key or BROKER_KEYS.get(base_of_listener_key(name) or "")
    # Of a key that nobody knows, nobody knows whether it is a secret; those of this broker alone are none.
    sensitive = name not in OWN_KEYS if typed is None else typed.sensitive
    if sensitive:
        value = None
    elif text is None and name in BROKER_KEYS and not BROKER_KEYS[name].internal:
        value = render(config[name])
    else:
        value = config.original(name) if text is None else text  # custom and internal ones as they were written
    return _described(
        key,
        name,
        value,
        chain(config, name, sensitive),
        documentation=documentation,
        sensitive=sensitive,
        type_=typed.type if typed is not None else ConfigType.UNKNOWN,
        read_only=key is None or key.update_mode == "read-only",
    )


def _broker_chain(config: NodeConfig, name: str, sensitive: bool) -> list[DescribedSynonym]:
    """Every place a broker setting has a value, strongest first."""
    synonyms = BROKER_SYNONYMS.get(name, (name,))
    base = base_of_listener_key(name)
    if base is not None:
        synonyms = (name, base)
    chain = [
        DescribedSynonym(synonym, None if sensitive else settings[synonym], source)
        for settings, source in (
            (config.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
            (config.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (config.static, ConfigSource.STATIC_BROKER),
        )
        for synonym in synonyms
        if synonym in settings
    ]
    chain += [
        DescribedSynonym(synonym, None if sensitive else default, ConfigSource.DEFAULT)
        for synonym in synonyms
        if synonym in BROKER_KEYS and (default := render(BROKER_KEYS[synonym].default)) is not None
    ]
    # Weaker synonyms are listed only below the name that was asked for.
    while chain and chain[0].name != name:
        del chain[0]
    return chain


def _described(
    key: ConfigKey | None,
    name: str,
    value: str | None,
    synonyms: Iterable[DescribedSynonym],
    *,
    documentation: bool,
    sensitive: bool | None = None,
    type_: ConfigType | None = None,
    read_only: bool = False,
) -> DescribedConfig:
    chain = tuple(synonyms)
    return DescribedConfig(
        name,
        value,
        chain[0].source if chain else ConfigSource.DEFAULT,
        read_only,
        (key is None or key.sensitive) if sensitive is None else sensitive,
        (key.type if key is not None else ConfigType.UNKNOWN) if type_ is None else type_,
        chain,
        key.doc if documentation and key is not None else None,
    )


def _listed(table: Mapping[str, ConfigKey], given: Iterable[str], keys: Collection[str] | None) -> list[str]:
    """The names to describe, in Kafka's order: first what was given and is not in the table, then the table."""
    names = [name for name in given if name not in table or table[name].internal]
    names += java_map_order(tuple(name for name, key in table.items() if not key.internal))
    return [name for name in names if name in keys] if keys else names


@cache
def java_map_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """The order in which a Java HashMap that was filled with these names gives them back."""
    capacity = 16
    while len(names) > capacity * 3 // 4:
        capacity *= 2
    return tuple(sorted(names, key=lambda name: _spread_hash(name) & (capacity - 1)))


def _spread_hash(text: str) -> int:
    """Java's hash of a string, as a HashMap stirs it."""
    result = 0
    for character in text:
        result = (result * 31 + ord(character)) & 0xFFFFFFFF
    return result ^ (result >> 16)
