"""The short vocabulary in which the `keys_*` modules write their rows: type names, limits, one maker per family.

It holds no key itself; it exists so that a row of a table is one line that reads like the fact it states.
"""

from __future__ import annotations

from typing import Final

from moldau.config.key import ConfigKey, Importance, UpdateMode
from moldau.config.types import ConfigType, ConfigValue
from moldau.config.validators import Validator

BOOLEAN: Final = ConfigType.BOOLEAN
CLASS: Final = ConfigType.CLASS
DOUBLE: Final = ConfigType.DOUBLE
INT: Final = ConfigType.INT
LIST: Final = ConfigType.LIST
LONG: Final = ConfigType.LONG
PASSWORD: Final = ConfigType.PASSWORD
SHORT: Final = ConfigType.SHORT
STRING: Final = ConfigType.STRING

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


def broker(
    name: str,
    type_: ConfigType,
    default: ConfigValue,
    validator: Validator | None,
    importance: Importance,
    update_mode: UpdateMode = "read-only",
    *,
    required: bool = False,
    internal: bool = False,
) -> ConfigKey:
    """A key of server.properties."""
    return ConfigKey(
        "broker", name, type_, default, validator, importance, update_mode, required=required, internal=internal
    )


def topic(
    name: str,
    type_: ConfigType,
    default: ConfigValue,
    validator: Validator | None,
    importance: Importance,
    *,
    internal: bool = False,
) -> ConfigKey:
    """A key a topic may override."""
    return ConfigKey("topic", name, type_, default, validator, importance, "cluster-wide", internal=internal)


def group(
    name: str, type_: ConfigType, default: ConfigValue, validator: Validator | None, importance: Importance
) -> ConfigKey:
    """A key a group may override."""
    return ConfigKey("group", name, type_, default, validator, importance, "cluster-wide")


def client_metrics(
    name: str, type_: ConfigType, default: ConfigValue, validator: Validator | None, importance: Importance
) -> ConfigKey:
    """A key of a client-metrics subscription."""
    return ConfigKey("client_metrics", name, type_, default, validator, importance, "cluster-wide")


def quota(
    name: str, type_: ConfigType, default: ConfigValue, validator: Validator | None, importance: Importance
) -> ConfigKey:
    """A key of a client quota (of a user, a client id or an address)."""
    return ConfigKey("quota", name, type_, default, validator, importance, "cluster-wide")
