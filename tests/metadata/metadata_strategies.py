"""Random but valid sequences of metadata records, of every type that changes the image."""

from __future__ import annotations

from random import Random

from moldau.metadata.features import DIRECTORIES_SINCE, ELR_SINCE, METADATA_VERSION, SCRAM_SINCE
from moldau.metadata.records import MetadataRecord
from moldau.metadata.replay import ImageBuilder
from moldau.protocol.generated.metadata.access_control_entry_record import AccessControlEntryRecord
from moldau.protocol.generated.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from moldau.protocol.generated.metadata.clear_elr_record import ClearElrRecord
from moldau.protocol.generated.metadata.client_quota_record import ClientQuotaRecord, EntityData
from moldau.protocol.generated.metadata.config_record import ConfigRecord
from moldau.protocol.generated.metadata.delegation_token_record import DelegationTokenRecord
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


class RecordSource:
    """Draws records that fit what its builder has replayed so far."""

    def __init__(self, seed: int, level: int = 30) -> None:
        self.random = Random(seed)
        self.level = level
        self.builder = ImageBuilder()
        self._kinds = [
            self.topic,
            self.partition,
            self.partition,
            self.partition_change,
            self.partition_change,
            self.remove_topic,
            self.register_broker,
            self.broker_change,
            self.unregister_broker,
            self.config,
            self.config,
            self.feature,
            self.quota,
            self.producer_ids,
            self.controller,
            self.acl,
            self.remove_acl,
            self.scram,
            self.remove_scram,
            self.token,
            self.remove_token,
            self.clear_elr,
            self.no_op,
        ]

    def draw(self, count: int) -> list[MetadataRecord]:
        drawn: list[MetadataRecord] = []
        if not self.builder.features:
            drawn.append(FeatureLevelRecord(name=METADATA_VERSION, feature_level=self.level))
            self.builder.replay(drawn[0])
        while len(drawn) < count:
            record = self.random.choice(self._kinds)()
            if record is not None:
                self.builder.replay(record)
                drawn.append(record)
        return drawn

    def uuid(self) -> bytes:
        return self.random.randbytes(16)

    def brokers(self, most: int) -> list[int]:
        return self.random.sample(range(6), self.random.randint(0, most))

    def topic(self) -> MetadataRecord | None:
        name = f"topic-{self.random.randrange(8)}"
        return None if name in self.builder.topics_by_name else TopicRecord(name=name, topic_id=self.uuid())

    def some_topic(self) -> bytes | None:
        return self.random.choice(list(self.builder.topics_by_id)) if self.builder.topics_by_id else None

    def partition(self) -> MetadataRecord | None:
        topic_id = self.some_topic()
        if topic_id is None:
            return None
        replicas = self.brokers(4)
        elr = self.level >= ELR_SINCE
        return PartitionRecord(
            partition_id=len(self.builder.topics_by_id[topic_id].partitions),
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas[:2],
            adding_replicas=self.brokers(1),
            removing_replicas=self.brokers(1),
            leader=replicas[0] if replicas else -1,
            leader_recovery_state=self.random.randrange(2),
            leader_epoch=self.random.randrange(5),
            partition_epoch=self.random.randrange(5),
            directories=[self.uuid() for _ in replicas] if self.level >= DIRECTORIES_SINCE else [],
            eligible_leader_replicas=self.random.choice([None, [], replicas[2:]]) if elr else None,
            last_known_elr=self.random.choice([None, [], replicas[3:]]) if elr else None,
        )

    def partition_change(self) -> MetadataRecord | None:
        topic_id = self.some_topic()
        if topic_id is None or not self.builder.topics_by_id[topic_id].partitions:
            return None
        record = PartitionChangeRecord(
            topic_id=topic_id, partition_id=self.random.choice(list(self.builder.topics_by_id[topic_id].partitions))
        )
        if self.random.random() < 0.5:
            record.isr = self.brokers(3)
        if self.random.random() < 0.5:
            record.leader = self.random.randint(-1, 5)
        if self.random.random() < 0.2:
            record.replicas = self.brokers(4)
            if self.level >= DIRECTORIES_SINCE:
                record.directories = [self.uuid() for _ in record.replicas]
        if self.random.random() < 0.2:
            record.leader_recovery_state = self.random.randrange(2)
        if self.level >= ELR_SINCE and self.random.random() < 0.3:
            record.eligible_leader_replicas = self.brokers(2)
            record.last_known_elr = self.brokers(1)
        return record

    def remove_topic(self) -> MetadataRecord | None:
        topic_id = self.some_topic()
        return None if topic_id is None or self.random.random() < 0.5 else RemoveTopicRecord(topic_id=topic_id)

    def register_broker(self) -> MetadataRecord:
        directories = [self.uuid() for _ in range(self.random.randint(1, 3))]
        return RegisterBrokerRecord(
            broker_id=self.random.randrange(4),
            incarnation_id=self.uuid(),
            broker_epoch=self.random.randrange(1000),
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)],
            features=[BrokerFeature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30)],
            rack=self.random.choice([None, "a", "b"]),
            fenced=self.random.random() < 0.5,
            log_dirs=directories if self.level >= DIRECTORIES_SINCE else [],
            cordoned_log_dirs=self.random.choice([None, [], directories[:1]]) if self.level >= 30 else None,
        )

    def broker_change(self) -> MetadataRecord | None:
        if not self.builder.brokers:
            return None
        broker = self.random.choice(list(self.builder.brokers.values()))
        kind = self.random.randrange(4)
        if kind == 0:
            return FenceBrokerRecord(id=broker.id, epoch=broker.epoch)
        if kind == 1:
            return UnfenceBrokerRecord(id=broker.id, epoch=broker.epoch)
        record = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        record.fenced = self.random.choice([-1, 0, 1])
        record.in_controlled_shutdown = self.random.choice([0, 1])
        if kind == 3 and self.level >= DIRECTORIES_SINCE:
            record.log_dirs = [self.uuid()]
        return record

    def unregister_broker(self) -> MetadataRecord | None:
        if not self.builder.brokers or self.random.random() < 0.7:
            return None
        broker = self.random.choice(list(self.builder.brokers.values()))
        return UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)

    def config(self) -> MetadataRecord:
        kind, name = self.random.choice([(2, "topic-1"), (2, "topic-2"), (4, ""), (4, "1"), (16, "m"), (32, "g")])
        value = self.random.choice([None, "1", "2"])
        key = self.random.choice(["a.b", "c.d"])
        return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)

    def feature(self) -> MetadataRecord:
        name = self.random.choice(["group.version", "share.version"])
        return FeatureLevelRecord(name=name, feature_level=self.random.randrange(2))

    def quota(self) -> MetadataRecord:
        entity = [EntityData(entity_type="user", entity_name=self.random.choice([None, "alice"]))]
        if self.random.random() < 0.5:
            entity.insert(self.random.randrange(2), EntityData(entity_type="client-id", entity_name="c"))
        remove = self.random.random() < 0.3
        value = 0.0 if remove else self.random.choice([1.5, 1024.0])
        return ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=value, remove=remove)

    def producer_ids(self) -> MetadataRecord:
        following = self.builder.producer_ids.next_id + 1000
        return ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=following)

    def controller(self) -> MetadataRecord | None:
        if self.level < 15:
            return None
        return RegisterControllerRecord(
            controller_id=self.random.randrange(3),
            incarnation_id=self.uuid(),
            end_points=[ControllerEndpoint(name="CONTROLLER", host="localhost", port=9093, security_protocol=0)],
            features=[ControllerFeature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30)],
        )

    def acl(self) -> MetadataRecord:
        return AccessControlEntryRecord(
            id=self.uuid(), resource_type=2, resource_name="topic-1", pattern_type=3, principal="User:alice", host="*"
        )

    def remove_acl(self) -> MetadataRecord | None:
        acls = list(self.builder.acls)
        return RemoveAccessControlEntryRecord(id=self.random.choice(acls)) if acls else None

    def scram(self) -> MetadataRecord | None:
        if self.level < SCRAM_SINCE:
            return None
        user = self.random.choice(["alice", "bob"])
        return UserScramCredentialRecord(
            name=user, mechanism=self.random.choice([1, 2]), salt=self.uuid(), stored_key=b"s", iterations=4096
        )

    def remove_scram(self) -> MetadataRecord | None:
        if not self.builder.scram:
            return None
        mechanism, user = self.random.choice(list(self.builder.scram))
        return RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)

    def token(self) -> MetadataRecord | None:
        if self.level < 14:
            return None
        token_id = f"token-{self.random.randrange(3)}"
        return DelegationTokenRecord(owner="User:a", requester="User:a", renewers=["User:b"], token_id=token_id)

    def remove_token(self) -> MetadataRecord | None:
        tokens = list(self.builder.delegation_tokens)
        return RemoveDelegationTokenRecord(token_id=self.random.choice(tokens)) if tokens else None

    def clear_elr(self) -> MetadataRecord | None:
        names = [*self.builder.topics_by_name, ""]
        return ClearElrRecord(topic_name=self.random.choice(names)) if self.level >= ELR_SINCE else None

    def no_op(self) -> MetadataRecord:
        return NoOpRecord()
