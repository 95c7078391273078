"""TLS contexts from Kafka's `ssl.*` settings: for a listener, and for the connections on which a node is the client.

Decides which certificates and versions are used. Keys and certificates are PEM, in a file or in the setting itself;
Java's key stores are refused with a word about what to do.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from moldau.config.node_config import ListenerSettings
from moldau.config.types import ConfigError
from moldau.security.distinguished_names import distinguished_name

_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_PEM: Final = "PEM"


def server_context(settings: ListenerSettings, listener: str, client_auth: str) -> ssl.SSLContext:
    """The context of a listener; ConfigError if its settings give none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, settings)
    _set_ciphers(context, settings)
    if not _load_identity(context, settings, listener):
        raise ConfigError.saying(
            "ssl.keystore.location",
            f"Listener {listener} uses TLS and has no certificate: set ssl.keystore.type=PEM and ssl.keystore.location "
            "(a file with the private key and the certificates), or ssl.keystore.key with "
            "ssl.keystore.certificate.chain",
        )
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        _load_trust(context, settings, listener, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: ListenerSettings, listener: str) -> ssl.SSLContext:
    """The context of connections to that listener of other nodes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = (settings.optional_text("ssl.endpoint.identification.algorithm") or "").lower() == "https"
    _set_versions(context, settings)
    _set_ciphers(context, settings)
    _load_identity(context, settings, listener)
    _load_trust(context, settings, listener, ssl.Purpose.SERVER_AUTH)
    return context


def subject_of(transport_info: Any) -> str | None:
    """The name in the certificate that the other side has shown; None if it has not shown any."""
    certificate = transport_info("ssl_object").getpeercert()
    return distinguished_name(certificate["subject"]) if certificate else None


def _set_versions(context: ssl.SSLContext, settings: ListenerSettings) -> None:
    names = settings.words("ssl.enabled.protocols")
    unknown = [name for name in names if name not in _VERSIONS]
    if unknown or not names:
        reason = f"the protocols are {', '.join(_VERSIONS)}"
        raise ConfigError("ssl.enabled.protocols", ",".join(unknown), reason)
    versions = sorted(_VERSIONS[name] for name in names)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _set_ciphers(context: ssl.SSLContext, settings: ListenerSettings) -> None:
    """Suites by Java's names. Those of TLS 1.3 are all good, and OpenSSL does not let us choose among them."""
    older = [_openssl_name(name) for name in settings.words("ssl.cipher.suites") if "_WITH_" in name]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise ConfigError("ssl.cipher.suites", ",".join(older), "OpenSSL knows none of them") from None


def _openssl_name(name: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 -> ECDHE-RSA-AES128-GCM-SHA256"""
    text = name.removeprefix("TLS_").replace("RSA_WITH_", "RSA_" if "DHE" in name else "").replace("_WITH_", "_")
    text = text.replace("AES_", "AES").replace("_CBC_", "_").replace("POLY1305_SHA256", "POLY1305")
    return text.replace("_", "-")


def _require_pem(settings: ListenerSettings, listener: str, store: str) -> None:
    kind = settings.text(f"ssl.{store}.type")
    if kind.upper() != _PEM:
        raise ConfigError(
            f"ssl.{store}.type",
            kind,
            f"listener {listener}: only PEM is read here. Turn the store into a PEM file (openssl pkcs12 -nodes -in "
            f"store.p12 -out store.pem) and set ssl.{store}.type=PEM",
        )
    if settings.optional_text(f"ssl.{store}.password") is not None:
        reason = f"a PEM {store} has no password of its own; that of the private key is ssl.key.password"
        raise ConfigError.saying(f"ssl.{store}.password", f"Listener {listener}: {reason}")


def _load_identity(context: ssl.SSLContext, settings: ListenerSettings, listener: str) -> bool:
    """Load the node's own certificate; whether there is one."""
    location = settings.optional_text("ssl.keystore.location")
    key, chain = settings.optional_text("ssl.keystore.key"), settings.optional_text("ssl.keystore.certificate.chain")
    if location is None and key is None:
        return False
    _require_pem(settings, listener, "keystore")
    # Without any, OpenSSL would ask for one at the terminal.
    password = settings.optional_text("ssl.key.password") or ""
    try:
        if location is not None:
            context.load_cert_chain(location, password=password)
            return True
        import tempfile

        # Python's ssl takes a private key only from a file: one that only we can read, for a moment.
        with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
            file.write(f"{key}\n{chain or ''}\n")
            file.flush()
            context.load_cert_chain(file.name, password=password)
    except (OSError, ValueError) as error:
        name = "ssl.keystore.location" if location is not None else "ssl.keystore.key"
        raise _unusable(name, listener, location, error) from None
    return True


def _load_trust(context: ssl.SSLContext, settings: ListenerSettings, listener: str, purpose: ssl.Purpose) -> None:
    location = settings.optional_text("ssl.truststore.location")
    text = settings.optional_text("ssl.truststore.certificates")
    if location is None and text is None:
        context.load_default_certs(purpose)
        return
    _require_pem(settings, listener, "truststore")
    try:
        context.load_verify_locations(cafile=location, cadata=None if location is not None else text)
    except (OSError, ValueError) as error:
        name = "ssl.truststore.location" if location is not None else "ssl.truststore.certificates"
        raise _unusable(name, listener, location, error) from None


def _unusable(name: str, listener: str, location: str | None, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
    at = "" if location is None else f" ({location})"
    return ConfigError.saying(name, f"Listener {listener}: {name}{at} cannot be used: {reason}")
