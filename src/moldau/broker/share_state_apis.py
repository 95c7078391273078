"""The five APIs of the share coordinator have one shape: partitions of one group, an outcome for each.

Decides nothing; it takes such requests apart and puts their responses together, for the coordinator and for those who
ask it (`share_coordinator.py`, `share_persister.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from moldau.coordinator.share.state import SharePartitionKey
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import delete_share_group_state_request as delete_request
from moldau.protocol.generated.wire import delete_share_group_state_response as delete_response
from moldau.protocol.generated.wire import initialize_share_group_state_request as initialize_request
from moldau.protocol.generated.wire import initialize_share_group_state_response as initialize_response
from moldau.protocol.generated.wire import read_share_group_state_request as read_request
from moldau.protocol.generated.wire import read_share_group_state_response as read_response
from moldau.protocol.generated.wire import read_share_group_state_summary_request as summary_request
from moldau.protocol.generated.wire import read_share_group_state_summary_response as summary_response
from moldau.protocol.generated.wire import write_share_group_state_request as write_request
from moldau.protocol.generated.wire import write_share_group_state_response as write_response


class ShareStateApi(NamedTuple):
    request: Any
    request_topic: Any
    response: Any
    response_topic: Any
    response_partition: Any
    # What it does, for explanations.
    verb: str

    def failed(self, partition: int, code: ErrorCode, message: str) -> Any:
        return self.response_partition(partition=partition, error_code=code, error_message=message)

    def request_of(self, group_id: str, parts: Iterable[tuple[SharePartitionKey, Any]]) -> Any:
        topics: dict[bytes, Any] = {}
        for key, asked in parts:
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = self.request_topic(topic_id=key.topic_id)
            topic.partitions.append(asked)
        return self.request(group_id=group_id, topics=list(topics.values()))

    def response_of(self, results: Iterable[tuple[bytes, Any]]) -> Any:
        """The response with these results of partitions, each with the id of its topic."""
        topics: dict[bytes, Any] = {}
        for topic_id, result in results:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = self.response_topic(topic_id=topic_id)
            topic.partitions.append(result)
        return self.response(results=list(topics.values()))


def parts_of(request: Any) -> Iterator[tuple[SharePartitionKey, Any]]:
    """Each partition a request names, with what it says about it."""
    for topic in request.topics:
        for asked in topic.partitions:
            yield SharePartitionKey(request.group_id, topic.topic_id, asked.partition), asked


SHARE_STATE_APIS: Final[Mapping[int, ShareStateApi]] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ShareStateApi(
        initialize_request.InitializeShareGroupStateRequest,
        initialize_request.InitializeStateData,
        initialize_response.InitializeShareGroupStateResponse,
        initialize_response.InitializeStateResult,
        initialize_response.PartitionResult,
        "initialize share group state",
    ),
    ApiKey.READ_SHARE_GROUP_STATE: ShareStateApi(
        read_request.ReadShareGroupStateRequest,
        read_request.ReadStateData,
        read_response.ReadShareGroupStateResponse,
        read_response.ReadStateResult,
        read_response.PartitionResult,
        "read share group state",
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: ShareStateApi(
        write_request.WriteShareGroupStateRequest,
        write_request.WriteStateData,
        write_response.WriteShareGroupStateResponse,
        write_response.WriteStateResult,
        write_response.PartitionResult,
        "write share group state",
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: ShareStateApi(
        delete_request.DeleteShareGroupStateRequest,
        delete_request.DeleteStateData,
        delete_response.DeleteShareGroupStateResponse,
        delete_response.DeleteStateResult,
        delete_response.PartitionResult,
        "delete share group state",
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ShareStateApi(
        summary_request.ReadShareGroupStateSummaryRequest,
        summary_request.ReadStateSummaryData,
        summary_response.ReadShareGroupStateSummaryResponse,
        summary_response.ReadStateSummaryResult,
        summary_response.PartitionResult,
        "read share group state summary",
    ),
}
