"""How share groups stand in the log: Kafka's records, and how they are read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.coordinator.decision import CoordinatorRecord, record
from moldau.coordinator.group.modern.assignment import Assignment
from moldau.coordinator.group.share.member import STABLE, ShareMember
from moldau.coordinator.group.share.topics import ShareTopics, TopicPartitions
from moldau.protocol.generated.group.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from moldau.protocol.generated.group.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
)
from moldau.protocol.generated.group.share_group_current_member_assignment_value import TopicPartitions as Assigned
from moldau.protocol.generated.group.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from moldau.protocol.generated.group.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from moldau.protocol.generated.group.share_group_metadata_key import ShareGroupMetadataKey
from moldau.protocol.generated.group.share_group_metadata_value import ShareGroupMetadataValue
from moldau.protocol.generated.group.share_group_state_partition_metadata_key import (
    ShareGroupStatePartitionMetadataKey,
)
from moldau.protocol.generated.group.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from moldau.protocol.generated.group.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey,
)
from moldau.protocol.generated.group.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from moldau.protocol.generated.group.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from moldau.protocol.generated.group.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

# Types of records, as the first two bytes of their keys.
MEMBER_METADATA: Final = 10
GROUP_METADATA: Final = 11
TARGET_METADATA: Final = 12
TARGET_MEMBER: Final = 13
CURRENT_ASSIGNMENT: Final = 14
STATE_PARTITIONS: Final = 15

# What stands for the name of a topic that is gone.
_NO_NAME: Final = "<UNKNOWN>"

# ---- the group


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return record(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash))


def target_metadata_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return record(
        ShareGroupTargetAssignmentMetadataKey(group_id), ShareGroupTargetAssignmentMetadataValue(epoch, timestamp_ms)
    )


def topics_record(group_id: str, topics: ShareTopics, names: Mapping[bytes, str]) -> CoordinatorRecord:
    """`names` are those of the topics whose state is being deleted, as far as they have one."""
    return record(
        ShareGroupStatePartitionMetadataKey(group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=_infos(topics.initializing),
            initialized_topics=_infos(topics.initialized),
            deleting_topics=[
                TopicInfo(topic_id, names.get(topic_id, _NO_NAME)) for topic_id in sorted(topics.deleting)
            ],
        ),
    )


def _infos(topics: Mapping[bytes, TopicPartitions]) -> list[TopicPartitionsInfo]:
    return [TopicPartitionsInfo(topic_id, topic.name, sorted(topic.partitions)) for topic_id, topic in topics.items()]


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """A group that nobody is in goes, with everything that is known of it."""
    return [
        record(ShareGroupTargetAssignmentMetadataKey(group_id), None),
        record(ShareGroupStatePartitionMetadataKey(group_id), None),
        record(ShareGroupMetadataKey(group_id), None),
    ]


# ---- its members


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return record(
        ShareGroupMemberMetadataKey(group_id, member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    return record(
        ShareGroupTargetAssignmentMemberKey(group_id, member_id),
        ShareGroupTargetAssignmentMemberValue(
            [TopicPartition(topic, sorted(partitions)) for topic, partitions in target.items()]
        ),
    )


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return record(
        ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=STABLE,
            assigned_partitions=[Assigned(topic, sorted(partitions)) for topic, partitions in member.assigned.items()],
        ),
    )


def removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """A member goes, with everything that is known of it."""
    return [
        record(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        record(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        record(ShareGroupMemberMetadataKey(group_id, member_id), None),
    ]


# ---- reading


def target_of(value: ShareGroupTargetAssignmentMemberValue) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}


def assigned_of(value: ShareGroupCurrentMemberAssignmentValue) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in value.assigned_partitions}


def topics_of(value: ShareGroupStatePartitionMetadataValue, now_ms: int) -> ShareTopics:
    """When an initialisation began is not in the log: it counts from now on, and is repeated if it takes too long."""

    def read(infos: list[TopicPartitionsInfo]) -> dict[bytes, TopicPartitions]:
        return {each.topic_id: TopicPartitions(each.topic_name, frozenset(each.partitions), now_ms) for each in infos}

    return ShareTopics(
        read(value.initializing_topics),
        read(value.initialized_topics),
        frozenset(each.topic_id for each in value.deleting_topics),
    )
