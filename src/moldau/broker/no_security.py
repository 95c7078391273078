"""What a node says when it is asked about security that it does not have: that there is none, never an empty list.

An empty list of rules would claim that nobody has access. SaslHandshake and SaslAuthenticate (17, 36) come too late on
a listener that let the client in without them; rules (29-31) and delegation tokens (38-41) need what is not configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from moldau.broker.context import Caller
from moldau.broker.router import Handler
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

# Creating and deleting them is the controller's to refuse.
_ACLS: Final = (ApiKey.DESCRIBE_ACLS,)
_TOKENS: Final = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
SECURITY_APIS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, *_ACLS, *_TOKENS)


def security_handlers(*, on_controller: bool, has_authorizer: bool) -> Mapping[ApiKey, Handler]:
    # A broker refuses whoever came over an unprotected connection; a controller looks at what is configured.
    tokens = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if not on_controller:
        tokens = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    acls = () if has_authorizer else _ACLS
    return {
        ApiKey.SASL_HANDSHAKE: _refusing(ErrorCode.ILLEGAL_SASL_STATE),
        ApiKey.SASL_AUTHENTICATE: _refusing(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
        ),
        **dict.fromkeys(acls, _refusing(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")),
        **dict.fromkeys(_TOKENS, _refusing(tokens)),
    }


def _refusing(code: ErrorCode, reason: str = "") -> Handler:
    def refuse(_request: Any, _caller: Caller) -> NoReturn:
        raise ApiError(code, reason)

    return refuse
