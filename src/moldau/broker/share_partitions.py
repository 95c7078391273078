"""The share partitions that this broker leads, by group: when one comes into being, and when it ends.

One is loaded when a member first fetches from it. It ends when this broker no longer leads the partition, when the
coordinator says that another leader wrote its state, or when the group has no session here any more: the next fetch
loads the stored state again. Decides also who is woken when there is something to acquire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from moldau.broker.services import BrokerServices
from moldau.broker.share_store import PersistedState, StatePersister
from moldau.config.group_config import GroupConfig
from moldau.config.validators import duration_ms
from moldau.log.partition_log import PartitionLog
from moldau.metadata.delta import ImageDelta
from moldau.metadata.image import GROUP_RESOURCE, ClusterImage
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.partition import LOOK_AGAIN, Partition
from moldau.share.partition import SharePartition
from moldau.share.sessions import PartitionKey

_BY_DURATION: Final = "by_duration:"
# After one of these what is known here of a share partition is worth nothing.
_FENCING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class NewsWaiter(Protocol):
    """A fetch that waits for records of a share partition to become available."""

    @property
    def is_patient(self) -> bool:
        """Whether one record is not enough for it."""
        ...

    def heard(self, new_bytes: int) -> None: ...

    def look_again(self) -> None: ...


class LedSharePartition:
    """A share partition, what is known of the partition it reads, and who waits for it.

    Of those who take whatever there is, only the first is woken, and the next when that one has taken its part: a
    record that is appended costs the same however many members wait.
    """

    __slots__ = ("_eager", "_listening", "_patient", "bytes_per_record", "key", "partition", "share")

    def __init__(self, key: PartitionKey, partition: Partition, share: SharePartition) -> None:
        self.key = key
        self.partition = partition
        self.share = share
        # Of the latest reads, to read about as much as can be given. A guess at first.
        self.bytes_per_record = 1024.0
        self._eager: dict[NewsWaiter, None] = {}
        self._patient: dict[NewsWaiter, None] = {}
        self._listening = False

    def wait(self, waiter: NewsWaiter) -> None:
        """Put a fetch at the end of the queue."""
        queue = self._patient if waiter.is_patient else self._eager
        queue.pop(waiter, None)
        queue[waiter] = None
        if not self._listening:
            self._listening = True
            self.partition.wait_for_data(self)

    def stop_waiting(self, waiter: NewsWaiter) -> None:
        self._eager.pop(waiter, None)
        self._patient.pop(waiter, None)

    def noticed(self, new_bytes: int) -> bool:
        """More can be read of the partition."""
        if not self._eager and not self._patient:
            self._listening = False
            return True
        if new_bytes >= LOOK_AGAIN:
            self.tell_all()
            return False
        for waiter in list(self._patient):
            waiter.heard(new_bytes)
        self._wake_first()
        return False

    def news(self) -> None:
        """Records became available, or nobody will ever get any from here."""
        if not self.share.is_active:
            self.tell_all()
            return
        for waiter in list(self._patient):
            waiter.look_again()
        self._wake_first()

    def tell_all(self) -> None:
        for waiter in [*self._eager, *self._patient]:
            waiter.look_again()

    def pass_on(self) -> None:
        """Somebody who was woken took what was wanted: if there is more, it is the next one's turn."""
        share = self.share
        if (
            self._eager
            and share.is_active
            and self.partition.opened
            and share.can_acquire()
            and share.next_fetch_offset() < self.partition.log.high_watermark
        ):
            self._wake_first()

    def close(self) -> None:
        self.partition.forget_waiter(self)

    def _wake_first(self) -> None:
        for waiter in self._eager:
            waiter.look_again()
            return


class SharePartitions:
    def __init__(self, services: BrokerServices, persister: Callable[[], StatePersister]) -> None:
        self._services = services
        self._persister = persister
        self._groups: dict[str, dict[PartitionKey, LedSharePartition]] = {}
        # The same by topic, for when the cluster changes.
        self._of_topic: dict[bytes, set[tuple[str, PartitionKey]]] = {}
        self._configs: dict[str, GroupConfig] = {}

    def __iter__(self) -> Iterator[LedSharePartition]:
        for group in self._groups.values():
            yield from group.values()

    def config_of(self, group_id: str) -> GroupConfig:
        config = self._configs.get(group_id)
        if config is None:
            services = self._services
            overrides = services.image.config_overrides(GROUP_RESOURCE, group_id)
            config = self._configs[group_id] = GroupConfig.effective(services.config, overrides)
        return config

    def get(self, group_id: str, key: PartitionKey) -> LedSharePartition | None:
        group = self._groups.get(group_id)
        return None if group is None else group.get(key)

    # ---- coming and going

    def open(self, group_id: str, key: PartitionKey) -> tuple[LedSharePartition, Pending[ApiError | None] | None]:
        """The share partition, and when it is being loaded because of this call, how that ends.

        ApiError when this broker does not lead the partition.
        """
        led = self.get(group_id, key)
        if led is not None:
            return led, None
        hosted = self._services.partitions.by_id.get(key.topic_id)
        partition = None if hosted is None else hosted.by_index.get(key.partition)
        if partition is None:
            raise ApiError(self._services.partitions.absent_by_id(key.topic_id, key.partition))
        partition.require_leader()
        share = SharePartition(
            group_id,
            key.topic_id,
            key.partition,
            partition.leader_epoch,
            config=lambda: self.config_of(group_id),
            clock=self._services.clock,
            store=PersistedState(self._persister(), group_id, key, partition.leader_epoch),
            news=lambda _: None if led is None else led.news(),
        )
        led = LedSharePartition(key, partition, share)
        self._groups.setdefault(group_id, {})[key] = led
        self._of_topic.setdefault(key.topic_id, set()).add((group_id, key))
        loaded: Pending[ApiError | None] = Pending()

        def finished(error: ApiError | None) -> None:
            if error is not None:
                self.drop(group_id, key)
            loaded.resolve(error)

        share.load(lambda: self._beginning(group_id, partition)).then(finished)
        return led, loaded

    def drop(self, group_id: str, key: PartitionKey) -> None:
        """Forget a share partition; what was acquired of it is available again once it is loaded anew."""
        group = self._groups.get(group_id)
        led = None if group is None else group.pop(key, None)
        if led is None or group is None:
            return
        if not group:
            del self._groups[group_id]
        of_topic = self._of_topic[key.topic_id]
        of_topic.discard((group_id, key))
        if not of_topic:
            del self._of_topic[key.topic_id]
        led.share.fence()
        led.close()

    def drop_group(self, group_id: str) -> None:
        for key in list(self._groups.get(group_id, ())):
            self.drop(group_id, key)
        self._configs.pop(group_id, None)

    def failed(self, group_id: str, key: PartitionKey, error: ApiError) -> None:
        """Something went wrong with a share partition; some errors are its end."""
        if error.code in _FENCING:
            self.drop(group_id, key)

    def clear(self) -> None:
        for group_id in list(self._groups):
            self.drop_group(group_id)

    # ---- following the cluster

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        for resource_type, name in delta.configs:
            if resource_type == GROUP_RESOURCE:
                self._configs.pop(name, None)
                for led in list(self._groups.get(name, {}).values()):
                    led.news()
        for topic_id in [*delta.changed_partitions, *delta.deleted_topics]:
            for group_id, key in list(self._of_topic.get(topic_id, ())):
                known = self.get(group_id, key)
                if known is not None and not self._still_leads(known):
                    self.drop(group_id, key)

    def node_config_changed(self) -> None:
        self._configs.clear()

    def _still_leads(self, led: LedSharePartition) -> bool:
        hosted = self._services.partitions.by_id.get(led.key.topic_id)
        if hosted is None or hosted.by_index.get(led.key.partition) is not led.partition:
            return False
        return led.partition.is_leader and not led.partition.offline

    # ---- where a group begins

    def _beginning(self, group_id: str, partition: Partition) -> int:
        partition.require_leader()
        policy = self.config_of(group_id).share_auto_offset_reset
        log = partition.log
        if policy == "earliest":
            return log.log_start_offset
        if policy.startswith(_BY_DURATION):
            return self._offset_since(log, policy.removeprefix(_BY_DURATION))
        return log.high_watermark

    def _offset_since(self, log: PartitionLog, duration: str) -> int:
        back = duration_ms(duration)
        assert back is not None, "the policy was checked when it was set"
        found = log.offset_for_timestamp(self._services.clock.now_ms() - back)
        if found is None or found.offset >= log.high_watermark:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "No record is as young as the group's policy asks for.")
        return found.offset
