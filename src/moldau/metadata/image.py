"""The cluster as one immutable value: what every part of a node reads, and what a snapshot holds.

An image is never changed after it was published. The next one shares every section that did not change with it, so
that publishing a new image costs only what changed. Mutable dictionaries are hidden behind `Mapping`: nobody but
`moldau.metadata.replay.ImageBuilder` may write to one, and it copies a section before its first write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from moldau.metadata.features import ELR_VERSION, METADATA_VERSION, VersionRange
from moldau.metadata.records import MetadataRecord, records_of
from moldau.protocol.uuids import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY

NO_LEADER: Final = -1
RECOVERED: Final = 0
RECOVERING: Final = 1

# Directory ids below this number have a meaning of their own; every other one names a log directory of one broker.
RESERVED_DIRECTORIES: Final = frozenset(number.to_bytes(16, "big") for number in range(100))

# Kinds of configuration resources, with the numbers that records and requests carry.
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32

ConfigResource: TypeAlias = tuple[int, str]
"""(resource type, resource name); the name "" stands for the default of all brokers."""

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(entity type, entity name) pairs sorted by type; the name None stands for the default entity."""


class Provenance(NamedTuple):
    """The last record an image contains, and when that record was appended."""

    offset: int
    epoch: int
    timestamp_ms: int


class PartitionRegistration(NamedTuple):
    """What the cluster decided about one partition. A tuple, since there are very many of them."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int

    def directory_of(self, broker_id: int) -> bytes:
        """The log directory that holds this replica on that broker; the broker must be a replica."""
        return self.directories[self.replicas.index(broker_id)]

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: bytes
    partitions: Mapping[int, PartitionRegistration]


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    id: int
    epoch: int
    incarnation_id: bytes
    listeners: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...]
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in their in-sync sets."""
        return not (self.fenced or self.in_controlled_shutdown)

    def has_online_directory(self, directory: bytes) -> bool:
        """A directory not assigned yet counts as online; one known to be lost does not."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        if directory == LOST_DIRECTORY:
            return False
        # Brokers that registered before directories had ids announce none: nothing is known to be offline.
        return not self.log_dirs or directory in self.log_dirs

    @property
    def accepts_new_replicas(self) -> bool:
        """False when every log directory is cordoned."""
        if not self.log_dirs or self.cordoned_log_dirs is None:
            return True
        return any(directory not in self.cordoned_log_dirs for directory in self.log_dirs)


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    listeners: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]


class AccessControlEntry(NamedTuple):
    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationToken(NamedTuple):
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str


class ProducerIds(NamedTuple):
    """The first producer id that no block holds yet, and the broker that took the last block."""

    next_id: int
    broker_id: int
    broker_epoch: int


NO_PRODUCER_IDS: Final = ProducerIds(0, -1, -1)
NO_PROVENANCE: Final = Provenance(-1, -1, -1)
_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All committed metadata up to `provenance.offset`."""

    provenance: Provenance = NO_PROVENANCE
    features: Mapping[str, int] = field(default_factory=dict)
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    producer_ids: ProducerIds = NO_PRODUCER_IDS
    acls: Mapping[bytes, AccessControlEntry] = field(default_factory=dict)
    scram: Mapping[tuple[int, str], ScramCredential] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)

    @property
    def offset(self) -> int:
        return self.provenance.offset

    @property
    def metadata_version(self) -> int:
        """The finalised level; 0 while the cluster has not been bootstrapped."""
        return self.features.get(METADATA_VERSION, 0)

    def feature_level(self, name: str) -> int:
        return self.features.get(name, 0)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(ELR_VERSION, 0) >= 1

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, name: str, partition: int) -> PartitionRegistration | None:
        topic = self.topics_by_name.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def config_overrides(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), _NOTHING)

    def topic_config_overrides(self, name: str) -> Mapping[str, str]:
        return self.configs.get((TOPIC_RESOURCE, name), _NOTHING)

    def broker_config_overrides(self, broker_id: int) -> Mapping[str, str]:
        return self.configs.get((BROKER_RESOURCE, str(broker_id)), _NOTHING)

    @property
    def broker_config_defaults(self) -> Mapping[str, str]:
        """Dynamic values for all brokers, which a broker's own values override."""
        return self.configs.get((BROKER_RESOURCE, ""), _NOTHING)

    def records(self) -> Iterator[MetadataRecord]:
        """The records of a snapshot: replaying them from nothing gives this image again."""
        return records_of(self)


EMPTY_IMAGE: Final = ClusterImage()
