"""TLS contexts and SASL conversations as a client's settings want them; the connection drives them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from moldau.client.errors import MoldauError
from moldau.client.settings import ClientSettings
from moldau.security.mechanisms import PLAIN, SCRAM_MECHANISMS
from moldau.security.plain import plain_client
from moldau.security.scram import Conversation, scram_client

if TYPE_CHECKING:
    import ssl


def tls_context(settings: ClientSettings) -> ssl.SSLContext:
    import ssl

    tls = settings.tls
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
            _load_identity_text(context, tls.certificate_text, tls.key_text, tls.key_password)
    except OSError as error:  # what OpenSSL complains about is one, too
        raise MoldauError(
            f"The TLS certificates cannot be used: {error}", hint=f"Check the {settings.prefix}ssl.* settings."
        ) from None
    return context


def _load_identity_text(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    """Python's ssl loads a private key only from a file: give it one that only we can read, and remove it."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
        file.write(f"{key}\n{certificate}\n")
        file.flush()
        context.load_cert_chain(file.name, password=password)


def conversation(settings: ClientSettings) -> Conversation:
    """What the client says to prove who it is; LoginRefused when the server cannot prove that it knows the password."""
    if settings.mechanism == PLAIN:
        return plain_client(settings.username, settings.password)
    mechanism = SCRAM_MECHANISMS[settings.mechanism]
    return scram_client(mechanism, settings.username, settings.password, secrets.token_urlsafe(24))
