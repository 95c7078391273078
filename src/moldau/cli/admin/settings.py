"""The settings of the administration client, read from Kafka's client property names.

It decides which properties mean something here, and refuses plainly what it cannot honour (a JKS key store, a
mechanism we do not speak) instead of connecting without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from moldau.cli.errors import CliError

DEFAULT_PORT = 9092
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_JAAS_OPTION = re.compile(r"""([A-Za-z_.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")


@dataclass(slots=True, frozen=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True, frozen=True)
class TlsFiles:
    """Where the certificates come from: a PEM file or PEM text, for trust and for our own identity."""

    trust_file: str | None
    trust_text: str | None
    identity_file: str | None
    certificate_text: str | None
    key_text: str | None
    key_password: str | None
    check_host_name: bool


@dataclass(slots=True, frozen=True)
class Settings:
    client_id: str
    protocol: str
    mechanism: str
    username: str
    password: str
    tls: TlsFiles
    request_timeout: float
    api_timeout: float
    retry_backoff: float
    retry_backoff_max: float

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


def parse_servers(text: str) -> list[Address]:
    """`host:port,[::1]:port,…` as addresses; a missing port is Kafka's usual one."""
    addresses = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = re.fullmatch(r"(?:[A-Z_]+://)?(\[[0-9A-Fa-f:%.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?", part)
        if match is None or (match[2] and int(match[2]) > 65535):
            raise CliError(f"'{part}' is not a server address", hint="Addresses look like host:port, or [::1]:port.")
        addresses.append(Address(match[1].strip("[]"), int(match[2] or DEFAULT_PORT)))
    if not addresses:
        raise CliError("No server to connect to", hint="Name one with --bootstrap-server host:port.")
    return addresses


def from_properties(properties: Mapping[str, str], *, client_id: str, api_timeout_ms: int = 60_000) -> Settings:
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise CliError(f"security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}")
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
    username = properties.get("sasl.username", "")
    password = properties.get("sasl.password", "")
    if protocol.startswith("SASL_"):
        if mechanism not in MECHANISMS:
            raise CliError(
                f"sasl.mechanism={mechanism} is not supported by the administration commands",
                hint=f"Supported: {', '.join(MECHANISMS)}.",
            )
        if "sasl.jaas.config" in properties:
            username, password = parse_jaas(properties["sasl.jaas.config"])
        if not username:
            raise CliError("SASL needs credentials: set sasl.jaas.config (or sasl.username and sasl.password)")
    return Settings(
        client_id=properties.get("client.id", client_id),
        protocol=protocol,
        mechanism=mechanism,
        username=username,
        password=password,
        tls=_tls_files(properties),
        request_timeout=_milliseconds(properties, "request.timeout.ms", 30_000),
        api_timeout=_milliseconds(properties, "default.api.timeout.ms", api_timeout_ms),
        retry_backoff=_milliseconds(properties, "retry.backoff.ms", 100),
        retry_backoff_max=_milliseconds(properties, "retry.backoff.max.ms", 1_000),
    )


def parse_jaas(text: str) -> tuple[str, str]:
    """User name and password of a `sasl.jaas.config` line."""
    options = {
        match[1]: (re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3] or match[4] or "")
        for match in _JAAS_OPTION.finditer(text)
    }
    if "username" not in options or "password" not in options:
        raise CliError("sasl.jaas.config must name username and password")
    return options["username"], options["password"]


def _tls_files(properties: Mapping[str, str]) -> TlsFiles:
    for store in ("truststore", "keystore"):
        location = properties.get(f"ssl.{store}.location")
        kind = properties.get(f"ssl.{store}.type", "JKS").upper()
        if location and kind != "PEM":
            raise CliError(
                f"ssl.{store}.type={kind} is not supported by the administration commands: only PEM is",
                hint=f"Convert it (keytool, openssl) and set ssl.{store}.type=PEM.",
            )
    return TlsFiles(
        trust_file=properties.get("ssl.truststore.location", properties.get("ssl.ca.location")),
        trust_text=properties.get("ssl.truststore.certificates"),
        identity_file=properties.get("ssl.keystore.location"),
        certificate_text=properties.get("ssl.keystore.certificate.chain"),
        key_text=properties.get("ssl.keystore.key"),
        key_password=properties.get("ssl.key.password"),
        check_host_name=properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
    )


def _milliseconds(properties: Mapping[str, str], name: str, default: int) -> float:
    text = properties.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        raise CliError(f"{name}={text} is not a number of milliseconds") from None
    if value < 0:
        raise CliError(f"{name}={text} must not be negative")
    return value / 1000
