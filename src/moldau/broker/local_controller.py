"""The way to the controller when it runs in this very process: a direct call, no network in between."""

from __future__ import annotations

from typing import Any, Final, cast

from moldau.controller.controller import Controller
from moldau.controller.handlers import HANDLERS
from moldau.ports import Clock, Pending
from moldau.protocol.api import ApiKey
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
from moldau.protocol.uuids import ZERO_UUID
from moldau.protocol.wire import WireMessage
from moldau.quorum.leader import Leader
from moldau.quorum.quorum import Quorum

METADATA_TOPIC: Final = "__cluster_metadata"
# From this version of DescribeQuorum on voters are known by directory as well, and come with their addresses.
_DIRECTORIES_SINCE: Final = 2
_SERVED: Final = frozenset({ApiKey.DESCRIBE_QUORUM, *(cast(type[WireMessage], each).API_KEY for each in HANDLERS)})


class LocalController:
    """`ControllerChannel` of a node that is broker and controller at once."""

    def __init__(self, controller: Controller, quorum: Quorum, clock: Clock) -> None:
        self._controller = controller
        self._quorum = quorum
        self._clock = clock

    def serves(self, api_key: int) -> bool:
        return api_key in _SERVED

    def ask(self, request: Any, api_version: int, principal: str) -> Pending[Any]:
        if isinstance(request, DescribeQuorumRequest):
            return Pending.of(self._describe_quorum(request, api_version))
        return self._controller.handle(request, api_version, principal)

    def committed_offset(self) -> int:
        return self._quorum.high_watermark - 1

    # ---- DescribeQuorum

    def _describe_quorum(self, request: DescribeQuorumRequest, version: int) -> DescribeQuorumResponse:
        asked = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]
        if asked != [(METADATA_TOPIC, 0)]:
            return _unknown_partitions(request)
        leader = self._quorum.role
        if not isinstance(leader, Leader):
            return DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        voters = leader.voters.values()
        names_directories = version >= _DIRECTORIES_SINCE
        now = self._clock.now_ms()
        partition = PartitionData(
            partition_index=0,
            error_message=None,
            leader_id=self._quorum.leader_id,
            leader_epoch=leader.epoch,
            high_watermark=self._quorum.high_watermark,
            current_voters=[
                ReplicaState(
                    replica_id=voter.id,
                    replica_directory_id=voter.directory_id if names_directories else ZERO_UUID,
                    log_end_offset=leader.end_of(voter.id),
                    last_fetch_timestamp=now if voter.id == self._quorum.node_id else -1,
                    last_caught_up_timestamp=now if voter.id == self._quorum.node_id else -1,
                )
                for voter in voters
            ],
        )
        nodes = [
            Node(node_id=voter.id, listeners=[Listener(e.name, e.host, e.port) for e in voter.endpoints])
            for voter in voters
        ]
        return DescribeQuorumResponse(
            error_message=None,
            topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            nodes=nodes if names_directories else [],
        )


def _unknown_partitions(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionData(partition_index=partition.partition_index, error_code=unknown)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
