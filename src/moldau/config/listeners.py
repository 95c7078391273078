"""Listeners as configured: their names, addresses and security protocols, and the rules between them.

It decides what a `listeners` or `advertised.listeners` entry means. It never resolves a host name or opens a socket:
an empty host means every interface, and the node works out what to advertise for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from moldau.config.types import ConfigError

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROTOCOL_MAP: Final = "listener.security.protocol.map"

_ENDPOINT: Final = r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)"


class Listener(NamedTuple):
    """One address the node listens on or tells others about."""

    name: str
    host: str  # empty: every interface
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def encrypted(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def authenticated(self) -> bool:
        """Whether clients prove who they are with SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def config_prefix(self) -> str:
        """What a setting's name starts with when it is for this listener alone."""
        return f"listener.name.{self.name.lower()}."


def parse_pairs(name: str, text: str) -> dict[str, str]:
    """A `key:value,key:value` setting; the last colon of a pair separates, so that IPv6 addresses can be keys."""
    pairs: dict[str, str] = {}
    for item in text.split(","):
        if not item.strip():
            continue
        key, colon, value = item.rpartition(":")
        if not colon:
            raise ConfigError(name, text, f"'{item.strip()}' is not a key:value pair")
        pairs[key.strip()] = value.strip()
    return pairs


def parse_protocol_map(text: str) -> dict[str, str]:
    """Listener name (in capitals) -> security protocol."""
    protocols: dict[str, str] = {}
    for listener, protocol in parse_pairs(PROTOCOL_MAP, text).items():
        if not listener:
            raise ConfigError(PROTOCOL_MAP, text, "The provided listener name is null or empty string")
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError.saying(
                PROTOCOL_MAP,
                f"Invalid security protocol `{protocol}` defined in {PROTOCOL_MAP}: "
                f"it must be one of {', '.join(SECURITY_PROTOCOLS)}",
                text,
            )
        protocols[listener.upper()] = protocol.upper()
    return protocols


def effective_protocol_map(
    text: str, *, explicit: bool, controller_names: Sequence[str], listeners: Sequence[str]
) -> dict[str, str]:
    """The protocol map in force.

    Unless the map was set, controller listeners need no entry of their own in a cluster without security: they are
    taken as PLAINTEXT. As soon as any listener is named for a secure protocol, they must be mapped on purpose.
    """
    protocols = parse_protocol_map(text)
    secure = SECURITY_PROTOCOLS[1:]
    names_used = [*controller_names, *(entry.partition(":")[0].upper() for entry in listeners)]
    if not explicit and not any(name in secure for name in names_used):
        for name in controller_names:
            protocols.setdefault(name, "PLAINTEXT")
    return protocols


def parse_listeners(
    name: str, entries: Sequence[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Listener, ...]:
    """The endpoints of a list of NAME://host:port entries."""
    parsed = tuple(_parse_listener(name, entry, protocols) for entry in entries)
    if len({listener.name for listener in parsed}) != len(parsed):
        raise ConfigError(name, ",".join(entries), "Each listener must have a different name")
    if distinct_ports:
        _check_ports(name, entries, parsed)
    return parsed


def _parse_listener(name: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    match = re.fullmatch(_ENDPOINT, entry)
    if match is None or not match[1].strip():
        raise ConfigError(
            name,
            entry,
            f"Unable to parse {entry} to a broker endpoint; write it as NAME://host:port, "
            "for example PLAINTEXT://localhost:9092",
        )
    listener = match[1].upper()
    port = int(match[3])
    if not -1 <= port <= 65535:
        raise ConfigError(name, entry, f"Port {port} is not between 0 and 65535")
    if listener not in protocols:
        raise ConfigError(
            name,
            entry,
            f"No security protocol defined for listener {listener}; add {listener}:<protocol> to {PROTOCOL_MAP}, "
            f"where the protocol is one of {', '.join(SECURITY_PROTOCOLS)}",
        )
    return Listener(listener, match[2], port, protocols[listener])


def _check_ports(name: str, entries: Sequence[str], listeners: Sequence[Listener]) -> None:
    """Two listeners may share a port only as one IPv4 and one IPv6 address. Port 0 means any free port."""
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port != 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        if len(sharing) == 1:
            continue
        if len(sharing) != 2 or {_ip_version(listener.host) for listener in sharing} != {4, 6}:
            raise ConfigError(
                name,
                ",".join(entries),
                "Each listener must have a different port unless exactly one listener has an IPv4 address and the "
                f"other IPv6 address, port: {port}",
            )


def _ip_version(host: str) -> int | None:
    """4 or 6 for an address, None for a name."""
    import ipaddress  # not worth loading for the usual case, in which no two listeners share a port

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None
