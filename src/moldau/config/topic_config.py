"""The settings of one topic: what it overrides, above what its node gives every topic.

`TopicConfig` is what logs, replication and the controller read. `validate_topic_overrides` decides what an
administrator may set. Neither looks at a topic's data or at any other topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from moldau.config.table import TOPIC_KEYS
from moldau.config.types import ConfigError, ConfigValue

if TYPE_CHECKING:
    from moldau.config.node_config import NodeConfig

FROM_RETENTION: Final = -2
"""A local retention of -2 means: as long as the topic's whole retention."""

_REMOTE_ENABLE: Final = "remote.storage.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Every setting of one topic, in force. Times are milliseconds, sizes bytes; the defaults are Kafka's."""

    segment_bytes: int = 1_073_741_824  # internal.segment.bytes, which tests use, wins over segment.bytes
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    max_message_bytes: int = 1_048_588
    index_interval_bytes: int = 4096
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy_compact: bool = False
    cleanup_policy_delete: bool = True
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_after_max_ms: int = 3_600_000
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    remote_storage_enable: bool = False
    local_retention_ms: int = FROM_RETENTION
    local_retention_bytes: int = FROM_RETENTION
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False

    @classmethod
    def effective(cls, node_config: NodeConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """The settings of a topic with these overrides on this node. Raises ConfigError for a value that is none."""
        return cls.from_values(effective_values(node_config, overrides))

    @classmethod
    def from_values(cls, values: Mapping[str, ConfigValue]) -> TopicConfig:
        """From parsed values by key name; a key that is missing has Kafka's default."""
        settings: dict[str, Any] = {
            _FIELD_OF_KEY[name]: value for name, value in values.items() if name in _FIELD_OF_KEY
        }
        if values.get("internal.segment.bytes") is not None:
            settings["segment_bytes"] = values["internal.segment.bytes"]
        policies = values.get("cleanup.policy")
        if isinstance(policies, tuple):
            settings["cleanup_policy_compact"] = "compact" in policies
            settings["cleanup_policy_delete"] = "delete" in policies
        return cls(**settings)

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is closed: sooner when compaction must not be later than some lag."""
        if self.cleanup_policy_compact and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def effective_local_retention_ms(self) -> int:
        return self.retention_ms if self.local_retention_ms == FROM_RETENTION else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        return self.retention_bytes if self.local_retention_bytes == FROM_RETENTION else self.local_retention_bytes

    @property
    def log_append_time(self) -> bool:
        """Whether the broker's clock stamps records, rather than the producer's."""
        return self.message_timestamp_type == "LogAppendTime"


_FIELD_OF_KEY: Final = {
    field.name.replace("_", "."): field.name for field in fields(TopicConfig) if not field.name.startswith("cleanup")
}
_DEFAULTS: Final = {name: key.default for name, key in TOPIC_KEYS.items()}


def effective_values(node_config: NodeConfig, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Every topic key with its parsed value in force."""
    values = {**_DEFAULTS, **node_config.topic_defaults}
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is not None:
            values[name] = key.parse(text)
    return values


def validate_topic_overrides(
    overrides: Mapping[str, str],
    node_config: NodeConfig | None = None,
    existing: Mapping[str, str] | None = None,
) -> None:
    """Raises ConfigError unless a topic may have these overrides, all of them together.

    With the node's settings the rules between keys are checked against what would be in force; `existing` are the
    overrides the topic has now, for what may not be undone. Without them only names, values and what needs no
    context are checked.
    """
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise ConfigError.saying(name, f"Unknown topic config name: {name}", overrides[name])
    if node_config is None:
        values = {**_DEFAULTS, **{name: TOPIC_KEYS[name].parse(text) for name, text in overrides.items()}}
        _check_compaction_lag(values)
        return
    values = effective_values(node_config, overrides)
    _check_compaction_lag(values)
    if values[_REMOTE_ENABLE]:
        _check_remote_storage(values, node_config.flag("remote.log.storage.system.enable"))
    elif (
        TOPIC_KEYS[_REMOTE_ENABLE].parse((existing or {}).get(_REMOTE_ENABLE))
        and not (values["remote.log.delete.on.disable"])
    ):
        raise ConfigError.saying(
            _REMOTE_ENABLE,
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote "
            "data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If "
            "you want to disable remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`.",
        )


def _check_compaction_lag(values: Mapping[str, ConfigValue]) -> None:
    least, most = _integer(values, "min.compaction.lag.ms"), _integer(values, "max.compaction.lag.ms")
    if least > most:
        raise ConfigError.saying(
            "min.compaction.lag.ms",
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
            least,
        )


def _check_remote_storage(values: Mapping[str, ConfigValue], system_enabled: bool) -> None:
    if not system_enabled:
        raise ConfigError.saying(
            _REMOTE_ENABLE,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
    if values["cleanup.policy"] not in ((), ("delete",)):
        raise ConfigError.saying(
            "cleanup.policy",
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.",
        )
    check_local_retention(
        _integer(values, "retention.bytes"), _integer(values, "local.retention.bytes"), "retention.bytes"
    )
    check_local_retention(_integer(values, "retention.ms"), _integer(values, "local.retention.ms"), "retention.ms")
    if values["remote.log.copy.disable"]:
        for name in ("retention.bytes", "retention.ms"):
            local = _integer(values, f"local.{name}")
            if local not in (FROM_RETENTION, _integer(values, name)):
                raise ConfigError.saying(
                    f"local.{name}",
                    f"When `remote.log.copy.disable` is set to true, the `local.{name}` and `{name}` must be set to "
                    "the identical value because there will be no more logs copied to the remote storage.",
                    local,
                )


def check_local_retention(retention: int, local: int, name: str, local_name: str | None = None) -> None:
    """What is kept on local disks cannot be more than what is kept at all."""
    if retention < 0 or local == FROM_RETENTION:
        return
    local_name = local_name or f"local.{name}"
    if local == -1:
        raise ConfigError(local_name, local, f"Value must not be -1 as {name} value is set as {retention}.")
    if local > retention:
        raise ConfigError(local_name, local, f"Value must not be more than {name} property value: {retention}")


def _integer(values: Mapping[str, ConfigValue], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), name
    return value
