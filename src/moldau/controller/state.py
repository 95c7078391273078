"""What the controller knows while it is active: the committed image plus its own records that are not committed yet.

The state changes only by `replay`, with the same functions that every node replays with. Beside it stand the few
things that follow from the records but would be slow to search for. It must never be read by anyone but decisions:
all others see committed images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moldau.metadata.features import DIRECTORIES_SINCE, ELR_VERSION, METADATA_VERSION
from moldau.metadata.image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    AccessControlEntry,
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    PartitionRegistration,
    ScramCredential,
    TopicImage,
)
from moldau.metadata.records import MetadataRecord
from moldau.metadata.replay import ImageBuilder
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.register_broker_record import RegisterBrokerRecord
from moldau.protocol.generated.metadata.remove_topic_record import RemoveTopicRecord
from moldau.protocol.generated.metadata.topic_record import TopicRecord
from moldau.protocol.generated.metadata.unregister_broker_record import UnregisterBrokerRecord
from moldau.protocol.uuids import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY


def collision_key(topic: str) -> str:
    """Names that differ only in '.' and '_' would share a metric's name."""
    return topic.replace(".", "_")


class ControllerState:
    __slots__ = ("_builder", "_colliding", "_registered_at")

    def __init__(self, image: ClusterImage) -> None:
        self._builder = ImageBuilder(image)
        # Names of existing topics by collision key, of those that have a '.' or '_'.
        self._colliding: dict[str, set[str]] = {}
        for name in image.topics_by_name:
            self._note_name(name)
        # Where each broker's registration stands in the log; in an image it is known to lie somewhere before its end.
        self._registered_at = dict.fromkeys(image.brokers, image.offset)

    def rebase(self, image: ClusterImage) -> None:
        """Go on from a published image that contains everything replayed here: shares its memory."""
        self._builder = ImageBuilder(image)

    def replay(self, records: Iterable[MetadataRecord], base_offset: int) -> None:
        builder = self._builder
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, RemoveTopicRecord):
                self._forget_name(builder.topics_by_id[record.topic_id].name)
            builder.replay(record)
            if isinstance(record, TopicRecord):
                self._note_name(record.name)
            elif isinstance(record, RegisterBrokerRecord):
                self._registered_at[record.broker_id] = offset
            elif isinstance(record, UnregisterBrokerRecord):
                self._registered_at.pop(record.broker_id, None)

    # ---- features

    @property
    def features(self) -> dict[str, int]:
        return self._builder.features

    @property
    def metadata_version(self) -> int:
        return self._builder.features.get(METADATA_VERSION, 0)

    @property
    def elr_enabled(self) -> bool:
        return self._builder.features.get(ELR_VERSION, 0) >= 1

    @property
    def acls(self) -> dict[bytes, AccessControlEntry]:
        return self._builder.acls

    @property
    def scram(self) -> dict[tuple[int, str], ScramCredential]:
        return self._builder.scram

    # ---- topics

    @property
    def topics(self) -> dict[str, TopicImage]:
        return self._builder.topics_by_name

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        return self._builder.topics_by_id.get(topic_id)

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """Every partition of the cluster; looking at all of them is quick enough for what happens to whole brokers."""
        for topic in self._builder.topics_by_id.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def name_colliding_with(self, topic: str) -> str | None:
        """An existing topic whose name equals this one but for '.' and '_'."""
        names = self._colliding.get(collision_key(topic))
        return min(names) if names else None

    def _note_name(self, name: str) -> None:
        if "." in name or "_" in name:
            self._colliding.setdefault(collision_key(name), set()).add(name)

    def _forget_name(self, name: str) -> None:
        names = self._colliding.get(collision_key(name))
        if names is not None:
            names.discard(name)
            if not names:
                del self._colliding[collision_key(name)]

    # ---- brokers

    @property
    def brokers(self) -> dict[int, BrokerRegistration]:
        return self._builder.brokers

    def is_active(self, broker_id: int) -> bool:
        broker = self._builder.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def registered_at(self, broker_id: int) -> int:
        """The offset a broker must have replayed to know of its own registration."""
        return self._registered_at[broker_id]

    def check_broker_epoch(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self._builder.brokers.get(broker_id)
        if broker is None:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
            )
        return broker

    def default_directory(self, broker_id: int) -> bytes:
        """Where a new replica goes: the only directory if there is just one, else the broker chooses later."""
        if self.metadata_version < DIRECTORIES_SINCE:
            return MIGRATING_DIRECTORY
        broker = self._builder.brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED_DIRECTORY
        if not broker.log_dirs:
            return MIGRATING_DIRECTORY
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY

    # ---- the rest

    def configs(self, resource: ConfigResource) -> dict[str, str]:
        return self._builder.configs.get(resource, {})

    def topic_configs(self, name: str) -> dict[str, str]:
        return self.configs((TOPIC_RESOURCE, name))

    def cluster_configs(self) -> dict[str, str]:
        return self.configs((BROKER_RESOURCE, ""))

    @property
    def sections(self) -> ImageBuilder:
        """All sections of the state, for decisions about the less frequent ones."""
        return self._builder
