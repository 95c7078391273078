"""Where coordinators live, and how their topics come into being.

A key belongs to one partition of an internal topic, and the leader of that partition coordinates it. The first client
that asks has the topic created; its question waits until there is an answer, so that it need not ask again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.auto_creation import TopicAutoCreator
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from moldau.coordinator.hashing import partition_for
from moldau.metadata.image import Endpoint
from moldau.ports import Pending
from moldau.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2

# How long a question may wait for its topic; clients give up after 30 seconds.
WAIT_MS: Final = 5000


class CoordinatorLocator:
    """`Coordinators` of the kinds that this broker serves."""

    def __init__(self, services: BrokerServices, creator: TopicAutoCreator) -> None:
        self._services = services
        self._creator = creator
        # The internal topic of each kind of coordinator, by the kind of key that clients ask with.
        self.topics: dict[int, str] = {
            GROUP_KEY: CONSUMER_OFFSETS,
            TRANSACTION_KEY: TRANSACTION_STATE,
            SHARE_KEY: SHARE_GROUP_STATE,
        }
        self._waiting: dict[str, list[Pending[None]]] = {}

    def locate(self, key_type: int, key: str, listener_name: str) -> tuple[int, Endpoint] | ErrorCode:
        image = self._services.image
        topic = image.topic(self.topics.get(key_type, ""))
        if topic is None or not topic.partitions:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = topic.partitions.get(partition_for(key, len(topic.partitions)))
        broker = None if partition is None else image.brokers.get(partition.leader)
        endpoint = None if broker is None or broker.fenced else broker.listeners.get(listener_name)
        if broker is None or endpoint is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return broker.id, endpoint

    def wait_for_topic(self, key_type: int, principal: str) -> Pending[None] | None:
        """None when there is nothing to wait for; else a promise, kept when the topic is there or will not come."""
        name = self.topics.get(key_type)
        if name is None or self._exists(name):
            return None
        over: Pending[None] = Pending()
        self._waiting.setdefault(name, []).append(over)
        timer = self._services.clock.call_later(WAIT_MS, lambda: self._give_up(name, over))
        over.then(lambda _: timer.cancel())
        self._creator.ensure(name, principal).then(lambda code: self._created(name, code))
        return over

    def _exists(self, name: str) -> bool:
        topic = self._services.image.topic(name)
        return topic is not None and bool(topic.partitions)

    def _created(self, name: str, code: ErrorCode) -> None:
        # A topic that was created but is not seen here yet is announced by an image.
        if code is not ErrorCode.NONE or self._exists(name):
            self._answer(name)

    def _give_up(self, name: str, over: Pending[None]) -> None:
        waiting = self._waiting.get(name, [])
        if over in waiting:
            waiting.remove(over)
            over.resolve(None)

    def _answer(self, name: str) -> None:
        for over in self._waiting.pop(name, ()):
            over.resolve(None)

    def image_published(self) -> None:
        """After the coordinators have taken over what is new."""
        for name in [name for name in self._waiting if self._exists(name)]:
            self._answer(name)


def group_runtime(services: BrokerServices) -> CoordinatorRuntime[GroupShard]:
    """The group coordinator of this node, loaded with the first group."""
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime

    return CoordinatorRuntime(
        CONSUMER_OFFSETS,
        partitions=services.partitions,
        clock=services.clock,
        background=services.background,
        make_shard=lambda host: GroupShard(host, services.clock, lambda: services.config, services.random),
        image=lambda: services.image,
        has_log=lambda topic, index: services.logs.directory_of(topic, index) is not None,
        codec=lambda: services.config.integer("offsets.topic.compression.codec"),
        timeout_ms=lambda: services.config.integer("offsets.commit.timeout.ms"),
    )
