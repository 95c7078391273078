"""Creating and deleting topics, and adding partitions to them.

Decides names, counts, placement and the first in-sync replicas. A request names several topics, and each succeeds or
fails by itself; the records of those that succeed take effect together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeVar

from moldau.config.alter import MAX_VALUE_LENGTH
from moldau.config.describe import describe_created_topic
from moldau.config.topic_config import validate_topic_overrides
from moldau.config.types import ConfigError
from moldau.controller.decision import Decision, Situation
from moldau.controller.placement import StripedPlacer, UsableBroker
from moldau.controller.state import ControllerState
from moldau.controller.topic_names import reason_against
from moldau.metadata.image import RECOVERED, TOPIC_RESOURCE, PartitionRegistration, TopicImage
from moldau.metadata.records import MetadataRecord, partition_record
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.config_record import ConfigRecord
from moldau.protocol.generated.metadata.remove_topic_record import RemoveTopicRecord
from moldau.protocol.generated.metadata.topic_record import TopicRecord
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest
from moldau.protocol.generated.wire.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from moldau.protocol.uuids import ZERO_UUID
from moldau.quorum.meta_properties import new_uuid

# As Apache Kafka limits one request.
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
USE_DEFAULT: Final = -1
METADATA_TOPIC: Final = "__cluster_metadata"
T = TypeVar("T", bound=Hashable)


# ---- create topics


def create_topics(s: Situation, request: CreateTopicsRequest) -> Decision[CreateTopicsResponse]:
    _check_partition_count(s, request.topics)
    records: list[MetadataRecord] = []
    results = []
    repeated = _repeated(topic.name for topic in request.topics)
    answered: set[str] = set()
    for topic in request.topics:
        if topic.name in answered:
            continue
        answered.add(topic.name)
        try:
            if topic.name in repeated:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_name(s.state, topic.name)
            made, result = _create_topic(s, topic)
            records += made
        except ApiError as error:
            result = CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message, configs=[]
            )
        results.append(result)
    return Decision([] if request.validate_only else records, CreateTopicsResponse(topics=results))


def refuse_create_topics(request: CreateTopicsRequest, error: ApiError) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message, configs=[])
            for topic in request.topics
        ]
    )


def _repeated(things: Iterable[T]) -> set[T]:
    return {thing for thing, count in Counter(things).items() if count > 1}


def _check_partition_count(s: Situation, topics: Sequence[CreatableTopic]) -> None:
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == USE_DEFAULT:
            total += s.config.integer("num.partitions")
        else:
            total += max(topic.num_partitions, 0)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _check_name(state: ControllerState, name: str) -> None:
    if name == METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    reason = reason_against(name)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in state.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    colliding = state.name_colliding_with(name)
    if colliding is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding}")


def _create_topic(s: Situation, topic: CreatableTopic) -> tuple[list[MetadataRecord], CreatableTopicResult]:
    overrides = _checked_overrides(s, topic)
    partitions = _assigned_partitions(s, topic) if topic.assignments else _placed_partitions(s, topic)
    topic_id = new_uuid(s.random)
    level = s.state.metadata_version
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        for name, value in overrides.items()
    ]
    records += [partition_record(topic_id, index, partition, level) for index, partition in enumerate(partitions)]
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=None if entry.sensitive else entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_created_topic(s.config, overrides)
        ],
    )
    return records, result


def _checked_overrides(s: Situation, topic: CreatableTopic) -> dict[str, str]:
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
    overrides = {config.name: config.value for config in topic.configs if config.value is not None}
    if any(len(value) > MAX_VALUE_LENGTH for value in overrides.values()):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{MAX_VALUE_LENGTH} bytes.",
        )
    try:
        validate_topic_overrides(overrides, s.config)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return overrides


# ---- where partitions go


def new_partition(state: ControllerState, replicas: Sequence[int], isr: Sequence[int]) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=tuple(replicas),
        directories=tuple(state.default_directory(broker) for broker in replicas),
        isr=tuple(isr),
        removing_replicas=(),
        adding_replicas=(),
        elr=(),
        last_known_elr=(),
        leader=isr[0],
        leader_recovery_state=RECOVERED,
        leader_epoch=0,
        partition_epoch=0,
    )


def _assigned_partitions(s: Situation, topic: CreatableTopic) -> list[PartitionRegistration]:
    if topic.replication_factor != USE_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != USE_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    made: dict[int, PartitionRegistration] = {}
    expected: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in made:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        made[index] = _assigned_partition(s, index, assignment.broker_ids, expected)
        expected = len(assignment.broker_ids)
    if sorted(made) != list(range(len(made))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [made[index] for index in range(len(made))]


def _assigned_partition(
    s: Situation, index: int, brokers: Sequence[int], expected: int | None
) -> PartitionRegistration:
    check_assignment(s.state, brokers, expected)
    isr = [broker for broker in brokers if s.state.is_active(broker)]
    if not isr:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return new_partition(s.state, brokers, isr)


def check_assignment(state: ControllerState, brokers: Sequence[int], expected: int | None) -> None:
    """Raise unless the brokers may hold one partition; `expected` is the topic's replication factor, if it has one."""
    if not brokers:
        reason = "The manual partition assignment includes an empty replica list."
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    seen: set[int] = set()
    for broker in sorted(brokers):
        if broker not in state.brokers:
            reason = f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        if broker in seen:
            reason = f"The manual partition assignment includes the broker {broker} more than once."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        seen.add(broker)
    if expected is not None and len(brokers) != expected:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not "
            f"consistent with previous partitions, which have {expected} replica(s).",
        )


def _placed_partitions(s: Situation, topic: CreatableTopic) -> list[PartitionRegistration]:
    factor, count = topic.replication_factor, topic.num_partitions
    if factor < USE_DEFAULT or factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < USE_DEFAULT or count == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if factor == USE_DEFAULT:
        factor = s.config.integer("default.replication.factor")
    if count == USE_DEFAULT:
        count = s.config.integer("num.partitions")
    return _place(s, count, factor)


def _place(s: Situation, count: int, factor: int) -> list[PartitionRegistration]:
    """So many new partitions, spread over the brokers that take replicas.

    One that is about to go takes none. One that has gone is expected back, as any that is fenced.
    """
    brokers = [
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for broker in s.state.brokers.values()
        if (broker.fenced or not broker.in_controlled_shutdown) and broker.accepts_new_replicas
    ]
    placer = StripedPlacer(brokers, s.random)
    could_not = f"Unable to replicate the partition {factor} time(s): "
    try:
        placer.check(factor)
    except ApiError as error:
        raise ApiError(error.code, could_not + error.message) from error
    made = []
    for _ in range(count):
        replicas = placer.place(factor)
        isr = [broker for broker in replicas if s.state.is_active(broker)]
        assert isr, "the placer leads partitions from brokers that are not fenced"
        made.append(new_partition(s.state, replicas, isr))
    return made


# ---- delete topics


def delete_topics(s: Situation, request: DeleteTopicsRequest) -> Decision[DeleteTopicsResponse]:
    if not s.config.flag("delete.topic.enable"):
        if s.api_version < 3:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED)
    named = [(topic.name, topic.topic_id) for topic in request.topics]
    named += [(name, ZERO_UUID) for name in request.topic_names]
    records: list[MetadataRecord] = []
    results = []
    deleted: set[bytes] = set()
    repeated_names = _repeated(name for name, _ in named if name is not None)
    repeated_ids = _repeated(topic_id for _, topic_id in named if topic_id != ZERO_UUID)
    answered: set[tuple[str | None, bytes]] = set()
    for name, topic_id in named:
        if (name, topic_id) in answered:
            continue
        answered.add((name, topic_id))
        try:
            if name in repeated_names or topic_id in repeated_ids:
                what = "topic name" if name is not None else "topic id"
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate {what}.")
            topic = _topic_to_delete(s.state, name, topic_id)
            if topic.id in deleted:
                reason = "The provided topic name maps to an ID that was already supplied."
                raise ApiError(ErrorCode.INVALID_REQUEST, reason)
            deleted.add(topic.id)
            records.append(RemoveTopicRecord(topic_id=topic.id))
            result = DeletableTopicResult(name=topic.name, topic_id=topic.id)
        except ApiError as error:
            result = DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
            )
        results.append(result)
    return Decision(records, DeleteTopicsResponse(responses=results))


def refuse_delete_topics(request: DeleteTopicsRequest, error: ApiError) -> DeleteTopicsResponse:
    named = [(topic.name, topic.topic_id) for topic in request.topics]
    named += [(name, ZERO_UUID) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
            for name, topic_id in named
        ]
    )


def _topic_to_delete(state: ControllerState, name: str | None, topic_id: bytes) -> TopicImage:
    if name is not None:
        if topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        topic = state.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic
    if topic_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    found = state.topic_by_id(topic_id)
    if found is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    return found


# ---- create partitions


def create_partitions(s: Situation, request: CreatePartitionsRequest) -> Decision[CreatePartitionsResponse]:
    records: list[MetadataRecord] = []
    results = []
    repeated = _repeated(topic.name for topic in request.topics)
    answered: set[str] = set()
    for topic in request.topics:
        if topic.name in answered:
            continue
        answered.add(topic.name)
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if topic.name in repeated:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            made = _added_partitions(s, topic)
            if len(records) + len(made) > MAX_PARTITIONS_PER_REQUEST:
                raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
            records += made
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return Decision([] if request.validate_only else records, CreatePartitionsResponse(results=results))


def refuse_create_partitions(request: CreatePartitionsRequest, error: ApiError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


def _added_partitions(s: Situation, request: CreatePartitionsTopic) -> list[MetadataRecord]:
    topic = s.state.topics.get(request.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = len(topic.partitions)
    if request.count == existing:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    if request.count < existing:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {existing} partition(s); {request.count} would not be an "
            "increase.",
        )
    additional = request.count - existing
    if additional > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    assignments = request.assignments
    if assignments is not None and len(assignments) != additional:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(assignments)} assignment(s) "
            "were specified.",
        )
    factor = len(next(iter(topic.partitions.values())).replicas)
    if assignments is None:
        partitions = _place(s, additional, factor)
    else:
        partitions = [
            _assigned_partition(s, index, assignment.broker_ids, factor)
            for index, assignment in enumerate(assignments, existing)
        ]
    level = s.state.metadata_version
    return [partition_record(topic.id, index, made, level) for index, made in enumerate(partitions, existing)]
