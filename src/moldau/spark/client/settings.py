"""Client settings by Kafka's own names (`kafka.*` options without the prefix).

It decides which of them mean something here and refuses plainly what cannot be honoured (a JKS key store, a mechanism
we do not speak) instead of connecting without it. A `ClientSettings` can be pickled, compared and used as a key: tasks
in one Python worker that have the same settings share connections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.spark.errors import MoldauError

DEFAULT_PORT = 9092
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_JAAS_OPTION = re.compile(r"""([A-Za-z_.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")
_SERVER = re.compile(r"(?:[A-Z_]+://)?(\[[0-9A-Fa-f:%.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?")


@dataclass(slots=True, frozen=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


def client_settings(properties: Mapping[str, str], client_id: str = "moldau-spark") -> ClientSettings:
    """Settings from properties such as `bootstrap.servers` and `security.protocol`."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise MoldauError(f"kafka.security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}")
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    username, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
    if protocol.startswith("SASL_"):
        if mechanism not in MECHANISMS:
            raise MoldauError(f"kafka.sasl.mechanism={mechanism} is not supported: set one of {', '.join(MECHANISMS)}")
        if "sasl.jaas.config" in properties:
            username, password = _parse_jaas(properties["sasl.jaas.config"])
        if not username:
            raise MoldauError("SASL needs credentials: set the option kafka.sasl.jaas.config")
    return ClientSettings(
        bootstrap=parse_servers(properties.get("bootstrap.servers", "")),
        client_id=properties.get("client.id", client_id),
        protocol=protocol,
        mechanism=mechanism,
        username=username,
        password=password,
        tls=_tls(properties),
        request_timeout=_seconds(properties, "request.timeout.ms", 30_000),
        api_timeout=_seconds(properties, "default.api.timeout.ms", 60_000),
        retry_backoff=_seconds(properties, "retry.backoff.ms", 50),
        retry_backoff_max=_seconds(properties, "retry.backoff.max.ms", 1_000),
    )


def parse_servers(text: str) -> tuple[Address, ...]:
    """`host:port,[::1]:port,...` as addresses; a missing port is Kafka's usual one."""
    addresses = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _SERVER.fullmatch(part)
        if match is None or (match[2] and int(match[2]) > 65535):
            raise MoldauError(f"kafka.bootstrap.servers: '{part}' is not a server address such as host:9092")
        addresses.append(Address(match[1].strip("[]"), int(match[2] or DEFAULT_PORT)))
    if not addresses:
        raise MoldauError('The brokers are not named: set .option("kafka.bootstrap.servers", "host:9092")')
    return tuple(addresses)


def _parse_jaas(text: str) -> tuple[str, str]:
    options = {
        match[1]: (re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3] or match[4] or "")
        for match in _JAAS_OPTION.finditer(text)
    }
    if "username" not in options or "password" not in options:
        raise MoldauError("kafka.sasl.jaas.config must name username and password")
    return options["username"], options["password"]


def _tls(properties: Mapping[str, str]) -> TlsSettings:
    for store in ("truststore", "keystore"):
        kind = properties.get(f"ssl.{store}.type", "JKS").upper()
        if properties.get(f"ssl.{store}.location") and kind != "PEM":
            raise MoldauError(
                f"kafka.ssl.{store}.type={kind} is not supported: "
                f"convert the store (keytool, openssl) and set kafka.ssl.{store}.type=PEM"
            )
    return TlsSettings(
        trust_file=properties.get("ssl.truststore.location"),
        trust_text=properties.get("ssl.truststore.certificates"),
        identity_file=properties.get("ssl.keystore.location"),
        certificate_text=properties.get("ssl.keystore.certificate.chain"),
        key_text=properties.get("ssl.keystore.key"),
        key_password=properties.get("ssl.key.password"),
        check_host_name=properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
    )


def _seconds(properties: Mapping[str, str], name: str, default: int) -> float:
    text = properties.get(name, str(default))
    if not text.isdigit():
        raise MoldauError(f"kafka.{name}={text} is not a number of milliseconds")
    return int(text) / 1000
