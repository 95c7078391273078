"""AlterPartition: a leader reports who is in sync with it.

The leader proposes, the controller decides: a proposal from a broker that no longer leads, or that knows an older
state of the partition, is refused, and nobody joins who is fenced or shutting down.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.controller.decision import Decision, Situation
from moldau.controller.leadership import change_of
from moldau.metadata.image import RECOVERED, RECOVERING, PartitionRegistration, TopicImage
from moldau.metadata.records import MetadataRecord
from moldau.metadata.replay import NO_LEADER_CHANGE, merge_partition_change
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import alter_partition_response
from moldau.protocol.generated.wire.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
)
from moldau.protocol.generated.wire.alter_partition_response import AlterPartitionResponse

EPOCHS_SINCE = 3
ANY_EPOCH = -1


def alter_partition(s: Situation, request: AlterPartitionRequest) -> Decision[AlterPartitionResponse]:
    s.state.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    topics = []
    for asked in request.topics:
        topic = s.state.topic_by_id(asked.topic_id)
        answers = []
        for data in asked.partitions:
            answer = alter_partition_response.PartitionData(partition_index=data.partition_index)
            if topic is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                records += _alter(s, request.broker_id, topic, data, answer)
            answers.append(answer)
        topics.append(alter_partition_response.TopicData(topic_id=asked.topic_id, partitions=answers))
    return Decision(records, AlterPartitionResponse(topics=topics))


def _alter(
    s: Situation,
    broker_id: int,
    topic: TopicImage,
    data: PartitionData,
    answer: alter_partition_response.PartitionData,
) -> list[MetadataRecord]:
    partition = topic.partitions.get(data.partition_index)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return []
    members = (
        data.new_isr_with_epochs
        if s.api_version >= EPOCHS_SINCE
        else [BrokerState(broker_id=member, broker_epoch=ANY_EPOCH) for member in data.new_isr]
    )
    answer.error_code = _reason_against(s, broker_id, partition, data, members)
    if answer.error_code != ErrorCode.NONE:
        return []
    change = change_of(s, topic, data.partition_index)
    change.isr = [member.broker_id for member in members]
    change.recovery_state = data.leader_recovery_state
    record = change.build()
    if record is not None:
        partition = merge_partition_change(partition, record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            # The proposal completed a reassignment that takes the leader away from the broker that made it.
            answer.error_code = ErrorCode.NEW_LEADER_ELECTED
            return [record]
    answer.leader_id = partition.leader
    answer.leader_epoch = partition.leader_epoch
    answer.isr = list(partition.isr)
    answer.leader_recovery_state = partition.leader_recovery_state
    answer.partition_epoch = partition.partition_epoch
    return [] if record is None else [record]


def _reason_against(
    s: Situation,
    broker_id: int,
    partition: PartitionRegistration,
    data: PartitionData,
    members: Sequence[BrokerState],
) -> ErrorCode:
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        # The broker has heard of something this controller has not: it must be talking to an old one.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [member.broker_id for member in members]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    if not all(_may_be_in_sync(s, member) for member in members):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _may_be_in_sync(s: Situation, member: BrokerState) -> bool:
    broker = s.state.brokers.get(member.broker_id)
    return broker is not None and broker.is_active and member.broker_epoch in (ANY_EPOCH, broker.epoch)
