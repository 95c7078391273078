"""Clients' own metrics (KIP-714): GetTelemetrySubscriptions (71) and PushTelemetry (72).

Decides which metrics a client is asked for (by the CLIENT_METRICS resources that match it), and accepts what it pushes
at the pace it was told. Only how much arrived is kept; what the metrics say is not looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from crc32c import crc32c

from moldau.broker.context import Caller, ClientConnection
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.config.client_config import ALL_METRICS, ClientMetricsConfig
from moldau.config.types import ConfigError
from moldau.metadata.image import CLIENT_METRICS_RESOURCE, ConfigResource
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from moldau.protocol.generated.wire.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from moldau.protocol.generated.wire.push_telemetry_request import PushTelemetryRequest
from moldau.protocol.generated.wire.push_telemetry_response import PushTelemetryResponse
from moldau.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID, uuid_to_string
from moldau.quorum.meta_properties import new_uuid
from moldau.records.compression import Codec, CorruptRecords, decompress

DEFAULT_INTERVAL_MS: Final = 300_000
INSTANCES_MAX: Final = 16_384
# An instance nobody heard of for this long, or for three of its intervals, is forgotten.
_IDLE_MS_MIN: Final = 60_000
_ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
_RESERVED_IDS: Final = (ZERO_UUID, METADATA_TOPIC_ID)
_REMEMBERED: Final = "telemetry"


class _Instance:
    """One client as far as telemetry goes."""

    __slots__ = (
        "attributes",
        "instance_id",
        "interval_ms",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "seen_ms",
        "subscription_id",
        "terminating",
        "version",
    )

    def __init__(self, instance_id: bytes, attributes: Mapping[str, str | None]) -> None:
        self.instance_id = instance_id
        self.attributes = attributes
        self.forget_pace()
        self.version = -1
        self.subscription_id = 0
        self.metrics: tuple[str, ...] = ()
        self.interval_ms = DEFAULT_INTERVAL_MS
        self.seen_ms = 0

    def forget_pace(self) -> None:
        """Other metrics are asked for: what was pushed before does not count."""
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.terminating = False
        self.last_error = ErrorCode.NONE

    def is_idle(self, now: int) -> bool:
        return now - self.seen_ms > max(_IDLE_MS_MIN, 3 * self.interval_ms)

    def may_get(self, now: int) -> bool:
        times = [time for time in (self.last_get_ms, self.last_push_ms) if time is not None]
        if times and now - max(times) < self.interval_ms:
            return False
        self.last_get_ms = now
        return True

    def may_push(self, now: int) -> bool:
        """The first push after the subscription was asked for comes at once, the others in their interval."""
        get, push = self.last_get_ms, self.last_push_ms
        first = get is not None and (push is None or get > push)
        if not first and push is not None and now - push < self.interval_ms:
            return False
        self.last_push_ms = now
        return True


class TelemetryHandlers:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        # In the order in which they were last heard of.
        self._instances: OrderedDict[bytes, _Instance] = OrderedDict()
        self._configs: Mapping[ConfigResource, Mapping[str, str]] = {}
        self._subscriptions: dict[str, ClientMetricsConfig] = {}
        self._version = 0
        self.pushes = 0
        self.bytes_received = 0
        self.throttled = 0
        self.unknown_subscriptions = 0

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: self.get_subscriptions,
            ApiKey.PUSH_TELEMETRY: self.push,
        }

    @property
    def instance_count(self) -> int:
        return len(self._instances)

    def disconnected(self, connection: ClientConnection) -> None:
        instance_id = connection.remembered.pop(_REMEMBERED, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    # ---- GetTelemetrySubscriptions

    def get_subscriptions(
        self, request: GetTelemetrySubscriptionsRequest, caller: Caller
    ) -> GetTelemetrySubscriptionsResponse:
        instance_id = request.client_instance_id
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        now = self._services.clock.monotonic_ms()
        instance = self._instance(instance_id, caller, now)
        # A client that was just told that it knows nothing may ask at once what it should know.
        excused = instance.last_error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if not instance.may_get(now) and not excused:
            self.throttled += 1
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(_ACCEPTED_CODECS),
            push_interval_ms=instance.interval_ms,
            telemetry_max_bytes=self._max_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.metrics),
        )

    def _new_id(self) -> bytes:
        while True:
            made = new_uuid(self._services.random)
            if made not in self._instances and made not in _RESERVED_IDS:
                return made

    @property
    def _max_bytes(self) -> int:
        return self._services.config.integer("telemetry.max.bytes")

    # ---- PushTelemetry

    def push(self, request: PushTelemetryRequest, caller: Caller) -> PushTelemetryResponse:
        if request.client_instance_id in _RESERVED_IDS:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        now = self._services.clock.monotonic_ms()
        instance = self._instance(request.client_instance_id, caller, now)
        try:
            self._check(request, instance, now)
            self._receive(request)
        except ApiError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = request.terminating
        instance.last_error = ErrorCode.NONE
        return PushTelemetryResponse()

    def _check(self, request: PushTelemetryRequest, instance: _Instance, now: int) -> None:
        if instance.terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(now) and not request.terminating:
            self.throttled += 1
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type != Codec.NONE and request.compression_type not in _ACCEPTED_CODECS:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self._max_bytes:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _receive(self, request: PushTelemetryRequest) -> None:
        if not request.metrics:
            return
        if request.compression_type != Codec.NONE:
            try:
                decompress(Codec(request.compression_type), request.metrics, self._max_bytes)
            except CorruptRecords as error:
                raise ApiError(ErrorCode.INVALID_RECORD) from error
        self.pushes += 1
        self.bytes_received += len(request.metrics)

    # ---- who the client is, and what it is asked for

    def _instance(self, instance_id: bytes, caller: Caller, now: int) -> _Instance:
        self._follow_image()
        instances = self._instances
        instance = instances.get(instance_id)
        if instance is None or instance.is_idle(now):
            instance = instances[instance_id] = _Instance(instance_id, _attributes(instance_id, caller))
            self._make_room(now)
        instances.move_to_end(instance_id)
        instance.seen_ms = now
        caller.connection.remembered[_REMEMBERED] = instance_id
        if instance.version != self._version:
            self._subscribe(instance)
        return instance

    def _make_room(self, now: int) -> None:
        instances = self._instances
        while len(instances) > 1:
            oldest = next(iter(instances.values()))
            if len(instances) <= INSTANCES_MAX and not oldest.is_idle(now):
                return
            del instances[oldest.instance_id]

    def _subscribe(self, instance: _Instance) -> None:
        matching = [config for config in self._subscriptions.values() if _matches(config, instance.attributes)]
        metrics = {metric for config in matching for metric in config.metrics}
        instance.metrics = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        instance.interval_ms = min([DEFAULT_INTERVAL_MS, *(config.interval_ms for config in matching)])
        text = f"{instance.metrics}{instance.interval_ms}".encode()
        instance.subscription_id = _signed(crc32c(text) ^ crc32c(instance.instance_id))
        instance.version = self._version
        instance.forget_pace()

    def _follow_image(self) -> None:
        configs = self._services.image.configs
        if configs is self._configs:
            return
        self._configs = configs
        subscriptions: dict[str, ClientMetricsConfig] = {}
        for (kind, name), overrides in configs.items():
            if kind == CLIENT_METRICS_RESOURCE:
                try:
                    subscriptions[name] = ClientMetricsConfig.effective(overrides)
                except ConfigError:
                    # The controller refuses such values; a record from elsewhere must not stop the others.
                    continue
        if subscriptions != self._subscriptions:
            self._subscriptions = subscriptions
            self._version += 1


def _attributes(instance_id: bytes, caller: Caller) -> dict[str, str | None]:
    connection = caller.connection
    return {
        "client_instance_id": uuid_to_string(instance_id),
        "client_id": caller.client_id,
        "client_software_name": connection.software_name,
        "client_software_version": connection.software_version,
        "client_source_address": connection.host,
        "client_source_port": str(connection.port),
    }


def _matches(config: ClientMetricsConfig, attributes: Mapping[str, str | None]) -> bool:
    for field, pattern in config.match.items():
        value = attributes.get(field)
        if value is None or pattern.fullmatch(value) is None:
            return False
    return True


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
