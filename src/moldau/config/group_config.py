"""The settings of one group: what it overrides, above what its node gives every group, within the node's limits.

What an administrator may set is decided by `validate_group_overrides`. Limits may be tightened after a group was
configured; `GroupConfig.effective` then brings the group back inside them, and never refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from moldau.config.table import BROKER_KEYS, GROUP_KEYS, GROUP_SYNONYMS
from moldau.config.types import ConfigError, ConfigValue

if TYPE_CHECKING:
    from moldau.config.node_config import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Every setting of one group, in force. Times are milliseconds; the defaults are Kafka's."""

    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_record_lock_duration_ms: int = 30_000
    share_delivery_count_limit: int = 5
    share_partition_max_record_locks: int = 2_000
    share_auto_offset_reset: str = "latest"
    share_isolation_level: str = "read_uncommitted"
    share_renew_acknowledge_enable: bool = True
    share_assignment_interval_ms: int = 1_000
    streams_session_timeout_ms: int = 45_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_num_standby_replicas: int = 0
    streams_initial_rebalance_delay_ms: int = 3_000
    streams_assignment_interval_ms: int = 1_000

    @classmethod
    def effective(cls, node_config: NodeConfig, overrides: Mapping[str, str]) -> GroupConfig:
        """The settings of a group with these overrides on this node, brought inside the node's limits."""
        values: dict[str, Any] = effective_group_values(node_config, overrides)
        for name, least, most in _limits(node_config):
            if name in overrides:
                values[name] = min(max(values[name], least), most)
        return cls(**{_FIELD_OF_KEY[name]: value for name, value in values.items()})


_FIELD_OF_KEY: Final = {field.name.replace("_", "."): field.name for field in fields(GroupConfig)}
_DEFAULTS: Final = {name: key.default for name, key in GROUP_KEYS.items()}

# In the order in which Kafka checks them, which decides what a request with several mistakes is told.
_LIMITED: Final = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.num.standby.replicas",
    "streams.assignment.interval.ms",
)


def effective_group_values(node_config: NodeConfig, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Every group key with its parsed value, before the node's limits are applied."""
    values = dict(_DEFAULTS)
    for name, broker_name in GROUP_SYNONYMS.items():
        values[name] = node_config[broker_name]
    for name, text in overrides.items():
        if name in GROUP_KEYS:
            values[name] = GROUP_KEYS[name].parse(text)
    return values


def validate_group_overrides(overrides: Mapping[str, str], node_config: NodeConfig) -> None:
    """Raises ConfigError unless a group may have these overrides, all of them together."""
    for name in overrides:
        if name not in GROUP_KEYS:
            raise ConfigError.saying(name, f"Unknown group config name: {name}", overrides[name])
    values = effective_group_values(node_config, overrides)
    for name, least, most in _limits(node_config):
        value = _integer(values, name)
        if value < least:
            raise ConfigError.saying(name, f"{name} must be greater than or equal to {_limit_key(name, 'min')}", value)
        if value > most:
            raise ConfigError.saying(name, f"{name} must be less than or equal to {_limit_key(name, 'max')}", value)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _integer(values, session) <= _integer(values, heartbeat):
            raise ConfigError.saying(session, f"{session} must be greater than {heartbeat}", values[session])


def _limits(node_config: NodeConfig) -> Iterator[tuple[str, int, int]]:
    """Each limited key with the least and the most this node allows."""
    for name in _LIMITED:
        least, most = _limit_key(name, "min"), _limit_key(name, "max")
        yield name, node_config.integer(least) if least in BROKER_KEYS else 0, node_config.integer(most)


def _limit_key(name: str, limit: str) -> str:
    """The broker key that limits a group key: group.consumer.min.session.timeout.ms for consumer.session.timeout.ms."""
    if name == "streams.num.standby.replicas":
        return f"group.streams.{limit}.standby.replicas"
    kind, _, setting = name.partition(".")
    return f"group.{kind}.{limit}.{setting}"


def _integer(values: Mapping[str, ConfigValue], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), name
    return value
