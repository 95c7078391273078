"""From a frame to its handler, and from the handler's response to bytes.

Decides only what every API has in common: which versions are served, how the headers look, what happens when a
handler fails. Produce and Fetch bypass the generated messages (`raw` routes) because they carry the records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from time import perf_counter_ns
from typing import Any, TypeAlias

from moldau.broker.context import Caller, ClientConnection
from moldau.broker.request_metrics import RequestMetrics
from moldau.ports import Buffer, Pending
from moldau.protocol.api import API_TABLE, ApiKey, ApiSpec, request_header_version
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.frames import encode_response
from moldau.protocol.wire import ProtocolError, Reader

log = logging.getLogger("moldau.broker")

Answer: TypeAlias = list[Buffer]
Outcome: TypeAlias = Answer | Pending[Answer | None] | None
Handler: TypeAlias = Callable[[Any, Caller], Any]
RawHandler: TypeAlias = Callable[[memoryview, int, Caller], Outcome]

_HEAD = Struct(">hhih")  # api key, api version, correlation id, length of the client id


@dataclass(slots=True)
class Route:
    """One API as this listener serves it."""

    spec: ApiSpec
    handler: Handler | None = None
    raw: RawHandler | None = None
    min_version: int = -1
    max_version: int = -1

    def __post_init__(self) -> None:
        if self.min_version < 0:
            self.min_version = self.spec.min_version
        if self.max_version < 0:
            self.max_version = self.spec.max_version


class Router:
    """The table of what one kind of listener serves, and the way through it."""

    def __init__(self, metrics: RequestMetrics) -> None:
        self.routes: dict[int, Route] = {}
        self._metrics = metrics

    def serve(self, handlers: Mapping[ApiKey, Handler]) -> None:
        for key, handler in handlers.items():
            assert key not in self.routes, f"two handlers for {key.name}"
            self.routes[key] = Route(API_TABLE[key], handler=handler)

    def serve_raw(self, key: ApiKey, handler: RawHandler) -> None:
        assert key not in self.routes, f"two handlers for {key.name}"
        self.routes[key] = Route(API_TABLE[key], raw=handler)

    def dispatch(self, frame: memoryview, connection: ClientConnection) -> Outcome:
        """Answer one request. ProtocolError means that the connection must be closed."""
        started = perf_counter_ns()
        if len(frame) < _HEAD.size:
            raise ProtocolError("a request shorter than its own header")
        api_key, version, correlation_id, client_id_length = _HEAD.unpack_from(frame)
        route = self.routes.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            if api_key == ApiKey.API_VERSIONS and route is not None:
                return self._unsupported_api_versions(route, correlation_id, connection)
            raise ProtocolError(f"{_name(api_key)} version {version} is not served on {connection.listener_name}")
        position = _HEAD.size
        if client_id_length >= 0:
            position += client_id_length
            if position > len(frame):
                raise ProtocolError("the client id reaches beyond the request")
            raw_id = frame[_HEAD.size : position]
            client_id: str | None = _client_id(raw_id, connection)
        else:
            client_id = None
        if request_header_version(api_key, version) >= 2:
            position = _skip_header_tags(frame, position)
        caller = Caller(connection, api_key, version, correlation_id, client_id)
        if route.raw is not None:
            outcome = route.raw(frame, position, caller)
        else:
            outcome = self._call(route, frame, position, caller)
        if type(outcome) is Pending and not outcome.done:
            metrics = self._metrics
            outcome.then(lambda _: metrics.record(api_key, started, len(frame)))
        else:
            self._metrics.record(api_key, started, len(frame))
        return outcome

    def _call(self, route: Route, frame: memoryview, position: int, caller: Caller) -> Outcome:
        assert route.handler is not None
        reader = Reader(frame, position)
        request = route.spec.request_class().read(reader, caller.api_version)
        if reader.pos != len(frame):
            raise ProtocolError(f"{route.spec.name}: {len(frame) - reader.pos} bytes after the end of the request")
        try:
            response = route.handler(request, caller)
        except ApiError as error:
            response = failure_response(route.spec, error.code, error.message)
        except ProtocolError:
            raise
        except Exception:
            log.exception("%s from %s failed", route.spec.name, caller.host)
            response = failure_response(route.spec, ErrorCode.UNKNOWN_SERVER_ERROR, None)
        if isinstance(response, Pending):
            if response.done:
                return self._encode(route, caller, response.value)
            answer: Pending[Answer | None] = Pending()
            response.then(lambda message: answer.resolve(self._encode_or_fail(route, caller, message)))
            return answer
        if response is None:
            return None
        return self._encode(route, caller, response)

    def _encode(self, route: Route, caller: Caller, message: Any) -> Answer:
        if isinstance(message, ApiError):
            message = failure_response(route.spec, message.code, message.message)
        return [encode_response(caller.api_key, caller.api_version, caller.correlation_id, message)]

    def _encode_or_fail(self, route: Route, caller: Caller, message: Any) -> Answer | None:
        try:
            return self._encode(route, caller, message)
        except Exception:
            log.exception("the answer to %s could not be encoded", route.spec.name)
            failed = failure_response(route.spec, ErrorCode.UNKNOWN_SERVER_ERROR, None)
            return self._encode(route, caller, failed)

    def _unsupported_api_versions(self, route: Route, correlation_id: int, connection: ClientConnection) -> Outcome:
        """A newer client asks with a version from the future: it must learn in version 0 what is served."""
        assert route.handler is not None
        caller = Caller(connection, ApiKey.API_VERSIONS, 0, correlation_id, None)
        response = route.handler(None, caller)
        return [encode_response(ApiKey.API_VERSIONS, 0, correlation_id, response)]


def failure_response(spec: ApiSpec, code: ErrorCode, message: str | None) -> Any:
    """A response that says only that the whole request failed."""
    response = spec.response_class()()
    if not hasattr(response, "error_code"):
        raise ProtocolError(f"{spec.name} failed as a whole ({code.name}) and its response cannot say so")
    response.error_code = int(code)
    if hasattr(response, "error_message"):
        response.error_message = message
    return response


def _name(api_key: int) -> str:
    spec = API_TABLE.get(api_key)
    return spec.name if spec is not None else f"API key {api_key}"


def _client_id(raw: memoryview, connection: ClientConnection) -> str:
    # A connection nearly always keeps its client id: compare before decoding anew.
    known = connection.client_id
    if known is not None and raw == connection.client_id_bytes:
        return known
    data = bytes(raw)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ProtocolError("the client id is not UTF-8") from None
    connection.client_id = text
    connection.client_id_bytes = data
    return text


def _skip_header_tags(frame: memoryview, position: int) -> int:
    if position < len(frame) and frame[position] == 0:
        return position + 1
    reader = Reader(frame, position)
    reader.skip_tagged_fields()
    return reader.pos
