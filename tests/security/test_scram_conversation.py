"""SCRAM: the published example to the byte, and what either side must refuse."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.metadata.image import ScramCredential
from moldau.security.mechanisms import SCRAM_MECHANISMS
from moldau.security.plain import PlainServer, plain_client
from moldau.security.refusal import LoginRefused
from moldau.security.scram import ScramServer, scram_client
from moldau.security.scram_keys import keys_of, salted_password

SHA_256, SHA_512 = SCRAM_MECHANISMS["SCRAM-SHA-256"], SCRAM_MECHANISMS["SCRAM-SHA-512"]
# The example of RFC 7677.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
CHALLENGE = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(password: str, mechanism=SHA_256, iterations: int = 4096) -> ScramCredential:
    keys = keys_of(mechanism, salted_password(mechanism, password, SALT, iterations))
    return ScramCredential(SALT, keys.stored_key, keys.server_key, iterations)


PENCIL = credential("pencil")


def server(users: dict[str, ScramCredential] | None = None, mechanism=SHA_256) -> ScramServer:
    known = {"user": PENCIL} if users is None else users
    return ScramServer(mechanism, known.get, nonce=SERVER_NONCE, secret=b"of this node")


def test_the_published_example_on_both_sides() -> None:
    client = scram_client(SHA_256, "user", "pencil", CLIENT_NONCE)
    login = server()
    assert next(client) == FIRST
    assert login.answer(FIRST) == CHALLENGE
    assert client.send(CHALLENGE) == FINAL
    assert login.user is None
    assert login.answer(FINAL) == VERDICT
    assert login.user == "user"
    with pytest.raises(StopIteration):
        client.send(VERDICT)


@given(
    user=st.text(min_size=1).filter(lambda text: "\0" not in text), password=st.text(), number=st.sampled_from([1, 2])
)
@settings(max_examples=25, deadline=None)
def test_any_name_and_password(user: str, password: str, number: int) -> None:
    mechanism = SHA_256 if number == 1 else SHA_512
    login = server({user: credential(password, mechanism)}, mechanism)
    client = scram_client(mechanism, user, password, "abc")
    token = next(client)
    token = client.send(login.answer(token))
    with pytest.raises(StopIteration):
        client.send(login.answer(token))
    assert login.user == user


@pytest.mark.parametrize("user", ["user", "nobody"])
def test_a_wrong_password_and_an_unknown_user_look_alike(user: str) -> None:
    login = server()
    client = scram_client(SHA_256, user, "guess", "abc")
    challenge = login.answer(next(client))
    assert challenge.endswith(b",i=4096")
    with pytest.raises(LoginRefused, match="an unknown user or a wrong password"):
        login.answer(client.send(challenge))
    assert login.user is None


def test_a_user_who_does_not_exist_has_the_same_salt_each_time() -> None:
    first, again, other = (server().answer(f"n,,n={name},r=abc".encode()) for name in ("eve", "eve", "mallory"))
    assert first == again != other


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=root,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us,er,r=abc",
        b"n,,n=us=20er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,n=user\0,r=abc",
    ],
)
def test_a_first_message_that_is_none(token: bytes) -> None:
    with pytest.raises(LoginRefused):
        server().answer(token)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"r=rOpr", b"r=rOps"),
        lambda final: final[:-5] + b"VR==",
        lambda final: final.replace(b"p=dHz", b"p=eHz"),
        lambda final: final.partition(b",p=")[0],
        lambda final: final.partition(b",p=")[0] + b",p=",
        lambda final: final.partition(b",p=")[0] + b",p=====",
        lambda final: final + b",p=",
        lambda final: b"",
    ],
)
def test_a_last_message_that_proves_nothing(change: Callable[[bytes], bytes]) -> None:
    login = server()
    login.answer(FIRST)
    with pytest.raises(LoginRefused):
        login.answer(change(FINAL))
    assert login.user is None


def test_nothing_follows_the_proof() -> None:
    login = server()
    login.answer(FIRST)
    login.answer(FINAL)
    with pytest.raises(LoginRefused):
        login.answer(FINAL)


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=AAAA,i=4096",
        b"r=abcd,s=AAAA",
        b"r=abcd,s=AAAA,i=0",
        b"r=abcd,s=AAAA,i=99999999",
        b"r=abcd,s=!,i=4096",
        b"e=unknown-user",
        b"\xff",
    ],
)
def test_a_client_refuses_a_strange_server(challenge: bytes) -> None:
    client = scram_client(SHA_256, "user", "pencil", "abc")
    next(client)
    with pytest.raises(LoginRefused):
        client.send(challenge)


@pytest.mark.parametrize("verdict", [b"", b"v=", b"v=AAAA", VERDICT[:-5] + b"AAA=", b"e=other-error"])
def test_a_client_refuses_a_server_that_does_not_know_the_password(verdict: bytes) -> None:
    client = scram_client(SHA_256, "user", "pencil", CLIENT_NONCE)
    next(client)
    client.send(CHALLENGE)
    with pytest.raises(LoginRefused):
        client.send(verdict)


def test_plain() -> None:
    login = PlainServer({"alice": "sécret"})
    assert login.answer(next(plain_client("alice", "sécret"))) == b""
    assert login.user == "alice"
    with pytest.raises(LoginRefused):
        login.answer(b"\0alice\0s\xc3\xa9cret")
    acting = PlainServer({"alice": "secret"})
    acting.answer(b"alice\0alice\0secret")
    assert acting.user == "alice"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0\0",
        b"\0alice\0",
        b"\0\0secret",
        b"\0alice\0Secret",
        b"\0alice\0secret\0",
        b"\0bob\0secret",
        b"root\0alice\0secret",
        b"alice\0secret",
        b"\xff\0alice\0secret",
    ],
)
def test_plain_that_is_refused(token: bytes) -> None:
    login = PlainServer({"alice": "secret", "empty": ""})
    with pytest.raises(LoginRefused):
        login.answer(token)
    assert login.user is None
