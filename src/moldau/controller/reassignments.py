"""Moving replicas: beginning, cancelling and listing reassignments.

A reassignment adds the new replicas at once and removes the old ones when the new ones are in sync, which
`PartitionChange` notices whenever the in-sync set changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.controller.decision import Decision, Situation
from moldau.controller.leadership import change_of, unclean_allowed
from moldau.controller.partition_change import Election
from moldau.controller.topics import check_assignment
from moldau.metadata.image import PartitionRegistration, TopicImage
from moldau.metadata.records import MetadataRecord
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from moldau.protocol.generated.wire.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from moldau.protocol.generated.wire.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from moldau.protocol.generated.wire.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_partition_reassignments(
    s: Situation, request: AlterPartitionReassignmentsRequest
) -> Decision[AlterPartitionReassignmentsResponse]:
    may_change_factor = request.allow_replication_factor_change
    records: list[MetadataRecord] = []
    responses = []
    for asked in request.topics:
        answers = []
        for target in asked.partitions:
            answer = ReassignablePartitionResponse(partition_index=target.partition_index, error_message=None)
            try:
                topic, partition = _find(s, asked.name, target.partition_index)
                if target.replicas is None:
                    records += _cancel(s, topic, target.partition_index, partition)
                else:
                    records += _begin(s, topic, target.partition_index, partition, target.replicas, may_change_factor)
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, error.message
            answers.append(answer)
        responses.append(ReassignableTopicResponse(name=asked.name, partitions=answers))
    response = AlterPartitionReassignmentsResponse(
        error_message=None, responses=responses, allow_replication_factor_change=may_change_factor
    )
    return Decision(records, response)


def _find(s: Situation, name: str, index: int) -> tuple[TopicImage, PartitionRegistration]:
    topic = s.state.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic, partition


def _begin(
    s: Situation,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    target: list[int],
    may_change_factor: bool,
) -> list[MetadataRecord]:
    check_assignment(s.state, target, None)
    if not may_change_factor:
        factor = len({*partition.replicas, *partition.adding_replicas} - set(partition.removing_replicas))
        if factor != len(target):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {factor} to {len(target)}",
            )
    removing = sorted(set(partition.replicas) - set(target))
    adding = sorted(set(target) - set(partition.replicas))
    change = change_of(s, topic, index)
    change.election = Election.ONLINE
    change.replicas = [*target, *removing]
    # Also when there are none: what an earlier reassignment wanted, and has not got yet, is no longer wanted.
    if removing or partition.removing_replicas:
        change.removing = removing
    if adding or partition.adding_replicas:
        change.adding = adding
    record = change.build()
    return [] if record is None else [record]


def _cancel(s: Situation, topic: TopicImage, index: int, partition: PartitionRegistration) -> list[MetadataRecord]:
    if not partition.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    if not replicas:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    isr = [replica for replica in partition.isr if replica not in partition.adding_replicas]
    if partition.isr and not isr:
        if not unclean_allowed(s, topic.name):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
                "leader election.",
            )
        if not s.state.elr_enabled and not any(map(s.state.is_active, replicas)):
            # Nobody is there to be elected yet, and without eligible leaders the in-sync set is never empty.
            isr = replicas[:1]
    change = change_of(s, topic, index)
    change.isr, change.replicas = isr, replicas
    change.removing, change.adding = [], []
    record = change.build()
    return [] if record is None else [record]


def list_partition_reassignments(
    s: Situation, request: ListPartitionReassignmentsRequest
) -> Decision[ListPartitionReassignmentsResponse]:
    wanted: Iterable[tuple[TopicImage, Iterable[int]]]
    if request.topics is None:
        wanted = [(topic, list(topic.partitions)) for topic in s.state.topics.values()]
    else:
        wanted = [
            (s.state.topics[asked.name], asked.partition_indexes)
            for asked in request.topics
            if asked.name in s.state.topics
        ]
    topics = []
    for topic, indexes in wanted:
        ongoing = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for index in indexes
            if (partition := topic.partitions.get(index)) is not None and partition.is_reassigning
        ]
        if ongoing:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=ongoing))
    return Decision([], ListPartitionReassignmentsResponse(error_message=None, topics=topics))
