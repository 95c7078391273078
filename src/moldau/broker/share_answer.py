"""The answer to a ShareFetch: what was given of each partition, and what became of acknowledgements that came along.

Decides only what is mentioned. A session's later answers leave out partitions of which there is nothing to say.
"""

from __future__ import annotations

from moldau.broker.context import Caller
from moldau.broker.leaders import UNKNOWN_LEADER, current_leader
from moldau.broker.services import BrokerServices
from moldau.broker.share_acknowledge import LEADER_ERRORS, Outcomes
from moldau.ports import Buffer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire import share_fetch_response as wire
from moldau.share.acquiring import Given
from moldau.share.sessions import PartitionKey, ShareSession


class PartitionAnswer:
    """What one partition contributes to an answer."""

    __slots__ = ("error", "given", "records")

    def __init__(
        self, *, error: ApiError | None = None, records: Buffer = b"", given: list[Given] | None = None
    ) -> None:
        self.error = error
        self.records = records
        self.given = given or []


class AnswerBuilder:
    """Collects one answer."""

    def __init__(self, services: BrokerServices, caller: Caller, lock_timeout_ms: int) -> None:
        self._services = services
        self._caller = caller
        self._topics: dict[bytes, wire.ShareFetchableTopicResponse] = {}
        self._partitions: dict[PartitionKey, wire.PartitionData] = {}
        self._endpoints: dict[int, wire.NodeEndpoint] = {}
        self._lock_timeout_ms = lock_timeout_ms

    def add_fetched(self, answers: dict[PartitionKey, PartitionAnswer], session: ShareSession | None) -> None:
        """What was read. A session that has been answered before is told only what is news to it."""
        for key, answer in answers.items():
            error = answer.error
            code = ErrorCode.NONE if error is None else error.code
            if session is not None:
                known = session.partitions.get(key)
                if known is not None and not known.is_news(len(answer.records), code):
                    continue
                if answer.records:
                    session.gave(key)
            part = self._part(key)
            part.records = answer.records
            part.acquired_records = [wire.AcquiredRecords(*given) for given in answer.given]
            if error is not None:
                part.error_code = code
                part.error_message = error.message
                if code in LEADER_ERRORS:
                    self._name_leader(key, part)

    def add_acknowledged(self, outcomes: Outcomes) -> None:
        for key, error in outcomes.items():
            part = self._part(key)
            if error is not None:
                part.acknowledge_error_code = error.code
                part.acknowledge_error_message = error.message

    def finish(self, code: ErrorCode = ErrorCode.NONE) -> wire.ShareFetchResponse:
        return wire.ShareFetchResponse(
            error_code=code,
            acquisition_lock_timeout_ms=self._lock_timeout_ms,
            responses=list(self._topics.values()),
            node_endpoints=list(self._endpoints.values()),
        )

    def _part(self, key: PartitionKey) -> wire.PartitionData:
        part = self._partitions.get(key)
        if part is None:
            part = self._partitions[key] = wire.PartitionData(partition_index=key.partition, records=b"")
            topic = self._topics.get(key.topic_id)
            if topic is None:
                topic = self._topics[key.topic_id] = wire.ShareFetchableTopicResponse(topic_id=key.topic_id)
            topic.partitions.append(part)
        return part

    def _name_leader(self, key: PartitionKey, part: wire.PartitionData) -> None:
        topic = self._services.image.topic_by_id(key.topic_id)
        leader = UNKNOWN_LEADER
        if topic is not None:
            leader = current_leader(self._services, topic.name, key.partition, self._caller.listener_name)
        part.current_leader = wire.LeaderIdAndEpoch(leader.leader_id, leader.leader_epoch)
        if leader.endpoint is not None:
            self._endpoints[leader.leader_id] = wire.NodeEndpoint(
                leader.leader_id, leader.endpoint.host, leader.endpoint.port, leader.rack
            )
