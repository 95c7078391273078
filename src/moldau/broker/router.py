"""From a frame to its handler, and from the handler's response to bytes.

Decides only what every API has in common: which versions are served, how the headers look, who is let through, and
what happens when a handler fails. Produce and Fetch bypass the generated messages (`raw` routes) because they carry
the records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from time import perf_counter_ns
from typing import Any, Final, TypeAlias

from moldau.broker.authorization import AUTHORIZATION, Guard
from moldau.broker.context import Caller, ClientConnection
from moldau.broker.request_metrics import RequestMetrics
from moldau.ports import Buffer, Pending
from moldau.protocol.api import API_TABLE, ApiKey, ApiSpec
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.frames import encode_response
from moldau.protocol.wire import ProtocolError, Reader

log: Final = logging.getLogger("moldau.broker")

Answer: TypeAlias = list[Buffer]


class LongPoll(Pending[Answer | None]):
    """An answer that waits for news, for as long as its client likes, and may then be large.

    The connection takes up nothing else from that client meanwhile, so that it cannot pile up such answers.
    """

    __slots__ = ()


Outcome: TypeAlias = Answer | Pending[Answer | None] | None
Handler: TypeAlias = Callable[[Any, Caller], Any]
RawHandler: TypeAlias = Callable[[memoryview, int, Caller], Outcome]
Family: TypeAlias = Callable[[], Mapping[ApiKey, Handler]]
"""Loads one module of handlers when the first of its APIs is asked for, so that a node starts at once."""

_HEAD: Final = Struct(">hhih")  # api key, api version, correlation id, length of the client id
_NEVER_FLEXIBLE: Final = 1 << 15


@dataclass(slots=True)
class Route:
    """One API as this listener serves it."""

    spec: ApiSpec
    max_version: int
    handler: Handler | None = None
    raw: RawHandler | None = None
    family: Family | None = None
    min_version: int = field(init=False)
    # From this version on the request's header has tagged fields.
    flexible_from: int = field(init=False)

    def __post_init__(self) -> None:
        self.min_version = self.spec.min_version
        flexible_from = self.spec.flexible_from
        self.flexible_from = _NEVER_FLEXIBLE if flexible_from is None else flexible_from


class Router:
    """The table of what one kind of listener serves, and the way through it."""

    def __init__(self, metrics: RequestMetrics, *, guard: Guard | None = None, unstable: bool = False) -> None:
        self.routes: dict[int, Route] = {}
        self._metrics = metrics
        self._guard = guard
        self._unstable = unstable

    # ---- what is served

    def serve(self, handlers: Mapping[ApiKey, Handler]) -> None:
        for key, handler in handlers.items():
            self._add(key).handler = handler

    def serve_family(self, keys: Iterable[ApiKey], family: Family) -> None:
        """Serve these APIs with handlers that are loaded when the first of them is needed."""
        for key in keys:
            self._add(key).family = family

    def serve_raw(self, key: ApiKey, handler: RawHandler) -> None:
        self._add(key).raw = handler

    def _add(self, key: ApiKey) -> Route:
        assert key not in self.routes, f"two handlers for {key.name}"
        assert key in AUTHORIZATION, f"nobody decided who may use {key.name}"
        spec = API_TABLE[key]
        route = self.routes[key] = Route(spec, spec.max_version if self._unstable else spec.max_stable_version)
        return route

    def _load(self, route: Route) -> Handler:
        family = route.family
        assert family is not None, f"{route.spec.name} has no handler"
        for key, handler in family().items():
            loaded = self.routes.get(key)
            if loaded is not None and loaded.family is family:
                loaded.handler = handler
                loaded.family = None
        assert route.handler is not None, f"the family of {route.spec.name} does not handle it"
        return route.handler

    # ---- one request

    def dispatch(self, frame: memoryview, connection: ClientConnection) -> Outcome:
        """Answer one request. ProtocolError means that the connection must be closed."""
        started = perf_counter_ns()
        size = len(frame)
        if size < 10:
            raise ProtocolError("a request shorter than its own header")
        api_key: int
        version: int
        correlation_id: int
        client_id_length: int
        api_key, version, correlation_id, client_id_length = _HEAD.unpack_from(frame)
        route = self.routes.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            if api_key == ApiKey.API_VERSIONS and route is not None:
                return self._unsupported_api_versions(route, correlation_id, connection)
            raise ProtocolError(f"{_name(api_key)} version {version} is not served on {connection.listener_name}")
        position = 10
        if client_id_length >= 0:
            position += client_id_length
            if position > size:
                raise ProtocolError("the client id reaches beyond the request")
            client_id: str | None = _client_id(frame[10:position], connection)
        else:
            client_id = None
        if version >= route.flexible_from:
            if position < size and frame[position] == 0:
                position += 1
            else:
                position = _skip_header_tags(frame, position)
        caller = Caller(connection, api_key, version, correlation_id, client_id)
        if route.raw is not None:
            connection.in_conversation = False
            outcome = self._call_raw(route.raw, frame, position, caller)
        else:
            connection.in_conversation = True
            outcome = self._call(route, frame, position, caller)
        if isinstance(outcome, Pending) and not outcome.done:
            metrics = self._metrics
            outcome.then(lambda _: metrics.record(api_key, started, size))
        else:
            self._metrics.record(api_key, started, size)
        return outcome

    def _call_raw(self, handler: RawHandler, frame: memoryview, position: int, caller: Caller) -> Outcome:
        try:
            return handler(frame, position, caller)
        except ProtocolError:
            raise
        except Exception as error:
            log.exception("%s from %s failed", _name(caller.api_key), caller.host)
            raise ProtocolError("the request failed for a reason of our own; see the log") from error

    def _call(self, route: Route, frame: memoryview, position: int, caller: Caller) -> Outcome:
        handler = route.handler
        if handler is None:
            handler = self._load(route)
        # Bytes after the end of a request are left alone: librdkafka sends some, and Kafka never looked.
        request = route.spec.request_class().read(Reader(frame, position), caller.api_version)
        try:
            if self._guard is not None:
                self._guard.check(request, caller)
            response = handler(request, caller)
        except ApiError as error:
            response = error
        except ProtocolError:
            raise
        except Exception:
            log.exception("%s from %s failed", route.spec.name, caller.host)
            response = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(response, Pending):
            if response.done:
                return self._encode(route, request, caller, response.value)
            answer: Pending[Answer | None] = Pending()
            response.then(lambda message: answer.resolve(self._encode(route, request, caller, message)))
            return answer
        return self._encode(route, request, caller, response)

    def _encode(self, route: Route, request: Any, caller: Caller, message: Any) -> Answer:
        if isinstance(message, ApiError):
            message = self._failure(route, request, caller, message)
        try:
            try:
                return [encode_response(caller.api_key, caller.api_version, caller.correlation_id, message)]
            except ProtocolError:
                if not self._shorten(message):
                    raise
                return [encode_response(caller.api_key, caller.api_version, caller.correlation_id, message)]
        except Exception:
            log.exception("the answer to %s could not be encoded", route.spec.name)
        failed = self._failure(route, request, caller, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return [encode_response(caller.api_key, caller.api_version, caller.correlation_id, failed)]

    def _failure(self, route: Route, request: Any, caller: Caller, error: ApiError) -> Any:
        # Loaded at the first failure: a node that starts has none.
        from moldau.broker.failures import failure_response

        self._metrics.failed(error.code)
        return failure_response(route.spec, request, caller.api_version, error.code, error.message)

    def _shorten(self, message: Any) -> bool:
        """An explanation that quotes what the client sent may be longer than a string can be."""
        from moldau.broker.failures import shorten_explanations

        return shorten_explanations(message)

    def _unsupported_api_versions(self, route: Route, correlation_id: int, connection: ClientConnection) -> Outcome:
        """A newer client asks with a version from the future: it must learn in version 0 what is served."""
        caller = Caller(connection, ApiKey.API_VERSIONS, 0, correlation_id, None)
        handler = route.handler or self._load(route)
        return [encode_response(ApiKey.API_VERSIONS, 0, correlation_id, handler(None, caller))]


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
    reader = Reader(frame, position)
    reader.skip_tagged_fields()
    return reader.pos
