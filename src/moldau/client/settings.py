"""A client's settings by Kafka's own names.

It decides which of them mean something here and refuses plainly what cannot be honoured (a JKS key store, a mechanism
we do not speak) instead of connecting without it. A `ClientSettings` can be pickled, compared and used as a key: those
who have the same settings can share connections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.client.errors import MoldauError
from moldau.ports import Address
from moldau.security.mechanisms import MECHANISMS

DEFAULT_PORT = 9092
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_SERVER = re.compile(r"(?:[A-Z_]+://)?(\[[0-9A-Fa-f:%.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?")


@dataclass(slots=True, frozen=True)
class TlsSettings:
    """Where certificates come from (a PEM file or PEM text), for trust and for our own identity."""

    trust_file: str | None
    trust_text: str | None
    identity_file: str | None
    certificate_text: str | None
    key_text: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    check_host_name: bool


@dataclass(slots=True, frozen=True)
class ClientSettings:
    bootstrap: tuple[Address, ...]
    client_id: str
    protocol: str
    mechanism: str
    username: str
    password: str = field(repr=False)
    tls: TlsSettings
    request_timeout: float
    api_timeout: float
    retry_backoff: float
    retry_backoff_max: float
    prefix: str
    """What people write before the names of settings, so that errors name them as they are written."""

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


def client_settings(properties: Mapping[str, str], *, client_id: str = "moldau", prefix: str = "") -> ClientSettings:
    """Settings from properties such as `bootstrap.servers` and `security.protocol`."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise MoldauError(f"{prefix}security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}")
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
    username, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
    if protocol.startswith("SASL_"):
        if mechanism not in MECHANISMS:
            raise MoldauError(
                f"{prefix}sasl.mechanism={mechanism} is not supported", hint=f"Supported: {', '.join(MECHANISMS)}."
            )
        if "sasl.jaas.config" in properties:
            username, password = parse_jaas(properties["sasl.jaas.config"], prefix)
        if not username:
            raise MoldauError(
                f"SASL needs credentials: set {prefix}sasl.jaas.config "
                f"(or {prefix}sasl.username and {prefix}sasl.password)"
            )
    return ClientSettings(
        bootstrap=parse_servers(properties.get("bootstrap.servers", ""), prefix),
        client_id=properties.get("client.id", client_id),
        protocol=protocol,
        mechanism=mechanism,
        username=username,
        password=password,
        tls=_tls(properties, prefix),
        request_timeout=_seconds(properties, prefix, "request.timeout.ms", 30_000),
        api_timeout=_seconds(properties, prefix, "default.api.timeout.ms", 60_000),
        retry_backoff=_seconds(properties, prefix, "retry.backoff.ms", 50),
        retry_backoff_max=_seconds(properties, prefix, "retry.backoff.max.ms", 1_000),
        prefix=prefix,
    )


def parse_servers(text: str, prefix: str = "") -> tuple[Address, ...]:
    """`host:port,[::1]:port,…` as addresses; a missing port is Kafka's usual one."""
    name = f"{prefix}bootstrap.servers"
    addresses = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _SERVER.fullmatch(part)
        if match is None or (match[2] and int(match[2]) > 65535):
            hint = f"Addresses in {name} look like host:{DEFAULT_PORT}, or [::1]:{DEFAULT_PORT}."
            raise MoldauError(f"'{part}' is not a server address", hint=hint)
        addresses.append(Address(match[1].strip("[]"), int(match[2] or DEFAULT_PORT)))
    if not addresses:
        raise MoldauError("The brokers are not named", hint=f"Name one at least, as host:{DEFAULT_PORT}: {name}.")
    return tuple(addresses)


def parse_jaas(text: str, prefix: str = "") -> tuple[str, str]:
    """User name and password of a `sasl.jaas.config` line."""
    from moldau.security.jaas import JaasError, parse_modules

    name = f"{prefix}sasl.jaas.config"
    try:
        options = parse_modules(text)[0].options
    except JaasError as error:
        example = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
        raise MoldauError(f"{name} cannot be read: {error}", hint=f"It looks like {example}") from None
    if "username" not in options or "password" not in options:
        raise MoldauError(f"{name} must name username and password")
    return options["username"], options["password"]


def _tls(properties: Mapping[str, str], prefix: str) -> TlsSettings:
    for store in ("truststore", "keystore"):
        kind = properties.get(f"ssl.{store}.type", "JKS").upper()
        if properties.get(f"ssl.{store}.location") and kind != "PEM":
            raise MoldauError(
                f"{prefix}ssl.{store}.type={kind} is not supported: only PEM is",
                hint=f"Convert the store (keytool, openssl) and set {prefix}ssl.{store}.type=PEM.",
            )
    return TlsSettings(
        trust_file=properties.get("ssl.truststore.location", properties.get("ssl.ca.location")),
        trust_text=properties.get("ssl.truststore.certificates"),
        identity_file=properties.get("ssl.keystore.location"),
        certificate_text=properties.get("ssl.keystore.certificate.chain"),
        key_text=properties.get("ssl.keystore.key"),
        key_password=properties.get("ssl.key.password"),
        check_host_name=properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
    )


def _seconds(properties: Mapping[str, str], prefix: str, name: str, default: int) -> float:
    text = properties.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        raise MoldauError(f"{prefix}{name}={text} is not a number of milliseconds") from None
    if value < 0:
        raise MoldauError(f"{prefix}{name}={text} must not be negative")
    return value / 1000
