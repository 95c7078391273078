"""The partitions this node holds, by topic name and by topic id, kept in step with the cluster's image.

Decides which replicas exist here; the hot path finds a partition with two dictionary look-ups by the raw bytes of
the request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from moldau.config.node_config import NodeConfig
from moldau.config.topic_config import TopicConfig
from moldau.metadata.image import (
    EMPTY_IMAGE,
    NO_LEADER,
    TOPIC_RESOURCE,
    ClusterImage,
    PartitionRegistration,
    TopicImage,
)
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.leader_state import Duties
from moldau.replication.log_settings import log_config
from moldau.replication.partition import LOOK_AGAIN, Partition
from moldau.replication.throttles import is_throttled

if TYPE_CHECKING:
    from moldau.log.manager import LogManager
    from moldau.log.partition_log import PartitionLog
    from moldau.metadata.delta import ImageDelta

log: Final = logging.getLogger("moldau.replication")


class HostedTopic:
    """One topic's partitions on this node."""

    __slots__ = ("by_index", "config", "name", "name_bytes", "topic_id")

    def __init__(self, name: str, topic_id: bytes, config: TopicConfig) -> None:
        self.name = name
        self.name_bytes = name.encode()
        self.topic_id = topic_id
        self.config = config
        self.by_index: dict[int, Partition] = {}


class PartitionTable:
    """Every partition this node has a replica of."""

    def __init__(self, node_id: int, logs: LogManager, config: Callable[[], NodeConfig]) -> None:
        self._node_id = node_id
        self._logs = logs
        self._config = config
        self.by_name: dict[bytes, HostedTopic] = {}
        self.by_id: dict[bytes, HostedTopic] = {}
        self._image: ClusterImage = EMPTY_IMAGE
        # Whether the image has been caught up with: partitions that appear from then on are new.
        self.live = False
        # Whether the image knows of this life of the broker. What it was given to lead in an earlier one it must not:
        # it may have lost what it had not synced, and would write others' records anew in the same leader epoch.
        self.may_lead: Callable[[ClusterImage], bool] = lambda _: True
        self._leads = False
        # Told of every log that was opened.
        self.opened: Callable[[Partition], None] | None = None
        # Where there are other brokers: told of every partition that is new, changed or gone.
        self.duties: Duties | None = None
        self.changed: Callable[[Partition], None] | None = None
        self.removed: Callable[[Partition], None] | None = None
        # Told when the broker's own settings changed.
        self.reconfigured: Callable[[], None] | None = None

    # ---- look-ups

    def get(self, topic: str, index: int) -> Partition:
        """The hosted partition, or ApiError as Kafka answers for one that is not here."""
        hosted = self.by_name.get(topic.encode())
        partition = hosted.by_index.get(index) if hosted is not None else None
        if partition is not None:
            return partition
        raise ApiError(_absent(self._image.topic(topic), index))

    def find(self, topic: str, index: int) -> Partition | None:
        hosted = self.by_name.get(topic.encode())
        return hosted.by_index.get(index) if hosted is not None else None

    def knows_id(self, topic_id: bytes) -> bool:
        return topic_id in self._image.topics_by_id

    def absent(self, topic: bytes, index: int) -> ErrorCode:
        """Why there is no such partition here, for a topic given by the bytes of its name."""
        return _absent(self._image.topic(topic.decode(errors="replace")), index)

    def absent_by_id(self, topic_id: bytes, index: int) -> ErrorCode:
        return _absent(self._image.topic_by_id(topic_id), index)

    def __iter__(self) -> Iterator[Partition]:
        for hosted in self.by_name.values():
            yield from hosted.by_index.values()

    def __len__(self) -> int:
        return sum(len(hosted.by_index) for hosted in self.by_name.values())

    # ---- following the image

    def apply(self, delta: ImageDelta, image: ClusterImage) -> None:
        """Publisher of the metadata loader: create, update and remove partitions as the image says."""
        self._image = image
        begins = not self._leads and self.may_lead(image)
        self._leads = self._leads or begins
        for topic_id in delta.deleted_topics:
            self._remove_topic(topic_id)
        for topic_id in delta.changed_partitions:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                self._update_topic(topic, image)
        for resource_type, name in delta.configs:
            hosted = self.by_name.get(name.encode()) if resource_type == TOPIC_RESOURCE else None
            if hosted is not None:
                self._reconfigure(hosted, image)
        if begins:
            self._begin_to_lead(image)

    def _begin_to_lead(self, image: ClusterImage) -> None:
        for partition in list(self):
            topic = image.topic_by_id(partition.topic_id)
            registration = None if topic is None else topic.partitions.get(partition.index)
            if registration is not None and registration.leader == self._node_id and not partition.is_leader:
                partition.update(registration)
                if self.changed is not None:
                    self.changed(partition)

    def _as_of_this_life(self, registration: PartitionRegistration) -> PartitionRegistration:
        if self._leads or registration.leader != self._node_id:
            return registration
        return registration._replace(leader=NO_LEADER)

    def node_config_changed(self) -> None:
        """The broker's own defaults changed: topics inherit what they do not override."""
        self._logs.set_move_rate(self._config().integer("replica.alter.log.dirs.io.max.bytes.per.second"))
        if self.reconfigured is not None:
            self.reconfigured()
        for hosted in self.by_name.values():
            self._reconfigure(hosted, self._image)

    def _reconfigure(self, hosted: HostedTopic, image: ClusterImage) -> None:
        config = self._effective(hosted.name, image)
        if config == hosted.config:
            return
        hosted.config = config
        settings = log_config(config, self._config())
        for partition in hosted.by_index.values():
            partition.set_min_isr(config.min_insync_replicas)
            self._set_throttles(partition, config)
            if partition.opened:
                partition.log.reconfigure(settings)

    def _set_throttles(self, partition: Partition, config: TopicConfig) -> None:
        index, own = partition.index, self._node_id
        partition.is_leader_throttled = is_throttled(config.leader_replication_throttled_replicas, index, own)
        partition.is_follower_throttled = is_throttled(config.follower_replication_throttled_replicas, index, own)

    def _effective(self, topic: str, image: ClusterImage) -> TopicConfig:
        return TopicConfig.effective(self._config(), image.topic_config_overrides(topic))

    def _update_topic(self, topic: TopicImage, image: ClusterImage) -> None:
        hosted = self.by_id.get(topic.id)
        mine = {i: p for i, p in topic.partitions.items() if self._node_id in p.replicas}
        if hosted is None:
            if not mine:
                return
            hosted = HostedTopic(topic.name, topic.id, self._effective(topic.name, image))
            self.by_id[topic.id] = self.by_name[hosted.name_bytes] = hosted
        for index, decided in mine.items():
            registration = self._as_of_this_life(decided)
            partition = hosted.by_index.get(index)
            if partition is None:
                partition = hosted.by_index[index] = Partition(
                    self._node_id,
                    topic.name,
                    topic.id,
                    index,
                    registration,
                    hosted.config.min_insync_replicas,
                    self._open_log,
                    is_new=self.live,
                    duties=self.duties,
                )
                self._set_throttles(partition, hosted.config)
            elif not partition.knows(registration):
                partition.update(registration)
            else:
                continue
            if self.changed is not None:
                self.changed(partition)
        for index in [i for i in hosted.by_index if i not in mine]:
            self._remove_partition(hosted.by_index.pop(index))

    def _remove_topic(self, topic_id: bytes) -> None:
        hosted = self.by_id.pop(topic_id, None)
        if hosted is None:
            return
        if self.by_name.get(hosted.name_bytes) is hosted:
            del self.by_name[hosted.name_bytes]
        for partition in hosted.by_index.values():
            self._remove_partition(partition)

    def _remove_partition(self, partition: Partition) -> None:
        partition.leader_id = -1
        if self.removed is not None:
            self.removed(partition)
        self._logs.delete(partition.topic, partition.index, partition.topic_id)
        partition.replace_log(None)
        partition.leading = None
        partition.fail_commits(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.tell_data(LOOK_AGAIN)

    def _open_log(self, partition: Partition) -> PartitionLog:
        hosted = self.by_id.get(partition.topic_id)
        if hosted is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        opened = self._logs.open(
            partition.topic,
            partition.index,
            partition.topic_id,
            log_config(hosted.config, self._config()),
            directory_id=partition.directory,
            is_new=partition.is_new,
        )
        partition.is_new = False
        if self.opened is not None:
            self.opened(partition)
        return opened


def _absent(topic: TopicImage | None, index: int) -> ErrorCode:
    if topic is not None and index in topic.partitions:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
