"""The one runtime of all coordinators: decide, append, replay, answer when committed.

A coordinator's state is split into shards, one for each partition of its internal topic that this node leads. A shard
changes only by replaying records: what a decision wrote is appended to the partition and replayed at once, its
response leaves when the records are committed. Taking over a partition is the same replay from its log.

Decides who is the coordinator of a key, when a shard may answer, and when a response may leave. It never looks into a
record; that is the shard's business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from moldau.log.markers import read_end_marker
from moldau.metadata.delta import ImageDelta
from moldau.metadata.image import ClusterImage
from moldau.ports import Background, Clock, Pending, Timer
from moldau.protocol.coordinator_records import encode_key, encode_value
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.wire import WireMessage
from moldau.records.batch import iter_batches
from moldau.records.builder import build_batch, build_end_transaction_marker
from moldau.records.record import Record, read_records
from moldau.replication.partition import Partition
from moldau.replication.partition_table import PartitionTable

log = logging.getLogger("moldau.coordinator")

LOAD_BYTES = 1 << 20

T = TypeVar("T")
S = TypeVar("S", bound="Shard")


class CoordinatorRecord(NamedTuple):
    """One change of a shard's state. A value of None is a tombstone."""

    key: WireMessage
    value: WireMessage | None
    version: int = 0


@dataclass(slots=True)
class Decision(Generic[T]):
    """What a request leads to: the records that change the state, and the response once they are committed."""

    response: T
    records: Sequence[CoordinatorRecord] = ()


class Transaction(NamedTuple):
    """The producer on whose behalf records are written; they count when its transaction commits."""

    producer_id: int
    producer_epoch: int


class Shard(Protocol):
    """The state behind one partition of a coordinator's topic."""

    def replay(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        """Take over one record, from the log or just appended. The only way the state changes."""
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


class ShardTimers:
    """Timers of one shard, by a key of the shard's choosing; all end when the shard is unloaded."""

    __slots__ = ("_clock", "_timers")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[object, Timer] = {}

    def schedule(self, key: object, delay_ms: int, run: Callable[[], None]) -> None:
        """Replaces a timer of the same key."""
        self.cancel(key)

        def fire() -> None:
            self._timers.pop(key, None)
            run()

        self._timers[key] = self._clock.call_later(delay_ms, fire)

    def cancel(self, key: object) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def is_scheduled(self, key: object) -> bool:
        return key in self._timers

    def cancel_all(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


@dataclass(slots=True, eq=False)
class ShardHost(Generic[S]):
    """One shard and the partition its records go to."""

    index: int
    partition: Partition
    timers: ShardTimers
    state: _State = _State.LOADING
    shard: S = field(init=False)
    # Offset after the last record written; state up to there may be read only when it is committed.
    written_to: int = 0


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
    ) -> None:
        self.topic = topic
        self._partitions = partitions
        self._clock = clock
        self._background = background
        self._make_shard = make_shard
        self._image = image
        self._hosts: dict[int, ShardHost[S]] = {}
        self._topic_id: bytes | None = None

    # ---- who coordinates what

    def index_of(self, key: str) -> int | None:
        """The partition a key belongs to; None while the topic does not exist."""
        topic = self._image().topic(self.topic)
        if topic is None or not topic.partitions:
            return None
        return (java_hash(key) & 0x7FFFFFFF) % len(topic.partitions)

    def shards(self) -> Iterator[S]:
        """Every shard that is loaded here."""
        return (host.shard for host in self._hosts.values() if host.state is _State.ACTIVE)

    @property
    def any_loading(self) -> bool:
        return any(host.state is _State.LOADING for host in self._hosts.values())

    def host(self, index: int | None) -> ShardHost[S]:
        """The active shard of a partition, or the error a client gets instead."""
        if index is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        host = self._hosts.get(index)
        if host is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if host.state is not _State.ACTIVE:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return host

    def host_of(self, key: str) -> ShardHost[S]:
        return self.host(self.index_of(key))

    # ---- operations

    def write(
        self, host: ShardHost[S], decide: Callable[[S], Decision[T]], transaction: Transaction | None = None
    ) -> T | Pending[T | ApiError]:
        """Run a decision. The response comes back at once when nothing has to be waited for."""
        if host.state is not _State.ACTIVE:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        decision = decide(host.shard)
        if decision.records:
            self._append(host, decision.records, transaction)
        return self._when_committed(host, decision.response)

    def read(self, host: ShardHost[S], look: Callable[[S], T]) -> T | Pending[T | ApiError]:
        """Look at the state; what is seen leaves when everything it rests on is committed."""
        return self.write(host, lambda shard: Decision(look(shard)))

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
        return self._when_committed(host, ErrorCode.NONE)

    def _append(
        self, host: ShardHost[S], records: Sequence[CoordinatorRecord], transaction: Transaction | None
    ) -> None:
        encoded = [(encode_key(r.key), None if r.value is None else encode_value(r.value, r.version)) for r in records]
        now = self._clock.now_ms()
        producer: dict[str, Any] = {}
        if transaction is not None:
            producer = {
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "transactional": True,
            }
        batch = build_batch([Record(i, now, key, value, ()) for i, (key, value) in enumerate(encoded)], **producer)
        info = host.partition.append_own(batch)
        host.written_to = info.last_offset + 1
        for i, (key, value) in enumerate(encoded):
            host.shard.replay(info.first_offset + i, transaction, key, value)

    def _when_committed(self, host: ShardHost[S], response: T) -> T | Pending[T | ApiError]:
        if host.partition.log.high_watermark >= host.written_to:
            return response
        answer: Pending[T | ApiError] = Pending()

        def committed() -> None:
            if not answer.done:
                lost = host.state is _State.CLOSED
                answer.resolve(ApiError(ErrorCode.NOT_COORDINATOR) if lost else response)

        host.partition.when_committed(host.written_to, committed)
        return answer

    # ---- following the cluster

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """Publisher, after the partition table: take over what this node leads now, give up the rest."""
        for host in list(self._hosts.values()):
            if not host.partition.is_leader:
                self._unload(host)
        hosted = self._partitions.by_name.get(self.topic.encode())
        if hosted is not None:
            for index, partition in hosted.by_index.items():
                if partition.is_leader and index not in self._hosts:
                    self._load(index, partition)
        for host in self._hosts.values():
            if host.state is _State.ACTIVE:
                host.shard.image_published(delta, image)

    def _load(self, index: int, partition: Partition) -> None:
        host: ShardHost[S] = ShardHost(index, partition, ShardTimers(self._clock))
        host.shard = self._make_shard(host)
        self._hosts[index] = host
        self._background.run(self._replay_log(host), lambda error: self._replayed(host, error))

    def _replay_log(self, host: ShardHost[S]) -> Iterator[None]:
        partition_log = host.partition.log
        offset = partition_log.log_start_offset
        while offset < partition_log.log_end_offset and host.state is _State.LOADING:
            data = partition_log.read(
                offset, LOAD_BYTES, max_offset=partition_log.log_end_offset, min_one_message=True
            ).records
            if not data:
                break
            for header in iter_batches(data):
                batch = memoryview(data)[header.start : header.end]
                transaction = Transaction(header.producer_id, header.producer_epoch) if header.has_producer_id else None
                if header.is_control:
                    marker = read_end_marker(header, data)
                    if marker is not None and transaction is not None:
                        host.shard.end_transaction(transaction, marker.committed)
                else:
                    for record in read_records(batch):
                        assert record.key is not None, "a coordinator's records have keys"
                        host.shard.replay(record.offset, transaction, record.key, record.value)
                offset = header.next_offset
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

    def _unload(self, host: ShardHost[S]) -> None:
        del self._hosts[host.index]
        was_active = host.state is _State.ACTIVE
        host.state = _State.CLOSED
        host.timers.cancel_all()
        if was_active:
            host.shard.unloaded()


def java_hash(text: str) -> int:
    """String.hashCode of Java, which decides the partition of a group or transactional id."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
