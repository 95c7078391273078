"""`--add-scram`: users whose SCRAM credentials a new cluster begins with.

Turns `SCRAM-SHA-256=[name=alice,password=secret,iterations=8192]` into the record that the metadata log keeps. The
password itself never leaves this file.
"""

from __future__ import annotations

import base64
import binascii
from random import Random
from typing import Final

from moldau.protocol.generated.metadata.user_scram_credential_record import UserScramCredentialRecord
from moldau.security.mechanisms import SCRAM_MECHANISMS, ScramMechanism
from moldau.security.scram_keys import MAX_ITERATIONS, MIN_ITERATIONS, keys_of, salted_password

SALT_BYTES: Final = 32


class ScramArgumentError(ValueError):
    """An argument that does not name a user, a mechanism and a password."""


def parse_scram_argument(argument: str, random: Random) -> UserScramCredentialRecord:
    name, equals, settings = argument.strip().partition("=")
    if not equals:
        raise ScramArgumentError(f"Failed to find equals sign in SCRAM argument '{argument}'")
    mechanism = SCRAM_MECHANISMS.get(name)
    if mechanism is None:
        raise ScramArgumentError(f"The add-scram mechanism {name} is not supported.")
    if not (settings.startswith("[") and settings.endswith("]")):
        raise ScramArgumentError("Expected the configuration string to start with [ and to end with ]")
    values = _settings(settings[1:-1])
    user = values.pop("name", None)
    if user is None:
        raise ScramArgumentError("You must supply 'name' to add-scram")
    iterations = _iterations(values.pop("iterations", None), mechanism)
    given_salt = values.pop("salt", None)
    salt = random.randbytes(SALT_BYTES) if given_salt is None else _decoded("salt", given_salt)
    password = values.pop("password", None)
    salted_text = values.pop("saltedpassword", None)
    if values:
        raise ScramArgumentError(f"Unknown SCRAM configurations: {', '.join(sorted(values))}")
    if password is not None:
        salted = salted_password(mechanism, password, salt, iterations)
    elif salted_text is None:
        raise ScramArgumentError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    elif given_salt is None:
        raise ScramArgumentError("You must supply 'salt' with 'saltedpassword' to add-scram")
    else:
        salted = _decoded("saltedpassword", salted_text)
    keys = keys_of(mechanism, salted)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.number,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def _settings(text: str) -> dict[str, str]:
    values = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise ScramArgumentError(f"No equals sign found in SCRAM component: {part}")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        values[key] = value
    return values


def _iterations(text: str | None, mechanism: ScramMechanism) -> int:
    if text is None:
        return MIN_ITERATIONS
    try:
        iterations = int(text)
    except ValueError:
        raise ScramArgumentError(f"Failed to parse iterations count: {text}") from None
    if iterations < MIN_ITERATIONS:
        raise ScramArgumentError(
            f"The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {mechanism.name}"
        )
    if iterations > MAX_ITERATIONS:
        raise ScramArgumentError(
            f"The 'iterations' value must be <= {MAX_ITERATIONS} for add-scram using {mechanism.name}"
        )
    return iterations


def _decoded(what: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramArgumentError(f"Failed to decode given {what}: {text}") from None
