"""The gate of a listener with SASL: stands before the broker until a connection has proved who it is.

Decides when a connection reaches the broker at all: after a login, and (where logins expire) for as long as it holds.
The conversation itself is `moldau.security.exchange`; here are its effects on a connection. A connection that was let
in for good has no gate any more, and one of a listener without SASL never had any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.context import ClientConnection
from moldau.broker.router import LongPoll, Outcome
from moldau.protocol.api import ApiKey
from moldau.protocol.wire import ProtocolError
from moldau.security.exchange import Identity, OfferedMechanism, SaslExchange, Step, Verdict

if TYPE_CHECKING:
    from moldau.node.listener import Service

# Where the error code stands in an answer to ApiVersions: after the length and the correlation id.
_ERROR_CODE: Final = slice(8, 10)
_NO_ERROR: Final = bytes(2)
_HANDSHAKE_KEY: Final = ApiKey.SASL_HANDSHAKE.to_bytes(2, "big")
# Whoever logs in again more often than this only wants to keep us busy.
AGAIN_SECONDS_MIN: Final = 1.0


class Guarded(Protocol):
    """What a gate needs of its connection."""

    def serve_with(self, service: Service, *, max_frame: int | None = None) -> None: ...

    def expect_tokens(self, *, bare: bool) -> None: ...

    def close(self) -> None: ...


class Watch(Protocol):
    """Who is told how logins went."""

    def logged_in(self, client: ClientConnection) -> None: ...

    def login_refused(self, client: ClientConnection, reason: str) -> None: ...


@dataclass(slots=True)
class Entrance:
    """How one listener lets clients in; shared by all its gates."""

    mechanisms: Mapping[str, OfferedMechanism]
    max_frame: int
    """sasl.server.max.receive.size: nobody needs more than this before they are let in."""
    refusal_delay_ms: int
    """connection.failed.authentication.delay.ms: guessing passwords shall take its time."""

    def guard(self, connection: Guarded, service: Service, watch: Watch) -> None:
        """Put a gate before a new connection."""
        connection.serve_with(Gate(self, connection, service, watch), max_frame=self.max_frame)


class Gate:
    """`Service` of a connection that is not let in: answers the login, and nothing else."""

    __slots__ = ("_before", "_connection", "_entrance", "_exchange", "_refused", "_service", "_watch")

    def __init__(
        self,
        entrance: Entrance,
        connection: Guarded,
        service: Service,
        watch: Watch,
        before: Identity | None = None,
    ) -> None:
        """`before` is who has logged in on this connection already."""
        self._entrance = entrance
        self._connection = connection
        self._service = service
        self._watch = watch
        self._before = before
        self._exchange = SaslExchange(entrance.mechanisms, before)
        self._refused = False

    def dispatch(self, frame: memoryview, client: ClientConnection) -> Outcome:
        if self._refused:
            return None
        step = self._exchange.take(frame)
        if step.verdict is Verdict.VERSIONS:
            return self._tell_versions(frame, client)
        if step.verdict is Verdict.TURN_AWAY:
            return self._turn_away(step, client)
        self._connection.expect_tokens(bare=self._exchange.bare_tokens)
        if step.verdict is Verdict.LET_IN:
            self._let_in(client)
        assert step.answer is not None, "every step of a login is answered"
        return [step.answer]

    def _tell_versions(self, frame: memoryview, client: ClientConnection) -> Outcome:
        answer = self._service.dispatch(frame, client)
        if isinstance(answer, list) and bytes(answer[0][_ERROR_CODE]) == _NO_ERROR:
            self._exchange.versions_told()
        return answer

    def _let_in(self, client: ClientConnection) -> None:
        identity = self._exchange.identity
        assert identity is not None, "nobody is let in without a name"
        client.principal = f"User:{identity.user}"
        service = self._service
        if identity.session_ms > 0:
            began = monotonic() if self._before is not None else -AGAIN_SECONDS_MIN
            service = Session(self._entrance, self._connection, service, self._watch, identity, began)
        self._connection.serve_with(service)
        if self._before is None:
            self._watch.logged_in(client)

    def _turn_away(self, step: Step, client: ClientConnection) -> Outcome:
        """Nothing else of this connection is looked at; it hears the answer, and the end, a little later."""
        self._refused = True
        self._watch.login_refused(client, step.reason)
        answer = LongPoll()

        def end() -> None:
            answer.resolve(None if step.answer is None else [step.answer])
            self._connection.close()

        asyncio.get_running_loop().call_later(self._entrance.refusal_delay_ms / 1000, end)
        return answer

    def after_requests(self) -> None:
        self._service.after_requests()

    def disconnected(self, client: ClientConnection) -> None:
        self._service.disconnected(client)


class Session:
    """`Service` of a connection whose login expires: passes everything on until then, and lets it log in again."""

    __slots__ = ("_began", "_connection", "_entrance", "_identity", "_service", "_until", "_watch", "after_requests")

    def __init__(
        self,
        entrance: Entrance,
        connection: Guarded,
        service: Service,
        watch: Watch,
        identity: Identity,
        began: float,
    ) -> None:
        """`began` is when it last logged in again."""
        self._entrance = entrance
        self._connection = connection
        self._service = service
        self._watch = watch
        self._identity = identity
        self._began = began
        self._until = monotonic() + identity.session_ms / 1000
        self.after_requests = service.after_requests

    def dispatch(self, frame: memoryview, client: ClientConnection) -> Outcome:
        now = monotonic()
        if frame[:2] == _HANDSHAKE_KEY and now - self._began >= AGAIN_SECONDS_MIN:
            gate = Gate(self._entrance, self._connection, self._service, self._watch, self._identity)
            self._connection.serve_with(gate)
            return gate.dispatch(frame, client)
        if now > self._until:
            raise ProtocolError("the login has expired (connections.max.reauth.ms)")
        return self._service.dispatch(frame, client)

    def disconnected(self, client: ClientConnection) -> None:
        self._service.disconnected(client)
