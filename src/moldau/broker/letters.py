"""Envelopes as a broker sends them: a client's request to the controller, with who the client is, and the answer.

Decides which requests travel like this: those that change the cluster. `envelope.py` opens them at the other end.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Final

from moldau.broker.forwarding import CHANGING
from moldau.protocol.api import ApiKey
from moldau.protocol.codec import encode
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire.default_principal_data import DefaultPrincipalData
from moldau.protocol.generated.wire.envelope_request import EnvelopeRequest
from moldau.protocol.generated.wire.envelope_response import EnvelopeResponse
from moldau.protocol.wire import ProtocolError

FORWARDABLE: Final = frozenset({*CHANGING, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
ENVELOPE_VERSION: Final = 0
LENGTH_BYTES: Final = 4
_PRINCIPAL_VERSION: Final = 0
# The answer comes back in the envelope of its request, so nothing needs to tell answers apart.
_CORRELATION_ID: Final = 0
_NOWHERE: Final = bytes(4)


def seal(request: Any, api_version: int, principal: str, host: str) -> EnvelopeRequest:
    """The request of a client with this principal at this address."""
    kind, _, name = principal.partition(":")
    data = encode(DefaultPrincipalData(type_=kind, name=name), _PRINCIPAL_VERSION)
    return EnvelopeRequest(
        request_data=encode_request(request.API_KEY, api_version, _CORRELATION_ID, None, request)[LENGTH_BYTES:],
        request_principal=_PRINCIPAL_VERSION.to_bytes(2, "big") + data,
        client_host_address=_packed(host),
    )


def unseal(response: EnvelopeResponse, api_key: int, api_version: int) -> Any:
    """The answer to the request inside, or why it was not even looked at."""
    if response.error_code != ErrorCode.NONE:
        return ApiError(error_code(response.error_code))
    try:
        return decode_response(api_key, api_version, response.response_data or b"")[1]
    except ProtocolError as error:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller's answer cannot be read: {error}")


def _packed(host: str) -> bytes:
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return _NOWHERE
