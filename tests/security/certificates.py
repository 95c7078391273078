"""Certificates for tests, made with the `openssl` command: an authority, a node's, and clients'."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    """A certificate authority in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = directory / "authority.key"
        self.certificate = directory / "authority.pem"
        _openssl(
            "req", "-x509", *_KEY, "-keyout", self._key, "-out", self.certificate, "-subj", "/CN=authority", *_DAYS
        )

    def issue(self, subject: str, *, password: str | None = None) -> Path:
        """A PEM file with a private key and its certificate, for 127.0.0.1 and localhost."""
        name = "".join(character if character.isalnum() else "-" for character in subject)
        key, request, certificate = (self._directory / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        extensions = self._directory / "extensions"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl("req", *_KEY, "-keyout", key, "-out", request, "-subj", subject)
        signed = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, "-out", certificate, *signed, *_DAYS)
        if password is not None:
            _openssl("pkcs8", "-topk8", "-in", key, "-out", f"{key}.enc", "-passout", f"pass:{password}")
            key = Path(f"{key}.enc")
        both = self._directory / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_DAYS = ("-days", "2")


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


def parts_of(pem: Path) -> tuple[str, str]:
    """(private key, certificates) of such a file."""
    text = pem.read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    return text[:at], text[at:]
