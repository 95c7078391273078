"""Which broker settings may be changed while the cluster runs, for one broker or for all of them.

It decides what an administrator may store. Applying the result is `NodeConfig.with_dynamic`; what a component does
about a changed setting is its own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from moldau.config.node_checks import check_local_retention_defaults
from moldau.config.table import ALL_NODE_KEYS
from moldau.config.types import ConfigError
from moldau.config.unknown_keys import base_of_listener_key

if TYPE_CHECKING:
    from moldau.config.node_config import NodeConfig

# A certificate belongs to a listener; changing it for all of them at once is not offered.
ONLY_FOR_A_LISTENER: Final = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.truststore.certificates",
    }
)
# The settings for one listener that may still change while it is open.
_CHANGEABLE_WHILE_OPEN: Final = ONLY_FOR_A_LISTENER | {
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
}
# The settings for one listener that may be given for all brokers at once.
_FOR_ALL_BROKERS: Final = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})


def check_overrides(overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """Raises ConfigError unless all of these may be stored, for one broker or (`per_broker` False) for all.

    Kafka answers INVALID_REQUEST, not INVALID_CONFIG, to whatever is refused for a broker.
    """
    _refuse(overrides, _is_fixed, "Cannot update these configs dynamically")
    _refuse(
        overrides,
        ONLY_FOR_A_LISTENER.__contains__,
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    for name, text in overrides.items():
        _check_value(name, text)
    if not per_broker:
        _refuse(
            overrides,
            _is_per_broker,
            "Cannot update these configs at default cluster level, broker id must be specified",
        )


def acceptable_overrides(overrides: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """The overrides that may be applied, and a line about each that may not."""
    accepted: dict[str, str] = {}
    notes: list[str] = []
    for name, text in overrides.items():
        try:
            check_overrides({name: text}, per_broker=per_broker)
        except ConfigError as error:
            notes.append(f"the stored setting {name} is ignored: {error}")
        else:
            accepted[name] = text
    return accepted, notes


def check_change(older: NodeConfig, newer: NodeConfig) -> None:
    """Raises ConfigError when a running node could not go from one configuration to the other."""
    _check_listener_change(older, newer)
    check_local_retention_defaults(newer)


def _check_listener_change(older: NodeConfig, newer: NodeConfig) -> None:
    """Raises ConfigError when listeners that are open would change in a way that needs a restart."""
    names = {listener.name for listener in newer.listeners}
    advertised = {listener.name for listener in older.advertised_listeners}
    if not advertised <= names:
        raise ConfigError(
            "listeners",
            newer.original("listeners"),
            f"Advertised listeners '{', '.join(sorted(advertised))}' must be a subset of listeners "
            f"'{', '.join(sorted(names))}'",
        )
    for listener in older.listeners:
        if listener.name not in names:
            continue
        if older.security_protocols[listener.name] != newer.security_protocols.get(listener.name):
            raise ConfigError.saying(
                "listener.security.protocol.map",
                f"Security protocol cannot be updated for existing listener {listener.name}",
            )
        if _fixed_settings(older, listener.config_prefix) != _fixed_settings(newer, listener.config_prefix):
            raise ConfigError.saying(
                "listeners",
                f"Configs cannot be updated dynamically for existing listener {listener.name}, restart broker or "
                "create a new listener for update",
            )


def _fixed_settings(config: NodeConfig, prefix: str) -> dict[str, str]:
    return {
        name: text
        for name, text in config.originals.items()
        if name.startswith(prefix) and name.removeprefix(prefix) not in _CHANGEABLE_WHILE_OPEN
    }


def _refuse(overrides: Iterable[str], refused: Callable[[str], bool], why: str) -> None:
    names = [name for name in overrides if refused(name)]
    if names:
        raise ConfigError.saying(names[0], f"{why}: [{', '.join(names)}]")


def _is_fixed(name: str) -> bool:
    key = ALL_NODE_KEYS.get(name)
    return key is not None and key.update_mode == "read-only"


def _is_per_broker(name: str) -> bool:
    key = ALL_NODE_KEYS.get(name)
    if key is not None:
        return key.update_mode == "per-broker"
    base = base_of_listener_key(name)
    return name.startswith("listener.name.") and base not in _FOR_ALL_BROKERS


def _check_value(name: str, text: str) -> None:
    key = ALL_NODE_KEYS.get(base_of_listener_key(name) or name)
    if key is not None:
        key.parse(text)
