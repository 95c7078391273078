"""The table of Kafka's APIs: which versions exist, on which listeners, and which messages and headers they use.

The facts come from the generated table; this file adds the rules that the specifications do not state. Message classes
are imported when they are first asked for, so that a tool which needs three of them does not load two hundred.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final, cast

from moldau.protocol.generated.api_table import APIS, ApiKey
from moldau.protocol.wire import WireMessage

__all__ = ["API_TABLE", "ApiKey", "ApiSpec", "request_header_version", "response_header_version"]

# librdkafka turns compression off unless Produce 0 is offered, although requests below version 3 are refused.
PRODUCE_ADVERTISED_MIN_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class ApiSpec:
    key: ApiKey
    name: str
    module: str  # what the names of its two modules begin with
    min_version: int
    max_version: int  # the highest that exists, stable or not
    latest_version_unstable: bool
    flexible_from: int | None
    listeners: frozenset[str]

    @property
    def max_stable_version(self) -> int:
        return self.max_version - 1 if self.latest_version_unstable else self.max_version

    @property
    def advertised_min_version(self) -> int:
        return PRODUCE_ADVERTISED_MIN_VERSION if self.key is ApiKey.PRODUCE else self.min_version

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def request_class(self) -> type[WireMessage]:
        return message_class("wire", f"{self.module}_request", f"{self.name}Request")

    def response_class(self) -> type[WireMessage]:
        return message_class("wire", f"{self.module}_response", f"{self.name}Response")


def message_class(package: str, module: str, name: str) -> type[WireMessage]:
    """A generated class by its name, imported when it is first asked for."""
    loaded = _loaded.get(name)
    if loaded is None:
        found = import_module(f"moldau.protocol.generated.{package}.{module}")
        loaded = _loaded[name] = cast(type[WireMessage], getattr(found, name))
    return loaded


_loaded: dict[str, type[WireMessage]] = {}


API_TABLE: Final[dict[int, ApiSpec]] = {
    key: ApiSpec(ApiKey(key), name, module, low, high, unstable, flexible, frozenset(listeners))
    for key, (name, module, low, high, unstable, flexible, listeners) in APIS.items()
}


def request_header_version(key: int, version: int) -> int:
    """The header before a request: 2 has tagged fields, 1 has not."""
    return 2 if API_TABLE[key].is_flexible(version) else 1


def response_header_version(key: int, version: int) -> int:
    """The header before a response. ApiVersions keeps the oldest, since its reader may not know the version yet."""
    if key == ApiKey.API_VERSIONS:
        return 0
    return 1 if API_TABLE[key].is_flexible(version) else 0
