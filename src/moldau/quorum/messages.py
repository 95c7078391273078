"""The quorum's requests and answers, each about the one partition there is.

Only shapes: Kafka's messages allow many partitions, the metadata quorum has one. What is said is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from moldau.ports import Address
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire import begin_quorum_epoch_request as begin_req
from moldau.protocol.generated.wire import begin_quorum_epoch_response as begin_res
from moldau.protocol.generated.wire import end_quorum_epoch_request as end_req
from moldau.protocol.generated.wire import end_quorum_epoch_response as end_res
from moldau.protocol.generated.wire import fetch_request as fetch_req
from moldau.protocol.generated.wire import fetch_response as fetch_res
from moldau.protocol.generated.wire import fetch_snapshot_request as snapshot_req
from moldau.protocol.generated.wire import fetch_snapshot_response as snapshot_res
from moldau.protocol.generated.wire import vote_request as vote_req
from moldau.protocol.generated.wire import vote_response as vote_res
from moldau.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID
from moldau.quorum.metadata_log import METADATA_TOPIC
from moldau.quorum.snapshots import SnapshotId
from moldau.quorum.state_file import NOBODY
from moldau.quorum.voters import ReplicaKey, VoterEndpoint

VOTE_VERSION: Final = 2
PRE_VOTE_SINCE: Final = 2
BEGIN_EPOCH_VERSION: Final = 1
END_EPOCH_VERSION: Final = 1
FETCH_VERSION: Final = 18
FETCH_SNAPSHOT_VERSION: Final = 1
# From these versions on an answer says where the leader listens.
ENDPOINTS_SINCE: Final = {"vote": 1, "begin": 1, "end": 1, "snapshot": 1, "fetch": 16}
_TOPIC_IDS_SINCE: Final = 13
_REPLICA_STATE_SINCE: Final = 15


class LeaderHint(NamedTuple):
    """What every answer says about the quorum, whatever it answers."""

    error: ErrorCode
    leader_id: int = NOBODY
    epoch: int = -1
    address: Address | None = None


# ---- votes


def vote_request(
    cluster_id: str,
    voter: ReplicaKey,
    candidate: ReplicaKey,
    epoch: int,
    last_epoch: int,
    end_offset: int,
    *,
    pre_vote: bool,
) -> vote_req.VoteRequest:
    partition = vote_req.PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=candidate.id,
        replica_directory_id=candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=last_epoch,
        last_offset=end_offset,
        pre_vote=pre_vote,
    )
    topic = vote_req.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote_req.VoteRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic])


def vote_response(hint: LeaderHint, version: int, *, granted: bool) -> vote_res.VoteResponse:
    partition = vote_res.PartitionData(
        partition_index=0,
        error_code=hint.error,
        leader_id=hint.leader_id,
        leader_epoch=hint.epoch,
        vote_granted=granted,
    )
    response = vote_res.VoteResponse(topics=[vote_res.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])
    if version >= ENDPOINTS_SINCE["vote"] and hint.address is not None:
        response.node_endpoints = [vote_res.NodeEndpoint(hint.leader_id, hint.address.host, hint.address.port)]
    return response


# ---- epochs


def begin_epoch_request(
    cluster_id: str, voter: ReplicaKey, leader_id: int, epoch: int, endpoints: Sequence[VoterEndpoint]
) -> begin_req.BeginQuorumEpochRequest:
    partition = begin_req.PartitionData(
        partition_index=0, voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch
    )
    return begin_req.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[begin_req.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[begin_req.LeaderEndpoint(e.name, e.host, e.port) for e in endpoints],
    )


def begin_epoch_response(hint: LeaderHint, version: int) -> begin_res.BeginQuorumEpochResponse:
    partition = begin_res.PartitionData(
        partition_index=0, error_code=hint.error, leader_id=hint.leader_id, leader_epoch=hint.epoch
    )
    response = begin_res.BeginQuorumEpochResponse(
        topics=[begin_res.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    if version >= ENDPOINTS_SINCE["begin"] and hint.address is not None:
        response.node_endpoints = [begin_res.NodeEndpoint(hint.leader_id, hint.address.host, hint.address.port)]
    return response


def end_epoch_request(
    cluster_id: str, leader_id: int, epoch: int, successors: Sequence[ReplicaKey], endpoints: Sequence[VoterEndpoint]
) -> end_req.EndQuorumEpochRequest:
    partition = end_req.PartitionData(
        partition_index=0,
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[key.id for key in successors],
        preferred_candidates=[end_req.ReplicaInfo(key.id, key.directory_id) for key in successors],
    )
    return end_req.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end_req.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[end_req.LeaderEndpoint(e.name, e.host, e.port) for e in endpoints],
    )


def end_epoch_response(hint: LeaderHint, version: int) -> end_res.EndQuorumEpochResponse:
    partition = end_res.PartitionData(
        partition_index=0, error_code=hint.error, leader_id=hint.leader_id, leader_epoch=hint.epoch
    )
    response = end_res.EndQuorumEpochResponse(
        topics=[end_res.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    if version >= ENDPOINTS_SINCE["end"] and hint.address is not None:
        response.node_endpoints = [end_res.NodeEndpoint(hint.leader_id, hint.address.host, hint.address.port)]
    return response


def preferred_candidates(partition: end_req.PartitionData) -> list[ReplicaKey]:
    """The successors in either version's form."""
    if partition.preferred_candidates:
        return [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates]
    return [ReplicaKey(voter_id, ZERO_UUID) for voter_id in partition.preferred_successors]


# ---- fetches


def fetch_request(
    cluster_id: str,
    replica: ReplicaKey,
    epoch: int,
    last_epoch: int,
    end_offset: int,
    high_watermark: int,
    *,
    max_bytes: int,
    max_wait_ms: int,
) -> fetch_req.FetchRequest:
    partition = fetch_req.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=end_offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
        replica_directory_id=replica.directory_id,
        high_watermark=high_watermark,
    )
    topic = fetch_req.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetch_req.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch_req.ReplicaState(replica_id=replica.id, replica_epoch=-1),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[topic],
    )


def fetch_replica_id(request: fetch_req.FetchRequest, version: int) -> int:
    return request.replica_state.replica_id if version >= _REPLICA_STATE_SINCE else request.replica_id


def fetched_partition(request: fetch_req.FetchRequest, version: int) -> fetch_req.FetchPartition | None:
    """The one partition of a fetch of this log; None when it asks for anything else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    known = topic.topic_id == METADATA_TOPIC_ID if version >= _TOPIC_IDS_SINCE else topic.topic == METADATA_TOPIC
    return topic.partitions[0] if known and topic.partitions[0].partition == 0 else None


def fetch_response(hint: LeaderHint, version: int, partition: fetch_res.PartitionData) -> fetch_res.FetchResponse:
    partition.error_code = hint.error
    partition.current_leader = fetch_res.LeaderIdAndEpoch(hint.leader_id, hint.epoch)
    topic = fetch_res.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    response = fetch_res.FetchResponse(responses=[topic])
    if version >= ENDPOINTS_SINCE["fetch"] and hint.address is not None:
        response.node_endpoints = [fetch_res.NodeEndpoint(hint.leader_id, hint.address.host, hint.address.port, None)]
    return response


def snapshot_request(
    cluster_id: str, replica: ReplicaKey, epoch: int, snapshot_id: SnapshotId, position: int, max_bytes: int
) -> snapshot_req.FetchSnapshotRequest:
    partition = snapshot_req.PartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=snapshot_req.SnapshotId(snapshot_id.offset, snapshot_id.epoch),
        position=position,
        replica_directory_id=replica.directory_id,
    )
    return snapshot_req.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=replica.id,
        max_bytes=max_bytes,
        topics=[snapshot_req.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def snapshot_response(
    hint: LeaderHint, version: int, partition: snapshot_res.PartitionSnapshot
) -> snapshot_res.FetchSnapshotResponse:
    partition.error_code = hint.error
    if partition.unaligned_records is None:
        partition.unaligned_records = b""
    partition.current_leader = snapshot_res.LeaderIdAndEpoch(hint.leader_id, hint.epoch)
    response = snapshot_res.FetchSnapshotResponse(
        topics=[snapshot_res.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])]
    )
    if version >= ENDPOINTS_SINCE["snapshot"] and hint.address is not None:
        response.node_endpoints = [snapshot_res.NodeEndpoint(hint.leader_id, hint.address.host, hint.address.port)]
    return response


# ---- reading


def single_partition(
    topics: Sequence[Any], name_field: str = "topic_name", index_field: str = "partition_index"
) -> Any:
    """The partition of a message that is about this log and nothing else; None for any other message."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    known = getattr(topics[0], name_field) == METADATA_TOPIC and getattr(partition, index_field) == 0
    return partition if known else None


def hint_of(response: Any, partition: Any) -> LeaderHint:
    """What an answer to a vote, or to the begin or the end of an epoch, says about the quorum."""
    return LeaderHint(
        error_code(partition.error_code),
        partition.leader_id,
        partition.leader_epoch,
        endpoint_of(response.node_endpoints, partition.leader_id),
    )


def hint_of_fetch(response: Any, partition: Any) -> LeaderHint:
    """The same of an answer to a fetch, of records or of a snapshot."""
    leader = partition.current_leader
    return LeaderHint(
        error_code(partition.error_code),
        leader.leader_id,
        leader.leader_epoch,
        endpoint_of(response.node_endpoints, leader.leader_id),
    )


def endpoint_of(endpoints: Sequence[Any], node_id: int) -> Address | None:
    for endpoint in endpoints:
        if endpoint.node_id == node_id and endpoint.host:
            return Address(endpoint.host, endpoint.port)
    return None
