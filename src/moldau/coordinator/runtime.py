"""The one runtime of all coordinators: decide, append, replay, answer when committed.

A coordinator's state is split into shards, one for each partition of its internal topic that this node leads. What a
decision wrote is appended to the partition and replayed at once, its response leaves when the records are committed.
Taking over a partition is the same replay from its log.

Decides who is the coordinator of a key, when a shard may answer, and when a response may leave. It never looks into a
record; that is the shard's business.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

from moldau.coordinator.decision import CoordinatorRecord, Decision, Transaction
from moldau.coordinator.hashing import partition_for
from moldau.coordinator.timers import ShardTimers
from moldau.log.markers import read_end_marker
from moldau.log.producer_state import VerificationGuard
from moldau.metadata.delta import ImageDelta
from moldau.metadata.image import ClusterImage
from moldau.ports import Background, Clock, Pending, Timer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.wire import MALFORMED, ProtocolError
from moldau.records.batch import iter_batches
from moldau.records.builder import BatchBuilder, build_end_transaction_marker
from moldau.records.record import read_records
from moldau.replication.partition import Partition
from moldau.replication.partition_table import PartitionTable

log: Final = logging.getLogger("moldau.coordinator")

LOAD_BYTES: Final = 1 << 20
# Records replayed before others get their turn, a few milliseconds of work.
LOAD_RECORDS: Final = 500
# How often answers are looked for that have waited too long.
SWEEP_MS: Final = 1000
_ALL_REPLICAS: Final = -1
# Room that a batch's header and a record's own lengths need, when records are spread over batches.
_RECORD_OVERHEAD: Final = 32
_BATCH_OVERHEAD: Final = 128

T = TypeVar("T")
S = TypeVar("S", bound="Shard")

# What a client of a coordinator is told when its records could not be written: it looks for the coordinator again.
_REFUSED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Shard(Protocol):
    """The state behind one partition of a coordinator's topic."""

    def replay(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        """Take over one record, from the log or just appended."""
        ...

    def end_transaction(self, transaction: Transaction, committed: bool) -> None: ...

    def loaded(self, image: ClusterImage) -> None:
        """Everything was replayed: timers may be set, requests come from now on."""
        ...

    def unloaded(self) -> None:
        """Another node took over: answer who waits, forget the rest."""
        ...

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None: ...


class _State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class ShardHost(Generic[S]):
    """One shard and the partition its records go to."""

    __slots__ = ("background", "index", "partition", "perform", "shard", "state", "timers", "written_to")

    shard: S

    def __init__(
        self,
        index: int,
        partition: Partition,
        timers: ShardTimers,
        perform: Callable[[Callable[[], Decision[Any]]], None],
        background: Background,
    ) -> None:
        self.index = index
        self.partition = partition
        self.timers = timers
        # Carries out what the shard decides on its own, when a timer fires or the cluster changes.
        self.perform = perform
        # For what takes long: a shard may hold a million offsets.
        self.background = background
        self.state = _State.LOADING
        # Offset after the last record written; state up to there may be read only when it is committed.
        self.written_to = 0

    @property
    def is_active(self) -> bool:
        return self.state is _State.ACTIVE


class CoordinatorRuntime(Generic[S]):
    """All shards of one kind of coordinator on this node."""

    def __init__(
        self,
        topic: str,
        *,
        partitions: PartitionTable,
        clock: Clock,
        background: Background,
        make_shard: Callable[[ShardHost[S]], S],
        image: Callable[[], ClusterImage],
        has_log: Callable[[str, int], bool],
        codec: Callable[[], int] = lambda: 0,
        timeout_ms: Callable[[], int] = lambda: 5000,
    ) -> None:
        """`has_log` says whether a partition has anything to load; one that has not is ready at once. `timeout_ms` is
        how long a client waits for its records to be committed."""
        self.topic = topic
        self._partitions = partitions
        self._clock = clock
        self._background = background
        self._make_shard = make_shard
        self._image = image
        self._has_log = has_log
        self._codec = codec
        self._timeout_ms = timeout_ms
        self._hosts: dict[int, ShardHost[S]] = {}
        # Answers that wait for a commit, the oldest first, and until when they do.
        self._parked: deque[tuple[int, Pending[Any]]] = deque()
        self._sweep: Timer | None = None

    # ---- who coordinates what

    def index_of(self, key: str) -> int | None:
        """The partition a key belongs to; None while the topic does not exist."""
        topic = self._image().topic(self.topic)
        if topic is None or not topic.partitions:
            return None
        return partition_for(key, len(topic.partitions))

    def shards(self) -> Iterator[S]:
        """Every shard that is loaded here."""
        return (host.shard for host in self._hosts.values() if host.state is _State.ACTIVE)

    def hosts(self) -> list[ShardHost[S]]:
        """Every shard that can answer, with its host."""
        return [host for host in self._hosts.values() if host.state is _State.ACTIVE]

    @property
    def any_loading(self) -> bool:
        return any(host.state is _State.LOADING for host in self._hosts.values())

    def host(self, index: int | None) -> ShardHost[S]:
        """The active shard of a partition, or the error a client gets instead."""
        host = None if index is None else self._hosts.get(index)
        if host is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if host.state is not _State.ACTIVE:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return host

    def host_of(self, key: str) -> ShardHost[S]:
        return self.host(self.index_of(key))

    # ---- operations

    def write(
        self,
        host: ShardHost[S],
        decide: Callable[[S], Decision[T]],
        transaction: Transaction | None = None,
        guard: VerificationGuard | None = None,
    ) -> T | Pending[T | ApiError]:
        """Run a decision. The response comes back at once when nothing has to be waited for.

        `guard` proves that the coordinator of the transaction knows of it, when its first records come with this.
        """
        if host.state is not _State.ACTIVE:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return self._carry_out(host, decide(host.shard), transaction, guard)

    def read(self, host: ShardHost[S], look: Callable[[S], T], *, patiently: bool = False) -> T | Pending[T | ApiError]:
        """Look at the state; what is seen leaves when everything it rests on is committed.

        A client is told after a while that this takes too long; who waits `patiently` is not.
        """
        if host.state is not _State.ACTIVE:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return self._when_committed(host, look(host.shard), None, patiently=patiently)

    def end_transaction(
        self, host: ShardHost[S], transaction: Transaction, coordinator_epoch: int, *, committed: bool, version: int
    ) -> ErrorCode | Pending[ErrorCode | ApiError]:
        """Write a transaction's marker into the partition and tell the shard."""
        marker = build_end_transaction_marker(
            committed=committed,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._clock.now_ms(),
        )
        info = host.partition.append_own(marker, transaction_version=version)
        host.written_to = info.last_offset + 1
        host.shard.end_transaction(transaction, committed)
        return self._when_committed(host, ErrorCode.NONE, None)

    def _carry_out(
        self,
        host: ShardHost[S],
        decision: Decision[T],
        transaction: Transaction | None,
        guard: VerificationGuard | None = None,
    ) -> T | Pending[T | ApiError]:
        if decision.records:
            try:
                self._append(host, decision, transaction, guard)
            except ApiError as error:
                refused = ApiError(_REFUSED.get(error.code, error.code))
                log.warning("%s-%d: %d records not written: %s", self.topic, host.index, len(decision.records), error)
                if decision.done is not None:
                    decision.done(refused)
                raise refused from error
        return self._when_committed(host, decision.response, decision.done)

    def _perform(self, host: ShardHost[S], decide: Callable[[], Decision[Any]]) -> None:
        """A decision nobody asked for. Its failure is the log's to tell; there is nobody else to hear it."""
        if host.state is not _State.ACTIVE:
            return
        try:
            self._carry_out(host, decide(), None)
        except ApiError:
            return
        except Exception:
            log.exception("%s-%d: a timer's decision failed", self.topic, host.index)

    def _append(
        self,
        host: ShardHost[S],
        decision: Decision[Any],
        transaction: Transaction | None,
        guard: VerificationGuard | None,
    ) -> None:
        partition = host.partition
        if not partition.has_enough_in_sync:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        records = decision.records
        if decision.atomic:
            self._append_batch(host, records, transaction, guard, decision.replay)
            return
        limit = partition.log.config.max_message_bytes - _BATCH_OVERHEAD
        for part in _parts(records, limit):
            self._append_batch(host, part, transaction, guard, decision.replay)

    def _append_batch(
        self,
        host: ShardHost[S],
        records: Sequence[CoordinatorRecord],
        transaction: Transaction | None,
        guard: VerificationGuard | None,
        replay: bool,
    ) -> None:
        now = self._clock.now_ms()
        if transaction is None:
            builder = BatchBuilder(codec=self._codec())
            for key, value in records:
                builder.append(key, value, timestamp=now)
            # What every producer's batch goes through is the fastest way into the log.
            info = host.partition.append(memoryview(builder.build()), _ALL_REPLICAS, own=True)
        else:
            builder = BatchBuilder(
                codec=self._codec(),
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                transactional=True,
            )
            for key, value in records:
                builder.append(key, value, timestamp=now)
            info = host.partition.append_own(builder.build(), guard=guard)
        host.written_to = info.last_offset + 1
        if replay:
            take_over = host.shard.replay
            for offset, (key, value) in enumerate(records, info.first_offset):
                take_over(offset, transaction, key, value)

    def _when_committed(
        self,
        host: ShardHost[S],
        response: T,
        done: Callable[[ApiError | None], None] | None,
        *,
        patiently: bool = False,
    ) -> T | Pending[T | ApiError]:
        written_to = host.written_to
        # Nothing written here yet means that there is perhaps no log to open either.
        if not written_to or host.partition.log.high_watermark >= written_to:
            if done is not None:
                done(None)
            return response
        answer: Pending[T | ApiError] = Pending()

        def committed(error: ErrorCode | None = None) -> None:
            gone = error is not None or host.state is _State.CLOSED
            lost = ApiError(ErrorCode.NOT_COORDINATOR) if gone else None
            if done is not None:
                done(lost)
            if not answer.done:
                answer.resolve(response if lost is None else lost)

        host.partition.when_committed(written_to, committed, committed)
        if not patiently and not answer.done:
            self._park(answer)
        return answer

    def _park(self, answer: Pending[Any]) -> None:
        """Let nobody wait for ever: too few replicas may be in sync to commit anything."""
        self._parked.append((self._clock.monotonic_ms() + self._timeout_ms(), answer))
        if self._sweep is None:
            self._sweep = self._clock.call_later(SWEEP_MS, self._give_up_late)

    def _give_up_late(self) -> None:
        parked, now = self._parked, self._clock.monotonic_ms()
        while parked and (parked[0][1].done or parked[0][0] <= now):
            _, answer = parked.popleft()
            if not answer.done:
                answer.resolve(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._sweep = self._clock.call_later(SWEEP_MS, self._give_up_late) if parked else None

    # ---- following the cluster

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """Publisher, after the partition table: take over what this node leads now, give up the rest."""
        for host in list(self._hosts.values()):
            if not host.partition.is_leader:
                self._unload(host)
        hosted = self._partitions.by_name.get(self.topic.encode())
        if hosted is not None and len(hosted.by_index) != len(self._hosts):
            for index, partition in hosted.by_index.items():
                if partition.is_leader and index not in self._hosts:
                    self._load(index, partition)
        for host in self._hosts.values():
            if host.state is _State.ACTIVE:
                host.shard.image_published(delta, image)

    def _load(self, index: int, partition: Partition) -> None:
        host: ShardHost[S] = ShardHost(
            index,
            partition,
            ShardTimers(self._clock),
            lambda decide: self._perform(host, decide),
            self._background,
        )
        host.shard = self._make_shard(host)
        self._hosts[index] = host
        if not partition.opened and not self._has_log(self.topic, index):
            self._replayed(host, None)
        else:
            self._background.run(self._replay_log(host), lambda error: self._replayed(host, error))

    def _replay_log(self, host: ShardHost[S]) -> Iterator[None]:
        partition_log = host.partition.log
        offset = partition_log.log_start_offset
        replay = host.shard.replay
        count = 0
        while offset < partition_log.log_end_offset and host.state is _State.LOADING:
            found = partition_log.read(offset, LOAD_BYTES, max_offset=partition_log.log_end_offset)
            data = found.records
            for header in iter_batches(data):
                transaction = Transaction(header.producer_id, header.producer_epoch) if header.has_producer_id else None
                if header.is_control:
                    marker = read_end_marker(header, data)
                    if marker is not None and transaction is not None:
                        host.shard.end_transaction(transaction, marker.committed)
                    continue
                for each in read_records(data, header):
                    if each.key is None:
                        continue
                    try:
                        replay(each.offset, transaction, each.key, each.value)
                    except (ProtocolError, *MALFORMED) as error:
                        # Not written by a coordinator: a client may write here too. Everybody else must be served.
                        log.warning("the record at offset %d of %s cannot be read: %s", each.offset, self.topic, error)
                count += header.record_count
                if count >= LOAD_RECORDS:
                    count = 0
                    yield
            assert found.next_offset > offset, "a read that leads nowhere"
            offset = found.next_offset
            yield
        host.written_to = partition_log.log_end_offset

    def _replayed(self, host: ShardHost[S], error: BaseException | None) -> None:
        if host.state is not _State.LOADING:
            return
        if error is not None:
            log.error("%s-%d cannot be loaded", self.topic, host.index, exc_info=error)
            return
        host.state = _State.ACTIVE
        host.shard.loaded(self._image())
        log.debug("%s-%d is loaded", self.topic, host.index)

    def close(self) -> None:
        """The node stops: nothing happens here any more, and nobody waits for it."""
        for host in list(self._hosts.values()):
            self._unload(host)
        if self._sweep is not None:
            self._sweep.cancel()

    def _unload(self, host: ShardHost[S]) -> None:
        del self._hosts[host.index]
        was_active = host.state is _State.ACTIVE
        host.state = _State.CLOSED
        host.timers.cancel_all()
        if was_active:
            host.shard.unloaded()


def _parts(records: Sequence[CoordinatorRecord], limit: int) -> Iterator[Sequence[CoordinatorRecord]]:
    """The records in order, in as few parts as fit the limit; one record alone is never split."""
    start = size = 0
    for i, (key, value) in enumerate(records):
        needed = len(key) + (0 if value is None else len(value)) + _RECORD_OVERHEAD
        if size + needed > limit and i > start:
            yield records[start:i]
            start, size = i, 0
        size += needed
    yield records[start:]
