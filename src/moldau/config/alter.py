"""Incremental changes to a resource's settings: set, delete, append, subtract.

It turns what a resource has and what was asked into what the resource would have. Whether that is allowed as a whole
is decided afterwards by the resource's own validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from moldau.config.key import ConfigKey
from moldau.config.types import ConfigError, ConfigRequestError, ConfigType, render

MAX_VALUE_LENGTH: Final = 2**15 - 1


class AlterOp(IntEnum):
    """The operations of IncrementalAlterConfigs, with the codes it carries."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One change to one key."""

    name: str
    op: AlterOp
    value: str | None = None

    @classmethod
    def asked(cls, name: str, operation: int, value: str | None) -> Alteration:
        """One as a request carries it; ConfigRequestError if there is no such operation."""
        try:
            return cls(name, AlterOp(operation), value)
        except ValueError:
            raise ConfigRequestError.saying(name, f"Unknown operations type {operation}") from None


def apply_incremental(
    current: Mapping[str, str], alterations: Iterable[Alteration], keys: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """What the resource would have after all of these. Raises ConfigError at the first that cannot be.

    Appending to a list, or subtracting from one, that was never set starts from the key's default.
    """
    changes = list(alterations)
    _check_request(changes)
    changed = dict(current)
    for name, op, value in changes:
        if op is AlterOp.DELETE:
            changed.pop(name, None)
            continue
        assert value is not None, "a missing value was refused above"
        if op is AlterOp.SET:
            changed[name] = value
        else:
            changed[name] = _altered_list(changed.get(name), keys.get(name), name, op, value)
        if len(changed[name]) > MAX_VALUE_LENGTH:
            raise ConfigError.saying(
                name,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_VALUE_LENGTH} bytes.",
            )
    return changed


def _check_request(changes: list[Alteration]) -> None:
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise ConfigRequestError.saying(names[0], "Error due to duplicate config keys")
    missing = [change.name for change in changes if change.value is None and change.op is not AlterOp.DELETE]
    if missing:
        raise ConfigRequestError.saying(missing[0], f"Null value not supported for : {', '.join(missing)}")


def _altered_list(current: str | None, key: ConfigKey | None, name: str, op: AlterOp, value: str) -> str:
    if key is None or key.type is not ConfigType.LIST:
        raise ConfigError.saying(name, f"Can't {op.name} to key {name} because its type is not LIST.", value)
    if current is None:
        current = render(key.default) or ""
    items = [item for item in current.split(",") if item]
    for item in value.split(","):
        if op is AlterOp.APPEND:
            if item not in items:
                items.append(item)
        elif item in items:
            items.remove(item)
    return ",".join(items)
