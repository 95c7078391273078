"""Names nobody knows: which are mistakes worth a warning, and which belong to plugins, clients or listeners.

It only ever warns. Kafka accepts any name in server.properties, because plugins read their own settings there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from moldau.config.table import ALL_NODE_KEYS, DYNAMIC_ONLY_KEYS

# Names that start so are read by plugins, by clients inside the broker, or for one listener.
LEGAL_PREFIXES: Final = (
    "listener.name.",
    "config.providers.",
    "rsm.config.",
    "rlmm.config.",
    "metrics.context.",
    "metrics.jmx.",
    "producer.",
    "consumer.",
    "admin.",
)

# Settings of this broker that Kafka does not have.
OWN_KEYS: Final[Mapping[str, str]] = {
    "cluster.id": "The cluster a directory is formatted for on the first start; a new id when empty.",
    "moldau.idle.poll.us": (
        "How long a node looks for what is due before it sleeps, in microseconds; 300 when empty, 0 to sleep at once."
    ),
    "moldau.http.listener": "host:port of the HTTP pages /metrics, /health and /ready; none when empty.",
}

# What older Kafka releases had and 4.x has not, with what came of it.
REMOVED: Final[Mapping[str, str]] = {
    "zookeeper.connect": "there is no ZooKeeper any more; controllers keep the metadata (process.roles)",
    "zookeeper.connection.timeout.ms": "there is no ZooKeeper any more",
    "zookeeper.session.timeout.ms": "there is no ZooKeeper any more",
    "zookeeper.set.acl": "there is no ZooKeeper any more",
    "zookeeper.max.in.flight.requests": "there is no ZooKeeper any more",
    "zookeeper.metadata.migration.enable": "migration from ZooKeeper ended with Kafka 3.9",
    "broker.id.generation.enable": "every node has a node.id of its own",
    "reserved.broker.max.id": "every node has a node.id of its own",
    "inter.broker.protocol.version": "the cluster's metadata.version feature decides this",
    "log.message.format.version": "only the current record format exists",
    "message.format.version": "only the current record format exists",
    "log.message.downconversion.enable": "records are never converted to an older format",
    "log.message.timestamp.difference.max.ms": (
        "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "control.plane.listener.name": "controllers have listeners of their own (controller.listener.names)",
    "controlled.shutdown.max.retries": "a broker leaves by its heartbeats to the controller",
    "controlled.shutdown.retry.backoff.ms": "a broker leaves by its heartbeats to the controller",
    "leader.imbalance.per.broker.percentage": "leadership is balanced partition by partition",
    "group.coordinator.new.enable": "there is only the one group coordinator",
    "offsets.commit.required.acks": "offset commits always wait for the in-sync replicas",
    "delegation.token.master.key": "use delegation.token.secret.key",
    "password.encoder.secret": "dynamic passwords are kept in the metadata log",
    "password.encoder.old.secret": "dynamic passwords are kept in the metadata log",
    "quota.producer.default": "set a default client quota instead",
    "quota.consumer.default": "set a default client quota instead",
    "port": "use listeners",
    "host.name": "use listeners",
    "advertised.port": "use advertised.listeners",
    "advertised.host.name": "use advertised.listeners",
    "auto.include.jmx.reporter": "there is no JMX",
    "metadata.log.max.record.bytes": "use metadata.log.max.record.bytes.between.snapshots",
}

_LISTENER_KEY: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")


def base_of_listener_key(name: str) -> str | None:
    """The key that `listener.name.<listener>.<key>` or `listener.name.<listener>.<mechanism>.<key>` overrides."""
    match = _LISTENER_KEY.fullmatch(name)
    if match is None:
        return None
    for candidate in (match[1], match[1].partition(".")[2]):
        if candidate in ALL_NODE_KEYS:
            return candidate
    return None


def warnings_about_names(originals: Mapping[str, str]) -> Iterator[str]:
    """One line for each name that looks like a mistake."""
    prefixes = LEGAL_PREFIXES + tuple(
        prefix
        for key in ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")
        if (prefix := originals.get(key))
    )
    for name in originals:
        if name in REMOVED:
            yield f"{name} is no longer a setting: {REMOVED[name]}"
        elif name in DYNAMIC_ONLY_KEYS or name in ALL_NODE_KEYS or name in OWN_KEYS or name.startswith(prefixes):
            continue
        else:
            yield f"{name} is not a known setting and is ignored{_suggestion(name)}"


def _suggestion(name: str) -> str:
    import difflib  # loaded for mistakes only

    close = difflib.get_close_matches(name, ALL_NODE_KEYS, n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""
