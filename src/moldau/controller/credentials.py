"""SCRAM credentials of users: who may prove to know a password, and how strongly it is kept.

The controller never sees a password: a client sends what the password becomes after salt and iterations, and the
metadata log keeps two keys made from that, with which a login can be checked but not forged.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from moldau.controller.decision import Decision, Situation
from moldau.metadata.features import SCRAM_SINCE
from moldau.metadata.records import MetadataRecord
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from moldau.protocol.generated.metadata.user_scram_credential_record import UserScramCredentialRecord
from moldau.protocol.generated.wire.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.protocol.generated.wire.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from moldau.security.mechanisms import SCRAM_MECHANISMS
from moldau.security.scram_keys import MAX_ITERATIONS, MIN_ITERATIONS, keys_of

_MECHANISMS: Final = {mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS.values()}


def alter_user_scram_credentials(
    s: Situation, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    if s.state.metadata_version < SCRAM_SINCE:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The cluster's metadata version is too old for SCRAM credentials; raise it with kafka-features.",
        )
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    named = Counter((change.name, change.mechanism) for change in changes)
    refused: dict[str, ApiError] = {}
    records: dict[tuple[str, int], MetadataRecord] = {}
    for change in changes:
        key = change.name, change.mechanism
        try:
            if named[key] > 1:
                reason = "A user credential cannot be altered twice in the same request"
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, reason)
            records[key] = _deletion(s, change) if isinstance(change, ScramCredentialDeletion) else _upsertion(change)
        except ApiError as error:
            refused.setdefault(change.name, error)
    # All of a user's credentials change or none of them does.
    kept = [record for (user, _), record in records.items() if user not in refused]
    return Decision(kept, _answer(request, refused))


def refuse_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, error: ApiError
) -> AlterUserScramCredentialsResponse:
    return _answer(request, dict.fromkeys(_users(request), error))


def _users(request: AlterUserScramCredentialsRequest) -> list[str]:
    deleted = [change.name for change in request.deletions]
    return list(dict.fromkeys([*deleted, *(change.name for change in request.upsertions)]))


def _answer(
    request: AlterUserScramCredentialsRequest, refused: dict[str, ApiError]
) -> AlterUserScramCredentialsResponse:
    results = []
    for user in _users(request):
        error = refused.get(user)
        code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
        results.append(AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message))
    return AlterUserScramCredentialsResponse(results=results)


def _deletion(s: Situation, change: ScramCredentialDeletion) -> RemoveUserScramCredentialRecord:
    _check(change)
    if (change.mechanism, change.name) not in s.state.scram:
        reason = "Attempt to delete a user credential that does not exist"
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, reason)
    return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)


def _upsertion(change: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    _check(change)
    if change.iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations; at least {MIN_ITERATIONS} are needed")
    if change.iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations; at most {MAX_ITERATIONS} are allowed")
    keys = keys_of(_MECHANISMS[change.mechanism], change.salted_password)
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=change.iterations,
    )


def _check(change: ScramCredentialDeletion | ScramCredentialUpsertion) -> None:
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in _MECHANISMS:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
