"""Topics: listing, describing, creating, growing and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moldau.client.admin.client import Admin
from moldau.client.errors import failure, raise_for
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.uuids import ZERO_UUID

CONTROLLER_TIMEOUT_MS = 30_000
PARTITIONS_PER_RESPONSE = 2000
# How long a topic that is created on first use may take to appear.
CREATION_SECONDS = 3.0
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(slots=True)
class TopicListing:
    name: str
    topic_id: bytes
    internal: bool
    partitions: int
    replication_factor: int


@dataclass(slots=True)
class PartitionDescription:
    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    eligible: list[int] | None
    last_known_eligible: list[int] | None
    offline: list[int]


@dataclass(slots=True)
class TopicDescription:
    name: str
    topic_id: bytes
    internal: bool
    partitions: list[PartitionDescription] = field(default_factory=list)


@dataclass(slots=True)
class Reassignment:
    replicas: list[int]
    adding: list[int]
    removing: list[int]


@dataclass(slots=True)
class CreatedTopic:
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


def list_topics(admin: Admin) -> list[TopicListing]:
    """All topics of the cluster by name."""
    from moldau.protocol.generated.wire.metadata_request import MetadataRequest

    answer = admin.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    listings = [
        TopicListing(
            topic.name or "",
            topic.topic_id,
            topic.is_internal or topic.name in INTERNAL_TOPICS,
            len(topic.partitions),
            max((len(partition.replica_nodes) for partition in topic.partitions), default=0),
        )
        for topic in answer.topics
        if topic.error_code == ErrorCode.NONE or topic.partitions
    ]
    return sorted(listings, key=lambda listing: listing.name)


def describe_topics(
    admin: Admin, names: Sequence[str], partition_limit: int = PARTITIONS_PER_RESPONSE
) -> list[TopicDescription]:
    """The named topics with their partitions, by name; ApiError for one that does not exist."""
    if not names:
        return []
    if admin.supports(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        topics = _describe_in_pages(admin, sorted(names), partition_limit)
    else:
        topics = _describe_by_metadata(admin, names=names)
    return sorted(topics, key=lambda topic: topic.name)


def describe_topic_ids(admin: Admin, topic_ids: Sequence[bytes]) -> list[TopicDescription]:
    return _describe_by_metadata(admin, topic_ids=topic_ids)


def _describe_in_pages(admin: Admin, names: Sequence[str], limit: int) -> list[TopicDescription]:
    from moldau.protocol.generated.wire.describe_topic_partitions_request import (
        Cursor,
        DescribeTopicPartitionsRequest,
        TopicRequest,
    )

    described: dict[str, TopicDescription] = {}
    cursor: Cursor | None = None
    while True:
        wanted = [TopicRequest(name=name) for name in names if cursor is None or name >= cursor.topic_name]
        request = DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=limit, cursor=cursor)
        answer = admin.ask(request)
        for topic in answer.topics:
            raise_for_topic(topic.error_code, topic.name)
            entry = described.setdefault(topic.name, TopicDescription(topic.name, topic.topic_id, topic.is_internal))
            entry.partitions += [
                PartitionDescription(
                    each.partition_index,
                    each.leader_id,
                    each.leader_epoch,
                    list(each.replica_nodes),
                    list(each.isr_nodes),
                    each.eligible_leader_replicas,
                    each.last_known_elr,
                    list(each.offline_replicas),
                )
                for each in topic.partitions
            ]
        following = answer.next_cursor
        if following is None:
            return list(described.values())
        cursor = Cursor(topic_name=following.topic_name, partition_index=following.partition_index)


def _describe_by_metadata(
    admin: Admin, *, names: Sequence[str] = (), topic_ids: Sequence[bytes] = ()
) -> list[TopicDescription]:
    from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic

    wanted = [MetadataRequestTopic(name=name) for name in names]
    wanted += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in topic_ids]
    answer = admin.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    described = []
    for topic in answer.topics:
        raise_for_topic(topic.error_code, topic.name)
        partitions = [
            PartitionDescription(
                each.partition_index,
                each.leader_id,
                each.leader_epoch,
                list(each.replica_nodes),
                list(each.isr_nodes),
                None,
                None,
                list(each.offline_replicas),
            )
            for each in topic.partitions
        ]
        partitions.sort(key=lambda partition: partition.index)
        described.append(TopicDescription(topic.name, topic.topic_id, topic.is_internal, partitions))
    return described


def find_partitions(admin: Admin, name: str, *, create: bool = False) -> list[int]:
    """The partitions of a topic, none if there is no such topic. With `create`, a cluster that creates topics on first
    use may do so now, and is given a moment."""
    from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic

    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
    deadline = admin.deadline(CREATION_SECONDS)
    while True:
        topic = admin.ask(wanted).topics[0]
        if topic.partitions or not create or deadline.passed():
            if topic.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                raise_for(topic.error_code)
            return sorted(each.partition_index for each in topic.partitions)
        deadline.pause()


def raise_for_topic(code: int, name: str | None) -> None:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise failure(code, f"Topic '{name}' does not exist")
    raise_for(code)


def create_topic(
    admin: Admin,
    name: str,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> CreatedTopic:
    """Create one topic; -1 leaves partitions and replication factor to the cluster's defaults."""
    from moldau.protocol.generated.wire.create_topics_request import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )

    unset = -1
    topic = CreatableTopic(
        name=name,
        num_partitions=unset if assignment or partitions is None else partitions,
        replication_factor=unset if assignment or replication_factor is None else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (assignment or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=CONTROLLER_TIMEOUT_MS, validate_only=validate_only)
    answer = admin.ask_controller(request, codes=lambda reply: [each.error_code for each in reply.topics])
    result = answer.topics[0]
    raise_for(result.error_code, result.error_message)
    return CreatedTopic(result.name, result.topic_id, result.num_partitions, result.replication_factor)


def delete_topics(admin: Admin, names: Sequence[str]) -> dict[str, ApiError]:
    """Delete topics; the ones that could not be deleted, with the reason."""
    from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

    # Versions up to 5 carry plain names, later ones a structure, and a request may hold only what its version carries.
    by_state = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names], timeout_ms=CONTROLLER_TIMEOUT_MS
    )
    by_name = DeleteTopicsRequest(topic_names=list(names), timeout_ms=CONTROLLER_TIMEOUT_MS)
    first_with_states = 6
    version = admin.any_connection().choose_version(ApiKey.DELETE_TOPICS)
    request = by_state if version >= first_with_states else by_name
    answer = admin.ask_controller(request, codes=lambda reply: [each.error_code for each in reply.responses])
    return {
        each.name or "": failure(each.error_code, each.error_message)
        for each in answer.responses
        if each.error_code != ErrorCode.NONE
    }


def create_partitions(
    admin: Admin, counts: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]] | None = None
) -> dict[str, ApiError]:
    """Raise the number of partitions of topics; the ones that failed, with the reason."""
    from moldau.protocol.generated.wire.create_partitions_request import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )

    topics = []
    for name, count in counts.items():
        given = (assignments or {}).get(name)
        chosen = None if given is None else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in given]
        topics.append(CreatePartitionsTopic(name=name, count=count, assignments=chosen))
    request = CreatePartitionsRequest(topics=topics, timeout_ms=CONTROLLER_TIMEOUT_MS, validate_only=False)
    answer = admin.ask_controller(request, codes=lambda reply: [each.error_code for each in reply.results])
    return {
        each.name: failure(each.error_code, each.error_message)
        for each in answer.results
        if each.error_code != ErrorCode.NONE
    }


def list_reassignments(admin: Admin, topics: Iterable[TopicDescription]) -> dict[tuple[str, int], Reassignment]:
    """Ongoing reassignments of these topics; nothing when the cluster cannot tell."""
    from moldau.protocol.generated.wire.list_partition_reassignments_request import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsTopics,
    )

    if not admin.supports(ApiKey.LIST_PARTITION_REASSIGNMENTS):
        return {}
    wanted = [
        ListPartitionReassignmentsTopics(
            name=topic.name, partition_indexes=[partition.index for partition in topic.partitions]
        )
        for topic in topics
    ]
    answer = admin.ask_controller(
        ListPartitionReassignmentsRequest(topics=wanted), codes=lambda reply: [reply.error_code]
    )
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return {}
    raise_for(answer.error_code, answer.error_message)
    return {
        (topic.name, each.partition_index): Reassignment(
            list(each.replicas), list(each.adding_replicas), list(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }
