"""How consumer groups stand in the log: Kafka's records, and how members and assignments are read back from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from moldau.coordinator.decision import CoordinatorRecord, record
from moldau.coordinator.group.consumer.member import ClassicSide, ConsumerMember, MemberState, Owned
from moldau.coordinator.group.modern.assignment import Assignment
from moldau.protocol.generated.group.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from moldau.protocol.generated.group.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from moldau.protocol.generated.group.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from moldau.protocol.generated.group.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from moldau.protocol.generated.group.consumer_group_metadata_key import ConsumerGroupMetadataKey
from moldau.protocol.generated.group.consumer_group_metadata_value import ConsumerGroupMetadataValue
from moldau.protocol.generated.group.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from moldau.protocol.generated.group.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from moldau.protocol.generated.group.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from moldau.protocol.generated.group.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from moldau.protocol.generated.group.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from moldau.protocol.generated.group.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from moldau.protocol.generated.group.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

# Types of records, as the first two bytes of their keys.
GROUP_METADATA: Final = 3
PARTITION_METADATA: Final = 4
MEMBER_METADATA: Final = 5
TARGET_METADATA: Final = 6
TARGET_MEMBER: Final = 7
CURRENT_ASSIGNMENT: Final = 8
REGULAR_EXPRESSION: Final = 16


class Resolved(NamedTuple):
    """The topics that a regular expression matched, when the cluster's metadata were at `version`."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


# ---- the group


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return record(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return record(ConsumerGroupMetadataKey(group_id), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Older releases kept the partitions of a group's topics; one number takes their place."""
    return record(ConsumerGroupPartitionMetadataKey(group_id), None)


def target_metadata_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id),
        ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms),
    )


def target_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return record(ConsumerGroupTargetAssignmentMetadataKey(group_id), None)


def regex_record(group_id: str, regex: str, resolved: Resolved) -> CoordinatorRecord:
    return record(
        ConsumerGroupRegularExpressionKey(group_id, regex),
        ConsumerGroupRegularExpressionValue(sorted(resolved.topics), resolved.version, resolved.timestamp_ms),
    )


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return record(ConsumerGroupRegularExpressionKey(group_id, regex), None)


# ---- its members


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    classic = None
    if member.classic is not None:
        protocols = [ClassicProtocol(name, metadata) for name, metadata in member.classic.protocols]
        classic = ClassicMemberMetadata(member.classic.session_timeout_ms, protocols)
    return record(
        ConsumerGroupMemberMetadataKey(group_id, member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=classic,
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    return record(
        ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            [TopicPartition(topic, sorted(partitions)) for topic, partitions in target.items()]
        ),
    )


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_topics(member.assigned),
            partitions_pending_revocation=_topics(member.revoking),
        ),
    )


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return record(ConsumerGroupMemberMetadataKey(group_id, member_id), None)


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return record(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)


def current_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return record(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)


def removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """A member goes, with everything that is known of it."""
    return [
        current_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]


def _topics(owned: Owned) -> list[TopicPartitions]:
    topics: list[TopicPartitions] = []
    for topic, epochs in owned.items():
        partitions = sorted(epochs)
        topics.append(TopicPartitions(topic, partitions, [epochs[partition] for partition in partitions]))
    return topics


# ---- reading


def classic_side(value: ClassicMemberMetadata | None) -> ClassicSide | None:
    if value is None:
        return None
    return ClassicSide(
        value.session_timeout_ms, tuple((each.name, each.metadata) for each in value.supported_protocols)
    )


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}


def owned_of(topics: Iterable[TopicPartitions], member_epoch: int) -> Owned:
    """Older releases did not say in which epoch a partition was assigned: the member's own is the safe answer."""
    owned: dict[bytes, Mapping[int, int]] = {}
    for each in topics:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            owned[each.topic_id] = dict.fromkeys(each.partitions, max(member_epoch, 0))
        else:
            owned[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return owned


def state_of(value: int) -> MemberState:
    return _STATES.get(value, MemberState.UNKNOWN)


_STATES: Final = {state.value: state for state in MemberState}
