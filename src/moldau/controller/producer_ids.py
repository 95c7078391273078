"""Blocks of producer ids: each broker takes a thousand at a time, so that no id is ever given out twice."""

from __future__ import annotations

from typing import Final

from moldau.controller.decision import Decision, Situation
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.producer_ids_record import ProducerIdsRecord
from moldau.protocol.generated.wire.allocate_producer_ids_request import AllocateProducerIdsRequest
from moldau.protocol.generated.wire.allocate_producer_ids_response import AllocateProducerIdsResponse

BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1


def allocate_producer_ids(s: Situation, request: AllocateProducerIdsRequest) -> Decision[AllocateProducerIdsResponse]:
    s.state.check_broker_epoch(request.broker_id, request.broker_epoch)
    first = s.state.sections.producer_ids.next_id
    if first > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision([record], AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE))
