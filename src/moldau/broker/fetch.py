"""Fetch (API 1), versions 4-18: reads, long polls, and answers that carry records without copying them.

Decides when a fetch is answered (enough bytes, an error, or time is up) and how the byte limits are shared between
the partitions of one request. The records themselves are never opened.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from moldau.broker.context import Caller
from moldau.broker.fetch_session import FetchContext, FetchPartition, FetchSessionCache
from moldau.broker.router import Answer, Outcome
from moldau.config.node_config import NodeConfig
from moldau.ports import Buffer, Clock, Pending, Timer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.fetch_request import FetchRequest
from moldau.protocol.wire import ProtocolError, Reader, Writer
from moldau.replication.partition import Partition
from moldau.replication.partition_table import PartitionTable

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog

_I32 = Struct(">i")
_HEAD = Struct(">ihi")  # throttle time, error, session id
_PARTITION = Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset
READ_COMMITTED = 1


@dataclass(slots=True)
class PartitionRead:
    """What one partition contributes to an answer."""

    asked: FetchPartition
    partition: Partition | None = None
    error: int = 0
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    # (producer id, first offset) of aborted transactions; None for readers that do not ask.
    aborted: list[tuple[int, int]] | None = None
    records: list[Buffer] | None = None
    size: int = 0


class FetchHandler:
    """Reads what is there, or waits for it."""

    def __init__(
        self, partitions: PartitionTable, sessions: FetchSessionCache, clock: Clock, config: NodeConfig
    ) -> None:
        self._partitions = partitions
        self.sessions = sessions
        self._clock = clock
        self.max_bytes = config.int("fetch.max.bytes")
        # Fetches that have enough data now; answered after the request that brought it, not in its midst.
        self._ready: deque[_Waiting] = deque()

    def handle(self, frame: memoryview, position: int, caller: Caller) -> Outcome:
        reader = Reader(frame, position)
        request = FetchRequest.read(reader, caller.api_version)
        if reader.pos != len(frame):
            raise ProtocolError(f"Fetch: {len(frame) - reader.pos} bytes after the end of the request")
        context = self.sessions.context(request, caller.api_version)
        fetch = _Fetch(self, request, context, caller)
        if context.error or not context.partitions:
            return fetch.encode([])
        reads, total, urgent = fetch.read()
        if urgent or total >= request.min_bytes or request.max_wait_ms <= 0:
            return fetch.encode(reads)
        return _Waiting(self, fetch, reads, total).promise

    def answer_ready(self) -> None:
        """Answer the fetches that appends have woken; called when the appending request has been answered."""
        ready = self._ready
        while ready:
            ready.popleft().answer()

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def wake(self, waiting: _Waiting) -> None:
        self._ready.append(waiting)

    def later(self, waiting: _Waiting, delay_ms: int) -> Timer:
        return self._clock.call_later(delay_ms, waiting.answer)

    def find(self, asked: FetchPartition, version: int) -> Partition:
        table = self._partitions
        hosted = table.by_id.get(asked.topic_key) if version >= 13 else table.by_name.get(asked.topic_key)
        partition = hosted.by_index.get(asked.index) if hosted is not None else None
        if partition is not None:
            return partition
        if version < 13:
            raise ApiError(table.absent(asked.topic_key, asked.index))
        if table.knows_id(asked.topic_key):
            raise ApiError(table.absent_by_id(asked.topic_key, asked.index))
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)


class _Fetch:
    """One fetch request: reading its partitions and encoding the answer."""

    __slots__ = ("_budget", "_caller", "_handler", "committed_only", "context", "request")

    def __init__(self, handler: FetchHandler, request: FetchRequest, context: FetchContext, caller: Caller) -> None:
        self._handler = handler
        self._caller = caller
        self.request = request
        self.context = context
        self.committed_only = request.isolation_level == READ_COMMITTED
        self._budget = max(0, min(request.max_bytes, handler.max_bytes))

    # ---- reading

    def read(self) -> tuple[list[PartitionRead], int, bool]:
        """(what each partition gives, bytes in all, whether the answer must not wait)."""
        budget = self._budget
        total = 0
        urgent = False
        reads: list[PartitionRead] = []
        version = self._caller.api_version
        for asked in self.context.partitions.values():
            read = PartitionRead(asked)
            reads.append(read)
            try:
                partition = self._handler.find(asked, version)
                read.partition = partition
                partition.require_leader(asked.leader_epoch)
                self._refuse_strangers(partition)
                log = partition.log
                limit = min(asked.max_bytes, budget - total)
                self._read_one(read, log, asked, limit, min_one=total == 0)
            except ApiError as error:
                read.error = error.code
                urgent = True
                continue
            if read.size:
                partition.bytes_out += read.size
                total += read.size
        return reads, total, urgent

    def _refuse_strangers(self, partition: Partition) -> None:
        replica = self.request.replica_state.replica_id if self._caller.api_version >= 15 else self.request.replica_id
        if replica >= 0 and replica not in partition.replicas:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _read_one(
        self, read: PartitionRead, log: PartitionLog, asked: FetchPartition, limit: int, *, min_one: bool
    ) -> None:
        read.high_watermark = high_watermark = log.high_watermark
        read.last_stable = last_stable = log.last_stable_offset
        read.log_start = log.log_start_offset
        upper = last_stable if self.committed_only else high_watermark
        offset = asked.fetch_offset
        if self.committed_only:
            read.aborted = []
        if offset >= upper:
            if offset > log.log_end_offset:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
            return
        if offset < read.log_start:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if limit <= 0 and not min_one:
            return
        data = log.read(offset, limit, max_offset=upper, min_one_message=min_one)
        read.records = data.buffers
        read.size = data.size
        if self.committed_only and data.size:
            read.aborted = log.collect_aborted(offset, data.next_offset)

    # ---- the answer

    def encode(self, reads: list[PartitionRead]) -> Answer:
        context = self.context
        if context.incremental:
            reads = [read for read in reads if _changed(read)]
        self._remember(reads)
        caller = self._caller
        writer = _AnswerWriter(caller, context)
        writer.begin()
        by_topic: dict[bytes, list[PartitionRead]] = {}
        for read in reads:
            by_topic.setdefault(read.asked.topic_key, []).append(read)
        writer.topics(by_topic)
        return writer.finish()

    def _remember(self, reads: list[PartitionRead]) -> None:
        """Note what the session was told, and move partitions that gave data to the end: they go last next time."""
        session = self.context.session
        if session is None:
            return
        partitions = session.partitions
        for read in reads:
            asked = read.asked
            asked.high_watermark = -1 if read.error else read.high_watermark
            asked.log_start = read.log_start
            if read.size:
                key = (asked.topic_key, asked.index)
                if partitions.pop(key, None) is not None:
                    partitions[key] = asked


def _changed(read: PartitionRead) -> bool:
    asked = read.asked
    return bool(
        read.size or read.error or read.high_watermark != asked.high_watermark or read.log_start != asked.log_start
    )


class _Waiting:
    """A fetch that found too little: answered when enough has come or when its time is up."""

    __slots__ = ("_accumulated", "_fetch", "_handler", "_partitions", "_timer", "_woken", "promise")

    def __init__(self, handler: FetchHandler, fetch: _Fetch, reads: list[PartitionRead], total: int) -> None:
        self._handler = handler
        self._fetch = fetch
        self._accumulated = total
        self._woken = False
        self.promise: Pending[Answer | None] = Pending()
        self._partitions = [read.partition for read in reads if read.partition is not None]
        for partition in self._partitions:
            partition.wait_for_data(self)
        self._timer = handler.later(self, fetch.request.max_wait_ms)

    def noticed(self, new_bytes: int) -> bool:
        if self._woken or self.promise.done:
            return True
        self._accumulated += new_bytes
        if self._accumulated < self._fetch.request.min_bytes:
            return False
        self._woken = True
        self._handler.wake(self)
        return True

    def answer(self) -> None:
        if self.promise.done:
            return
        self._timer.cancel()
        for partition in self._partitions:
            partition.forget_waiter(self)
        reads, _, _ = self._fetch.read()
        self.promise.resolve(self._fetch.encode(reads))


class _AnswerWriter:
    """Packs the answer around the records, which stay where they are."""

    __slots__ = ("_buffers", "_caller", "_context", "_flexible", "_out", "_size")

    def __init__(self, caller: Caller, context: FetchContext) -> None:
        self._caller = caller
        self._context = context
        self._flexible = caller.api_version >= 12
        self._buffers: list[Buffer] = []
        self._out = Writer()
        self._size = 0

    def begin(self) -> None:
        out = self._out
        caller = self._caller
        out.buf += b"\0\0\0\0"
        out.int32(caller.correlation_id)
        if self._flexible:
            out.buf.append(0)
        if caller.api_version >= 7:
            out.buf += _HEAD.pack(0, self._context.error, self._context.session_id)
        else:
            out.int32(0)

    def topics(self, by_topic: dict[bytes, list[PartitionRead]]) -> None:
        out = self._out
        flexible = self._flexible
        self._array(len(by_topic))
        for key, reads in by_topic.items():
            if self._caller.api_version >= 13:
                out.buf += key
            elif flexible:
                out.uvarint(len(key) + 1)
                out.buf += key
            else:
                out.int16(len(key))
                out.buf += key
            self._array(len(reads))
            for read in reads:
                self._partition(read)
            if flexible:
                self._out.buf.append(0)
            out = self._out
        if flexible:
            self._out.buf.append(0)

    def _array(self, count: int) -> None:
        if self._flexible:
            self._out.uvarint(count + 1)
        else:
            self._out.int32(count)

    def _partition(self, read: PartitionRead) -> None:
        out = self._out
        version = self._caller.api_version
        body = _PARTITION.pack(read.asked.index, read.error, read.high_watermark, read.last_stable, read.log_start)
        out.buf += body if version >= 5 else body[:-8]
        aborted = read.aborted
        if aborted is None:
            out.buf += b"\0" if self._flexible else b"\xff\xff\xff\xff"
        else:
            self._array(len(aborted))
            for producer_id, first_offset in aborted:
                out.int64(producer_id)
                out.int64(first_offset)
                if self._flexible:
                    out.buf.append(0)
        if version >= 11:
            out.int32(-1)  # no preferred read replica
        if self._flexible:
            out.uvarint(read.size + 1)
        else:
            out.int32(read.size)
        if read.records:
            self._splice(read.records, read.size)
        if self._flexible:
            self._partition_tags(read, version)

    def _partition_tags(self, read: PartitionRead, version: int) -> None:
        out = self._out
        partition = read.partition
        if read.error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH) and partition is not None:
            # Tag 1, the current leader: int32 id, int32 epoch, no tags of its own.
            out.buf += b"\x01\x01\x09"
            out.int32(partition.leader_id)
            out.int32(partition.leader_epoch)
            out.buf.append(0)
        else:
            out.buf.append(0)

    def _splice(self, records: list[Buffer], size: int) -> None:
        self._buffers.append(self._out.buf)
        self._size += len(self._out.buf) + size
        self._buffers += records
        self._out = Writer()

    def finish(self) -> Answer:
        if self._out.buf:
            self._buffers.append(self._out.buf)
            self._size += len(self._out.buf)
        head = self._buffers[0]
        assert isinstance(head, bytearray)
        _I32.pack_into(head, 0, self._size - 4)
        return self._buffers
