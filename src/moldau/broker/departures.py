"""Brokers that are just going: what clients are told of the cluster in the moments after a broker has died.

A client whose broker dies asks at once who leads instead, often before this node knows, and asks again only much later
(librdkafka after a second). So a question waits while another broker has just been lost and the controller has not
said what becomes of it, though never long. And a broker that died stays in the list of brokers for a moment after it
was fenced: a client that is told of a new leader and of the old one's end in one breath may trip over it. One that
left in order led nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.broker.services import BrokerServices
from moldau.metadata.image import EMPTY_IMAGE, BrokerRegistration, ClusterImage
from moldau.ports import Pending

# The longest that a question waits for the controller's word on a lost broker. Choosing a new controller fits in.
WAIT_MS_MAX: Final = 500
# A process that dies closes its connections one after the other: a client may know before this node does, by so much.
LOOK_AROUND_MS: Final = 3
LISTED_AFTER_FENCING_MS: Final = 2000


class Departures:
    """Knows of each broker when it went."""

    def __init__(self, services: BrokerServices, lost_since: Callable[[int], int | None]) -> None:
        """`lost_since` tells the time (monotonic) since when another broker cannot be reached, or None."""
        self._services = services
        self._lost_since = lost_since
        self._fenced_ms: dict[int, int] = {}
        self._image: ClusterImage = EMPTY_IMAGE
        self._waiting: list[Pending[None]] = []

    # ---- following the cluster

    def image_published(self, image: ClusterImage) -> None:
        before, self._image = self._image, image
        if before.brokers is not image.brokers:
            for broker in image.brokers.values():
                known = before.brokers.get(broker.id)
                if not broker.fenced:
                    self._fenced_ms.pop(broker.id, None)
                elif known is not None and not known.fenced and _led_something(before, broker.id):
                    self._fenced_ms[broker.id] = self._services.clock.monotonic_ms()
        if self._waiting and not self._undecided():
            self._answer()

    def is_listed(self, broker: BrokerRegistration) -> bool:
        """Whether clients are told of this broker."""
        if not broker.fenced:
            return True
        since = self._fenced_ms.get(broker.id)
        return since is not None and self._services.clock.monotonic_ms() - since < LISTED_AFTER_FENCING_MS

    # ---- questions

    def settled(self) -> Pending[None] | None:
        """None when the question may be answered at once; else a promise for when it may."""
        if len(self._image.brokers) < 2:
            return None
        promise: Pending[None] = Pending()
        # What this node is about to notice itself comes first.
        self._services.clock.call_later(LOOK_AROUND_MS, lambda: self._look(promise))
        return promise

    def _look(self, promise: Pending[None]) -> None:
        left_ms = self._undecided()
        if not left_ms:
            promise.resolve(None)
            return
        self._waiting.append(promise)
        self._services.clock.call_later(left_ms, lambda: self._give_up(promise))

    def _undecided(self) -> int:
        """How much longer the controller's word on a lost broker may be waited for; 0 when there is no such broker."""
        now = self._services.clock.monotonic_ms()
        longest = 0
        for broker in self._image.brokers.values():
            if not broker.fenced and broker.id != self._services.node_id:
                since = self._lost_since(broker.id)
                if since is not None:
                    longest = max(longest, since + WAIT_MS_MAX - now)
        return longest

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for promise in waiting:
            promise.resolve(None)

    def _give_up(self, promise: Pending[None]) -> None:
        if promise in self._waiting:
            self._waiting.remove(promise)
            promise.resolve(None)


def _led_something(image: ClusterImage, broker_id: int) -> bool:
    topics = image.topics_by_id.values()
    return any(partition.leader == broker_id for topic in topics for partition in topic.partitions.values())
