"""The cluster as a whole: its brokers, quorum, features, log directories and groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from moldau.client.admin.client import Admin
from moldau.client.admin.membership import VoterAddress
from moldau.client.errors import MoldauError, failure, raise_for
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

METADATA_TOPIC = "__cluster_metadata"
CONTROLLER_ENDPOINTS = 2
_FENCED_FROM_VERSION = 2


@dataclass(slots=True)
class BrokerDescription:
    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


@dataclass(slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: list[BrokerDescription]


@dataclass(slots=True)
class QuorumReplica:
    node_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(slots=True)
class QuorumDescription:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    addresses: dict[int, list[str]]
    """Where the voters listen, where the quorum tells it."""


@dataclass(slots=True)
class ReplicaSize:
    topic: str
    partition: int
    size: int
    offset_lag: int
    is_future: bool


@dataclass(slots=True)
class LogDirDescription:
    path: str
    error: ApiError | None
    replicas: list[ReplicaSize]
    total_bytes: int
    usable_bytes: int
    cordoned: bool = False
    """Whether it takes no new replicas."""


@dataclass(slots=True)
class Feature:
    name: str
    supported_min: int
    supported_max: int
    finalized: int


@dataclass(slots=True)
class Features:
    epoch: int
    features: list[Feature]


def describe_cluster(admin: Admin, *, fenced: bool = False) -> ClusterDescription:
    if not admin.supports(ApiKey.DESCRIBE_CLUSTER):
        return _describe_by_metadata(admin)
    from moldau.protocol.generated.wire.describe_cluster_request import DescribeClusterRequest

    version = admin.any_connection().choose_version(ApiKey.DESCRIBE_CLUSTER)
    request = DescribeClusterRequest(include_fenced_brokers=fenced and version >= _FENCED_FROM_VERSION)
    if admin.controllers:
        request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
    answer = admin.ask(request)
    raise_for(answer.error_code, answer.error_message)
    brokers = [
        BrokerDescription(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in answer.brokers
    ]
    brokers.sort(key=lambda broker: broker.node_id)
    return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)


def describe_controllers(admin: Admin) -> ClusterDescription:
    """The controllers of the quorum, asked of one of them."""
    from moldau.protocol.generated.wire.describe_cluster_request import DescribeClusterRequest

    answer = admin.ask(DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS))
    raise_for(answer.error_code, answer.error_message)
    found = [BrokerDescription(each.broker_id, each.host, each.port, each.rack, False) for each in answer.brokers]
    found.sort(key=lambda controller: controller.node_id)
    return ClusterDescription(answer.cluster_id, answer.controller_id, found)


def _describe_by_metadata(admin: Admin) -> ClusterDescription:
    from moldau.protocol.generated.wire.metadata_request import MetadataRequest

    answer = admin.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    brokers = [BrokerDescription(each.node_id, each.host, each.port, each.rack, False) for each in answer.brokers]
    brokers.sort(key=lambda broker: broker.node_id)
    return ClusterDescription(answer.cluster_id or "", answer.controller_id, brokers)


def describe_quorum(admin: Admin) -> QuorumDescription:
    from moldau.protocol.generated.wire.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData

    if not admin.supports(ApiKey.DESCRIBE_QUORUM):
        raise MoldauError("This cluster has no KRaft quorum to describe")
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
    )

    def codes(reply: Any) -> list[int]:
        return [reply.error_code, *(each.error_code for topic in reply.topics for each in topic.partitions)]

    # Brokers pass the question on to the leader; of the controllers only the leader itself can answer it.
    ask = admin.ask_controller if admin.controllers else admin.ask
    answer = ask(request, codes=codes)
    raise_for(answer.error_code, answer.error_message)
    partition = answer.topics[0].partitions[0]
    raise_for(partition.error_code, partition.error_message)

    def replicas(states: Iterable[Any]) -> list[QuorumReplica]:
        return sorted(
            (
                QuorumReplica(
                    each.replica_id,
                    each.replica_directory_id,
                    each.log_end_offset,
                    each.last_fetch_timestamp,
                    each.last_caught_up_timestamp,
                )
                for each in states
            ),
            key=lambda replica: replica.node_id,
        )

    return QuorumDescription(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        replicas(partition.current_voters),
        replicas(partition.observers),
        {
            node.node_id: [str(VoterAddress(each.name, each.host, each.port)) for each in node.listeners]
            for node in answer.nodes
        },
    )


def describe_log_dirs(admin: Admin, brokers: Iterable[int]) -> dict[int, list[LogDirDescription]]:
    from moldau.protocol.generated.wire.describe_log_dirs_request import DescribeLogDirsRequest

    described: dict[int, list[LogDirDescription]] = {}
    for node_id in brokers:
        answer = admin.ask_node(node_id, DescribeLogDirsRequest(topics=None))
        raise_for(answer.error_code)
        described[node_id] = [
            LogDirDescription(
                each.log_dir,
                None if each.error_code == ErrorCode.NONE else failure(each.error_code),
                [
                    ReplicaSize(topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
                    for topic in each.topics
                    for one in topic.partitions
                ],
                each.total_bytes,
                each.usable_bytes,
                each.is_cordoned,
            )
            for each in answer.results
        ]
    return described


def describe_features(admin: Admin, node_id: int | None = None) -> Features:
    """As any node tells them, or this one."""
    connection = admin.any_connection() if node_id is None else admin.known_node(node_id)
    names = sorted(set(connection.supported_features) | set(connection.finalized_features))
    features = [
        Feature(name, *connection.supported_features.get(name, (0, 0)), connection.finalized_features.get(name, 0))
        for name in names
    ]
    return Features(connection.finalized_epoch, features)
