"""ShareAcknowledge (API 79), and the acknowledgements that ride on a ShareFetch.

Decides whether an acknowledgement is well-formed and may be made, partition by partition; whether it fits what the
member holds is decided by the share partition. Ending a session gives back what its member still holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.gathering import after, gather
from moldau.broker.leaders import UNKNOWN_LEADER, current_leader
from moldau.broker.services import BrokerServices
from moldau.broker.share_partitions import SharePartitions
from moldau.metadata.features import SHARE_VERSION
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire import share_acknowledge_response as wire
from moldau.protocol.generated.wire.share_acknowledge_request import ShareAcknowledgeRequest
from moldau.share.acknowledging import Acknowledgement, acknowledge, release
from moldau.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionKey, ShareSession, ShareSessions
from moldau.share.states import RENEW, AcknowledgeType

log = logging.getLogger("moldau.broker")

RENEWALS_SINCE: Final = 2
LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_LONGEST_MEMBER_ID: Final = 36
# The level of the feature share.version that brings share groups.
_SUPPORTED_SINCE: Final = 1

Outcomes: TypeAlias = dict[PartitionKey, ApiError | None]


class ShareAcknowledger:
    """Carries out acknowledgements and the ends of sessions."""

    def __init__(self, services: BrokerServices, sessions: ShareSessions, partitions: SharePartitions) -> None:
        self._services = services
        self._sessions = sessions
        self._partitions = partitions
        # Records acknowledged, by how.
        self.counts = dict.fromkeys(AcknowledgeType, 0)

    # ---- what both requests are checked for

    def check(self, group_id: str | None, member_id: str | None, caller: Caller) -> tuple[str, str]:
        """The group and the member, if there are such groups and the caller may read for this one."""
        services = self._services
        if services.image.feature_level(SHARE_VERSION) < _SUPPORTED_SINCE:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if group_id is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The request names no group.")
        guard = services.guard
        if guard is not None and not guard.allows(caller, Operation.READ, ResourceKind.GROUP, group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not member_id or len(member_id) > _LONGEST_MEMBER_ID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The member id is empty or too long.")
        return group_id, member_id

    def refusal(self, topic: str | None, key: PartitionKey, caller: Caller) -> ApiError | None:
        """Why the caller gets nothing of a partition that has, or had, this name."""
        if topic is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        guard = self._services.guard
        if guard is not None and not guard.allows(caller, Operation.READ, ResourceKind.TOPIC, topic):
            return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        image = self._services.image.topic_by_id(key.topic_id)
        if image is None or key.partition not in image.partitions:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return None

    # ---- acknowledging

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        topics: list[Any],
        caller: Caller,
        *,
        is_renewal: bool,
    ) -> Outcomes | Pending[Outcomes]:
        """What becomes of the acknowledgements in a request: an error or None for each partition."""
        refused: Outcomes = {}
        silent: Outcomes = {}
        keys: list[PartitionKey] = []
        pending: list[ApiError | Pending[ApiError | None] | None] = []
        for topic in topics:
            for partition in topic.partitions:
                key = PartitionKey(topic.topic_id, partition.partition_index)
                said = [
                    Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types)
                    for each in partition.acknowledgement_batches
                ]
                error = self._refusal(key, said, caller, is_renewal=is_renewal)
                if error is not None:
                    refused[key] = error
                elif not said:
                    silent[key] = None
                else:
                    keys.append(key)
                    pending.append(self._acknowledge_one(group_id, member_id, key, said))
        if not keys:
            return refused
        return gather(pending, lambda errors: {**dict(zip(keys, errors, strict=True)), **refused, **silent})

    def _refusal(
        self, key: PartitionKey, said: list[Acknowledgement], caller: Caller, *, is_renewal: bool
    ) -> ApiError | None:
        topic = self._services.image.topic_by_id(key.topic_id)
        if topic is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not _is_well_formed(said, renewals=caller.api_version >= RENEWALS_SINCE, is_renewal=is_renewal):
            return ApiError(ErrorCode.INVALID_REQUEST)
        return self.refusal(topic.name, key, caller)

    def _acknowledge_one(
        self, group_id: str, member_id: str, key: PartitionKey, said: list[Acknowledgement]
    ) -> Pending[ApiError | None]:
        led = self._partitions.get(group_id, key)
        if led is None:
            return Pending.of(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        outcome = acknowledge(led.share, member_id, said)

        def stored(error: ApiError | None) -> None:
            if error is not None:
                self._partitions.failed(group_id, key, error)
            else:
                self._count(said)

        outcome.then(stored)
        return outcome

    def _count(self, said: list[Acknowledgement]) -> None:
        counts = self.counts
        for first, last, kinds in said:
            if len(kinds) == 1:
                counts[AcknowledgeType(kinds[0])] += last - first + 1
            else:
                for kind in kinds:
                    counts[AcknowledgeType(kind)] += 1

    # ---- the end of a session

    def end_session(self, session: ShareSession) -> None:
        """Forget a session, and offer again what its member holds. Nobody waits for that to be stored."""
        if not self._sessions.end(session):
            return
        group_id = session.group_id
        for key in session.partitions:
            led = self._partitions.get(group_id, key)
            if led is not None:
                release(led.share, session.member_id).then(self._released(group_id, key))

    def _released(self, group_id: str, key: PartitionKey) -> Callable[[ApiError | None], None]:
        def stored(error: ApiError | None) -> None:
            if error is not None:
                log.info("records of group %s could not be released: %s", group_id, error)
                self._partitions.failed(group_id, key, error)

        return stored

    # ---- ShareAcknowledge

    def handle(self, request: ShareAcknowledgeRequest, caller: Caller) -> Any:
        try:
            group_id, member_id = self.check(request.group_id, request.member_id, caller)
            session = self._session_of(group_id, member_id, request.share_session_epoch)
        except ApiError as error:
            return wire.ShareAcknowledgeResponse(error_code=error.code)
        outcomes = self.acknowledge(group_id, member_id, request.topics, caller, is_renewal=request.is_renew_ack)

        def finished(results: Any) -> wire.ShareAcknowledgeResponse:
            if request.share_session_epoch == FINAL_EPOCH:
                self.end_session(session)
            return self._response(group_id, results, caller)

        return after(outcomes, finished)

    def _session_of(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        if epoch == INITIAL_EPOCH:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if epoch == FINAL_EPOCH:
            return self._sessions.existing(group_id, member_id)
        return self._sessions.next_request(group_id, member_id, epoch)

    def _response(self, group_id: str, outcomes: Outcomes, caller: Caller) -> wire.ShareAcknowledgeResponse:
        topics: dict[bytes, wire.ShareAcknowledgeTopicResponse] = {}
        endpoints: dict[int, wire.NodeEndpoint] = {}
        for key, error in outcomes.items():
            part = wire.PartitionData(partition_index=key.partition)
            if error is not None:
                part.error_code = error.code
                part.error_message = error.message
                if error.code in LEADER_ERRORS:
                    self._name_leader(key, part, endpoints, caller)
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = wire.ShareAcknowledgeTopicResponse(topic_id=key.topic_id)
            topic.partitions.append(part)
        return wire.ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._partitions.config_of(group_id).share_record_lock_duration_ms,
            responses=list(topics.values()),
            node_endpoints=list(endpoints.values()),
        )

    def _name_leader(
        self, key: PartitionKey, part: wire.PartitionData, endpoints: dict[int, wire.NodeEndpoint], caller: Caller
    ) -> None:
        topic = self._services.image.topic_by_id(key.topic_id)
        leader = (
            UNKNOWN_LEADER
            if topic is None
            else current_leader(self._services, topic.name, key.partition, caller.listener_name)
        )
        part.current_leader = wire.LeaderIdAndEpoch(leader.leader_id, leader.leader_epoch)
        if leader.endpoint is not None:
            endpoints[leader.leader_id] = wire.NodeEndpoint(
                leader.leader_id, leader.endpoint.host, leader.endpoint.port, leader.rack
            )


def _is_well_formed(said: list[Acknowledgement], *, renewals: bool, is_renewal: bool) -> bool:
    previous_last = -1
    highest = RENEW if renewals else RENEW - 1
    for first, last, kinds in said:
        if first > last or first < previous_last or not kinds:
            return False
        if len(kinds) > 1 and last - first != len(kinds) - 1:
            return False
        if min(kinds) < 0 or max(kinds) > highest or (RENEW in kinds and not is_renewal):
            return False
        previous_last = last
    return True
