"""Where replicas are and shall be: reassignments, leader elections, log directories, and the throttles of all that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin.client import Admin
from moldau.client.admin.configs import ResourceType, alter_configs
from moldau.client.admin.topics import Reassignment
from moldau.client.cluster import TopicPartition, by_topic
from moldau.client.errors import failure, raise_for
from moldau.protocol.errors import ApiError, ErrorCode

Replica = tuple[str, int, int]
"""Topic, partition, broker."""

PREFERRED, UNCLEAN = 0, 1
BROKER_THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TOPIC_THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


# ---- reassignments


def all_reassignments(
    admin: Admin, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Every reassignment under way, or those of these partitions."""
    from moldau.protocol.generated.wire.list_partition_reassignments_request import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsTopics,
    )

    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(list(partitions))
        ]
    request = ListPartitionReassignmentsRequest(topics=topics)
    answer = admin.ask_controller(request, codes=lambda reply: [reply.error_code])
    raise_for(answer.error_code, answer.error_message)
    return {
        (topic.name, each.partition_index): Reassignment(each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    }


def reassign(
    admin: Admin, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
) -> dict[TopicPartition, ApiError]:
    """Give partitions new replicas; None cancels what is under way. The partitions that were refused, and why."""
    from moldau.protocol.generated.wire.alter_partition_reassignments_request import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    def target(name: str, index: int) -> ReassignablePartition:
        wanted = targets[name, index]
        return ReassignablePartition(partition_index=index, replicas=None if wanted is None else list(wanted))

    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor,
        topics=[
            ReassignableTopic(name=name, partitions=[target(name, index) for index in indexes])
            for name, indexes in by_topic(list(targets))
        ],
    )
    answer = admin.ask_controller(request, codes=lambda reply: [reply.error_code])
    raise_for(answer.error_code, answer.error_message)
    return {
        (topic.name, each.partition_index): failure(each.error_code, each.error_message)
        for topic in answer.responses
        for each in topic.partitions
        if each.error_code != ErrorCode.NONE
    }


# ---- elections


def elect_leaders(
    admin: Admin, kind: int, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, ApiError | None]:
    """Elect leaders of these partitions, or of all; each partition's error, if any. Of all partitions only those are
    told for which an election was needed."""
    from moldau.protocol.generated.wire.elect_leaders_request import ElectLeadersRequest, TopicPartitions

    wanted = None
    if partitions is not None:
        wanted = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in by_topic(list(partitions))]
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=wanted, timeout_ms=int(admin.settings.request_timeout * 1000)
    )
    answer = admin.ask_controller(request, codes=lambda reply: [reply.error_code])
    raise_for(answer.error_code)
    return {
        (topic.topic, each.partition_id): (
            failure(each.error_code, each.error_message) if each.error_code != ErrorCode.NONE else None
        )
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


# ---- log directories


@dataclass(slots=True)
class ReplicaPlace:
    """The directory a replica is in, and the one it is moving to."""

    current: str | None = None
    future: str | None = None


def move_between_directories(admin: Admin, moves: Mapping[Replica, str]) -> dict[Replica, ApiError | None]:
    """Ask each broker to move replicas to other directories of its own; each replica's error, if any."""
    from moldau.protocol.generated.wire.alter_replica_log_dirs_request import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirTopic,
    )

    told: dict[Replica, ApiError | None] = {}
    for broker in sorted({replica[2] for replica in moves}):
        by_path: dict[str, list[TopicPartition]] = {}
        for (topic, index, node), path in moves.items():
            if node == broker:
                by_path.setdefault(path, []).append((topic, index))
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in by_topic(partitions)
                    ],
                )
                for path, partitions in by_path.items()
            ]
        )
        for result in admin.ask_node(broker, request).results:
            for each in result.partitions:
                error = None if each.error_code == ErrorCode.NONE else failure(each.error_code)
                told[result.topic_name, each.partition_index, broker] = error
    return told


def replica_places(admin: Admin, replicas: Iterable[Replica]) -> dict[Replica, ReplicaPlace]:
    """Where these replicas are; a broker that cannot be asked about one is left out."""
    from moldau.client.admin.cluster import describe_log_dirs

    wanted = set(replicas)
    places: dict[Replica, ReplicaPlace] = {}
    for broker, directories in describe_log_dirs(admin, sorted({replica[2] for replica in wanted})).items():
        for replica in (each for each in wanted if each[2] == broker):
            places[replica] = ReplicaPlace()
        for directory in directories:
            for each in directory.replicas:
                place = places.get((each.topic, each.partition, broker))
                if place is None:
                    continue
                if each.is_future:
                    place.future = directory.path
                else:
                    place.current = directory.path
    return places


# ---- throttles


@dataclass(slots=True, frozen=True)
class Move:
    """A partition on its way: the brokers that have it, and those that are to get it."""

    sources: frozenset[int]
    destinations: frozenset[int]


def moves_of(
    under_way: Mapping[TopicPartition, Reassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """Everything that will be moving once the proposal is taken."""
    moves = {
        partition: Move(frozenset(each.replicas) - frozenset(each.adding), frozenset(each.adding))
        for partition, each in under_way.items()
    }
    for partition, replicas in proposed.items():
        sources = moves[partition].sources if partition in moves else frozenset(current[partition])
        moves[partition] = Move(sources, frozenset(replicas) - sources)
    return moves


def throttle_moves(admin: Admin, moves: Mapping[TopicPartition, Move], bytes_per_second: int) -> None:
    """Hold the replicas that move, and only them, to this rate on every broker that takes part."""
    for topic in sorted({topic for topic, _ in moves}):
        own = {index: move for (name, index), move in moves.items() if name == topic}
        leaders = sorted(f"{index}:{broker}" for index, move in own.items() for broker in move.sources)
        followers = sorted(f"{index}:{broker}" for index, move in own.items() for broker in move.destinations)
        values = dict(zip(TOPIC_THROTTLES, (",".join(leaders), ",".join(followers)), strict=True))
        alter_configs(admin, ResourceType.TOPIC, topic, set_to=values)
    rate = str(bytes_per_second)
    for broker in sorted({node for move in moves.values() for node in move.sources | move.destinations}):
        alter_configs(admin, ResourceType.BROKER, str(broker), set_to=dict.fromkeys(BROKER_THROTTLES[:2], rate))


def throttle_directories(admin: Admin, brokers: Iterable[int], bytes_per_second: int) -> None:
    for broker in sorted(set(brokers)):
        alter_configs(admin, ResourceType.BROKER, str(broker), set_to={BROKER_THROTTLES[2]: str(bytes_per_second)})


def clear_throttles(admin: Admin, brokers: Iterable[int], topics: Iterable[str]) -> None:
    for broker in sorted(set(brokers)):
        alter_configs(admin, ResourceType.BROKER, str(broker), delete=BROKER_THROTTLES)
    for topic in sorted(set(topics)):
        alter_configs(admin, ResourceType.TOPIC, topic, delete=TOPIC_THROTTLES)
