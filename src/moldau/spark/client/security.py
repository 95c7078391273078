"""TLS contexts and SASL conversations.

A SASL mechanism here is a generator of client messages: it yields bytes to send and is sent the server's answers. It
never reads a socket; the connection drives it. A server that cannot prove that it knows the password is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import ssl
import tempfile
from collections.abc import Generator

from moldau.spark.client.settings import ClientSettings, TlsSettings
from moldau.spark.errors import MoldauError

# RFC 5802 wants 4096 at least; far above that a hostile server would only make us burn time.
MAX_SCRAM_ITERATIONS = 1_000_000

Conversation = Generator[bytes, bytes, None]


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_host_name
    try:
        if tls.trust_file or tls.trust_text:
            context.load_verify_locations(cafile=tls.trust_file, cadata=tls.trust_text)
        else:
            context.load_default_certs()
        if tls.identity_file:
            context.load_cert_chain(tls.identity_file, password=tls.key_password)
        elif tls.certificate_text and tls.key_text:
            # Python's ssl takes a private key only from a file: one that only we can read, for a moment.
            with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
                file.write(f"{tls.key_text}\n{tls.certificate_text}\n")
                file.flush()
                context.load_cert_chain(file.name, password=tls.key_password)
    except OSError as error:
        raise MoldauError(f"The TLS certificates of the kafka.ssl.* options cannot be used: {error}") from None
    return context


def conversation(settings: ClientSettings) -> Conversation:
    if settings.mechanism == "PLAIN":
        return _plain(settings.username, settings.password)
    return _scram(settings.mechanism, settings.username, settings.password)


def _plain(username: str, password: str) -> Conversation:
    yield f"\0{username}\0{password}".encode()


def _scram(mechanism: str, username: str, password: str) -> Conversation:
    """RFC 5802 from the client's side."""
    algorithm = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
    nonce = secrets.token_urlsafe(24)
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}"
    server_first = yield f"n,,{first_bare}".encode()
    fields = _fields(server_first)
    iterations = int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(nonce) or not 0 < iterations <= MAX_SCRAM_ITERATIONS:
        raise MoldauError("Authentication failed: the server's SCRAM challenge is malformed")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(fields["s"]), iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    final_bare = f"c=biws,r={fields['r']}"
    message = b",".join([first_bare.encode(), server_first, final_bare.encode()])
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    server_final = yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    if not hmac.compare_digest(base64.b64decode(_fields(server_final).get("v", "")), expected):
        raise MoldauError("Authentication failed: the server does not know the password")


def _fields(message: bytes) -> dict[str, str]:
    fields = {part[0]: part[2:] for part in message.decode(errors="replace").split(",") if len(part) >= 2}
    if "e" in fields:
        raise MoldauError(f"Authentication failed: {fields['e']}; check kafka.sasl.jaas.config")
    return fields
