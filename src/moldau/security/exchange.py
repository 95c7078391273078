"""What a client says before it is let in: Kafka's SASL conversation as a state machine, frames in, steps out.

Decides what may be said when: ApiVersions once, SaslHandshake, then tokens (in SaslAuthenticate, or bare ones after a
handshake of version 0), and nothing else, until somebody has proved who they are. It knows no socket, clock or
broker; whatever it does not expect ends the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol

from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import encode_response, parse_request_header
from moldau.protocol.generated.wire.api_versions_response import ApiVersionsResponse
from moldau.protocol.generated.wire.sasl_authenticate_request import SaslAuthenticateRequest
from moldau.protocol.generated.wire.sasl_authenticate_response import SaslAuthenticateResponse
from moldau.protocol.generated.wire.sasl_handshake_request import SaslHandshakeRequest
from moldau.protocol.generated.wire.sasl_handshake_response import SaslHandshakeResponse
from moldau.protocol.wire import ProtocolError, Reader
from moldau.security.mechanisms import PLAIN
from moldau.security.refusal import LoginRefused

_LENGTH_BYTES: Final = 4


class ServerSide(Protocol):
    """One login with one mechanism."""

    @property
    def user(self) -> str | None:
        """Who it is; None until that is proved."""
        ...

    def answer(self, token: bytes) -> bytes:
        """The answer to a message of the client; LoginRefused if it is not the one who it claims to be."""
        ...


class OfferedMechanism(NamedTuple):
    """A mechanism of a listener."""

    begin: Callable[[], ServerSide]
    session_ms: int
    """How long a login holds (connections.max.reauth.ms); 0: as long as the connection."""


class Verdict(Enum):
    GO_ON = "there is more to say"
    VERSIONS = "the request is ApiVersions, which everybody may ask: the broker answers it"
    LET_IN = "the client has proved who it is"
    TURN_AWAY = "the connection must be closed"


class Step(NamedTuple):
    """What follows from one frame."""

    verdict: Verdict
    answer: bytes | None = None
    """A whole frame for the client, its length included."""
    reason: str = ""
    """Why it is turned away, for the log."""


class Identity(NamedTuple):
    """Who has logged in, and how."""

    user: str
    mechanism: str
    session_ms: int


class _IdentityChanged(LoginRefused):
    """A connection belongs to one user and one mechanism for its whole life; that is no secret."""


class _State(Enum):
    VERSIONS_OR_HANDSHAKE = "nothing was said yet"
    HANDSHAKE = "versions are known"
    TOKENS = "a mechanism was chosen"
    DONE = "over"


class SaslExchange:
    """One login on one connection."""

    __slots__ = ("_before", "_chosen", "_login", "_mechanisms", "_state", "bare_tokens", "identity")

    def __init__(self, mechanisms: Mapping[str, OfferedMechanism], before: Identity | None = None) -> None:
        """`before` is who the connection belongs to already, when it proves that once more."""
        self._mechanisms = mechanisms
        self._before = before
        self._state = _State.VERSIONS_OR_HANDSHAKE if before is None else _State.HANDSHAKE
        self._chosen = ""
        self._login: ServerSide | None = None
        self.bare_tokens = False
        """Whether the next frames are tokens without a request around them."""
        self.identity: Identity | None = None
        """Who it is, once a step says LET_IN."""

    def take(self, frame: memoryview) -> Step:
        """What follows from the next frame (without its length)."""
        try:
            if self._state is _State.TOKENS:
                return self._bare_token(bytes(frame)) if self.bare_tokens else self._token(frame)
            if self._state is not _State.DONE:
                return self._request(frame)
        except ProtocolError as error:
            return self._turn_away(f"a request that cannot be read: {error}")
        return self._turn_away("a request after the end of the conversation")

    def versions_told(self) -> None:
        """ApiVersions was answered and not refused: it need not be asked again, and may not."""
        self._state = _State.HANDSHAKE

    # ---- before a mechanism is chosen

    def _request(self, frame: memoryview) -> Step:
        key, version, correlation_id, _, position = parse_request_header(frame)
        if key == ApiKey.API_VERSIONS and self._state is _State.VERSIONS_OR_HANDSHAKE:
            return Step(Verdict.VERSIONS)
        if key != ApiKey.SASL_HANDSHAKE or version > SaslHandshakeRequest.MAX_VERSION or version < 0:
            return self._turn_away(f"{API_TABLE[key].name} version {version} before the SASL handshake")
        wanted = SaslHandshakeRequest.read(Reader(frame, position), version).mechanism
        known = wanted in self._mechanisms
        response = SaslHandshakeResponse(
            error_code=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            mechanisms=list(self._mechanisms),
        )
        answer = encode_response(key, version, correlation_id, response)
        if not known:
            return self._turn_away(f"the mechanism {wanted[:40]!r}, which is not offered", answer)
        self._chosen = wanted
        self._login = self._mechanisms[wanted].begin()
        self._state = _State.TOKENS
        self.bare_tokens = version == 0
        return Step(Verdict.GO_ON, answer)

    # ---- tokens

    def _token(self, frame: memoryview) -> Step:
        key, version, correlation_id, _, position = parse_request_header(frame)
        if key != ApiKey.SASL_AUTHENTICATE:
            answer = None
            if key == ApiKey.API_VERSIONS and 0 <= version <= ApiVersionsResponse.MAX_VERSION:
                refusal = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
                answer = encode_response(key, version, correlation_id, refusal)
            return self._turn_away(f"{API_TABLE[key].name} in the midst of a login", answer)
        if not 0 <= version <= SaslAuthenticateRequest.MAX_VERSION:
            return self._turn_away(f"SaslAuthenticate version {version}, which there is not")
        token = SaslAuthenticateRequest.read(Reader(frame, position), version).auth_bytes
        try:
            answer = self._prove(token)
        except LoginRefused as refusal:
            failed = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=self._told(refusal)
            )
            return self._turn_away(str(refusal), encode_response(key, version, correlation_id, failed))
        session_ms = 0 if self.identity is None else self.identity.session_ms
        response = SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=session_ms)
        return self._went_well(encode_response(key, version, correlation_id, response))

    def _bare_token(self, token: bytes) -> Step:
        try:
            answer = self._prove(token)
        except LoginRefused as refusal:
            return self._turn_away(str(refusal))
        return self._went_well(len(answer).to_bytes(_LENGTH_BYTES, "big") + answer)

    def _prove(self, token: bytes) -> bytes:
        login, before = self._login, self._before
        assert login is not None, "tokens come after a handshake"
        if before is not None and before.mechanism != self._chosen:
            raise _IdentityChanged(f"{self._chosen} on a connection that has logged in with {before.mechanism}")
        answer = login.answer(token)
        if login.user is not None:
            if before is not None and before.user != login.user:
                raise _IdentityChanged("another user than the one the connection belongs to")
            self.identity = Identity(login.user, self._chosen, self._mechanisms[self._chosen].session_ms)
        return answer

    def _told(self, refusal: LoginRefused) -> str:
        """What the client hears of a refusal: as much as Kafka says, and the same for every cause."""
        if isinstance(refusal, _IdentityChanged):
            return "Authentication failed: the mechanism or the user of a connection cannot change"
        if self._chosen == PLAIN:
            return "Authentication failed: Invalid username or password"
        return (
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {self._chosen}"
        )

    # ---- steps

    def _went_well(self, answer: bytes) -> Step:
        if self.identity is None:
            return Step(Verdict.GO_ON, answer)
        self._end()
        return Step(Verdict.LET_IN, answer)

    def _turn_away(self, reason: str, answer: bytes | None = None) -> Step:
        self._end()
        self.identity = None
        return Step(Verdict.TURN_AWAY, answer, reason)

    def _end(self) -> None:
        self._state = _State.DONE
        self._login = None
        self.bare_tokens = False
