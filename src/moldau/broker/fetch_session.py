"""Incremental fetch sessions (KIP-227): what a reader asked for, kept so that it need not ask again.

Decides which partitions a fetch covers, which of them an incremental answer leaves out because nothing changed, and
which session gives way when the cache is full.
"""

from __future__ import annotations

from random import Random
from typing import Final

from moldau.broker.fetch_partition import FetchPartition, TopicKey
from moldau.broker.session_watch import SessionWatch
from moldau.ports import Clock
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.fetch_request import FetchRequest

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1
# A session may be pushed out by a newcomer once it was idle this long.
EVICTION_IDLE_MS: Final = 120_000


class FetchSession:
    __slots__ = ("epoch", "partitions", "session_id", "used_ms", "uses_ids", "watch")

    def __init__(self, session_id: int, uses_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.uses_ids = uses_ids
        self.used_ms = now_ms
        self.partitions: dict[tuple[TopicKey, int], FetchPartition] = {}
        # Of a replica's session, from its second fetch on.
        self.watch: SessionWatch | None = None

    def end(self) -> None:
        if self.watch is not None:
            self.watch.end()


class FetchContext:
    """One fetch: the partitions it covers and how its answer is shaped."""

    __slots__ = ("error", "incremental", "partitions", "session", "session_id")

    def __init__(
        self,
        partitions: dict[tuple[TopicKey, int], FetchPartition],
        *,
        session: FetchSession | None = None,
        incremental: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.session_id = session.session_id if session is not None else 0
        self.incremental = incremental
        self.error = error


class FetchSessionCache:
    """The sessions of one node, bounded by `max.incremental.fetch.session.cache.slots`."""

    def __init__(self, slots: int, clock: Clock, random: Random) -> None:
        self._slots = slots
        self._clock = clock
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> list[FetchSession]:
        return list(self._sessions.values())

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def context(self, request: FetchRequest, version: int) -> FetchContext:
        uses_ids = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            former = self._sessions.pop(request.session_id, None)
            if former is not None:
                former.end()
            wanted = _partitions(request, uses_ids)
            if request.session_epoch == FINAL_EPOCH or version < 7:
                return FetchContext(wanted)
            session = self._create(uses_ids)
            if session is None:
                return FetchContext(wanted)
            session.partitions = wanted
            return FetchContext(wanted, session=session)
        return self._continue(request, uses_ids)

    def _continue(self, request: FetchRequest, uses_ids: bool) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext({}, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.used_ms = self._clock.monotonic_ms()
        partitions = session.partitions
        watch = session.watch
        if request.topics:
            for key, wanted in _partitions(request, uses_ids).items():
                known = partitions.get(key)
                if known is None:
                    partitions[key] = known = wanted
                else:
                    known.fetch_offset = wanted.fetch_offset
                    known.follower_log_start = wanted.follower_log_start
                    known.leader_epoch = wanted.leader_epoch
                    known.last_fetched_epoch = wanted.last_fetched_epoch
                    known.max_bytes = wanted.max_bytes
                if watch is not None:
                    watch.changed[known] = None
        for topic in request.forgotten_topics_data:
            topic_key = topic.topic_id if uses_ids else topic.topic.encode()
            for index in topic.partitions:
                forgotten = partitions.pop((topic_key, index), None)
                if forgotten is not None and watch is not None:
                    watch.forget(forgotten)
        if not partitions:
            # A session about nothing is closed; the reader learns so from the session id 0 in the answer.
            del self._sessions[session.session_id]
            return FetchContext({})
        return FetchContext(partitions, session=session, incremental=True)

    def _create(self, uses_ids: bool) -> FetchSession | None:
        now = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots and not self._make_room(now):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = self._sessions[session_id] = FetchSession(session_id, uses_ids, now)
        return session

    def _make_room(self, now: int) -> bool:
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda session: session.used_ms)
        if now - oldest.used_ms < EVICTION_IDLE_MS:
            return False
        del self._sessions[oldest.session_id]
        oldest.end()
        self.evictions += 1
        return True


def _partitions(request: FetchRequest, uses_ids: bool) -> dict[tuple[TopicKey, int], FetchPartition]:
    wanted: dict[tuple[TopicKey, int], FetchPartition] = {}
    for topic in request.topics:
        topic_key = topic.topic_id if uses_ids else topic.topic.encode()
        for asked in topic.partitions:
            partition = FetchPartition(topic_key, asked.partition)
            partition.fetch_offset = asked.fetch_offset
            partition.follower_log_start = asked.log_start_offset
            partition.leader_epoch = asked.current_leader_epoch
            partition.last_fetched_epoch = asked.last_fetched_epoch
            partition.max_bytes = asked.partition_max_bytes
            wanted[topic_key, asked.partition] = partition
    return wanted
