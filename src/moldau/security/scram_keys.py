"""The mathematics of SCRAM (RFC 5802, 7677): what a password becomes, and what is kept of it.

Shared by all who need it: the controller and the formatting of a cluster, which keep credentials, and both sides of a
login (`scram.py`). From what is kept a login can be checked, but not forged.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple, Protocol

from moldau.security.mechanisms import ScramMechanism

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""What a stored credential may have: enough against guessing, not so many that a login is a burden."""


class Credential(Protocol):
    """What is kept of one user's password for one mechanism."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


class Keys(NamedTuple):
    """The part of a credential that is made from the password."""

    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def keys_of(mechanism: ScramMechanism, salted: bytes) -> Keys:
    """What a server keeps of a salted password."""
    stored_key = hashlib.new(mechanism.hash_name, client_key(mechanism, salted)).digest()
    return Keys(stored_key, hmac.digest(salted, b"Server Key", mechanism.hash_name))
