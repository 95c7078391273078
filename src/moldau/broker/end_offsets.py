"""How far partitions reach, wherever they are led: this broker's own at a look, others by asking their leaders.

Decides nothing about errors: whoever asks gets the code of each partition that could not be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from moldau.broker.gathering import gather
from moldau.broker.services import BrokerServices
from moldau.ports import Address, Pending, Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

TopicPartition: TypeAlias = tuple[str, int]
EndOffset: TypeAlias = int | ErrorCode

_LANE: Final = "offsets"
_LATEST: Final = -1
_CONSUMER: Final = -1


def end_offsets(
    services: BrokerServices, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, EndOffset] | Pending[dict[TopicPartition, EndOffset]]:
    """The high watermark of each partition, or why it is not known."""
    by_leader: dict[int, list[TopicPartition]] = {}
    found: dict[TopicPartition, EndOffset] = {}
    for place in partitions:
        known = services.image.partition(*place)
        if known is None:
            found[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif known.leader < 0:
            found[place] = ErrorCode.LEADER_NOT_AVAILABLE
        elif known.leader == services.node_id:
            found[place] = _own(services, place)
        else:
            by_leader.setdefault(known.leader, []).append(place)
    asked = [_ask(services, leader, places) for leader, places in by_leader.items()]

    def combine(answers: list[dict[TopicPartition, EndOffset]]) -> dict[TopicPartition, EndOffset]:
        for answer in answers:
            found.update(answer)
        return found

    return gather(asked, combine)


def _own(services: BrokerServices, place: TopicPartition) -> EndOffset:
    partition = services.partitions.find(*place)
    if partition is None or not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return partition.log.high_watermark


def _ask(
    services: BrokerServices, leader: int, places: list[TopicPartition]
) -> dict[TopicPartition, EndOffset] | Pending[dict[TopicPartition, EndOffset]]:
    broker = services.image.brokers.get(leader)
    endpoint = None if broker is None else broker.listeners.get(services.config.inter_broker_listener)
    if endpoint is None or services.network is None:
        return dict.fromkeys(places, ErrorCode.LEADER_NOT_AVAILABLE)
    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in places:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
    request = ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))
    answer: Pending[dict[TopicPartition, EndOffset]] = Pending()

    def answered(response: Any) -> None:
        found: dict[TopicPartition, EndOffset] = dict.fromkeys(places, ErrorCode.NETWORK_EXCEPTION)
        if not isinstance(response, Unreachable):
            for topic in response.topics:
                for each in topic.partitions:
                    code = error_code(each.error_code)
                    found[topic.name, each.partition_index] = code if code is not ErrorCode.NONE else each.offset
        answer.resolve(found)

    services.network.send(
        Address(endpoint.host, endpoint.port),
        request,
        ListOffsetsRequest.MAX_VERSION,
        answered,
        timeout_ms=services.config.integer("request.timeout.ms"),
        lane=_LANE,
    )
    return answer
