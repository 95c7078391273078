"""AssignReplicasToDirs: a broker with several log directories says which one holds which replica."""

from __future__ import annotations

from moldau.controller.decision import Decision, Situation
from moldau.controller.leadership import change_of
from moldau.controller.partition_change import without
from moldau.metadata.features import DIRECTORIES_SINCE
from moldau.metadata.image import BrokerRegistration, TopicImage
from moldau.metadata.records import MetadataRecord
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from moldau.protocol.generated.wire.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)


def assign_replicas_to_dirs(
    s: Situation, request: AssignReplicasToDirsRequest
) -> Decision[AssignReplicasToDirsResponse]:
    if s.state.metadata_version < DIRECTORIES_SINCE:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = s.state.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    directories = []
    for asked in request.directories:
        topics = []
        for asked_topic in asked.topics:
            topic = s.state.topic_by_id(asked_topic.topic_id)
            answers = []
            for data in asked_topic.partitions:
                answer = PartitionData(partition_index=data.partition_index)
                if topic is None:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                else:
                    records += _assign(s, broker, topic, asked.id, answer)
                answers.append(answer)
            topics.append(TopicData(topic_id=asked_topic.topic_id, partitions=answers))
        directories.append(DirectoryData(id=asked.id, topics=topics))
    return Decision(records, AssignReplicasToDirsResponse(directories=directories))


def _assign(
    s: Situation, broker: BrokerRegistration, topic: TopicImage, directory: bytes, answer: PartitionData
) -> list[MetadataRecord]:
    partition = topic.partitions.get(answer.partition_index)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return []
    if broker.id not in partition.replicas:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return []
    change = change_of(s, topic, answer.partition_index)
    change.directories[broker.id] = directory
    if not broker.has_online_directory(directory):
        # The directory failed before the broker could say what was in it.
        change.isr = without(change.isr, broker.id)
    record = change.build()
    return [] if record is None else [record]
