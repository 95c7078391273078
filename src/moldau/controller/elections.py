"""Electing leaders on demand, and from time to time by itself.

Preferred election brings leadership back to the first replica of each partition; unclean election gives a partition
without a leader to any live replica, where an operator asks for that or the topic allows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.controller.decision import Decision, Situation
from moldau.controller.leadership import change_of, unclean_allowed
from moldau.controller.partition_change import Election
from moldau.metadata.image import NO_LEADER
from moldau.metadata.records import MetadataRecord
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.elect_leaders_request import ElectLeadersRequest
from moldau.protocol.generated.wire.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1
MAX_ELECTIONS_AT_ONCE: Final = 1000


def elect_leaders(s: Situation, request: ElectLeadersRequest) -> Decision[ElectLeadersResponse]:
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    election = Election.UNCLEAN if request.election_type == UNCLEAN else Election.PREFERRED
    everything = request.topic_partitions is None
    wanted: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        wanted = [(name, list(topic.partitions)) for name, topic in s.state.topics.items()]
    else:
        wanted = [(asked.topic, asked.partitions) for asked in request.topic_partitions]
    records: list[MetadataRecord] = []
    results = []
    for name, indexes in wanted:
        answers = []
        for index in indexes:
            result = PartitionResult(partition_id=index, error_message=None)
            try:
                records.append(_elect(s, name, index, election))
            except ApiError as error:
                if everything and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                result.error_code, result.error_message = error.code, error.message
            answers.append(result)
        results.append(ReplicaElectionResult(topic=name, partition_result=answers))
    return Decision(records, ElectLeadersResponse(replica_election_results=results))


def refuse_elect_leaders(request: ElectLeadersRequest, error: ApiError) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )


def _elect(s: Situation, name: str, index: int, election: Election) -> MetadataRecord:
    topic = s.state.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    is_led = partition.leader != NO_LEADER
    if partition.leader == partition.preferred_leader if election is Election.PREFERRED else is_led:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
    change = change_of(s, topic, index)
    change.election = election
    record = change.build()
    if record is None:
        preferred = election is Election.PREFERRED
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    return record


def rebalance_leaders(s: Situation) -> list[MetadataRecord]:
    """Partitions whose preferred replica could lead but does not; a bounded number at a time."""
    records: list[MetadataRecord] = []
    for topic, index, partition in s.state.partitions():
        if partition.leader == partition.preferred_leader:
            continue
        change = change_of(s, topic, index)
        change.election = Election.PREFERRED
        record = change.build()
        if record is not None:
            records.append(record)
            if len(records) == MAX_ELECTIONS_AT_ONCE:
                break
    return records


def elect_uncleanly(s: Situation) -> list[MetadataRecord]:
    """Partitions without a leader whose topic would rather lose records than wait."""
    records: list[MetadataRecord] = []
    for topic, index, partition in s.state.partitions():
        if partition.leader != NO_LEADER or not unclean_allowed(s, topic.name):
            continue
        record = change_of(s, topic, index).build()
        if record is not None:
            records.append(record)
            if len(records) == MAX_ELECTIONS_AT_ONCE:
                break
    return records
