"""The types a configuration value may have: how each is read from text, written back, and refused.

Text is read and written exactly as Apache Kafka does it (a double is "0.5" or "1.0E10", a list is comma-joined), so
that a value described by one broker can be given to another. This module must know no key by name.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, Self, TypeAlias

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None
"""A parsed value. Lists are tuples; classes and passwords are text; None is Kafka's null."""


class ConfigType(IntEnum):
    """The type of a key, with the code DescribeConfigs carries."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigError(ValueError):
    """A setting that cannot be accepted. `str(error)` is the text an administrator gets to see."""

    def __init__(self, name: str, value: object, reason: str | None = None, *, message: str | None = None) -> None:
        self.name = name
        self.value = value
        self.reason = reason if reason is not None else (message or "")
        if message is None:
            message = f"Invalid value {java_text(value)} for configuration {name}"
            if reason is not None:
                message += f": {reason}"
        super().__init__(message)

    @classmethod
    def saying(cls, name: str, message: str, value: object = None) -> Self:
        """An error whose whole text is `message`, for rules that span keys or names that are unknown."""
        return cls(name, value, message=message)


class ConfigRequestError(ConfigError):
    """A setting that is refused as a malformed request (INVALID_REQUEST) rather than as an invalid setting."""


_INTEGER: Final = re.compile(r"[+-]?\d+")  # Java takes the digits of every script
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX_DECIMAL: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_SPECIAL_DECIMALS: Final = {
    "NaN": float("nan"),
    "+NaN": float("nan"),
    "-NaN": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_COMMA: Final = re.compile(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*")
_TRIMMED: Final = "".join(map(chr, range(33)))  # what Java's String.trim removes
_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def parse(name: str, text: str | None, type_: ConfigType) -> ConfigValue:
    """The value `text` stands for, by the rules of `type_` alone; validators have not been asked yet."""
    if text is None:
        return None
    trimmed = text.strip(_TRIMMED)
    if type_ in _BITS:
        return _parse_integer(name, text, trimmed, type_)
    match type_:
        case ConfigType.BOOLEAN:
            lowered = trimmed.lower()
            if lowered not in ("true", "false"):
                raise ConfigError(name, text, "Expected value to be either true or false")
            return lowered == "true"
        case ConfigType.DOUBLE:
            return _parse_double(name, text, trimmed)
        case ConfigType.LIST:
            return tuple(_COMMA.split(trimmed)) if trimmed else ()
        case _:
            return trimmed


def _parse_integer(name: str, text: str, trimmed: str, type_: ConfigType) -> int:
    # Python's own parser would take underscores and blanks too, and stops at some thousands of digits.
    if len(trimmed) < 1000 and _INTEGER.fullmatch(trimmed):
        limit = 1 << (_BITS[type_] - 1)
        if -limit <= (value := int(trimmed)) < limit:
            return value
    raise ConfigError(name, text, f"Not a number of type {type_.name}")


def _parse_double(name: str, text: str, trimmed: str) -> float:
    if match := _DECIMAL.fullmatch(trimmed):
        return float(match[1])
    if trimmed in _SPECIAL_DECIMALS:
        return _SPECIAL_DECIMALS[trimmed]
    if match := _HEX_DECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf") if trimmed[0] == "-" else float("inf")
    raise ConfigError(name, text, "Not a number of type DOUBLE")


def render(value: ConfigValue) -> str | None:
    """The text of a value as Kafka prints it, which `parse` reads back to the same value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _render_double(value)
    return ",".join(value)


def _render_double(value: float) -> str:
    """Java's Double.toString: plain between 0.001 and ten million, otherwise one digit, a fraction and an exponent."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return repr(value)
    sign = "-" if value < 0 else ""
    mantissa, _, exponent_text = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    exponent = int(exponent_text or 0) + len(whole) - leading_zeros - 1  # of the first digit that is not zero
    digits = digits.rstrip("0") or "0"
    if -3 <= exponent < 7:
        if exponent >= 0:
            digits = digits.ljust(exponent + 1, "0")
            return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def java_text(value: object) -> str:
    """How Java prints a value inside an error message: null, true, [a, b]."""
    if value is None:
        return "null"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(java_text, value)) + "]"
    if isinstance(value, bool | float):
        return render(value) or ""
    return str(value)
