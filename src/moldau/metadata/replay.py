"""Replay of metadata records: the only way the cluster's state changes.

One function per record type, in the table `REPLAY`. A function takes the builder and the record, changes the
builder's sections and notes in the delta what it touched. It must never decide anything: the same records give the
same state on every node, in any later release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from moldau.metadata.delta import ImageDelta
from moldau.metadata.features import KRAFT_VERSION, VersionRange
from moldau.metadata.image import (
    EMPTY_IMAGE,
    TOPIC_RESOURCE,
    AccessControlEntry,
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    ControllerRegistration,
    DelegationToken,
    Endpoint,
    PartitionRegistration,
    ProducerIds,
    Provenance,
    QuotaEntity,
    ScramCredential,
    TopicImage,
)
from moldau.metadata.records import MetadataRecord
from moldau.protocol.generated.metadata.abort_transaction_record import AbortTransactionRecord
from moldau.protocol.generated.metadata.access_control_entry_record import AccessControlEntryRecord
from moldau.protocol.generated.metadata.begin_transaction_record import BeginTransactionRecord
from moldau.protocol.generated.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from moldau.protocol.generated.metadata.clear_elr_record import ClearElrRecord
from moldau.protocol.generated.metadata.client_quota_record import ClientQuotaRecord
from moldau.protocol.generated.metadata.config_record import ConfigRecord
from moldau.protocol.generated.metadata.delegation_token_record import DelegationTokenRecord
from moldau.protocol.generated.metadata.end_transaction_record import EndTransactionRecord
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
from moldau.protocol.generated.metadata.fence_broker_record import FenceBrokerRecord
from moldau.protocol.generated.metadata.no_op_record import NoOpRecord
from moldau.protocol.generated.metadata.partition_change_record import PartitionChangeRecord
from moldau.protocol.generated.metadata.partition_record import PartitionRecord
from moldau.protocol.generated.metadata.producer_ids_record import ProducerIdsRecord
from moldau.protocol.generated.metadata.register_broker_record import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from moldau.protocol.generated.metadata.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from moldau.protocol.generated.metadata.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from moldau.protocol.generated.metadata.remove_delegation_token_record import RemoveDelegationTokenRecord
from moldau.protocol.generated.metadata.remove_topic_record import RemoveTopicRecord
from moldau.protocol.generated.metadata.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from moldau.protocol.generated.metadata.topic_record import TopicRecord
from moldau.protocol.generated.metadata.unfence_broker_record import UnfenceBrokerRecord
from moldau.protocol.generated.metadata.unregister_broker_record import UnregisterBrokerRecord
from moldau.protocol.generated.metadata.user_scram_credential_record import UserScramCredentialRecord
from moldau.protocol.generated.metadata.zk_migration_state_record import ZkMigrationStateRecord
from moldau.protocol.uuids import MIGRATING_DIRECTORY, uuid_to_string

NO_LEADER_CHANGE: Final = -2
"""`leader` of a PartitionChangeRecord that leaves the leader, and so its epoch, alone."""
NO_RECOVERY_STATE_CHANGE: Final = -1


class ReplayError(Exception):
    """A record that does not fit the state before it: the log is corrupt, or whoever wrote it had a bug."""


class ImageBuilder:
    """A mutable copy of an image that records are replayed into; sections are copied before their first write.

    `build` gives the new image and goes on from it. A reader that never builds (the controller) may simply read the
    sections here.
    """

    __slots__ = (
        "_configs_owned",
        "_owned",
        "_quotas_owned",
        "_topics_owned",
        "acls",
        "brokers",
        "client_quotas",
        "configs",
        "controllers",
        "delegation_tokens",
        "delta",
        "features",
        "producer_ids",
        "scram",
        "topics_by_id",
        "topics_by_name",
    )

    def __init__(self, image: ClusterImage = EMPTY_IMAGE) -> None:
        # The casts below are what copy-on-write means: a section is a dictionary of ours only once it is in `_owned`.
        self.features: dict[str, int] = image.features  # type: ignore[assignment]
        self.topics_by_name: dict[str, TopicImage] = image.topics_by_name  # type: ignore[assignment]
        self.topics_by_id: dict[bytes, TopicImage] = image.topics_by_id  # type: ignore[assignment]
        self.brokers: dict[int, BrokerRegistration] = image.brokers  # type: ignore[assignment]
        self.controllers: dict[int, ControllerRegistration] = image.controllers  # type: ignore[assignment]
        self.configs: dict[ConfigResource, dict[str, str]] = image.configs  # type: ignore[assignment]
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = image.client_quotas  # type: ignore[assignment]
        self.acls: dict[bytes, AccessControlEntry] = image.acls  # type: ignore[assignment]
        self.scram: dict[tuple[int, str], ScramCredential] = image.scram  # type: ignore[assignment]
        self.delegation_tokens: dict[str, DelegationToken] = image.delegation_tokens  # type: ignore[assignment]
        self.producer_ids = image.producer_ids
        self._forget_ownership()

    def _forget_ownership(self) -> None:
        self.delta = ImageDelta()
        self._owned: set[str] = set()
        self._topics_owned: dict[bytes, tuple[dict[int, PartitionRegistration], set[int]]] = {}
        self._configs_owned: set[ConfigResource] = set()
        self._quotas_owned: set[QuotaEntity] = set()

    def replay(self, record: MetadataRecord) -> None:
        replay = REPLAY.get(type(record))
        if replay is None:
            raise ReplayError(f"{type(record).__name__} is not a record of the metadata log")
        replay(self, record)

    def replay_all(self, records: Iterable[MetadataRecord]) -> None:
        table = REPLAY
        for record in records:
            table[type(record)](self, record)

    def build(self, provenance: Provenance) -> tuple[ClusterImage, ImageDelta]:
        """The image with everything replayed so far, and what changed since the image before."""
        image = ClusterImage(
            provenance=provenance,
            features=self.features,
            topics_by_name=self.topics_by_name,
            topics_by_id=self.topics_by_id,
            brokers=self.brokers,
            controllers=self.controllers,
            configs=self.configs,
            client_quotas=self.client_quotas,
            producer_ids=self.producer_ids,
            acls=self.acls,
            scram=self.scram,
            delegation_tokens=self.delegation_tokens,
        )
        delta = self.delta
        self._forget_ownership()
        return image, delta

    def own(self, section: str) -> None:
        """Copy a section, once, before the first write to it."""
        if section not in self._owned:
            self._owned.add(section)
            setattr(self, section, dict(getattr(self, section)))

    def own_topics(self) -> None:
        self.own("topics_by_name")
        self.own("topics_by_id")

    def partitions_to_change(self, topic_id: bytes) -> tuple[dict[int, PartitionRegistration], set[int]]:
        """A topic's partitions to write to, and the set in the delta that names the ones that changed."""
        owned = self._topics_owned.get(topic_id)
        if owned is not None:
            return owned
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise ReplayError(f"a record names topic id {uuid_to_string(topic_id)}, which does not exist")
        return self.put_topic(TopicImage(topic.name, topic_id, dict(topic.partitions)))

    def put_topic(self, topic: TopicImage) -> tuple[dict[int, PartitionRegistration], set[int]]:
        self.own_topics()
        self.topics_by_id[topic.id] = topic
        self.topics_by_name[topic.name] = topic
        changed = self.delta.changed_partitions.setdefault(topic.id, set())
        partitions: dict[int, PartitionRegistration] = topic.partitions  # type: ignore[assignment]
        owned = (partitions, changed)
        self._topics_owned[topic.id] = owned
        return owned

    def drop_topic(self, topic_id: bytes) -> TopicImage:
        self.own_topics()
        topic = self.topics_by_id.pop(topic_id, None)
        if topic is None:
            raise ReplayError(f"topic id {uuid_to_string(topic_id)} was removed, but does not exist")
        del self.topics_by_name[topic.name]
        self._topics_owned.pop(topic_id, None)
        self.delta.changed_partitions.pop(topic_id, None)
        if topic_id in self.delta.created_topics:
            self.delta.created_topics.remove(topic_id)
        else:
            self.delta.deleted_topics[topic_id] = topic
        return topic

    def config_to_change(self, resource: ConfigResource) -> dict[str, str]:
        self.own("configs")
        self.delta.configs.add(resource)
        if resource not in self._configs_owned:
            self._configs_owned.add(resource)
            self.configs[resource] = dict(self.configs.get(resource, {}))
        return self.configs[resource]

    def drop_config(self, resource: ConfigResource) -> None:
        if resource in self.configs:
            self.own("configs")
            del self.configs[resource]
            self._configs_owned.discard(resource)
            self.delta.configs.add(resource)

    def quotas_to_change(self, entity: QuotaEntity) -> dict[str, float]:
        self.own("client_quotas")
        self.delta.client_quotas.add(entity)
        if entity not in self._quotas_owned:
            self._quotas_owned.add(entity)
            self.client_quotas[entity] = dict(self.client_quotas.get(entity, {}))
        return self.client_quotas[entity]

    def drop_quotas(self, entity: QuotaEntity) -> None:
        del self.client_quotas[entity]
        self._quotas_owned.discard(entity)


# --- topics and partitions


def _topic(b: ImageBuilder, record: TopicRecord) -> None:
    if record.name in b.topics_by_name:
        raise ReplayError(f"topic {record.name} was created twice")
    b.delta.created_topics.add(record.topic_id)
    b.put_topic(TopicImage(record.name, record.topic_id, {}))


def _partition(b: ImageBuilder, record: PartitionRecord) -> None:
    partitions, changed = b.partitions_to_change(record.topic_id)
    replicas = tuple(record.replicas)
    partitions[record.partition_id] = PartitionRegistration(
        replicas,
        tuple(record.directories) if record.directories else (MIGRATING_DIRECTORY,) * len(replicas),
        tuple(record.isr),
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
        record.leader,
        record.leader_recovery_state,
        record.leader_epoch,
        record.partition_epoch,
    )
    changed.add(record.partition_id)


def merge_partition_change(before: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """The partition after a change: every field the record leaves out stays; the partition epoch always rises,
    the leader epoch rises whenever the record names a leader."""
    replicas = before.replicas if record.replicas is None else tuple(record.replicas)
    directories = before.directories if record.directories is None else tuple(record.directories)
    if len(directories) != len(replicas):
        directories = (MIGRATING_DIRECTORY,) * len(replicas)
    names_leader = record.leader != NO_LEADER_CHANGE
    keeps_state = record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
    return PartitionRegistration(
        replicas,
        directories,
        before.isr if record.isr is None else tuple(record.isr),
        before.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
        before.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
        before.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
        before.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
        record.leader if names_leader else before.leader,
        before.leader_recovery_state if keeps_state else record.leader_recovery_state,
        before.leader_epoch + 1 if names_leader else before.leader_epoch,
        before.partition_epoch + 1,
    )


def _partition_change(b: ImageBuilder, record: PartitionChangeRecord) -> None:
    partitions, changed = b.partitions_to_change(record.topic_id)
    before = partitions.get(record.partition_id)
    if before is None:
        raise ReplayError(
            f"partition {record.partition_id} of topic id {uuid_to_string(record.topic_id)} changed, but does not exist"
        )
    partitions[record.partition_id] = merge_partition_change(before, record)
    changed.add(record.partition_id)


def _remove_topic(b: ImageBuilder, record: RemoveTopicRecord) -> None:
    topic = b.drop_topic(record.topic_id)
    b.drop_config((TOPIC_RESOURCE, topic.name))


def _clear_elr(b: ImageBuilder, record: ClearElrRecord) -> None:
    if record.topic_name:
        topic = b.topics_by_name.get(record.topic_name)
        if topic is None:
            raise ReplayError(f"the eligible leaders of {record.topic_name} were cleared, but there is no such topic")
        topics = [topic]
    else:
        topics = list(b.topics_by_id.values())
    for topic in topics:
        with_elr = [index for index, partition in topic.partitions.items() if partition.elr or partition.last_known_elr]
        if not with_elr:
            continue
        partitions, changed = b.partitions_to_change(topic.id)
        cleared = PartitionChangeRecord(topic_id=topic.id, eligible_leader_replicas=[], last_known_elr=[])
        for index in with_elr:
            partitions[index] = merge_partition_change(partitions[index], cleared)
            changed.add(index)


# --- brokers and controllers


def _endpoints(points: Iterable[BrokerEndpoint | ControllerEndpoint]) -> dict[str, Endpoint]:
    return {p.name: Endpoint(p.name, p.host, p.port, p.security_protocol) for p in points}


def _ranges(features: Iterable[BrokerFeature | ControllerFeature]) -> dict[str, VersionRange]:
    return {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in features}


def _register_broker(b: ImageBuilder, record: RegisterBrokerRecord) -> None:
    b.own("brokers")
    b.brokers[record.broker_id] = BrokerRegistration(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        listeners=_endpoints(record.end_points),
        features=_ranges(record.features),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(sorted(record.log_dirs)),
        cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        is_migrating_zk_broker=record.is_migrating_zk_broker,
    )
    b.delta.brokers.add(record.broker_id)


def _registered(b: ImageBuilder, broker_id: int, epoch: int) -> BrokerRegistration:
    broker = b.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        raise ReplayError(f"a record names broker {broker_id} at epoch {epoch}, which is not registered")
    return broker


def _unregister_broker(b: ImageBuilder, record: UnregisterBrokerRecord) -> None:
    _registered(b, record.broker_id, record.broker_epoch)
    b.own("brokers")
    del b.brokers[record.broker_id]
    b.delta.brokers.add(record.broker_id)


def _put_broker(b: ImageBuilder, broker: BrokerRegistration) -> None:
    b.own("brokers")
    b.brokers[broker.id] = broker
    b.delta.brokers.add(broker.id)


def _fence_broker(b: ImageBuilder, record: FenceBrokerRecord) -> None:
    _put_broker(b, replace(_registered(b, record.id, record.epoch), fenced=True))


def _unfence_broker(b: ImageBuilder, record: UnfenceBrokerRecord) -> None:
    _put_broker(b, replace(_registered(b, record.id, record.epoch), fenced=False))


def _broker_registration_change(b: ImageBuilder, record: BrokerRegistrationChangeRecord) -> None:
    broker = _registered(b, record.broker_id, record.broker_epoch)
    changes: dict[str, Any] = {}
    if record.fenced:
        changes["fenced"] = record.fenced > 0
    if record.in_controlled_shutdown:
        changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
    if record.log_dirs:
        changes["log_dirs"] = tuple(sorted(record.log_dirs))
    if record.cordoned_log_dirs is not None:
        changes["cordoned_log_dirs"] = tuple(record.cordoned_log_dirs)
    _put_broker(b, replace(broker, **changes))


def _register_controller(b: ImageBuilder, record: RegisterControllerRecord) -> None:
    b.own("controllers")
    b.controllers[record.controller_id] = ControllerRegistration(
        id=record.controller_id,
        incarnation_id=record.incarnation_id,
        zk_migration_ready=record.zk_migration_ready,
        listeners=_endpoints(record.end_points),
        features=_ranges(record.features),
    )
    b.delta.controllers.add(record.controller_id)


# --- configurations, features, quotas, producer ids


def _config(b: ImageBuilder, record: ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    values = b.config_to_change(resource)
    if record.value is None:
        values.pop(record.name, None)
        if not values:
            b.drop_config(resource)
    else:
        values[record.name] = record.value


def _feature_level(b: ImageBuilder, record: FeatureLevelRecord) -> None:
    if record.name == KRAFT_VERSION:
        # A property of the log itself: control records carry it.
        return
    b.own("features")
    if record.feature_level:
        b.features[record.name] = record.feature_level
    else:
        b.features.pop(record.name, None)
    b.delta.features.add(record.name)


def _client_quota(b: ImageBuilder, record: ClientQuotaRecord) -> None:
    entity = tuple(sorted((data.entity_type, data.entity_name) for data in record.entity))
    quotas = b.quotas_to_change(entity)
    if record.remove:
        quotas.pop(record.key, None)
        if not quotas:
            b.drop_quotas(entity)
    else:
        quotas[record.key] = record.value


def _producer_ids(b: ImageBuilder, record: ProducerIdsRecord) -> None:
    b.producer_ids = ProducerIds(record.next_producer_id, record.broker_id, record.broker_epoch)
    b.delta.producer_ids = True


# --- security


def _access_control_entry(b: ImageBuilder, record: AccessControlEntryRecord) -> None:
    b.own("acls")
    b.acls[record.id] = AccessControlEntry(
        id=record.id,
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
    )
    b.delta.acls.add(record.id)


def _remove_access_control_entry(b: ImageBuilder, record: RemoveAccessControlEntryRecord) -> None:
    b.own("acls")
    if b.acls.pop(record.id, None) is None:
        raise ReplayError(f"access control entry {uuid_to_string(record.id)} was removed, but does not exist")
    b.delta.acls.add(record.id)


def _user_scram_credential(b: ImageBuilder, record: UserScramCredentialRecord) -> None:
    b.own("scram")
    key = (record.mechanism, record.name)
    b.scram[key] = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
    b.delta.scram.add(key)


def _remove_user_scram_credential(b: ImageBuilder, record: RemoveUserScramCredentialRecord) -> None:
    b.own("scram")
    key = (record.mechanism, record.name)
    if b.scram.pop(key, None) is None:
        raise ReplayError(f"the SCRAM credential of {record.name} was removed, but does not exist")
    b.delta.scram.add(key)


def _delegation_token(b: ImageBuilder, record: DelegationTokenRecord) -> None:
    b.own("delegation_tokens")
    b.delegation_tokens[record.token_id] = DelegationToken(
        owner=record.owner,
        requester=record.requester,
        renewers=tuple(record.renewers),
        issue_timestamp=record.issue_timestamp,
        max_timestamp=record.max_timestamp,
        expiration_timestamp=record.expiration_timestamp,
        token_id=record.token_id,
    )
    b.delta.delegation_tokens.add(record.token_id)


def _remove_delegation_token(b: ImageBuilder, record: RemoveDelegationTokenRecord) -> None:
    b.own("delegation_tokens")
    b.delegation_tokens.pop(record.token_id, None)
    b.delta.delegation_tokens.add(record.token_id)


def _nothing(b: ImageBuilder, record: MetadataRecord) -> None:
    """Records that change no state: transaction marks (`MetadataLoader` acts on them), no-ops, and the migration
    state that logs of clusters once on ZooKeeper still carry."""


REPLAY: Final[Mapping[type[MetadataRecord], Callable[[ImageBuilder, Any], None]]] = {
    AbortTransactionRecord: _nothing,
    AccessControlEntryRecord: _access_control_entry,
    BeginTransactionRecord: _nothing,
    BrokerRegistrationChangeRecord: _broker_registration_change,
    ClearElrRecord: _clear_elr,
    ClientQuotaRecord: _client_quota,
    ConfigRecord: _config,
    DelegationTokenRecord: _delegation_token,
    EndTransactionRecord: _nothing,
    FeatureLevelRecord: _feature_level,
    FenceBrokerRecord: _fence_broker,
    NoOpRecord: _nothing,
    PartitionChangeRecord: _partition_change,
    PartitionRecord: _partition,
    ProducerIdsRecord: _producer_ids,
    RegisterBrokerRecord: _register_broker,
    RegisterControllerRecord: _register_controller,
    RemoveAccessControlEntryRecord: _remove_access_control_entry,
    RemoveDelegationTokenRecord: _remove_delegation_token,
    RemoveTopicRecord: _remove_topic,
    RemoveUserScramCredentialRecord: _remove_user_scram_credential,
    TopicRecord: _topic,
    UnfenceBrokerRecord: _unfence_broker,
    UnregisterBrokerRecord: _unregister_broker,
    UserScramCredentialRecord: _user_scram_credential,
    ZkMigrationStateRecord: _nothing,
}
