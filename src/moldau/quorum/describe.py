"""DescribeQuorum: who leads the metadata quorum, who votes, and how far each replica is."""

from __future__ import annotations

from moldau.ports import Clock
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.describe_quorum_request import DescribeQuorumRequest
from moldau.protocol.generated.wire.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from moldau.quorum.leader import Leader, ReplicaProgress
from moldau.quorum.metadata_log import METADATA_TOPIC
from moldau.quorum.quorum import Quorum
from moldau.quorum.voters import Voter

# Version 2 added messages, directory ids and the voters' addresses.
NODES_SINCE = 2


def describe_quorum(
    quorum: Quorum, request: DescribeQuorumRequest, version: int, clock: Clock
) -> DescribeQuorumResponse:
    """The leader's answer; any other node must say that it is not the leader."""
    asked = [(topic.topic_name, [p.partition_index for p in topic.partitions]) for topic in request.topics]
    if asked != [(METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            topics=[
                TopicData(
                    topic_name=name,
                    partitions=[
                        PartitionData(
                            partition_index=index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in asked
            ],
        )
    partition = PartitionData(partition_index=0)
    if isinstance(quorum.role, Leader):
        now_ms = clock.now_ms()
        leader = quorum.role
        partition.current_voters = [_replica(quorum, each, now_ms, version) for each in leader.voter_progress()]
        partition.observers = [_replica(quorum, each, now_ms, version) for each in leader.observer_progress(now_ms)]
        partition.leader_id = quorum.leader_id
        partition.leader_epoch = quorum.epoch
        partition.high_watermark = leader.high_watermark
    else:
        partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    response = DescribeQuorumResponse(topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])
    if version >= NODES_SINCE and partition.error_code == ErrorCode.NONE:
        response.nodes = [_node(voter) for voter in quorum.voters.values()]
    return response


def _replica(quorum: Quorum, progress: ReplicaProgress, now_ms: int, version: int) -> ReplicaState:
    own = progress.key.id == quorum.node_id
    state = ReplicaState(
        replica_id=progress.key.id,
        log_end_offset=quorum.next_offset if own else progress.end_offset,
        last_fetch_timestamp=now_ms if own else progress.last_fetch_ms,
        last_caught_up_timestamp=now_ms if own else progress.last_caught_up_ms,
    )
    if version >= NODES_SINCE:
        state.replica_directory_id = progress.key.directory_id
    return state


def _node(voter: Voter) -> Node:
    return Node(node_id=voter.id, listeners=[Listener(name=e.name, host=e.host, port=e.port) for e in voter.endpoints])
