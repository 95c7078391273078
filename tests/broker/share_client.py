"""A member of a share group at the leader of its partitions: share fetches and acknowledgements, session and all."""

from __future__ import annotations

from typing import Any

from broker_node import Client, SimulatedNode, batch, produce_request

from moldau.ports import Pending
from moldau.protocol.generated.wire import alter_configs_request as alter
from moldau.protocol.generated.wire import initialize_share_group_state_request as initialize
from moldau.protocol.generated.wire import share_acknowledge_request as acknowledging
from moldau.protocol.generated.wire import share_fetch_request as fetching

GROUP = "group"


def prepare_group(
    node: SimulatedNode, topic_id: bytes, partitions: int = 1, group: str = GROUP, start: int = 0, epoch: int = 1
) -> None:
    """What the group coordinator does when a member subscribes for the first time."""
    request = initialize.InitializeShareGroupStateRequest(
        group_id=group,
        topics=[
            initialize.InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    initialize.PartitionData(partition=index, state_epoch=epoch, start_offset=start)
                    for index in range(partitions)
                ],
            )
        ],
    )
    outcome = node.broker.share_persister().initialize(request)
    node.clock.advance(100)
    assert outcome.done
    assert all(part.error_code == 0 for topic in outcome.value.results for part in topic.partitions), outcome.value


def configure_group(node: SimulatedNode, group: str = GROUP, **settings: str) -> None:
    resource = alter.AlterConfigsResource(
        resource_type=32,
        resource_name=group,
        configs=[alter.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()],
    )
    answer = node.client.send(alter.AlterConfigsRequest(resources=[resource]), 2)
    assert answer.responses[0].error_code == 0, answer


def produce(node: SimulatedNode, topic: str, *values: bytes, partition: int = 0) -> None:
    answer = node.client.send(produce_request(topic, batch(*values), version=9, first=partition), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


class ShareMember:
    def __init__(self, node: SimulatedNode, member_id: str, topic_id: bytes, group: str = GROUP) -> None:
        self.client = Client(node)
        self.node = node
        self.group = group
        self.member_id = member_id
        self.topic_id = topic_id
        self.epoch = 0

    def post(
        self,
        *partitions: int,
        acks: dict[int, list[tuple[int, int, list[int]]]] | None = None,
        forget: tuple[int, ...] = (),
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        renew: bool = False,
        epoch: int | None = None,
        version: int = 2,
    ) -> Pending[Any]:
        acks = acks or {}
        named = [*partitions, *(index for index in acks if index not in partitions)]
        request = fetching.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            share_acquire_mode=mode,
            is_renew_ack=renew,
            topics=[
                fetching.FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        fetching.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                fetching.AcknowledgementBatch(*each) for each in acks.get(index, ())
                            ],
                        )
                        for index in named
                    ],
                )
            ]
            if named
            else [],
            forgotten_topics_data=[fetching.ForgottenTopic(topic_id=self.topic_id, partitions=list(forget))]
            if forget
            else [],
        )
        response = self.client.post(request, version)
        if epoch is None:
            self.epoch += 1
        return response

    def fetch(self, *partitions: int, **more: Any) -> Any:
        response = self.post(*partitions, **more)
        if not response.done:
            self.node.clock.advance(more.get("max_wait_ms", 0))
        assert response.done
        return response.value

    def take(self, *partitions: int, **more: Any) -> list[tuple[int, int, int]]:
        """What is given of the only partition that gives anything."""
        answer = self.fetch(*partitions, **more)
        assert answer.error_code == 0, answer
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for topic in answer.responses
            for part in topic.partitions
            for each in part.acquired_records
        ]

    def acknowledge(
        self,
        acks: dict[int, list[tuple[int, int, list[int]]]],
        *,
        epoch: int | None = None,
        renew: bool = False,
        version: int = 2,
    ) -> Any:
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=[
                acknowledging.AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        acknowledging.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[acknowledging.AcknowledgementBatch(*each) for each in batches],
                        )
                        for index, batches in acks.items()
                    ],
                )
            ],
        )
        if epoch is None:
            self.epoch += 1
        return self.client.send(request, version)
