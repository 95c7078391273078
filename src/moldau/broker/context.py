"""Who is asking: the connection a request came over, and one request's own facts.

Only facts; deciding what a caller may do is `moldau.broker.authorization`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

ANONYMOUS: Final = "User:ANONYMOUS"


@dataclass(slots=True, eq=False)
class ClientConnection:
    """What the broker knows of one connection, for as long as it lives."""

    connection_id: int
    listener_name: str
    host: str
    port: int
    principal: str = ANONYMOUS
    client_id: str | None = None
    client_id_bytes: bytes = b""
    software_name: str = "unknown"
    software_version: str = "unknown"
    connected_at_ms: int = 0
    # Its last request was not about records, which are sent ahead: it waits for each answer before it goes on.
    in_conversation: bool = False
    # Not a connection of its own: a client's request that a broker has passed on.
    is_forwarded: bool = False
    # What a family of APIs remembers of this connection, by the family's name.
    remembered: dict[str, Any] = field(default_factory=dict)


class Caller:
    """One request's circumstances, handed to its handler."""

    __slots__ = ("api_key", "api_version", "client_id", "connection", "correlation_id")

    def __init__(
        self, connection: ClientConnection, api_key: int, api_version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def principal(self) -> str:
        return self.connection.principal

    @property
    def host(self) -> str:
        return self.connection.host

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name
