"""The rules between several keys that a node must satisfy before it starts.

Each check reads a finished `NodeConfig` and raises ConfigError naming the key to change. Checks of one key alone are
validators; checks of dynamic changes are in `dynamic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from moldau.config.listeners import parse_pairs
from moldau.config.topic_config import check_local_retention
from moldau.config.types import ConfigError

if TYPE_CHECKING:
    from moldau.config.node_config import NodeConfig

_VOTERS = "controller.quorum.voters"
_SERVERS = "controller.quorum.bootstrap.servers"
_CONTROLLER_NAMES = "controller.listener.names"
_ADVERTISED = "advertised.listeners"

# Assignors by their short names, and by those of the classes Kafka has them in.
ASSIGNORS: Final[Mapping[str, tuple[str, ...]]] = {
    "consumer": ("uniform", "range", "UniformAssignor", "RangeAssignor"),
    "share": ("simple", "SimpleAssignor"),
}


def check_node(config: NodeConfig) -> None:
    """Everything Kafka checks when a node starts. Raises ConfigError at the first rule that is broken."""
    _check_group_coordinator(config)
    _check_share_groups(config)
    _check_identity(config)
    _check_log(config)
    _check_topic_defaults(config)
    _check_replication(config)
    _check_quorum(config)
    _check_controller_listeners(config)
    if config.is_broker:
        _check_broker_listeners(config)
        _check_cordoned_directories(config)
    _check_connections(config)


def warnings_of(config: NodeConfig) -> Iterable[str]:
    """Settings that are legal and yet probably not what was meant."""
    heartbeat = config.integer("broker.heartbeat.interval.ms")
    session = config.integer("broker.session.timeout.ms")
    if heartbeat * 2 > session:
        yield (
            f"broker.heartbeat.interval.ms ({heartbeat} ms) should be at most half of broker.session.timeout.ms "
            f"({session} ms), or one late heartbeat costs the broker its lease"
        )
    if config.is_broker and not config.is_controller:
        if len(config.controller_listener_names) > 1:
            yield f"{_CONTROLLER_NAMES} has several entries; a broker uses only the first"
        for name in ("create.topic.policy.class.name", "alter.config.policy.class.name"):
            if config.is_set(name):
                yield f"{name} is read by controllers; on a node that is only a broker it does nothing"


def _refuse(config: NodeConfig, name: str, reason: str) -> ConfigError:
    value = config.original(name)
    return ConfigError(name, value if value is not None else config[name], reason)


def _require(allowed: bool, config: NodeConfig, name: str, reason: str) -> None:
    if not allowed:
        raise _refuse(config, name, reason)


def _check_identity(config: NodeConfig) -> None:
    _require(
        config.integer("broker.id") == config.node_id,
        config,
        "broker.id",
        "You must set `node.id` to the same value as `broker.id`.",
    )


def _check_log(config: NodeConfig) -> None:
    for stronger, weaker, factor, least in (
        ("log.roll.ms", "log.roll.hours", 3_600_000, 1),
        ("log.roll.jitter.ms", "log.roll.jitter.hours", 3_600_000, 0),
    ):
        value = config.optional_integer(stronger)
        value = config.integer(weaker) * factor if value is None else value
        _require(value >= least, config, stronger, f"{stronger} must be greater than or equal to {least}")
    retention = config.log_retention_ms
    name = next(
        (key for key in ("log.retention.ms", "log.retention.minutes") if config[key] is not None), "log.retention.hours"
    )
    _require(
        retention >= 1 or retention == -1,
        config,
        name,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    )
    threads = config.integer("log.cleaner.threads")
    _require(threads > 0, config, "log.cleaner.threads", "Value must be at least 1")
    _require(
        config.integer("log.cleaner.dedupe.buffer.size") // threads > 1024 * 1024,
        config,
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )


def _check_topic_defaults(config: NodeConfig) -> None:
    """What every topic starts from must itself be a topic's valid settings."""
    least = config.integer("log.cleaner.min.compaction.lag.ms")
    most = config.integer("log.cleaner.max.compaction.lag.ms")
    _require(
        least <= most,
        config,
        "log.cleaner.min.compaction.lag.ms",
        f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
    )
    if config.flag("remote.log.storage.system.enable"):
        check_local_retention_defaults(config)


def check_local_retention_defaults(config: NodeConfig) -> None:
    """What is kept on local disks by default cannot be more than what is kept at all."""
    check_local_retention(
        config.log_retention_ms, config.integer("log.local.retention.ms"), "log.retention.ms", "log.local.retention.ms"
    )
    check_local_retention(
        config.integer("log.retention.bytes"),
        config.integer("log.local.retention.bytes"),
        "log.retention.bytes",
        "log.local.retention.bytes",
    )


def _check_replication(config: NodeConfig) -> None:
    wait = config.integer("replica.fetch.wait.max.ms")
    _require(
        wait <= config.integer("replica.socket.timeout.ms"),
        config,
        "replica.socket.timeout.ms",
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary "
        "socket timeouts",
    )
    _require(
        wait <= config.integer("replica.lag.time.max.ms"),
        config,
        "replica.fetch.wait.max.ms",
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent "
        "frequent changes in ISR",
    )


def _check_quorum(config: NodeConfig) -> None:
    voters = config.quorum_voters
    if not voters and not config.words(_SERVERS):
        raise ConfigError.saying(
            _SERVERS,
            f"If using process.roles, either {_SERVERS} must contain the set of bootstrap controllers (host:port,...) "
            f"or {_VOTERS} must contain a parseable set of controllers (id@host:port,...).",
        )
    if config.is_controller:
        _require(
            not voters or config.node_id in voters,
            config,
            _VOTERS,
            f"If process.roles contains the 'controller' role, the node id {config.node_id} must be included in the "
            f"set of voters {_VOTERS}={sorted(voters)}",
        )
        return
    _require(
        config.node_id not in voters,
        config,
        _VOTERS,
        f"If process.roles contains just the 'broker' role, the node id {config.node_id} must not be included in the "
        f"set of voters {_VOTERS}={sorted(voters)}",
    )
    _require(
        not config.flag("controller.quorum.auto.join.enable"),
        config,
        "controller.quorum.auto.join.enable",
        "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.",
    )


def _check_controller_listeners(config: NodeConfig) -> None:
    names = config.controller_listener_names
    if not config.is_controller:
        _require(
            not config.controller_listeners,
            config,
            _CONTROLLER_NAMES,
            f"{_CONTROLLER_NAMES} must not contain a value appearing in the 'listeners' configuration when running "
            "KRaft with just the broker role",
        )
        for name in names:
            _require(
                name.upper() in config.security_protocols,
                config,
                _CONTROLLER_NAMES,
                f"Controller listener with name {name.upper()} defined in {_CONTROLLER_NAMES} not found in "
                "listener.security.protocol.map (an explicit security mapping for each controller listener is required "
                "if listener.security.protocol.map is non-empty, or if there are security protocols other than "
                "PLAINTEXT in use)",
            )
        return
    _require(
        bool(config.advertised_controller_listeners),
        config,
        _CONTROLLER_NAMES,
        f"{_CONTROLLER_NAMES} must contain at least one value appearing in the 'listeners' configuration when running "
        "the KRaft controller role",
    )
    listener_names = {listener.name for listener in config.listeners}
    _require(
        listener_names.issuperset(names),
        config,
        _CONTROLLER_NAMES,
        f"{_CONTROLLER_NAMES} must only contain values appearing in the 'listeners' configuration when running the "
        f"KRaft controller role; the names there are {', '.join(sorted(listener_names))}",
    )
    if not config.is_broker:
        _require(
            len(config.advertised_controller_listeners) == len(config.listeners),
            config,
            "listeners",
            f"The listeners config must only contain KRaft controller listeners from {_CONTROLLER_NAMES} when "
            "process.roles=controller",
        )
        _require(
            config["inter.broker.listener.name"] is None or config.inter_broker_listener not in names,
            config,
            _CONTROLLER_NAMES,
            f"{_CONTROLLER_NAMES} must not contain an explicitly set inter.broker.listener.name configuration value "
            "when process.roles=controller",
        )


def _check_broker_listeners(config: NodeConfig) -> None:
    advertised = [listener.name for listener in config.advertised_listeners]
    names = [listener.name for listener in config.listeners]
    _require(
        bool(advertised),
        config,
        _ADVERTISED,
        f"There must be at least one broker advertised listener. Perhaps all listeners appear in {_CONTROLLER_NAMES}?",
    )
    _require(
        config.inter_broker_listener in advertised,
        config,
        "inter.broker.listener.name",
        f"inter.broker.listener.name must be a listener name defined in {_ADVERTISED}. The valid options based on "
        f"currently configured listeners are {','.join(advertised)}",
    )
    _require(
        set(names).issuperset(advertised),
        config,
        _ADVERTISED,
        f"{_ADVERTISED} listener names must be equal to or a subset of the ones defined in listeners. Found "
        f"{','.join(advertised)}. The valid options based on the current configuration are {','.join(names)}",
    )


def _check_cordoned_directories(config: NodeConfig) -> None:
    cordoned = config.optional_words("cordoned.log.dirs") or ()
    if "*" in cordoned:
        _require(
            len(cordoned) == 1,
            config,
            "cordoned.log.dirs",
            "When cordoned.log.dirs is set to *, it must not contain other values",
        )
        return
    unknown = [directory for directory in cordoned if directory not in config.log_dirs]
    _require(
        not unknown,
        config,
        "cordoned.log.dirs",
        "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
        f"Missing entries : {', '.join(unknown)}",
    )


def _check_connections(config: NodeConfig) -> None:
    for listener in (*config.advertised_listeners, *config.advertised_controller_listeners):
        _require(
            listener.host != "0.0.0.0",
            config,
            _ADVERTISED if config.is_set(_ADVERTISED) else "listeners",
            f"{_ADVERTISED} cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
        )
    if config.inter_broker_protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        enabled = config.for_listener(config.inter_broker_listener).words("sasl.enabled.mechanisms")
        _require(
            config.text("sasl.mechanism.inter.broker.protocol") in enabled,
            config,
            "sasl.mechanism.inter.broker.protocol",
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for "
            "inter-broker communication",
        )
    queued = config.integer("queued.max.request.bytes")
    _require(
        queued <= 0 or queued >= config.integer("socket.request.max.bytes"),
        config,
        "queued.max.request.bytes",
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    )
    _check_connection_limits(config)
    idle = config.integer("connections.max.idle.ms")
    delay = config.integer("connection.failed.authentication.delay.ms")
    _require(
        idle < 0 or delay < idle,
        config,
        "connection.failed.authentication.delay.ms",
        f"connection.failed.authentication.delay.ms={delay} should always be less than "
        f"connections.max.idle.ms={idle} to prevent failed authentication responses from timing out",
    )


def _check_connection_limits(config: NodeConfig) -> None:
    name = "max.connections.per.ip.overrides"
    overrides = parse_pairs(name, config.text(name))
    _require(
        config.integer("max.connections.per.ip") != 0 or bool(overrides),
        config,
        "max.connections.per.ip",
        f"max.connections.per.ip can be set to zero only if {name} property is set.",
    )
    for address, limit in overrides.items():
        _require(
            all(character.isalnum() or character in "-%._:" for character in address),
            config,
            name,
            f"{name} contains invalid addresses : {address}",
        )
        _require(limit.lstrip("+-").isdecimal(), config, name, f"the limit of {address} is not a number: {limit}")


def _check_group_coordinator(config: NodeConfig) -> None:
    if "classic" not in config.words("group.coordinator.rebalance.protocols"):
        raise _refuse(
            config, "group.coordinator.rebalance.protocols", "Disabling the 'classic' protocol is not supported."
        )
    for kind in ("consumer", "share", "streams"):
        for setting in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            name, least, most = (f"group.{kind}.{limit}{setting}" for limit in ("", "min.", "max."))
            _require_order(config, most, least)
            _require_order(config, name, least)
            _require_order(config, most, name, blame=name)
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        _require(
            config.integer(heartbeat) < config.integer(session),
            config,
            heartbeat,
            f"{heartbeat} must be less than {session}",
        )
    for kind, known in ASSIGNORS.items():
        name = f"group.{kind}.assignors"
        for assignor in config.words(name):
            _require(
                assignor.rpartition(".")[2] in known,
                config,
                name,
                f"Class {assignor} cannot be found; it must be one of {', '.join(known)}",
            )
    assignors = config.words("group.share.assignors")
    _require(
        len(assignors) == 1,
        config,
        "group.share.assignors",
        f"group.share.assignors must contain exactly one assignor, but found {len(assignors)}",
    )
    standby = "group.streams.num.standby.replicas"
    _require_order(config, "group.streams.max.standby.replicas", standby, blame=standby)


def _check_share_groups(config: NodeConfig) -> None:
    for setting in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        name, least, most = (f"group.share.{limit}{setting}" for limit in ("", "min.", "max."))
        _require_order(config, most, name)
        _require_order(config, name, least)
    _require_order(config, "group.share.max.share.sessions", "group.share.max.size")


def _require_order(config: NodeConfig, greater: str, smaller: str, *, blame: str | None = None) -> None:
    """`greater` must not be below `smaller`; the text names `blame` first, which is `greater` unless told."""
    reason = f"{greater} must be greater than or equal to {smaller}"
    if blame == smaller:
        reason = f"{smaller} must be less than or equal to {greater}"
    _require(config.integer(greater) >= config.integer(smaller), config, blame or greater, reason)
