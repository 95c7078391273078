"""Fetch (API 1), versions 4-18: reads and long polls.

Decides when a fetch is answered (enough bytes, an error, or time is up) and how the byte limits are shared between
the partitions of one request. The records themselves are never opened; `fetch_answer.py` packs them.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.context import Caller, ClientConnection
from moldau.broker.fetch_answer import PartitionRead, encode_answer, one_partition
from moldau.broker.fetch_partition import FetchPartition
from moldau.broker.fetch_session import FetchContext, FetchSessionCache
from moldau.broker.leaders import topic_name
from moldau.broker.replica_selection import replica_selector
from moldau.broker.router import Answer, LongPoll, Outcome
from moldau.broker.services import BrokerServices
from moldau.broker.session_watch import SessionWatch
from moldau.ports import Timer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.fetch_request import FetchRequest
from moldau.protocol.wire import Reader
from moldau.replication.partition import LOOK_AGAIN, Partition

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog
    from moldau.log.readable_log import FetchData

log: Final = logging.getLogger("moldau.broker")

READ_COMMITTED: Final = 1
# The largest answer, whatever was asked for: it is in memory until it is sent, and memory that is used again is far
# cheaper than fresh memory. A batch larger than this is still given, alone.
ANSWER_MAX_BYTES: Final = 32 << 20
# The same while memory is scarce.
SCARCE_MAX_BYTES: Final = 256 << 10
_TOPIC_IDS_SINCE: Final = 13
_REPLICA_STATE_SINCE: Final = 15
_RACKS_SINCE: Final = 11
_WAITING: Final = "fetch"


class FetchHandler:
    """Reads what is there, or waits for it."""

    def __init__(self, services: BrokerServices, sessions: FetchSessionCache) -> None:
        self.services = services
        self.sessions = sessions
        self._partitions = services.partitions
        self.guard = services.guard
        self.selector = replica_selector(services)
        self.max_bytes = 0
        self._memory_is_scarce = False
        # Fetches that have enough data now; answered after the request that brought it, not in its midst.
        self._ready: deque[_Waiting] = deque()
        self._wake_up: Timer | None = None
        # While several of them are answered: what was read last, and where.
        self._reads_once = False
        self._last_log: PartitionLog | None = None
        self._last_offset = -1
        self._last_read: FetchData | None = None
        self.reconfigure()

    def reconfigure(self) -> None:
        """Settings changed: take over those this handler keeps at hand."""
        self.max_bytes = min(self.services.config.integer("fetch.max.bytes"), ANSWER_MAX_BYTES)
        if self._memory_is_scarce:
            self.max_bytes = min(self.max_bytes, SCARCE_MAX_BYTES)

    def memory_is_scarce(self, scarce: bool) -> None:
        """Clients leave too many answers unread: give small ones (though always a whole batch) until they read."""
        self._memory_is_scarce = scarce
        self.reconfigure()

    def handle(self, frame: memoryview, position: int, caller: Caller) -> Outcome:
        request = FetchRequest.read(Reader(frame, position), caller.api_version)
        context = self.sessions.context(request, caller.api_version)
        fetch = _Fetch(self, request, context, caller)
        if context.error or not context.partitions:
            return fetch.encode([])
        reads, total, urgent = fetch.read()
        if urgent or total >= fetch.min_bytes or request.max_wait_ms <= 0:
            return fetch.encode(reads)
        return _Waiting(self, fetch, reads, total).promise

    def answer_ready(self) -> None:
        """Answer the fetches that appends have woken; called when the appending request has been answered."""
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        ready = self._ready
        self._reads_once = len(ready) > 1
        try:
            while ready:
                ready.popleft().answer()
        finally:
            self._reads_once = False
            self._last_log = self._last_read = None

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def wake(self, waiting: _Waiting) -> None:
        self._ready.append(waiting)
        if self._wake_up is None:
            # Not every append is a request's: a sync that ends, or a disk that fails, brings nobody who would call.
            self._wake_up = self.services.clock.call_later(0, self.answer_ready)

    def read(self, log: PartitionLog, offset: int, limit: int, upper: int, *, min_one: bool) -> FetchData:
        """Read from a log. Replicas that waited for the same records are answered with what was read once."""
        last = self._last_read
        if (
            last is not None
            and self._last_log is log
            and self._last_offset == offset
            and last.next_offset == upper
            and last.size <= limit
        ):
            return last
        data = log.read(offset, limit, max_offset=upper, min_one_message=min_one, to_send=True)
        if self._reads_once:
            self._last_log = log
            self._last_offset = offset
            self._last_read = data
        return data

    def later(self, waiting: _Waiting, delay_ms: int) -> Timer:
        return self.services.clock.call_later(delay_ms, waiting.time_is_up)

    def disconnected(self, connection: ClientConnection) -> None:
        """Nobody will read these answers: let go of everything they wait for."""
        for waiting in list(connection.remembered.pop(_WAITING, ())):
            waiting.abandon()

    def hosted(self, topic_id: bytes, index: int) -> Partition | None:
        """The partition of a topic id, if it is here."""
        topic = self._partitions.by_id.get(topic_id)
        return None if topic is None else topic.by_index.get(index)

    def find(self, asked: FetchPartition, version: int) -> Partition:
        table = self._partitions
        by_id = version >= _TOPIC_IDS_SINCE
        hosted = table.by_id.get(asked.topic_key) if by_id else table.by_name.get(asked.topic_key)
        partition = hosted.by_index.get(asked.index) if hosted is not None else None
        if partition is not None:
            return partition
        if not by_id:
            raise ApiError(table.absent(asked.topic_key, asked.index))
        if table.knows_id(asked.topic_key):
            raise ApiError(table.absent_by_id(asked.topic_key, asked.index))
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)


class _Fetch:
    """One fetch request: reading its partitions and encoding the answer."""

    __slots__ = (
        "_budget",
        "_handler",
        "_rack",
        "_reads_anywhere",
        "_replica_epoch",
        "_replica_id",
        "caller",
        "committed",
        "committed_only",
        "context",
        "held_back_ms",
        "is_follower",
        "min_bytes",
        "request",
        "watch",
    )

    def __init__(self, handler: FetchHandler, request: FetchRequest, context: FetchContext, caller: Caller) -> None:
        self._handler = handler
        self.caller = caller
        self.request = request
        self.context = context
        self.committed_only = request.isolation_level == READ_COMMITTED
        # Whether what a replica asked for has committed something, and so made others act, maybe append.
        self.committed = False
        # How long a replica is not given all there is, because it is throttled.
        self.held_back_ms = 0
        # Of a replica's session: what has changed in it.
        self.watch: SessionWatch | None = None
        newer = caller.api_version >= _REPLICA_STATE_SINCE
        self._replica_id = request.replica_state.replica_id if newer else request.replica_id
        self.is_follower = self._replica_id >= 0
        self._replica_epoch = request.replica_state.replica_epoch if newer else -1
        # Consumers that know of closer replicas may read from any.
        self._reads_anywhere = not self.is_follower and caller.api_version >= _RACKS_SINCE
        self._rack = request.rack_id if self._reads_anywhere and handler.selector is not None else ""
        self._budget = budget = max(0, min(request.max_bytes, handler.max_bytes))
        self.min_bytes = min(request.min_bytes, budget)

    # ---- reading

    def read(self, *, first: bool = True, every: bool = False) -> tuple[list[PartitionRead], int, bool]:
        """(what each partition gives, bytes in all, whether the answer must not wait).

        What a replica asks for tells what it has, the `first` time the request is looked at. `every` partition of its
        session is looked at when asked for; else those that have changed.
        """
        handler = self._handler
        budget = min(self._budget, handler.max_bytes)
        total = 0
        urgent = False
        reads: list[PartitionRead] = []
        version = self.caller.api_version
        now_ms = 0
        watch: SessionWatch | None = None
        if self.is_follower and self.context.incremental and self._may_replicate():
            now_ms = handler.services.clock.monotonic_ms()
            watch = self._session_watch()
            asked_for = watch.to_look_at(self.context.partitions, now_ms, every=every)
        else:
            asked_for = list(self.context.partitions.values())
        for asked in asked_for:
            if watch is not None:
                if self._is_quiet(asked, watch, now_ms):
                    continue
                watch.changed[asked] = None
            read = PartitionRead(asked)
            reads.append(read)
            try:
                if handler.guard is not None:
                    self._authorize(asked)
                partition = handler.find(asked, version)
                read.partition = partition
                if watch is not None:
                    watch.keep_watch(asked, partition)
                if self._reads_anywhere:
                    partition.require_replica(asked.leader_epoch)
                    if self._rack and self._send_away(read, partition):
                        urgent = True
                        continue
                else:
                    partition.require_leader(asked.leader_epoch)
                if self.is_follower:
                    self._refuse_strangers(partition, asked.leader_epoch)
                limit = min(asked.max_bytes, budget - total)
                if self.is_follower and partition.is_leader_throttled and self._held_back(partition):
                    self._read_one(read, partition.log, asked, 0, min_one=False)
                    more = False
                else:
                    more = self._read_one(read, partition.log, asked, limit, min_one=total == 0)
                if more and limit < asked.max_bytes:
                    # The answer is full: what else there is must not keep it waiting.
                    urgent = True
                if self.is_follower and first and read.diverging is None and self._note_follower(read, partition):
                    urgent = True
            except ApiError as error:
                read.failed(error.code)
                urgent = True
                continue
            except Exception:
                log.exception("reading partition %s of %r failed", asked.index, asked.topic_key)
                read.failed(ErrorCode.UNKNOWN_SERVER_ERROR)
                urgent = True
                continue
            if read.size:
                partition.bytes_out += read.size
                total += read.size
                if self.is_follower and partition.is_leader_throttled and partition.leading is not None:
                    partition.leading.sent(read.size)
            elif read.diverging is not None:
                urgent = True
        return reads, total, urgent

    def _may_replicate(self) -> bool:
        guard = self._handler.guard
        return guard is None or guard.allows(self.caller, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)

    def _session_watch(self) -> SessionWatch:
        session = self.context.session
        assert session is not None, "an incremental fetch without a session"
        if session.watch is None:
            session.watch = SessionWatch()
        self.watch = session.watch
        return session.watch

    def _is_quiet(self, asked: FetchPartition, watch: SessionWatch, now_ms: int) -> bool:
        """Whether a replica has, and was told, all there is of a partition. A session may be about thousands."""
        partition = self._handler.hosted(asked.topic_key, asked.index)
        if partition is None or not partition.opened or partition.leader_epoch != asked.leader_epoch:
            return False
        leading, log = partition.leading, partition.log
        if (
            leading is None
            or log.high_watermark != asked.high_watermark
            or log.log_start_offset != asked.log_start
            or not leading.has_all(
                self._replica_id, asked.fetch_offset, asked.follower_log_start, self._replica_epoch, log, now_ms
            )
        ):
            return False
        watch.is_quiet(asked, partition)
        return True

    def _note_follower(self, read: PartitionRead, partition: Partition) -> bool:
        """Tell the partition what a replica has; whether the replica should hear at once what that has committed.

        Committing makes others act, here and now; they may even find the disk gone.
        """
        asked = read.asked
        partition.follower_fetched(self._replica_id, asked.fetch_offset, asked.follower_log_start, self._replica_epoch)
        high_watermark = partition.log.high_watermark
        if high_watermark != read.high_watermark:
            read.high_watermark = high_watermark
            self.committed = True
        leading = partition.leading
        return leading is not None and leading.tells_watermarks and high_watermark != asked.high_watermark

    def _authorize(self, asked: FetchPartition) -> None:
        guard = self._handler.guard
        assert guard is not None
        if self._replica_id >= 0:
            allowed = self._may_replicate()
        else:
            by_id = self.caller.api_version >= _TOPIC_IDS_SINCE
            name = topic_name(self._handler.services, asked.topic_key, by_id=by_id)
            if name is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            allowed = guard.allows(self.caller, Operation.READ, ResourceKind.TOPIC, name)
        if not allowed:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _held_back(self, partition: Partition) -> bool:
        leading = partition.leading
        wait_ms = 0 if leading is None else leading.held_back_ms(self._replica_id)
        self.held_back_ms = max(self.held_back_ms, wait_ms)
        return wait_ms > 0

    def _send_away(self, read: PartitionRead, partition: Partition) -> bool:
        """Whether another replica is closer to the client; it is told so, and gets no records here."""
        selector = self._handler.selector
        if selector is None or not partition.is_leader:
            return False
        closest = selector(partition, self._rack, read.asked.fetch_offset, self.caller.listener_name)
        if closest is None:
            return False
        read.preferred_replica = closest
        log = partition.log
        read.high_watermark, read.last_stable = log.high_watermark, log.last_stable_offset
        read.log_start = log.log_start_offset
        return True

    def _refuse_strangers(self, partition: Partition, asked_epoch: int) -> None:
        if self._replica_id not in partition.replicas:
            # With the leader's own epoch it may be a replica that is not known here yet: it shall come again.
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH if asked_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _read_one(
        self, read: PartitionRead, log: PartitionLog, asked: FetchPartition, limit: int, *, min_one: bool
    ) -> bool:
        """Read what one partition has; whether it has more."""
        read.high_watermark = high_watermark = log.high_watermark
        read.last_stable = last_stable = log.last_stable_offset
        read.log_start = log.log_start_offset
        if self.is_follower:
            upper = log.log_end_offset
        else:
            upper = last_stable if self.committed_only else high_watermark
        offset = asked.fetch_offset
        if self.committed_only:
            read.aborted = []
        if (
            asked.last_fetched_epoch >= 0
            # Most readers stand in the latest epoch, which ends where the log does.
            and (offset > log.log_end_offset or not log.is_latest_epoch(asked.last_fetched_epoch))
            and self._diverged(read, log, asked)
        ):
            return False
        if offset >= upper or offset < read.log_start:
            if not read.log_start <= offset <= log.log_end_offset:
                behind = offset > read.log_start and read.partition is not None and not read.partition.is_leader
                # What a replica lacks that only follows may well exist: its reader must not think it lost.
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if behind else ErrorCode.OFFSET_OUT_OF_RANGE)
            return False
        if limit <= 0 and not min_one:
            return True
        data = self._handler.read(log, offset, limit, upper, min_one=min_one)
        if data.size:
            read.records = data.buffers
            read.size = data.size
            if self.committed_only:
                read.aborted = log.collect_aborted(offset, data.next_offset)
        return data.next_offset < upper

    def _diverged(self, read: PartitionRead, log: PartitionLog, asked: FetchPartition) -> bool:
        """Whether the reader's log parted from this one before the offset it asks for."""
        epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
        if self.is_follower and epoch < 0 <= log.epochs.latest < asked.last_fetched_epoch:
            # Nobody leads in an epoch that its leader does not know of: a bit has flipped at the reader, where no
            # checksum covers it. It shall cut its log where the epochs that both know end.
            epoch, end_offset = log.epochs.latest, log.log_end_offset
        if epoch < 0:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"nothing is known here about leader epoch {asked.last_fetched_epoch}",
            )
        if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
            read.diverging = (epoch, end_offset)
            return True
        return False

    # ---- the answer

    def encode(self, reads: list[PartitionRead]) -> Answer:
        context = self.context
        if context.incremental:
            reads = [read for read in reads if read.is_news()]
        if context.session is not None:
            self._remember(reads)
        if len(reads) == 1 and self.caller.api_version >= _TOPIC_IDS_SINCE:
            read = reads[0]
            if not read.error and read.diverging is None and read.aborted is None and read.records is not None:
                return one_partition(self.caller, context, read, read.records)
        return encode_answer(self._handler.services, self.caller, context, reads)

    def _remember(self, reads: list[PartitionRead]) -> None:
        """Note what the session was told, and move partitions that gave data to the end: they go last next time."""
        session = self.context.session
        assert session is not None
        partitions = session.partitions
        for read in reads:
            asked = read.asked
            # After an error the next answer must mention the partition again, whatever it has to say; the same when the
            # reader was told to cut its log, and looked at nothing else.
            asked.high_watermark = -1 if read.error or read.diverging is not None else read.high_watermark
            asked.log_start = read.log_start
            if read.size:
                key = (asked.topic_key, asked.index)
                if partitions.pop(key, None) is not None:
                    partitions[key] = asked
                if self.watch is not None:
                    self.watch.served(asked)


class _Waiting:
    """A fetch that found too little: answered when enough has come or when its time is up."""

    __slots__ = ("_accumulated", "_fetch", "_handler", "_partitions", "_stable_after", "_timer", "_woken", "promise")

    def __init__(self, handler: FetchHandler, fetch: _Fetch, reads: list[PartitionRead], total: int) -> None:
        self._handler = handler
        self._fetch = fetch
        self._accumulated = total
        self._woken = False
        self.promise = LongPoll()
        self._partitions: list[Partition] = []
        # Only for readers of committed records: where each of them stands.
        self._stable_after: list[tuple[Partition, int]] | None = None
        if fetch.committed_only:
            self._stable_after = [
                (read.partition, read.asked.fetch_offset) for read in reads if read.partition is not None
            ]
        self._timer = handler.later(self, fetch.request.max_wait_ms)
        fetch.caller.connection.remembered.setdefault(_WAITING, set()).add(self)
        watch = fetch.watch
        if watch is not None:
            watch.waiting = self
            missed = watch.missed
        else:
            self._partitions += [read.partition for read in reads if read.partition is not None]
            for partition in self._partitions:
                partition.wait_for_data(self, follower=fetch.is_follower)
            missed = fetch.committed and any(_has_more(read.partition, read.asked.fetch_offset) for read in reads)
        if missed:
            # Appended after this fetch had read, and before it waited.
            self.noticed(LOOK_AGAIN)
        if fetch.held_back_ms:
            handler.services.clock.call_later(fetch.held_back_ms, self.look_again)

    def look_again(self) -> None:
        self.noticed(LOOK_AGAIN)

    def noticed(self, new_bytes: int) -> bool:
        if self._woken or self.promise.done:
            return True
        self._accumulated += new_bytes
        if self._accumulated < self._fetch.min_bytes:
            return False
        if self._stable_after is not None and new_bytes < LOOK_AGAIN and not self._anything_stable():
            return False
        self._woken = True
        self._handler.wake(self)
        return True

    def _anything_stable(self) -> bool:
        """Whether more than records of open transactions has come."""
        assert self._stable_after is not None
        return any(partition.log.last_stable_offset > offset for partition, offset in self._stable_after)

    def time_is_up(self) -> None:
        self.answer(every=True)

    def answer(self, *, every: bool = False) -> None:
        if self.promise.done:
            return
        self.abandon()
        waiting: set[_Waiting] | None = self._fetch.caller.connection.remembered.get(_WAITING)
        if waiting is None:
            return  # its client went away after it was woken
        waiting.discard(self)
        watch = self._fetch.watch
        reads: list[PartitionRead] = []
        if watch is None or not watch.ended:
            reads, _, _ = self._fetch.read(first=False, every=every)
        self.promise.resolve(self._fetch.encode(reads))

    def abandon(self) -> None:
        self._timer.cancel()
        watch = self._fetch.watch
        if watch is not None and watch.waiting is self:
            watch.waiting = None
        for partition in self._partitions:
            partition.forget_waiter(self)


def _has_more(partition: Partition | None, offset: int) -> bool:
    """Whether the log reaches beyond what was asked for, or is gone, which its reader must hear."""
    if partition is None:
        return False
    return not partition.opened or partition.log.log_end_offset > offset
