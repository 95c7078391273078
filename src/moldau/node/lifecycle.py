"""A broker's membership in its cluster: register, send heartbeats, and leave in good order.

Talks to the controller over the same requests whether that is in this process or elsewhere. It decides nothing about
partitions; the controller does, from what it hears here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from moldau.broker.context import ANONYMOUS
from moldau.broker.services import ControllerChannel
from moldau.config.node_config import NodeConfig
from moldau.metadata.delta import ImageDelta
from moldau.metadata.features import VersionRange
from moldau.metadata.image import ClusterImage
from moldau.ports import Clock, Pending, Timer
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest
from moldau.protocol.generated.wire.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from moldau.protocol.generated.wire.controller_registration_request import (
    ControllerRegistrationRequest,
)
from moldau.protocol.generated.wire.controller_registration_request import Feature as ControllerFeature
from moldau.protocol.generated.wire.controller_registration_request import Listener as ControllerListener
from moldau.quorum.meta_properties import new_uuid

log = logging.getLogger("moldau.node")

REGISTRATION_VERSION = 4
HEARTBEAT_VERSION = 2
CONTROLLER_REGISTRATION_VERSION = 0
# Short at first: in a combined node the controller is a few milliseconds behind.
RETRY_MS_FIRST = 5
RETRY_MS_MAX = 200
NO_EPOCH = -1
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def register_controller(
    *,
    node_id: int,
    incarnation: bytes,
    listeners: Iterable[tuple[str, str, int, str]],
    features: Mapping[str, VersionRange],
    controller: ControllerChannel,
    clock: Clock,
) -> None:
    """Tell the active controller where this one listens, so that tools find the quorum; tried until it is heard."""
    request = ControllerRegistrationRequest(
        controller_id=node_id,
        incarnation_id=incarnation,
        zk_migration_ready=False,
        listeners=[
            ControllerListener(name=name, host=host, port=port, security_protocol=SECURITY_PROTOCOLS[protocol])
            for name, host, port, protocol in listeners
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in features.items()
        ],
    )

    def ask() -> None:
        controller.ask(request, CONTROLLER_REGISTRATION_VERSION, ANONYMOUS).then(answered)

    def answered(response: Any) -> None:
        code = response.code if isinstance(response, ApiError) else error_code(response.error_code)
        if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
            clock.call_later(RETRY_MS_MAX, ask)
        elif code is not ErrorCode.NONE:
            log.warning("the active controller did not register controller %d: %s", node_id, code.name)

    ask()


class BrokerLifecycle:
    """Keeps this broker registered for as long as it runs."""

    def __init__(
        self,
        *,
        config: Callable[[], NodeConfig],
        cluster_id: str,
        controller: ControllerChannel,
        clock: Clock,
        random: Random,
        metadata_offset: Callable[[], int],
        directories: Callable[[], Iterable[tuple[bytes, bool]]],
        cordoned: Callable[[], list[bytes]],
    ) -> None:
        """`directories` gives (id, whether it is online) of every log directory."""
        self._config = config
        self._cluster_id = cluster_id
        self._controller = controller
        self._clock = clock
        self._incarnation = new_uuid(random)
        self._metadata_offset = metadata_offset
        self._directories = directories
        self._cordoned = cordoned
        self._timer: Timer | None = None
        self._wants_to_stop = False
        self._retry_ms = RETRY_MS_FIRST
        self._report_again = False
        self._stopped: Pending[None] = Pending()
        self.epoch = NO_EPOCH
        self.unfenced: Pending[None] = Pending()

    # ---- joining

    def register(
        self, listeners: Iterable[tuple[str, str, int, str]], features: Mapping[str, VersionRange], previous_epoch: int
    ) -> None:
        """`listeners` are (name, host, port, security protocol) as others shall reach this broker."""
        config = self._config()
        request = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation,
            listeners=[
                Listener(name=name, host=host, port=port, security_protocol=SECURITY_PROTOCOLS[protocol])
                for name, host, port, protocol in listeners
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in features.items()
            ],
            rack=config.rack,
            log_dirs=[directory for directory, online in self._directories() if online],
            previous_broker_epoch=previous_epoch,
        )
        self._try_to_register(request)

    def _try_to_register(self, request: BrokerRegistrationRequest) -> None:
        def answered(response: Any) -> None:
            code = response.code if isinstance(response, ApiError) else error_code(response.error_code)
            if code is ErrorCode.NONE:
                self.epoch = response.broker_epoch
                log.debug("registered with epoch %d", self.epoch)
                self._beat()
                return
            log.debug("the controller did not register this broker yet: %s", code.name)
            self._timer = self._clock.call_later(self._next_retry_ms(), lambda: self._try_to_register(request))

        self._controller.ask(request, REGISTRATION_VERSION, ANONYMOUS).then(answered)

    # ---- staying

    def _beat(self) -> None:
        self._timer = None
        request = BrokerHeartbeatRequest(
            broker_id=self._config().node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=False,
            want_shut_down=self._wants_to_stop,
            offline_log_dirs=[directory for directory, online in self._directories() if not online],
            cordoned_log_dirs=self._cordoned(),
        )
        self._controller.ask(request, HEARTBEAT_VERSION, ANONYMOUS).then(self._answered)

    def _answered(self, response: Any) -> None:
        code = response.code if isinstance(response, ApiError) else error_code(response.error_code)
        if code is not ErrorCode.NONE:
            expected = code is ErrorCode.NOT_CONTROLLER  # it changes now and then, and the next one is soon known
            log.log(logging.DEBUG if expected else logging.WARNING, "the heartbeat was not taken: %s", code.name)
            self._schedule(self._next_retry_ms())
            return
        if self._wants_to_stop and response.should_shut_down:
            if not self._stopped.done:
                self._stopped.resolve(None)
            return
        if not response.is_fenced and not self.unfenced.done:
            self.unfenced.resolve(None)
        if response.is_fenced or self._wants_to_stop:
            self._schedule(self._next_retry_ms())
        else:
            self._retry_ms = RETRY_MS_FIRST
            soon, self._report_again = self._report_again, False
            self._schedule(0 if soon else self._config().integer("broker.heartbeat.interval.ms"))

    def _next_retry_ms(self) -> int:
        delay, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, RETRY_MS_MAX)
        return delay

    def _schedule(self, delay_ms: int) -> None:
        if self._timer is None and not self._stopped.done:
            self._timer = self._clock.call_later(delay_ms, self._beat)

    def report_soon(self) -> None:
        """Something the controller must know (a failed directory): do not wait for the next heartbeat."""
        if self.epoch == NO_EPOCH:
            return
        if self._timer is None:
            self._report_again = True  # a heartbeat is under way, and may have left before the news
        else:
            self._timer.cancel()
            self._timer = None
            self._schedule(0)

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """Publisher of the metadata loader. A broker that wants to stop waits until the others have read that its
        leaders moved, and one that was fenced by mistake until it is heard of: neither shall wait for our interval."""
        own = self._config().node_id
        changed = [image.brokers[broker] for broker in delta.brokers if broker in image.brokers]
        if any(each.in_controlled_shutdown if each.id != own else each.fenced for each in changed):
            self.report_soon()

    def is_known_in(self, image: ClusterImage) -> bool:
        """Whether the image is about this life of the broker, not about an earlier one."""
        registration = image.brokers.get(self._config().node_id)
        return registration is not None and registration.epoch == self.epoch

    # ---- leaving

    def leave(self) -> Pending[None]:
        """Ask the controller to move leadership away; kept when this broker may go."""
        self._wants_to_stop = True
        if self.epoch == NO_EPOCH:
            self.close()
        else:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._beat()
        return self._stopped

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._stopped.done:
            self._stopped.resolve(None)
