"""The answer to a Produce request of which a part failed: error codes, and what newer versions say beside them.

From version 8 on it names the records at fault and explains, from version 10 on it names the leader that a client
should turn to instead (KIP-951). Answers without an error never come here.
"""

from __future__ import annotations

from moldau.broker.context import Caller
from moldau.broker.leaders import CurrentLeader, current_leader, topic_name
from moldau.broker.produce import PartitionResult, Topic
from moldau.broker.services import BrokerServices
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

_RECORD_ERRORS_SINCE = 8
_LEADERS_SINCE = 10
_TOPIC_IDS_SINCE = 13


class ProduceErrors:
    """Shapes the answers that contain an error."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def shape(self, caller: Caller, topics: list[Topic]) -> ProduceResponse:
        version = caller.api_version
        by_id = version >= _TOPIC_IDS_SINCE
        leaders: dict[int, CurrentLeader] = {}
        shaped: list[TopicProduceResponse] = []
        for topic_key, results in topics:
            name = topic_name(self._services, topic_key, by_id=by_id)
            shaped.append(
                TopicProduceResponse(
                    name="" if by_id else name or "",
                    topic_id=topic_key if by_id else bytes(16),
                    partition_responses=[self._partition(caller, name, result, leaders) for result in results],
                )
            )
        return ProduceResponse(responses=shaped, node_endpoints=_endpoints(leaders))

    def _partition(
        self, caller: Caller, topic: str | None, result: PartitionResult, leaders: dict[int, CurrentLeader]
    ) -> PartitionProduceResponse:
        shaped = PartitionProduceResponse(
            index=result.index,
            error_code=result.error,
            base_offset=result.base_offset,
            log_append_time_ms=result.append_time,
            log_start_offset=result.log_start,
        )
        if not result.error:
            return shaped
        version = caller.api_version
        if version >= _RECORD_ERRORS_SINCE:
            shaped.error_message = result.message
            shaped.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in result.record_errors or ()
            ]
        if version >= _LEADERS_SINCE and result.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and topic is not None:
            leader = current_leader(self._services, topic, result.index, caller.listener_name)
            shaped.current_leader = LeaderIdAndEpoch(leader.leader_id, leader.leader_epoch)
            if leader.endpoint is not None:
                leaders[leader.leader_id] = leader
        return shaped


def _endpoints(leaders: dict[int, CurrentLeader]) -> list[NodeEndpoint]:
    return [
        NodeEndpoint(node_id, leader.endpoint.host, leader.endpoint.port, leader.rack)
        for node_id, leader in leaders.items()
        if leader.endpoint is not None
    ]
