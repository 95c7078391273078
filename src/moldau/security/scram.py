"""SCRAM (RFC 5802, 7677) as Kafka speaks it: both sides of the conversation, without a socket.

Decides whether somebody knows a password, and never lets it be seen. A user who does not exist gets the same questions
as one who does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from moldau.security.mechanisms import ScramMechanism
from moldau.security.refusal import LoginRefused
from moldau.security.scram_keys import MIN_ITERATIONS, Credential, client_key, keys_of, salted_password

# The mathematics too, for whoever speaks SCRAM anyway.
__all__ = [
    "MIN_ITERATIONS",
    "Conversation",
    "Credential",
    "ScramServer",
    "keys_of",
    "salted_password",
    "scram_client",
]

_CLIENT_ITERATIONS_MAX: Final = 1_000_000  # beyond that a hostile server only makes a client burn time
_SALT_BYTES: Final = 32

_NAME: Final = r"(?:[^,=\0]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2B\x2D-\x7E]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^,\0]+)*"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<acting>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproven>c=(?P<binding>[A-Za-z0-9/+=]+),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9/+=]+)"
)


class _Decoy(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


# ---- the server's side


class ScramServer:
    """One login, seen from the server: two messages of the client, two answers."""

    __slots__ = (
        "_auth_head",
        "_credential",
        "_credential_of",
        "_header",
        "_mechanism",
        "_name",
        "_nonce",
        "_secret",
        "user",
    )

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Callable[[str], Credential | None],
        *,
        nonce: str,
        secret: bytes,
    ) -> None:
        """`nonce` is used for this login only; `secret` is the server's own, to make up salts for users it does not
        know: the same for a name each time, as a real one would be."""
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._nonce = nonce
        self._secret = secret
        self._name = ""
        self._header = ""
        self._auth_head = b""
        self._credential: Credential | None = None
        self.user: str | None = None
        """Who it is; None until that is proved."""

    def answer(self, token: bytes) -> bytes:
        if self.user is not None:
            raise LoginRefused("a message after the end of the conversation")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise LoginRefused("a SCRAM message that is not text") from None
        return self._challenge(text) if self._credential is None else self._verdict(text)

    def _challenge(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise LoginRefused("a first SCRAM message that is none")
        name = _plain_name(match["name"])
        if match["acting"] is not None and _plain_name(match["acting"]) != name:
            raise LoginRefused("a client that wants to act in another one's name")
        if match["extensions"]:
            raise LoginRefused("a SCRAM extension (delegation tokens are not offered)")
        self._credential = credential = self._credential_of(name) or self._decoy(name)
        self._header = match["header"]
        self._nonce = match["nonce"] + self._nonce
        challenge = f"r={self._nonce},s={_text(credential.salt)},i={credential.iterations}"
        self._auth_head = f"{match['bare']},{challenge},".encode()
        self._name = name
        return challenge.encode()

    def _verdict(self, text: str) -> bytes:
        mechanism, credential = self._mechanism, self._credential
        assert credential is not None, "the challenge comes first"
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None or match["nonce"] != self._nonce or _bytes(match["binding"]) != self._header.encode():
            raise LoginRefused("a last SCRAM message that does not belong to this conversation")
        message = self._auth_head + match["unproven"].encode()
        signature = hmac.digest(credential.stored_key, message, mechanism.hash_name)
        proof = _bytes(match["proof"])
        if len(proof) != len(signature):
            raise LoginRefused("a proof of the wrong length")
        key = hashlib.new(mechanism.hash_name, _xor(proof, signature)).digest()
        if not hmac.compare_digest(key, credential.stored_key):
            raise LoginRefused("an unknown user or a wrong password")
        self.user = self._name
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, message, mechanism.hash_name))

    def _decoy(self, name: str) -> _Decoy:
        """A credential that nobody can have the password of."""
        made_up = hmac.digest(self._secret, f"{self._mechanism.name}:{name}".encode(), "sha512")
        size = hashlib.new(self._mechanism.hash_name).digest_size
        stored = hmac.digest(self._secret, made_up, self._mechanism.hash_name)[:size]
        return _Decoy(made_up[:_SALT_BYTES], stored, stored, MIN_ITERATIONS)


# ---- the client's side

Conversation = Generator[bytes, bytes, None]
"""Yields what the client sends, and is sent the server's answers."""


def scram_client(mechanism: ScramMechanism, username: str, password: str, nonce: str) -> Conversation:
    """Raises LoginRefused unless the server proves that it knows the password as well."""
    bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = yield f"n,,{bare}".encode()
    fields = _fields(challenge)
    iterations = fields.get("i", "")
    if not fields.get("r", "").startswith(nonce) or not iterations.isdecimal():
        raise LoginRefused("the server's SCRAM challenge is malformed")
    if not 0 < int(iterations) <= _CLIENT_ITERATIONS_MAX:
        raise LoginRefused(f"the server asks for {iterations} iterations")
    salted = salted_password(mechanism, password, _bytes(fields.get("s", "")), int(iterations))
    unproven = f"c=biws,r={fields['r']}"
    message = b",".join((bare.encode(), challenge, unproven.encode()))
    keys = keys_of(mechanism, salted)
    proof = _xor(client_key(mechanism, salted), hmac.digest(keys.stored_key, message, mechanism.hash_name))
    verdict = yield f"{unproven},p={_text(proof)}".encode()
    expected = hmac.digest(keys.server_key, message, mechanism.hash_name)
    if not hmac.compare_digest(_bytes(_fields(verdict).get("v", "")), expected):
        raise LoginRefused("the server does not know the password")


def _fields(message: bytes) -> dict[str, str]:
    fields = {part[0]: part[2:] for part in message.decode(errors="replace").split(",") if len(part) >= 2}
    if "e" in fields:
        raise LoginRefused(fields["e"])
    return fields


def _plain_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise LoginRefused("a SCRAM message that is not in base64 where it must be") from None
