"""The settings one node runs with: server.properties, below what was changed dynamically.

`NodeConfig.load` accepts or refuses a whole set of properties; `with_dynamic` gives the settings under dynamic changes
without touching the ones it was called on. A NodeConfig never changes, reads no file and opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from moldau.config.listeners import PROTOCOL_MAP, Listener, effective_protocol_map, parse_listeners
from moldau.config.node_checks import check_node, warnings_of
from moldau.config.one_node import defaults_for_one_node
from moldau.config.table import ALL_NODE_KEYS, BROKER_KEYS, BROKER_SYNONYMS, DYNAMIC_ONLY_KEYS, TOPIC_SYNONYMS
from moldau.config.typed import TypedSettings
from moldau.config.types import ConfigError, ConfigValue
from moldau.config.unknown_keys import base_of_listener_key, warnings_about_names
from moldau.config.validators import host_and_port, parse_voters

_DEFAULTS: Final = {name: key.default for name, key in ALL_NODE_KEYS.items()}
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

# A group's assignment interval may be changed dynamically while its limits may not; a value that no longer fits is
# brought back between them, as Kafka does, instead of stopping the node.
_CLAMPED: Final = tuple(
    tuple(f"group.{kind}.{limit}assignment.interval.ms" for limit in ("", "min.", "max."))
    for kind in ("consumer", "share", "streams")
)


class NodeConfig(TypedSettings):
    """One node's settings, parsed and checked. `config.integer("num.partitions")`, `config.flag(...)` and so on."""

    __slots__ = (
        "_originals",
        "_values",
        "advertised_controller_listeners",
        "advertised_listeners",
        "controller_listener_names",
        "dynamic_broker",
        "dynamic_default",
        "inter_broker_listener",
        "inter_broker_protocol",
        "listeners",
        "log_dirs",
        "node_id",
        "quorum_voters",
        "roles",
        "security_protocols",
        "static",
        "topic_defaults",
        "warnings",
    )

    def __init__(
        self,
        static: Mapping[str, str],
        dynamic_default: Mapping[str, str] = _NOTHING,
        dynamic_broker: Mapping[str, str] = _NOTHING,
    ) -> None:
        """Use `load`; this takes properties that are complete, and dynamic settings that are allowed."""
        self.static: Mapping[str, str] = MappingProxyType(dict(static))
        self.dynamic_default: Mapping[str, str] = MappingProxyType(dict(dynamic_default))
        self.dynamic_broker: Mapping[str, str] = MappingProxyType(dict(dynamic_broker))
        self._originals = _merged(static, dynamic_default, dynamic_broker)
        self._values = _parsed(self._originals)
        _require_the_required(self._originals)
        self.node_id = self.integer("node.id")
        self.roles = frozenset(self.words("process.roles"))
        self.log_dirs = self.optional_words("log.dirs") or self.words("log.dir")
        self.quorum_voters = parse_voters(self.words("controller.quorum.voters"))
        self._read_listeners()
        self.topic_defaults: Mapping[str, ConfigValue] = MappingProxyType(self._topic_defaults())
        check_node(self)
        self.warnings: tuple[str, ...] = (*warnings_about_names(self._originals), *warnings_of(self))

    @classmethod
    def load(cls, properties: Mapping[str, str]) -> NodeConfig:
        """The settings these properties give. Raises ConfigError when a node could not run with them.

        No properties at all give a cluster of one node; see `defaults_for_one_node`.
        """
        given = dict(properties) if properties else defaults_for_one_node()
        if "broker.id" in given:
            given.setdefault("node.id", given["broker.id"])
        elif "node.id" in given:
            given["broker.id"] = given["node.id"]
        dynamic_only = [name for name in given if name in DYNAMIC_ONLY_KEYS]
        config = cls({name: text for name, text in given.items() if name not in dynamic_only})
        config.warnings += tuple(f"{name} can only be set dynamically and is ignored here" for name in dynamic_only)
        return config

    def with_dynamic(
        self,
        default_overrides: Mapping[str, str],
        broker_overrides: Mapping[str, str],
        *,
        ignore_invalid: bool = False,
    ) -> NodeConfig:
        """The settings under dynamic changes: static, below the cluster-wide ones, below this broker's own.

        What may not be changed that way raises ConfigError. With `ignore_invalid`, for changes that are stored
        already and must not stop a node, it is left out and named in `warnings` instead; if the rest is still no
        configuration, the settings stay as they are.
        """
        from moldau.config.dynamic import acceptable_overrides, check_change, check_overrides

        if not ignore_invalid:
            check_overrides(default_overrides, per_broker=False)
            check_overrides(broker_overrides, per_broker=True)
            changed = NodeConfig(self.static, default_overrides, broker_overrides)
            check_change(self, changed)
            return changed
        default_overrides, notes = acceptable_overrides(default_overrides, per_broker=False)
        broker_overrides, more_notes = acceptable_overrides(broker_overrides, per_broker=True)
        try:
            changed = NodeConfig(self.static, default_overrides, broker_overrides)
        except ConfigError as error:
            changed = NodeConfig(self.static, self.dynamic_default, self.dynamic_broker)
            more_notes.append(f"the stored settings cannot be applied: {error}")
        changed.warnings += (*notes, *more_notes)
        return changed

    def changes_from(self, older: NodeConfig) -> frozenset[str]:
        """The names of the settings that differ between two configurations of the same node."""
        names = self._originals.keys() | older._originals.keys()
        return frozenset(
            name
            for name in names
            if (
                self._values[name] != older._values[name]
                if name in self._values
                else self._originals.get(name) != older._originals.get(name)
            )
        )

    def __getitem__(self, name: str) -> ConfigValue:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def original(self, name: str) -> str | None:
        """The text a setting was given, static or dynamic; None when nothing set it."""
        return self._originals.get(name)

    def is_set(self, name: str) -> bool:
        """Whether the setting was given at all, rather than left to its default."""
        return name in self._originals

    @property
    def originals(self) -> Mapping[str, str]:
        """Every setting that was given, with dynamic changes applied, custom ones included."""
        return MappingProxyType(self._originals)

    def for_listener(self, listener: str, mechanism: str | None = None) -> ListenerSettings:
        """The settings as one listener sees them, `listener.name.<listener>.<key>` before `<key>`.

        With a SASL mechanism, `listener.name.<listener>.<mechanism>.<key>` comes before both.
        """
        return ListenerSettings(self, listener, mechanism)

    def unused_settings(self) -> list[tuple[str, str]]:
        """The settings that were given although they do nothing here, each with the reason."""
        return [
            (name, effect.reason)
            for name in self._originals
            if name in BROKER_KEYS and not (effect := BROKER_KEYS[name].effect).active
        ]

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def metadata_log_dir(self) -> str:
        """Where the cluster's metadata log lives: its own directory, or else the first log directory."""
        return self.optional_text("metadata.log.dir") or self.log_dirs[0]

    @property
    def rack(self) -> str | None:
        return self.optional_text("broker.rack")

    @property
    def cordoned_log_dirs(self) -> tuple[str, ...]:
        """The log directories that take no new replicas."""
        cordoned = self.optional_words("cordoned.log.dirs") or ()
        return self.log_dirs if "*" in cordoned else cordoned

    @property
    def log_retention_ms(self) -> int:
        """How long records are kept unless a topic says otherwise; -1 is for ever."""
        value = _first_set(self, "retention.ms")
        assert isinstance(value, int)
        return max(value, -1)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners clients and other brokers connect to."""
        return tuple(listener for listener in self.listeners if listener.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners of the controller role."""
        return tuple(listener for listener in self.listeners if listener.name in self.controller_listener_names)

    @property
    def early_start_listeners(self) -> frozenset[str]:
        """The listeners that answer before the broker has caught up; those of the controller, unless told."""
        names = self.optional_words("early.start.listeners")
        if names is None:
            return frozenset(listener.name for listener in self.controller_listeners)
        return frozenset(names)

    @property
    def quorum_servers(self) -> tuple[tuple[str, int], ...]:
        """Addresses of controllers to ask for the quorum: the ones configured, or else the fixed voters."""
        given = (host_and_port(entry) for entry in self.words("controller.quorum.bootstrap.servers"))
        return tuple(address for address in given if address is not None) or tuple(self.quorum_voters.values())

    def _topic_defaults(self) -> dict[str, ConfigValue]:
        defaults = {name: _first_set(self, name) for name in TOPIC_SYNONYMS}
        defaults["retention.ms"] = self.log_retention_ms
        return defaults

    def _read_listeners(self) -> None:
        names = self.words("controller.listener.names")
        self.controller_listener_names = names
        self.security_protocols = effective_protocol_map(
            self.text(PROTOCOL_MAP),
            explicit=self.is_set(PROTOCOL_MAP),
            controller_names=names,
            listeners=self.words("listeners"),
        )
        self.listeners = parse_listeners(
            "listeners", self.words("listeners"), self.security_protocols, distinct_ports=True
        )
        advertised = self.listeners
        given = self.optional_words("advertised.listeners")
        if given is not None:
            advertised = parse_listeners("advertised.listeners", given, self.security_protocols, distinct_ports=False)
        self.advertised_listeners = tuple(listener for listener in advertised if listener.name not in names)
        self.advertised_controller_listeners = self._controller_endpoints(advertised if given is not None else ())
        self.inter_broker_listener, self.inter_broker_protocol = self._between_brokers()
        known = {listener.name for listener in self.listeners}.union(names)
        for name in self.optional_words("early.start.listeners") or ():
            if name not in known:
                raise ConfigError(
                    "early.start.listeners",
                    name,
                    f"early.start.listeners contains listener {name}, but this is not contained in listeners or "
                    "controller.listener.names",
                )

    def _controller_endpoints(self, advertised: tuple[Listener, ...]) -> tuple[Listener, ...]:
        """What other nodes are told about the controller's listeners, in the order of controller.listener.names."""
        endpoints: list[Listener] = []
        for position, name in enumerate(self.controller_listener_names):
            wanted = name.upper()
            told = next((listener for listener in advertised if listener.name == wanted), None)
            bound = next((listener for listener in self.controller_listeners if listener.name == wanted), None)
            if told is not None:
                endpoints.append(told)
            elif bound is not None:
                if bound.host in ("", "0.0.0.0"):
                    # Nobody can connect to "every interface": a fixed quorum knows this node's real address, and
                    # otherwise the node works out its own host name.
                    host, port = self.quorum_voters.get(self.node_id, ("", bound.port)) if position == 0 else ("", 0)
                    bound = bound._replace(host=host, port=port or bound.port)
                endpoints.append(bound)
        return tuple(endpoints)

    def _between_brokers(self) -> tuple[str, str]:
        """The listener that brokers use among themselves, and its security protocol."""
        name = self.optional_text("inter.broker.listener.name")
        if name is None:
            protocol = self.text("security.inter.broker.protocol")
            return protocol, protocol
        if self.is_set("security.inter.broker.protocol"):
            raise ConfigError(
                "inter.broker.listener.name",
                name,
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
            )
        if name.upper() not in self.security_protocols:
            raise ConfigError(
                "inter.broker.listener.name",
                name,
                f"Listener with name {name.upper()} defined in inter.broker.listener.name not found in {PROTOCOL_MAP}.",
            )
        return name.upper(), self.security_protocols[name.upper()]


class ListenerSettings(TypedSettings):
    """A node's settings with those for one listener, perhaps for one SASL mechanism of it, put before the others."""

    __slots__ = ("_config", "_prefixes")

    def __init__(self, config: NodeConfig, listener: str, mechanism: str | None) -> None:
        prefix = f"listener.name.{listener.lower()}."
        self._config = config
        self._prefixes = (prefix,) if mechanism is None else (f"{prefix}{mechanism.lower()}.", prefix)

    def __getitem__(self, name: str) -> ConfigValue:
        for prefix in self._prefixes:
            text = self._config.original(prefix + name)
            if text is not None:
                return ALL_NODE_KEYS[name].parse(text)
        return self._config[name]


def _merged(
    static: Mapping[str, str], dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]
) -> dict[str, str]:
    """All that was given. A setting that is changed dynamically silences its synonyms: whoever sets log.retention.ms
    at run time does not want to be told that server.properties has log.retention.hours."""
    merged = dict(static)
    for overrides in (dynamic_default, dynamic_broker):
        for name, text in overrides.items():
            for synonym in BROKER_SYNONYMS.get(name, ()):
                merged.pop(synonym, None)
            merged[name] = text
    if dynamic_default or dynamic_broker:
        for name, least, most in _CLAMPED:
            if name in merged:
                value, minimum, maximum = (_whole(merged, key) for key in (name, least, most))
                merged[name] = str(min(max(value, minimum), maximum))
    return merged


def _whole(texts: Mapping[str, str], name: str) -> int:
    value = BROKER_KEYS[name].parse(texts[name]) if name in texts else BROKER_KEYS[name].default
    assert isinstance(value, int)
    return value


def _parsed(originals: Mapping[str, str]) -> dict[str, ConfigValue]:
    values = dict(_DEFAULTS)
    for name, text in originals.items():
        key = ALL_NODE_KEYS.get(name)
        if key is not None:
            values[name] = key.parse(text)
        elif (base := base_of_listener_key(name)) is not None:
            ALL_NODE_KEYS[base].parse(text)  # only a check: the listener's own view parses it when it is read
    return values


def _require_the_required(originals: Mapping[str, str]) -> None:
    for name, key in BROKER_KEYS.items():
        if key.required and name not in originals:
            raise ConfigError.saying(
                name, f'Missing required configuration "{name}" which has no default value. {_HINTS[name]}'
            )


_HINTS: Final = {
    "process.roles": "Set it to broker, controller or broker,controller.",
    "node.id": "Set it to a number that no other node of the cluster has.",
    "controller.listener.names": "Set it to the name of the controllers' listener, usually CONTROLLER.",
}


def _first_set(config: NodeConfig, topic_key: str) -> ConfigValue:
    """What a topic gets for `topic_key`: the strongest broker synonym that has a value, in the topic key's unit."""
    for synonym in TOPIC_SYNONYMS[topic_key]:
        value = config[synonym.name]
        if value is not None:
            return value * synonym.factor if isinstance(value, int) and synonym.factor != 1 else value
    raise AssertionError(f"no broker default for {topic_key}")
