"""Requests to a share coordinator, about one group and one topic, for tests without sockets."""

from __future__ import annotations

from typing import Any

from broker_node import SimulatedNode, fetch_request, records_of

from moldau.protocol.coordinator_records import decode_key, decode_value
from moldau.protocol.generated.wire import delete_share_group_state_request as deleting
from moldau.protocol.generated.wire import initialize_share_group_state_request as initializing
from moldau.protocol.generated.wire import read_share_group_state_request as reading
from moldau.protocol.generated.wire import read_share_group_state_summary_request as summing
from moldau.protocol.generated.wire import write_share_group_state_request as writing
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.uuids import uuid_to_string

GROUP = "group"
STATE_TOPIC = "__share_group_state"


def with_share_state(**settings: str) -> SimulatedNode:
    """A node whose share-state topic exists, with one partition."""
    node = SimulatedNode(
        **{"share_coordinator_state_topic_num_partitions": "1", "offsets_topic_num_partitions": "1", **settings}
    )
    for key_type, key in ((0, "any"), (2, f"any:{uuid_to_string(bytes(15) + b'1')}:0")):
        answer = node.client.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)
        assert answer.coordinators[0].error_code == 0, answer
    return node


class StateClient:
    """Asks about one partition of one topic at a time; every answer is that partition's result."""

    def __init__(self, node: SimulatedNode, topic_id: bytes, group: str = GROUP) -> None:
        self.node = node
        self.topic_id = topic_id
        self.group = group

    def _one(self, request: Any, version: int) -> Any:
        answer = self.node.client.send(request, version)
        assert [each.topic_id for each in answer.results] == [self.topic_id], answer
        assert len(answer.results[0].partitions) == 1
        return answer.results[0].partitions[0]

    def initialize(self, partition: int = 0, *, start: int = -1, state_epoch: int = 0) -> Any:
        data = initializing.PartitionData(partition, state_epoch, start)
        topic = initializing.InitializeStateData(self.topic_id, [data])
        return self._one(initializing.InitializeShareGroupStateRequest(self.group, [topic]), 0)

    def read(self, partition: int = 0, *, leader_epoch: int = -1) -> Any:
        topic = reading.ReadStateData(self.topic_id, [reading.PartitionData(partition, leader_epoch)])
        return self._one(reading.ReadShareGroupStateRequest(self.group, [topic]), 0)

    def write(
        self,
        *batches: tuple[int, int, int, int],
        partition: int = 0,
        start: int = -1,
        state_epoch: int = -1,
        leader_epoch: int = -1,
        complete: int = 0,
    ) -> Any:
        """Each batch is (first offset, last offset, state, deliveries)."""
        data = writing.PartitionData(
            partition, state_epoch, leader_epoch, start, complete, [writing.StateBatch(*each) for each in batches]
        )
        topic = writing.WriteStateData(self.topic_id, [data])
        return self._one(writing.WriteShareGroupStateRequest(self.group, [topic]), 1)

    def delete(self, partition: int = 0) -> Any:
        topic = deleting.DeleteStateData(self.topic_id, [deleting.PartitionData(partition)])
        return self._one(deleting.DeleteShareGroupStateRequest(self.group, [topic]), 0)

    def summary(self, partition: int = 0) -> Any:
        topic = summing.ReadStateSummaryData(self.topic_id, [summing.PartitionData(partition)])
        return self._one(summing.ReadShareGroupStateSummaryRequest(self.group, [topic]), 1)

    def batches(self, partition: int = 0) -> list[tuple[int, int, int, int]]:
        return [
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in self.read(partition).state_batches
        ]


def state_log(node: SimulatedNode) -> list[tuple[str, Any]]:
    """The records of the share coordinator: the name of each kind, and its value."""
    log = node.broker.services.partitions.get(STATE_TOPIC, 0).log
    answer = node.client.send(fetch_request(STATE_TOPIC, log.log_start_offset, version=12, max_bytes=50 << 20), 12)
    found: list[tuple[str, Any]] = []
    for record in records_of(answer.responses[0].partitions[0].records):
        if record.offset < log.log_start_offset:
            continue
        assert record.key is not None
        key = decode_key("share", record.key)
        assert key.API_KEY is not None
        value = None if record.value is None else decode_value("share", key.API_KEY, record.value)[0]
        found.append((type(key).__name__.removesuffix("Key"), value))
    return found
