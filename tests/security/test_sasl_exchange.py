"""What may be said before a login, frame by frame: the state machine without a socket."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.metadata_request import MetadataRequest
from moldau.protocol.generated.wire.sasl_authenticate_request import SaslAuthenticateRequest
from moldau.protocol.generated.wire.sasl_handshake_request import SaslHandshakeRequest
from moldau.security.exchange import Identity, OfferedMechanism, SaslExchange, Step, Verdict
from moldau.security.mechanisms import SCRAM_MECHANISMS
from moldau.security.plain import PlainServer
from moldau.security.scram import ScramServer, scram_client
from tests.security.test_scram_conversation import PENCIL

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
MECHANISMS = {
    "PLAIN": OfferedMechanism(lambda: PlainServer({"alice": "secret"}), 0),
    "SCRAM-SHA-256": OfferedMechanism(
        lambda: ScramServer(SHA_256, {"user": PENCIL}.get, nonce="server", secret=b"s"), 3_600_000
    ),
}
HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")
GOOD = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
BAD = SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess")


def frame(request: Any, version: int) -> memoryview:
    return memoryview(encode_request(API_TABLE[request.API_KEY], version, 7, "tests", request))[4:]


def answer_of(step: Step, key: int, version: int) -> Any:
    assert step.answer is not None
    assert int.from_bytes(step.answer[:4], "big") == len(step.answer) - 4
    correlation_id, message = decode_response(API_TABLE[key], version, step.answer[4:])
    assert correlation_id == 7
    return message


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login(version: int) -> None:
    exchange = SaslExchange(MECHANISMS)
    assert exchange.take(frame(ApiVersionsRequest(), 2)).verdict is Verdict.VERSIONS
    exchange.versions_told()
    step = exchange.take(frame(HANDSHAKE, 1))
    assert step.verdict is Verdict.GO_ON
    shaken = answer_of(step, ApiKey.SASL_HANDSHAKE, 1)
    assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.NONE, ["PLAIN", "SCRAM-SHA-256"])
    assert exchange.identity is None
    assert not exchange.bare_tokens
    step = exchange.take(frame(GOOD, version))
    assert step.verdict is Verdict.LET_IN
    let_in = answer_of(step, ApiKey.SASL_AUTHENTICATE, version)
    assert (let_in.error_code, let_in.auth_bytes, let_in.session_lifetime_ms) == (0, b"", 0)
    assert exchange.identity == Identity("alice", "PLAIN", 0)


def test_versions_need_not_be_asked() -> None:
    exchange = SaslExchange(MECHANISMS)
    exchange.take(frame(HANDSHAKE, 1))
    assert exchange.take(frame(GOOD, 2)).verdict is Verdict.LET_IN


def test_versions_may_be_asked_until_they_were_told() -> None:
    exchange = SaslExchange(MECHANISMS)
    for _ in range(3):
        assert exchange.take(frame(ApiVersionsRequest(), 0)).verdict is Verdict.VERSIONS
    exchange.versions_told()
    assert exchange.take(frame(ApiVersionsRequest(), 0)).verdict is Verdict.TURN_AWAY


def test_bare_tokens_after_the_oldest_handshake() -> None:
    exchange = SaslExchange(MECHANISMS)
    assert exchange.take(frame(HANDSHAKE, 0)).verdict is Verdict.GO_ON
    assert exchange.bare_tokens
    step = exchange.take(memoryview(b"\0alice\0secret"))
    assert step == Step(Verdict.LET_IN, bytes(4))
    assert exchange.identity == Identity("alice", "PLAIN", 0)
    assert not exchange.bare_tokens


def test_a_bare_token_that_is_wrong_is_not_answered() -> None:
    exchange = SaslExchange(MECHANISMS)
    exchange.take(frame(HANDSHAKE, 0))
    step = exchange.take(memoryview(b"\0alice\0guess"))
    assert (step.verdict, step.answer, exchange.identity) == (Verdict.TURN_AWAY, None, None)


@pytest.mark.parametrize("bare", [False, True])
def test_scram_takes_two_tokens_and_its_session_ends(bare: bool) -> None:
    exchange = SaslExchange(MECHANISMS)
    exchange.take(frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0 if bare else 1))
    client = scram_client(SHA_256, "user", "pencil", "client")

    def say(token: bytes) -> tuple[Verdict, bytes, int]:
        if bare:
            step = exchange.take(memoryview(token))
            assert step.answer is not None
            return step.verdict, step.answer[4:], 0
        step = exchange.take(frame(SaslAuthenticateRequest(auth_bytes=token), 2))
        answer = answer_of(step, ApiKey.SASL_AUTHENTICATE, 2)
        return step.verdict, answer.auth_bytes, answer.session_lifetime_ms

    verdict, challenge, lifetime = say(next(client))
    assert (verdict, lifetime, exchange.identity) == (Verdict.GO_ON, 0, None)
    verdict, proof, lifetime = say(client.send(challenge))
    assert (verdict, lifetime) == (Verdict.LET_IN, 0 if bare else 3_600_000)
    with pytest.raises(StopIteration):
        client.send(proof)
    assert exchange.identity == Identity("user", "SCRAM-SHA-256", 3_600_000)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "PLAIN\0", "x" * 5000])
def test_a_mechanism_that_is_not_offered(mechanism: str) -> None:
    exchange = SaslExchange(MECHANISMS)
    step = exchange.take(frame(SaslHandshakeRequest(mechanism=mechanism), 1))
    assert step.verdict is Verdict.TURN_AWAY
    assert len(step.reason) < 200
    answer = answer_of(step, ApiKey.SASL_HANDSHAKE, 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert exchange.take(frame(HANDSHAKE, 1)).verdict is Verdict.TURN_AWAY


def test_a_refusal_tells_nothing() -> None:
    told = set()
    for token in (b"\0alice\0guess", b"\0bob\0secret", b"nonsense", b"root\0alice\0secret", b"\0alice\0"):
        exchange = SaslExchange(MECHANISMS)
        exchange.take(frame(HANDSHAKE, 1))
        step = exchange.take(frame(SaslAuthenticateRequest(auth_bytes=token), 2))
        assert step.verdict is Verdict.TURN_AWAY
        assert exchange.identity is None
        answer = answer_of(step, ApiKey.SASL_AUTHENTICATE, 2)
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")
        told.add(answer.error_message)
        assert exchange.take(frame(GOOD, 2)).verdict is Verdict.TURN_AWAY
    assert told == {"Authentication failed: Invalid username or password"}


@pytest.mark.parametrize("shaken", [False, True])
@pytest.mark.parametrize("key", [key for key in ApiKey if key in API_TABLE and key != ApiKey.API_VERSIONS])
def test_nothing_else_is_answered_before_a_login(key: ApiKey, shaken: bool) -> None:
    exchange = SaslExchange(MECHANISMS)
    if shaken:
        exchange.take(frame(HANDSHAKE, 1))
    spec = API_TABLE[key]
    if key == (ApiKey.SASL_AUTHENTICATE if shaken else ApiKey.SASL_HANDSHAKE):
        return
    for version in (spec.min_version, spec.max_version):
        request = spec.request_class()()
        step = exchange.take(frame(request, version))
        assert (step.verdict, step.answer) == (Verdict.TURN_AWAY, None)


def test_versions_in_the_midst_of_a_login_are_refused_in_words() -> None:
    exchange = SaslExchange(MECHANISMS)
    exchange.take(frame(HANDSHAKE, 1))
    step = exchange.take(frame(ApiVersionsRequest(), 0))
    assert step.verdict is Verdict.TURN_AWAY
    assert answer_of(step, ApiKey.API_VERSIONS, 0).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_login_that_is_over_takes_nothing_more() -> None:
    exchange = SaslExchange(MECHANISMS)
    exchange.take(frame(HANDSHAKE, 1))
    exchange.take(frame(GOOD, 2))
    assert exchange.take(frame(MetadataRequest(), 12)).verdict is Verdict.TURN_AWAY


@given(data=st.binary(max_size=64), opening=st.sampled_from(["", "shaken", "bare"]))
def test_no_bytes_let_anybody_in(data: bytes, opening: str) -> None:
    exchange = SaslExchange(MECHANISMS)
    if opening:
        exchange.take(frame(HANDSHAKE, 0 if opening == "bare" else 1))
    step = exchange.take(memoryview(data))
    assert step.verdict is not Verdict.LET_IN
    assert exchange.identity is None


# ---- logging in again


def again(before: Identity, *requests: tuple[Any, int]) -> tuple[SaslExchange, Step]:
    exchange = SaslExchange(MECHANISMS, before)
    for request, version in requests:
        step = exchange.take(frame(request, version))
    return exchange, step


def test_the_same_user_may_log_in_again() -> None:
    exchange, step = again(Identity("alice", "PLAIN", 5), (HANDSHAKE, 1), (GOOD, 2))
    assert step.verdict is Verdict.LET_IN
    assert exchange.identity is not None
    assert exchange.identity.user == "alice"


@pytest.mark.parametrize("before", [Identity("bob", "PLAIN", 5), Identity("alice", "SCRAM-SHA-256", 5)])
def test_a_connection_keeps_its_user_and_its_mechanism(before: Identity) -> None:
    exchange, step = again(before, (HANDSHAKE, 1), (GOOD, 2))
    assert step.verdict is Verdict.TURN_AWAY
    assert exchange.identity is None
    answer = answer_of(step, ApiKey.SASL_AUTHENTICATE, 2)
    assert "cannot change" in answer.error_message


def test_logging_in_again_with_a_wrong_password() -> None:
    _, step = again(Identity("alice", "PLAIN", 5), (HANDSHAKE, 1), (BAD, 2))
    assert step.verdict is Verdict.TURN_AWAY
    assert "Invalid username or password" in answer_of(step, ApiKey.SASL_AUTHENTICATE, 2).error_message


def test_logging_in_again_begins_with_the_handshake() -> None:
    _, step = again(Identity("alice", "PLAIN", 5), (ApiVersionsRequest(), 0))
    assert step.verdict is Verdict.TURN_AWAY
