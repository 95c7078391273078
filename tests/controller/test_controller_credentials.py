"""SCRAM credentials: stored as keys, never twice in one request, and all of a user's changes or none."""

from __future__ import annotations

import base64
import hashlib

import pytest
from tests.controller.controller_world import ControllerWorld

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.protocol.generated.wire.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from moldau.quorum.scram_arguments import parse_scram_argument

SHA_256, SHA_512 = 1, 2
SALT = b"salt" * 8


@pytest.fixture
def world() -> ControllerWorld:
    return ControllerWorld()


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    hash_name = "sha512" if mechanism == SHA_512 else "sha256"
    salted = hashlib.pbkdf2_hmac(hash_name, b"secret", SALT, 4096)
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


def alter(world: ControllerWorld, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    answer = world.ask(request, AlterUserScramCredentialsResponse)
    return {result.user: ErrorCode(result.error_code) for result in answer.results}


def test_a_credential_is_what_the_storage_tool_would_have_written(world: ControllerWorld) -> None:
    assert alter(world, upsertion("alice")) == {"alice": ErrorCode.NONE}
    salt = base64.b64encode(SALT).decode()
    text = f"SCRAM-SHA-256=[name=alice,password=secret,iterations=4096,salt={salt}]"
    expected = parse_scram_argument(text, world.random)
    kept = world.image.scram[SHA_256, "alice"]
    assert (kept.salt, kept.stored_key, kept.server_key) == (SALT, expected.stored_key, expected.server_key)
    deletion = ScramCredentialDeletion(name="alice", mechanism=SHA_256)
    assert alter(world, deletion) == {"alice": ErrorCode.NONE}
    assert world.image.scram == {}
    assert alter(world, deletion) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("bob", 7), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("bob", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("bob", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_what_is_refused(world: ControllerWorld, change: ScramCredentialUpsertion, code: ErrorCode) -> None:
    assert alter(world, change, upsertion("alice")) == {change.name: code, "alice": ErrorCode.NONE}
    assert list(world.image.scram) == [(SHA_256, "alice")]


def test_the_same_credential_twice_changes_nothing_of_that_user(world: ControllerWorld) -> None:
    changes = upsertion("bob"), upsertion("bob"), upsertion("bob", SHA_512)
    assert alter(world, *changes) == {"bob": ErrorCode.DUPLICATE_RESOURCE}
    assert world.image.scram == {}
