"""Envelope (API 58): a request that a broker passes on in the name of its client.

Decides whether the letter may be opened (only requests that change the cluster travel like this, and only brokers may
send them: the authorisation table says so) and who counts as its sender. The request inside is then answered like any
other of this listener.
"""

from __future__ import annotations

from ipaddress import ip_address

from moldau.broker.context import Caller, ClientConnection
from moldau.broker.letters import FORWARDABLE, LENGTH_BYTES
from moldau.broker.router import Answer, Router
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.default_principal_data import DefaultPrincipalData
from moldau.protocol.generated.wire.envelope_request import EnvelopeRequest
from moldau.protocol.generated.wire.envelope_response import EnvelopeResponse
from moldau.protocol.wire import ProtocolError, Reader


def open_envelope(router: Router, request: EnvelopeRequest, caller: Caller) -> Pending[EnvelopeResponse]:
    inside = memoryview(request.request_data)
    if len(inside) < 2 or int.from_bytes(inside[:2], "big") not in FORWARDABLE:
        raise ApiError(ErrorCode.INVALID_REQUEST, "This request does not travel in an envelope.")
    sender = ClientConnection(
        connection_id=caller.connection.connection_id,
        listener_name=caller.connection.listener_name,
        host=_address(request.client_host_address),
        port=0,
        principal=_principal(request.request_principal),
        is_forwarded=True,
    )
    try:
        outcome = router.dispatch(inside, sender)
    except ProtocolError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    answer: Pending[EnvelopeResponse] = Pending()

    def seal(response: Answer | None) -> None:
        assert response is not None, "every request that travels is answered"
        answer.resolve(EnvelopeResponse(response_data=b"".join(response)[LENGTH_BYTES:]))

    if isinstance(outcome, Pending):
        outcome.then(seal)
    else:
        seal(outcome)
    return answer


def _principal(data: bytes | None) -> str:
    """A version number and Kafka's default form of a principal."""
    try:
        if data is None or len(data) < 2:
            raise ProtocolError("no principal")
        principal = DefaultPrincipalData.read(Reader(data, 2), int.from_bytes(data[:2], "big"))
    except ProtocolError as error:
        raise ApiError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"The client's principal cannot be read: {error}"
        ) from error
    return f"{principal.type_}:{principal.name}"


def _address(packed: bytes) -> str:
    try:
        return str(ip_address(packed))
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The client's address is no IP address.") from error
