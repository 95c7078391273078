"""TLS contexts and SASL conversations of the administration client.

A SASL mechanism here is a generator of client messages: it yields bytes to send and is sent the server's answers. It
never reads a socket; the connection drives it. A server that cannot prove that it knows the password is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator
from typing import TYPE_CHECKING

from moldau.cli.admin.settings import Settings, TlsFiles
from moldau.cli.errors import CliError

if TYPE_CHECKING:
    import ssl

# RFC 5802 wants 4096 at least; far above that a hostile server would only make us burn time.
MAX_SCRAM_ITERATIONS = 1_000_000

Conversation = Generator[bytes, bytes, None]


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = files.check_host_name
    try:
        if files.trust_file or files.trust_text:
            context.load_verify_locations(cafile=files.trust_file, cadata=files.trust_text)
        else:
            context.load_default_certs()
        if files.identity_file:
            context.load_cert_chain(files.identity_file, password=files.key_password)
        elif files.certificate_text and files.key_text:
            _load_identity_text(context, files.certificate_text, files.key_text, files.key_password)
    except (OSError, ssl.SSLError) as error:
        raise CliError(f"The TLS certificates cannot be used: {error}") from None
    return context


def _load_identity_text(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    """Python's ssl loads a private key only from a file: give it one that only we can read, and remove it."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
        file.write(f"{key}\n{certificate}\n")
        file.flush()
        context.load_cert_chain(file.name, password=password)


def conversation(settings: Settings) -> Conversation:
    if settings.mechanism == "PLAIN":
        return plain(settings.username, settings.password)
    return scram(settings.mechanism, settings.username, settings.password, secrets.token_urlsafe(24))


def plain(username: str, password: str) -> Conversation:
    yield f"\0{username}\0{password}".encode()


def scram(mechanism: str, username: str, password: str, nonce: str) -> Conversation:
    """RFC 5802 from the client's side."""
    algorithm = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}"
    server_first = yield f"n,,{first_bare}".encode()
    fields = _scram_fields(server_first)
    if "e" in fields:
        raise CliError(f"Authentication failed: {fields['e']}")
    iterations = int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(nonce) or not 0 < iterations <= MAX_SCRAM_ITERATIONS:
        raise CliError("Authentication failed: the server's SCRAM challenge is malformed")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(fields["s"]), iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    final_bare = f"c=biws,r={fields['r']}"
    message = b",".join([first_bare.encode(), server_first, final_bare.encode()])
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    server_final = yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()
    fields = _scram_fields(server_final)
    if "e" in fields:
        raise CliError(f"Authentication failed: {fields['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), expected):
        raise CliError("Authentication failed: the server does not know the password")


def _scram_fields(message: bytes) -> dict[str, str]:
    try:
        return {part[0]: part[2:] for part in message.decode().split(",") if len(part) >= 2}
    except UnicodeDecodeError:
        raise CliError("Authentication failed: the server's SCRAM message is not text") from None
