"""The cluster's quotas and credentials as every node knows them.

DescribeClientQuotas (48) and DescribeUserScramCredentials (50) read the image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from moldau.broker.context import Caller
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.metadata.image import QuotaEntity
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from moldau.protocol.generated.wire.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from moldau.protocol.generated.wire.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from moldau.protocol.generated.wire.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY_NAME: Final = 2
_MATCH_NAMES: Final = {_EXACT: "MATCH_TYPE_EXACT", _DEFAULT: "MATCH_TYPE_DEFAULT", _ANY_NAME: "MATCH_TYPE_SPECIFIED"}
_ENTITY_TYPES: Final = frozenset({"user", "client-id", "ip"})


class ClusterHandlers:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe_client_quotas,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe_user_scram_credentials,
        }

    def describe_client_quotas(
        self, request: DescribeClientQuotasRequest, caller: Caller
    ) -> DescribeClientQuotasResponse:
        wanted = _filter(request.components)
        return DescribeClientQuotasResponse(
            error_message=None,
            entries=[
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in quotas.items()],
                )
                for entity, quotas in self._services.image.client_quotas.items()
                if _matches(entity, wanted, strict=request.strict)
            ],
        )

    def describe_user_scram_credentials(
        self, request: DescribeUserScramCredentialsRequest, caller: Caller
    ) -> DescribeUserScramCredentialsResponse:
        known: dict[str, list[CredentialInfo]] = {}
        for (mechanism, user), credential in sorted(self._services.image.scram.items()):
            info = CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            known.setdefault(user, []).append(info)
        named = Counter(user.name for user in request.users or ())
        results = []
        for user in named or known:
            infos = known.get(user)
            if named[user] > 1:
                reason = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
                results.append(_undescribed(user, ErrorCode.DUPLICATE_RESOURCE, reason))
            elif infos is None:
                reason = f"Attempt to describe a user credential that does not exist: {user}"
                results.append(_undescribed(user, ErrorCode.RESOURCE_NOT_FOUND, reason))
            else:
                results.append(
                    DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)
                )
        return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _undescribed(user: str, code: ErrorCode, reason: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=reason)


def _filter(components: list[ComponentData]) -> dict[str, tuple[bool, str | None]]:
    """Entity type -> (whether the name matters, the name; None for the default entity)."""
    wanted: dict[str, tuple[bool, str | None]] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _ENTITY_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(component)
        wanted[kind] = (component.match_type != _ANY_NAME, component.match)
    if "ip" in wanted and len(wanted) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return wanted


def _check_match(component: ComponentData) -> None:
    name = _MATCH_NAMES.get(component.match_type)
    if name is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if component.match_type == _EXACT and component.match is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but set match string to null.")
    if component.match_type != _EXACT and component.match is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but also specified a match string.")


def _matches(entity: QuotaEntity, wanted: Mapping[str, tuple[bool, str | None]], *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    names = dict(entity)
    return all(kind in names and (not by_name or names[kind] == name) for kind, (by_name, name) in wanted.items())
