"""What a node says when it is asked about security; where it has none, that there is none, never an empty list.

An empty list of rules would claim that nobody has access. SaslHandshake and SaslAuthenticate (17, 36) come too late
when they come here: logins are over before a broker hears of a client (`moldau.security.exchange`). Rules (29-31) and
delegation tokens (38-41) need what is not configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from moldau.broker.acls import describe_acls
from moldau.broker.context import ANONYMOUS, Caller
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

_TOKENS: Final = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)


def security_handlers(services: BrokerServices, *, on_controller: bool) -> Mapping[ApiKey, Handler]:
    # Creating and deleting entries is the controller's to refuse.
    no_list = _refusing(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return {
        ApiKey.SASL_HANDSHAKE: _refusing(ErrorCode.ILLEGAL_SASL_STATE),
        ApiKey.SASL_AUTHENTICATE: _refusing(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
        ),
        ApiKey.DESCRIBE_ACLS: no_list if services.guard is None else describe_acls(services),
        **dict.fromkeys(_TOKENS, _refusing_tokens(on_controller=on_controller)),
    }


def _refusing_tokens(*, on_controller: bool) -> Handler:
    """A broker refuses whoever has not proved who they are; beyond that it counts what is configured."""

    def refuse(_request: Any, caller: Caller) -> NoReturn:
        if not on_controller and caller.principal == ANONYMOUS:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    return refuse


def _refusing(code: ErrorCode, reason: str = "") -> Handler:
    def refuse(_request: Any, _caller: Caller) -> NoReturn:
        raise ApiError(code, reason)

    return refuse
