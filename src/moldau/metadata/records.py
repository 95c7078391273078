"""Between image and records: the snapshot of an image as records, and the version each record is written with.

The version of a record follows from the finalised `metadata.version` (an older broker must be able to read it), so
the rest of the house passes plain record objects around. Nothing here reads or writes a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from moldau.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    CORDONED_DIRECTORIES_SINCE,
    DELEGATION_TOKENS_SINCE,
    DIRECTORIES_SINCE,
    ELR_SINCE,
    METADATA_VERSION,
    SCRAM_SINCE,
)
from moldau.protocol.generated.metadata.access_control_entry_record import AccessControlEntryRecord
from moldau.protocol.generated.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from moldau.protocol.generated.metadata.client_quota_record import ClientQuotaRecord, EntityData
from moldau.protocol.generated.metadata.config_record import ConfigRecord
from moldau.protocol.generated.metadata.delegation_token_record import DelegationTokenRecord
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
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
from moldau.protocol.generated.metadata.topic_record import TopicRecord
from moldau.protocol.generated.metadata.user_scram_credential_record import UserScramCredentialRecord
from moldau.protocol.wire import WireMessage

if TYPE_CHECKING:
    from moldau.metadata.image import (
        BrokerRegistration,
        ClusterImage,
        ControllerRegistration,
        PartitionRegistration,
        QuotaEntity,
    )


MetadataRecord: TypeAlias = WireMessage
"""Any generated record of the metadata log."""


def record_version(record: MetadataRecord, metadata_version: int) -> int:
    """The version to write this record with, while the cluster is at this `metadata.version`."""
    kind = type(record)
    if kind is PartitionRecord or kind is PartitionChangeRecord:
        if metadata_version >= ELR_SINCE:
            return 2
        return 1 if metadata_version >= DIRECTORIES_SINCE else 0
    if kind is RegisterBrokerRecord:
        if metadata_version >= CORDONED_DIRECTORIES_SINCE:
            return 4
        if metadata_version >= DIRECTORIES_SINCE:
            return 3
        return 2 if metadata_version >= 8 else 1
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        if record.log_dirs:
            return 2
        return 1 if record.in_controlled_shutdown else 0
    return 0


def partition_record(
    topic_id: bytes, partition_id: int, partition: PartitionRegistration, metadata_version: int
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if metadata_version >= DIRECTORIES_SINCE else [],
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def _broker_record(broker: BrokerRegistration, metadata_version: int) -> RegisterBrokerRecord:
    cordoned = broker.cordoned_log_dirs if metadata_version >= CORDONED_DIRECTORIES_SINCE else None
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.listeners.values()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs) if metadata_version >= DIRECTORIES_SINCE else [],
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def _controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.listeners.values()
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in controller.features.items()
        ],
    )


def quota_entity_data(entity: QuotaEntity) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _security_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    for entry in image.acls.values():
        yield AccessControlEntryRecord(**entry._asdict())
    if image.metadata_version >= SCRAM_SINCE:
        for (mechanism, user), credential in image.scram.items():
            yield UserScramCredentialRecord(name=user, mechanism=mechanism, **credential._asdict())
    if image.metadata_version >= DELEGATION_TOKENS_SINCE:
        for token in image.delegation_tokens.values():
            yield DelegationTokenRecord(**{**token._asdict(), "renewers": list(token.renewers)})


def records_of(image: ClusterImage) -> Iterator[MetadataRecord]:
    """Everything in the image, in an order that can be replayed: features first, a topic before its partitions."""
    level = image.metadata_version
    if level:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    for name, feature_level in image.features.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=feature_level)
    for broker in image.brokers.values():
        yield _broker_record(broker, level)
    if level >= CONTROLLER_REGISTRATION_SINCE:
        for controller in image.controllers.values():
            yield _controller_record(controller)
    for topic in image.topics_by_id.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for partition_id, partition in topic.partitions.items():
            yield partition_record(topic.id, partition_id, partition, level)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    for entity, quotas in image.client_quotas.items():
        for key, quota in quotas.items():
            yield ClientQuotaRecord(entity=quota_entity_data(entity), key=key, value=quota, remove=False)
    if image.producer_ids.next_id > 0:
        ids = image.producer_ids
        yield ProducerIdsRecord(broker_id=ids.broker_id, broker_epoch=ids.broker_epoch, next_producer_id=ids.next_id)
    yield from _security_records(image)
