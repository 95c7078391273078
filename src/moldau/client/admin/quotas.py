"""Client quotas and SCRAM credentials: what `kafka-configs` keeps under users, clients and ips."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin.client import Admin
from moldau.client.errors import failure, raise_for
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.security.mechanisms import SCRAM_MECHANISMS
from moldau.security.scram import salted_password

_SCRAM_NAMES = {mechanism.number: mechanism.name for mechanism in SCRAM_MECHANISMS.values()}
_SALT_BYTES = 24
_EXACT, _DEFAULT, _ANY = range(3)


@dataclass(slots=True)
class QuotaFilter:
    """One part of a quota's entity: a type (user, client-id, ip) and a name, the default, or any of that type."""

    entity_type: str
    name: str | None
    any_name: bool = False


@dataclass(slots=True)
class Quota:
    entity: dict[str, str | None]
    values: dict[str, float]


@dataclass(slots=True)
class ScramDescription:
    user: str
    error: ApiError | None
    credentials: list[tuple[str, int]]


def describe_quotas(admin: Admin, filters: Sequence[QuotaFilter]) -> list[Quota]:
    from moldau.protocol.generated.wire.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest

    components = [
        ComponentData(
            entity_type=each.entity_type,
            match_type=_ANY if each.any_name else _DEFAULT if each.name is None else _EXACT,
            match=each.name,
        )
        for each in filters
    ]
    answer = admin.ask(DescribeClientQuotasRequest(components=components, strict=True))
    raise_for(answer.error_code, answer.error_message)
    return [
        Quota(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or []
    ]


def alter_quotas(
    admin: Admin, entity: Mapping[str, str | None], set_to: Mapping[str, float], delete: Sequence[str]
) -> None:
    from moldau.protocol.generated.wire.alter_client_quotas_request import (
        AlterClientQuotasRequest,
        EntityData,
        EntryData,
        OpData,
    )

    operations = [OpData(key=key, value=value, remove=False) for key, value in set_to.items()]
    operations += [OpData(key=key, value=0.0, remove=True) for key in delete]
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()], ops=operations
    )
    answer = admin.ask_controller(
        AlterClientQuotasRequest(entries=[entry], validate_only=False),
        codes=lambda reply: [each.error_code for each in reply.entries],
    )
    for result in answer.entries:
        raise_for(result.error_code, result.error_message)


def describe_scram(admin: Admin, users: Sequence[str]) -> list[ScramDescription]:
    """The SCRAM credentials of the users, of all users when none is named."""
    from moldau.protocol.generated.wire.describe_user_scram_credentials_request import (
        DescribeUserScramCredentialsRequest,
        UserName,
    )

    named = [UserName(name=user) for user in users] if users else None
    answer = admin.ask_controller(
        DescribeUserScramCredentialsRequest(users=named), codes=lambda reply: [reply.error_code]
    )
    raise_for(answer.error_code, answer.error_message)
    return [
        ScramDescription(
            each.user,
            None if each.error_code == ErrorCode.NONE else failure(each.error_code, each.error_message),
            [(_SCRAM_NAMES.get(one.mechanism, "UNKNOWN"), one.iterations) for one in each.credential_infos],
        )
        for each in answer.results
        if each.error_code != ErrorCode.RESOURCE_NOT_FOUND or users
    ]


def alter_scram(admin: Admin, user: str, set_to: Mapping[str, tuple[int, str]], delete: Sequence[str]) -> None:
    """Set (iterations, password) by mechanism, and delete mechanisms. Only the salted password leaves this process."""
    from moldau.protocol.generated.wire.alter_user_scram_credentials_request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )

    upsertions = []
    for name, (iterations, password) in set_to.items():
        mechanism = SCRAM_MECHANISMS[name]
        salt = secrets.token_bytes(_SALT_BYTES)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism.number,
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(mechanism, password, salt, iterations),
            )
        )
    deletions = [ScramCredentialDeletion(name=user, mechanism=SCRAM_MECHANISMS[name].number) for name in delete]
    answer = admin.ask_controller(
        AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions),
        codes=lambda reply: [each.error_code for each in reply.results],
    )
    for result in answer.results:
        raise_for(result.error_code, result.error_message)
