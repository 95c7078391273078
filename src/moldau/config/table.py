"""The one table of configuration keys, and which broker keys stand in for which topic and group keys.

Everything that parses, describes or documents a setting looks it up here. The facts are Apache Kafka 4.3.1's; a test
compares every row with Kafka itself. Nothing here has a value: values live in the typed views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from moldau.config import (
    keys_clients,
    keys_cluster,
    keys_coordinators,
    keys_group,
    keys_log,
    keys_replication,
    keys_security,
    keys_server,
    keys_tiered,
    keys_topic,
)
from moldau.config.key import ConfigKey

KAFKA_VERSION: Final = "4.3.1"


def _table(*families: Iterable[ConfigKey]) -> Mapping[str, ConfigKey]:
    return MappingProxyType({key.name: key for family in families for key in family})


# The order is Kafka's order of definition; `describe` depends on it to list keys as Kafka does.
BROKER_KEYS: Final = _table(
    keys_tiered.TIERED_KEYS,
    keys_server.SERVER_KEYS,
    keys_server.ROLE_KEYS,
    keys_server.METADATA_LOG_KEYS,
    keys_server.LISTENER_KEYS,
    keys_replication.REPLICATION_KEYS,
    keys_coordinators.GROUP_COORDINATOR_KEYS,
    keys_log.CLEANER_KEYS,
    keys_log.LOG_KEYS,
    keys_coordinators.SHARE_GROUP_KEYS,
    keys_coordinators.SHARE_COORDINATOR_KEYS,
    keys_coordinators.TRANSACTION_KEYS,
    keys_cluster.QUORUM_KEYS,
    keys_cluster.METRIC_KEYS,
    keys_cluster.QUOTA_KEYS,
    keys_security.SECURITY_KEYS,
    keys_security.TOKEN_KEYS,
    keys_coordinators.TRANSACTION_RETRY_KEYS,
)
DYNAMIC_ONLY_KEYS: Final = _table(keys_cluster.DYNAMIC_ONLY_KEYS)
AUTHORIZER_KEYS: Final = _table(keys_clients.AUTHORIZER_KEYS)
TOPIC_KEYS: Final = _table(keys_topic.TOPIC_KEYS)
GROUP_KEYS: Final = _table(keys_group.GROUP_KEYS)
CLIENT_METRICS_KEYS: Final = _table(keys_clients.CLIENT_METRICS_KEYS)
USER_QUOTA_KEYS: Final = _table(keys_clients.USER_QUOTA_KEYS)
IP_QUOTA_KEYS: Final = _table(keys_clients.IP_QUOTA_KEYS)

ALL_NODE_KEYS: Final = _table(BROKER_KEYS.values(), DYNAMIC_ONLY_KEYS.values(), AUTHORIZER_KEYS.values())
"""Every key a node's configuration can answer for, whichever way it was set."""


class Synonym(NamedTuple):
    """A broker key that gives a topic key its default, and the factor between their units."""

    name: str
    factor: int = 1


_MINUTE: Final = 60 * 1000
_HOUR: Final = 60 * _MINUTE

TOPIC_SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = MappingProxyType(
    {
        "segment.bytes": (Synonym("log.segment.bytes"),),
        "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR)),
        "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR)),
        "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
        "flush.messages": (Synonym("log.flush.interval.messages"),),
        "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
        "retention.bytes": (Synonym("log.retention.bytes"),),
        "retention.ms": (
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", _MINUTE),
            Synonym("log.retention.hours", _HOUR),
        ),
        "max.message.bytes": (Synonym("message.max.bytes"),),
        "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
        "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
        "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
        "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
        "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
        "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
        "cleanup.policy": (Synonym("log.cleanup.policy"),),
        "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
        "min.insync.replicas": (Synonym("min.insync.replicas"),),
        "compression.type": (Synonym("compression.type"),),
        "compression.gzip.level": (Synonym("compression.gzip.level"),),
        "compression.lz4.level": (Synonym("compression.lz4.level"),),
        "compression.zstd.level": (Synonym("compression.zstd.level"),),
        "preallocate": (Synonym("log.preallocate"),),
        "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
        "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
        "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
        "local.retention.ms": (Synonym("log.local.retention.ms"),),
        "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
    }
)

# Each group key takes its default from the broker key of the same name under `group.`, if there is one.
GROUP_SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {name: f"group.{name}" for name in GROUP_KEYS if f"group.{name}" in BROKER_KEYS}
)

# Broker keys that say the same in different units, strongest first. The scheduler interval is only a default of the
# flush interval, never the other way round, so it is not a synonym when it is described itself.
_ROLL: Final = ("log.roll.ms", "log.roll.hours")
_ROLL_JITTER: Final = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
BROKER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(_ROLL, _ROLL),
        **dict.fromkeys(_ROLL_JITTER, _ROLL_JITTER),
        **dict.fromkeys(_RETENTION, _RETENTION),
        "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    }
)


def broker_synonyms_of(key: ConfigKey) -> tuple[str, ...]:
    """The broker keys that give `key` its value where it is not set itself, strongest first."""
    if key.family == "topic":
        return tuple(synonym.name for synonym in TOPIC_SYNONYMS.get(key.name, ()))
    if key.family == "group":
        return (GROUP_SYNONYMS[key.name],) if key.name in GROUP_SYNONYMS else ()
    if key.family == "broker":
        return tuple(name for name in BROKER_SYNONYMS.get(key.name, ()) if name != key.name)
    return ()
