"""ShareFetch (API 78), versions 1-2: giving records to members of share groups.

Decides which session a fetch belongs to and in which order its parts happen: acknowledgements that ride on a fetch are
carried out first (`share_acknowledge.py`), then records are given or waited for (`share_waiting.py`), and a member that
says goodbye loses what it still holds. A fetch that renews locks gives no records.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from moldau.broker.context import Caller, ClientConnection
from moldau.broker.gathering import gather
from moldau.broker.router import Answer, Handler, LongPoll, Outcome
from moldau.broker.services import BrokerServices
from moldau.broker.share_acknowledge import RENEWALS_SINCE, Outcomes, ShareAcknowledger
from moldau.broker.share_answer import AnswerBuilder, PartitionAnswer
from moldau.broker.share_partitions import SharePartitions
from moldau.broker.share_store import StatePersister
from moldau.broker.share_waiting import WaitingFetch
from moldau.metadata.delta import ImageDelta
from moldau.metadata.features import SHARE_VERSION
from moldau.metadata.image import ClusterImage
from moldau.ports import Pending, Timer
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.frames import encode_response_chunks
from moldau.protocol.generated.wire.share_fetch_request import ShareFetchRequest
from moldau.protocol.generated.wire.share_fetch_response import ShareFetchResponse
from moldau.protocol.wire import Reader
from moldau.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionKey, ShareSession, ShareSessions, following

log = logging.getLogger("moldau.broker")

_WAITING: Final = "share fetch"
_SESSION: Final = "share session"


class ShareFetchHandlers:
    """ShareFetch and ShareAcknowledge, and what they have in common."""

    def __init__(
        self, services: BrokerServices, persister: Callable[[], StatePersister], max_bytes: Callable[[], int]
    ) -> None:
        """`max_bytes`: the largest answer this broker gives at the moment."""
        self.services = services
        self.max_bytes = max_bytes
        self.sessions = ShareSessions()
        self.partitions = SharePartitions(services, persister)
        self.acknowledger = ShareAcknowledger(services, self.sessions, self.partitions)
        # Fetches that may have something to give now; looked at after what brought it, not in its midst.
        self._woken: deque[WaitingFetch] = deque()
        self._wake_up: Timer | None = None

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.SHARE_ACKNOWLEDGE: self.acknowledger.handle}

    # ---- ShareFetch

    def fetch(self, frame: memoryview, position: int, caller: Caller) -> Outcome:
        request = ShareFetchRequest.read(Reader(frame, position), caller.api_version)
        try:
            outcome = self._fetch(request, caller)
        except ApiError as error:
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                # Whoever finds no room comes again at once otherwise.
                outcome = Pending()
                self.services.clock.call_later(request.max_wait_ms, _answer_with(outcome, error))
            else:
                outcome = _refused(error)
        except Exception:
            log.exception("a share fetch of %s from %s failed", request.group_id, caller.host)
            outcome = _refused(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        if not isinstance(outcome, Pending):
            return _encode(outcome, caller)
        if outcome.done:
            return _encode(outcome.value, caller)
        promise = LongPoll()
        outcome.then(lambda response: promise.resolve(_encode(response, caller)))
        return promise

    def _fetch(self, request: ShareFetchRequest, caller: Caller) -> ShareFetchResponse | Pending[ShareFetchResponse]:
        group_id, member_id = self.acknowledger.check(request.group_id, request.member_id, caller)
        renews = request.is_renew_ack and caller.api_version >= RENEWALS_SINCE
        if renews and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
            raise ApiError(ErrorCode.INVALID_REQUEST, "A fetch that renews locks must not ask for records.")
        acknowledges = any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions)
        session = self._session_of(request, group_id, member_id, caller, acknowledges=acknowledges)
        outcomes: Outcomes | Pending[Outcomes] = {}
        if acknowledges:
            outcomes = self.acknowledger.acknowledge(
                group_id, member_id, request.topics, caller, is_renewal=request.is_renew_ack
            )
        fetched: dict[PartitionKey, PartitionAnswer] | Pending[dict[PartitionKey, PartitionAnswer]] = {}
        if not renews and request.share_session_epoch != FINAL_EPOCH:
            fetched = self._read(request, session, caller)
        return gather([outcomes, fetched], lambda parts: self._answer(request, session, caller, parts[0], parts[1]))

    def _session_of(
        self, request: ShareFetchRequest, group_id: str, member_id: str, caller: Caller, *, acknowledges: bool
    ) -> ShareSession:
        sessions = self.sessions
        epoch = request.share_session_epoch
        if epoch == FINAL_EPOCH:
            return sessions.existing(group_id, member_id)
        image = self.services.image
        asked: list[tuple[PartitionKey, str | None]] = []
        for topic in request.topics:
            known = image.topic_by_id(topic.topic_id)
            name = None if known is None else known.name
            asked += [(PartitionKey(topic.topic_id, part.partition_index), name) for part in topic.partitions]
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise ApiError(ErrorCode.INVALID_REQUEST, "The first fetch of a session has nothing to acknowledge.")
            session = sessions.begin(
                group_id, member_id, self.services.config.integer("group.share.max.share.sessions")
            )
            session.add(asked, must_tell=False)
            caller.connection.remembered[_SESSION] = session
            return session
        session = sessions.next_request(group_id, member_id, epoch)
        session.add(asked, must_tell=True)
        session.forget(
            PartitionKey(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
        )
        return session

    def _read(
        self, request: ShareFetchRequest, session: ShareSession, caller: Caller
    ) -> dict[PartitionKey, PartitionAnswer] | Pending[dict[PartitionKey, PartitionAnswer]]:
        refused: dict[PartitionKey, PartitionAnswer] = {}
        wanted: list[PartitionKey] = []
        for part in session.partitions.values():
            error = self.acknowledger.refusal(part.topic, part.key, caller)
            if error is None:
                wanted.append(part.key)
            else:
                refused[part.key] = PartitionAnswer(error=error)
        fetch = WaitingFetch(self, request, session, wanted, refused)
        if not wanted or request.max_records <= 0 or fetch.max_bytes <= 0:
            return refused
        if fetch.begin():
            return fetch.answers
        waiting: set[WaitingFetch] = caller.connection.remembered.setdefault(_WAITING, set())
        waiting.add(fetch)
        fetch.wait(request.max_wait_ms, over=lambda: waiting.discard(fetch))
        return fetch.promise

    def _answer(
        self,
        request: ShareFetchRequest,
        session: ShareSession,
        caller: Caller,
        outcomes: Any,
        fetched: Any,
    ) -> ShareFetchResponse:
        epoch = request.share_session_epoch
        config = self.partitions.config_of(session.group_id)
        builder = AnswerBuilder(self.services, caller, config.share_record_lock_duration_ms)
        code = ErrorCode.NONE
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            builder.add_fetched(fetched, None)
        elif session.epoch == following(epoch):
            builder.add_fetched(fetched, session)
        else:
            # Another request of the session came in between: this one must have been sent twice.
            code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
        builder.add_acknowledged(outcomes)
        if epoch == FINAL_EPOCH:
            self.acknowledger.end_session(session)
        return builder.finish(code)

    # ---- waking

    def wake(self, fetch: WaitingFetch) -> None:
        self._woken.append(fetch)
        if self._wake_up is None:
            # Not everything that frees records is a request: a timer, or a coordinator's answer.
            self._wake_up = self.services.clock.call_later(0, self.look_again)

    @property
    def has_woken(self) -> bool:
        return bool(self._woken)

    def look_again(self) -> None:
        """Look again at the fetches for which there may be something now."""
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        woken = self._woken
        for _ in range(len(woken)):
            woken.popleft().look()

    # ---- the node's calls

    def disconnected(self, connection: ClientConnection) -> None:
        """Nobody reads these answers, and what the member holds is offered to others."""
        for fetch in list(connection.remembered.pop(_WAITING, ())):
            fetch.abandon()
        session: ShareSession | None = connection.remembered.pop(_SESSION, None)
        if session is None:
            return
        if self.sessions.get(session.group_id, session.member_id) is session:
            self.sessions.evictions += 1
            self.acknowledger.end_session(session)
        if not self.sessions.members_of(session.group_id):
            self.partitions.drop_group(session.group_id)

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        self.partitions.image_published(delta, image)
        if SHARE_VERSION in delta.features and image.feature_level(SHARE_VERSION) < 1:
            self.sessions.clear()
            self.partitions.clear()

    def close(self) -> None:
        self.partitions.clear()
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None


def _refused(error: ApiError) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=error.code)


def _answer_with(outcome: Pending[ShareFetchResponse], error: ApiError) -> Callable[[], None]:
    return lambda: outcome.resolve(_refused(error))


def _encode(response: ShareFetchResponse, caller: Caller) -> Answer:
    return encode_response_chunks(ApiKey.SHARE_FETCH, caller.api_version, caller.correlation_id, response)
