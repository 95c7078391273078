"""What a parsed value must satisfy beyond its type: ranges, choices, lists, addresses.

Each validator checks one value alone, with the error text Kafka gives, and can say what it allows (`describe`). Rules
that compare several keys do not belong here; see `node_checks`, `topic_config` and `group_config`.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from moldau.config.types import ConfigError, ConfigValue


class Validator(Protocol):
    """Accepts a value (perhaps tidied, as a list freed of duplicates) or raises ConfigError."""

    def checked(self, name: str, value: ConfigValue) -> ConfigValue: ...

    def describe(self) -> str:
        """The allowed values in a few characters, in Kafka's notation."""
        ...


class Range:
    """A number between two limits, both allowed; `maximum` None means no upper limit."""

    __slots__ = ("maximum", "minimum")

    def __init__(self, minimum: float, maximum: float | None = None) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        if value is None:
            raise ConfigError(name, None, "Value must be non-null")
        assert isinstance(value, int | float), name
        if value < self.minimum:
            raise ConfigError(name, value, f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise ConfigError(name, value, f"Value must be no more than {self.maximum}")
        return value

    def describe(self) -> str:
        return f"[{self.minimum},...]" if self.maximum is None else f"[{self.minimum},...,{self.maximum}]"


class GzipLevel:
    """A gzip level: one of the nine levels, or -1 for the library's own choice."""

    __slots__ = ()

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        if value is None:
            raise ConfigError(name, None, "Value must be non-null")
        assert isinstance(value, int), name
        if value != -1 and not 1 <= value <= 9:
            raise ConfigError(name, value, "Value must be between 1 and 9 or equal to -1")
        return value

    def describe(self) -> str:
        return "[1,...,9] or -1"


class OneOf:
    """One of a few words, as they are written."""

    __slots__ = ("choices",)

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        if value not in self.choices:
            raise ConfigError(name, value, "String must be one of: " + ", ".join(self.choices))
        return value

    def describe(self) -> str:
        return "[" + ", ".join(self.choices) + "]"


class OneOfAnyCase:
    """One of a few words, in capital or small letters."""

    __slots__ = ("choices",)

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        if not isinstance(value, str) or value.upper() not in self.choices:
            raise ConfigError(name, value, "String must be one of (case insensitive): " + ", ".join(self.choices))
        return value

    def describe(self) -> str:
        return "(case insensitive) [" + ", ".join(self.choices) + "]"


class Words:
    """A list without duplicates (they are dropped) or blanks, perhaps of known words only."""

    __slots__ = ("choices", "empty", "null")

    def __init__(self, *choices: str, empty: bool = True, null: bool = False) -> None:
        self.choices = choices
        self.empty = empty
        self.null = null

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        if value is None:
            if self.null:
                return None
            raise ConfigError.saying(name, f"Configuration '{name}' values must not be null.")
        assert isinstance(value, tuple), name
        words = tuple(dict.fromkeys(value))
        if not words and not self.empty:
            allowed = self.describe() or "any non-empty value"
            raise ConfigError.saying(name, f"Configuration '{name}' must not be empty. Valid values include: {allowed}")
        for word in words:
            if not word:
                raise ConfigError.saying(name, f"Configuration '{name}' values must not be empty.")
            if self.choices and word not in self.choices:
                raise ConfigError(name, word, "String must be one of: " + ", ".join(self.choices))
        return words

    def describe(self) -> str:
        return "[" + ", ".join(self.choices) + "]" if self.choices else ""


class NonEmpty:
    """Text that is not blank, if it is set at all."""

    __slots__ = ()

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        if value == "":
            raise ConfigError(name, value, "String must be non-empty")
        return value

    def describe(self) -> str:
        return "non-empty string"


class NotNull:
    """Anything but null."""

    __slots__ = ()

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        if value is None:
            raise ConfigError(name, "null", "entry must be non null")
        return value

    def describe(self) -> str:
        return "non-null string"


_HOST_AND_PORT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")


def host_and_port(address: str) -> tuple[str, int] | None:
    """The parts of `host:port` or `[ipv6]:port`, or None when it is neither."""
    match = _HOST_AND_PORT.fullmatch(address)
    return (match[1], int(match[2])) if match else None


class QuorumVoters:
    """The controllers of a fixed quorum, each as id@host:port."""

    __slots__ = ()

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        assert isinstance(value, tuple), name
        parse_voters(value, name)
        return value

    def describe(self) -> str:
        return "non-empty list"


def parse_voters(entries: tuple[str, ...], name: str = "controller.quorum.voters") -> dict[int, tuple[str, int]]:
    """Voter id -> (host, port) for each id@host:port entry."""
    voters: dict[int, tuple[str, int]] = {}
    form = "Each entry should be in the form `{id}@{host}:{port}`."
    for entry in entries:
        id_text, at, address = entry.partition("@")
        if not at or not address or "@" in address:
            raise ConfigError.saying(name, f"Invalid configuration value for {name}. {form}", entry)
        if not re.fullmatch(r"[+-]?[0-9]+", id_text):
            raise ConfigError.saying(name, f"Failed to parse voter ID as an integer from {id_text}", entry)
        endpoint = host_and_port(address)
        if endpoint is None:
            raise ConfigError.saying(
                name, f"Failed to parse host name from entry {entry} for the configuration {name}. {form}", entry
            )
        voters[int(id_text)] = endpoint
    return voters


class QuorumServers:
    """Addresses of controllers to ask for the quorum, each as host:port."""

    __slots__ = ()

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        assert isinstance(value, tuple), name
        for entry in value:
            if host_and_port(entry) is None:
                raise ConfigError.saying(
                    name,
                    f"Failed to parse host name from {entry} for the configuration {name}. "
                    'Each entry should be in the form "{host}:{port}"',
                    entry,
                )
        return value

    def describe(self) -> str:
        return "non-empty list"


class ThrottledReplicas:
    """Replicas as partition:broker pairs, or * for all of them."""

    __slots__ = ()

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        assert isinstance(value, tuple), name
        pairs = [item.strip() for item in value]
        if "".join(pairs) != "*" and not all(re.fullmatch(r"([0-9]+:[0-9]+)?", pair) for pair in pairs):
            raise ConfigError(
                name,
                value,
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )
        return value

    def describe(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?(T(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int | None:
    """Milliseconds of an ISO-8601 duration of days and smaller (P1DT2H3M4.5S), or None when it is not one."""
    match = _DURATION.fullmatch(text)
    if match is None or match[3] in ("T", "t") or not any(match.group(2, 4, 5, 6)):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.group(2, 4, 5, 6))
    fraction_ns = int((match[7] or "").ljust(9, "0"))
    if (match[6] or "").startswith("-"):
        fraction_ns = -fraction_ns
    nanoseconds = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction_ns
    return (-nanoseconds if match[1] == "-" else nanoseconds) // 1_000_000


class ShareOffsetReset:
    """Where a share group starts on a partition it never read: earliest, latest, or by_duration:<ISO-8601>."""

    __slots__ = ()

    def checked(self, name: str, value: ConfigValue) -> ConfigValue:
        if value in ("earliest", "latest"):
            return value
        if isinstance(value, str) and value.startswith("by_duration:"):
            back = duration_ms(value.removeprefix("by_duration:"))
            if back is not None and back >= 0:
                return value
        raise ConfigError(
            name,
            value,
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of "
            "the format 'by_duration:<PnDTnHnMn.nS>'.",
        )

    def describe(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"
