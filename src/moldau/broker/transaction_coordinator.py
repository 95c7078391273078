"""The transaction coordinator of this node: decisions carried out, markers sent, time kept.

Decides in which order things happen. How a transaction ends is committed in the coordinator's log before the first
marker is written; that it has ended is written only after the last one. Whatever fails in between is tried again, by
this node or by the one that takes over, until every partition has its marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from moldau.broker.gathering import after, chain
from moldau.broker.producers import ProducerIds
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import TRANSACTION_STATE
from moldau.broker.transaction_markers import Marker, MarkerWriter
from moldau.broker.transaction_peers import RemoteMarkers
from moldau.coordinator.decision import Decision
from moldau.coordinator.runtime import CoordinatorRuntime, ShardHost
from moldau.coordinator.transaction import ending, producers
from moldau.coordinator.transaction.metadata import (
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionMetadata,
)
from moldau.coordinator.transaction.partitions import add_partitions, verify_partitions
from moldau.coordinator.transaction.shard import TransactionShard
from moldau.coordinator.transaction.states import TransactionState
from moldau.metadata.delta import ImageDelta
from moldau.metadata.features import TRANSACTION_VERSION
from moldau.metadata.image import ClusterImage
from moldau.ports import Pending, Timer
from moldau.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("moldau.coordinator")

T = TypeVar("T")
Host: TypeAlias = ShardHost[TransactionShard]

# How long after a failure a marker is tried again: soon, since a new leader is usually found at once, then less often.
_RETRY_MARKERS_MS_FIRST: Final = 10
_RETRY_MARKERS_MS_MAX: Final = 200
# The partition needs no marker of ours any more: it is gone, or knows a later producer or coordinator.
_SETTLED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)


class TransactionCoordinator:
    """Every transactional id whose partition of the transaction-state topic is led here."""

    def __init__(
        self,
        services: BrokerServices,
        ids: ProducerIds,
        markers: MarkerWriter,
        remote_markers: RemoteMarkers | None = None,
    ) -> None:
        """`remote_markers` reaches the partitions that other brokers lead, where there are others."""
        self._services = services
        self._clock = services.clock
        self._ids = ids
        self._markers = markers
        self._remote_markers = remote_markers
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTION_STATE,
            partitions=services.partitions,
            clock=services.clock,
            background=services.background,
            make_shard=lambda host: TransactionShard(
                host,
                transaction_version=lambda: self.transaction_version,
                prepared=self._send_markers,
                opened=self._watch_timeouts,
            ),
            image=lambda: services.image,
            has_log=lambda topic, index: services.logs.directory_of(topic, index) is not None,
        )
        # Who waits for a transaction to have ended, to begin the next.
        self._ends: dict[str, list[Pending[Any]]] = {}
        self._timeouts: Timer | None = None
        self._expiry: Timer | None = None

    @property
    def transaction_version(self) -> int:
        """The cluster's level of `transaction.version`."""
        return self._services.image.feature_level(TRANSACTION_VERSION)

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        self.runtime.image_published(delta, image)
        if self._remote_markers is not None:
            self._remote_markers.image_published()
        if self._expiry is None:
            self._watch_expiry()

    def close(self) -> None:
        """The node stops: what is open stays so, and is gone on with after the next start."""
        for timer in (self._timeouts, self._expiry):
            if timer is not None:
                timer.cancel()
        self.runtime.close()

    # ---- requests

    def init_producer(self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None) -> Any:
        """The producer's id and epoch, an ApiError, or a promise of either."""
        host = self.runtime.host_of(transactional_id)
        current = host.shard.ids.get(transactional_id)
        producers.check_expected(current, expected)
        if current is not None and current.state is TransactionState.ONGOING:
            # The producer asks again, and finds the transaction aborted.
            return self._abort(host, transactional_id, ApiError(ErrorCode.CONCURRENT_TRANSACTIONS))

        def decide(shard: TransactionShard, new_id: int) -> Decision[ProducerIdAndEpoch]:
            now_current = shard.ids.get(transactional_id)
            if now_current is not current:
                # Somebody else came while an id was fetched from the controller.
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
            changed = producers.initialize(
                current, expected, new_producer_id=new_id, timeout_ms=timeout_ms, now_ms=self._clock.now_ms()
            )
            return shard.change(transactional_id, changed, ProducerIdAndEpoch(changed.producer_id, changed.epoch))

        return self._with_producer_id(
            producers.needs_producer_id(current, expected),
            lambda new_id: self.runtime.write(host, lambda shard: decide(shard, new_id)),
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        client_version: int,
    ) -> ErrorCode | Pending[ErrorCode | ApiError]:
        """Make partitions part of the producer's transaction, which begins with the first of them."""
        added = frozenset(partitions)

        def decide(shard: TransactionShard) -> Decision[ErrorCode]:
            current = shard.ids.get(transactional_id)
            changed = add_partitions(
                current, producer, added, client_version=client_version, now_ms=self._clock.now_ms()
            )
            if changed is current:
                return Decision(ErrorCode.NONE)
            return shard.change(transactional_id, changed, ErrorCode.NONE)

        def add() -> ErrorCode | Pending[ErrorCode | ApiError]:
            return self.runtime.write(self.runtime.host_of(transactional_id), decide)

        try:
            return add()
        except ApiError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
        # The markers of the one before are under way: sooner here than when the client has come again.
        added_later: Pending[ErrorCode | ApiError] = chain(self._when_ended(transactional_id), lambda _: add())
        return added_later

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode] | Pending[dict[TopicPartition, ErrorCode] | ApiError]:
        host = self.runtime.host_of(transactional_id)
        return self.runtime.read(
            host, lambda shard: verify_partitions(shard.ids.get(transactional_id), producer, frozenset(partitions))
        )

    def end(self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int) -> Any:
        """The producer as it goes on after the end of its transaction, or a promise of it."""
        host = self.runtime.host_of(transactional_id)

        def decide(shard: TransactionShard, new_id: int) -> Decision[ProducerIdAndEpoch]:
            current = shard.ids.get(transactional_id)
            if new_id == NO_PRODUCER_ID and ending.needs_producer_id(current, client_version):
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
            changed = ending.end(
                current,
                producer,
                commit=commit,
                client_version=client_version,
                new_producer_id=new_id,
                now_ms=self._clock.now_ms(),
            )
            if changed is current:
                return Decision(ProducerIdAndEpoch(changed.producer_id, changed.epoch))
            return shard.end(transactional_id, changed, changed.after_completion)

        return self._with_producer_id(
            ending.needs_producer_id(host.shard.ids.get(transactional_id), client_version),
            lambda new_id: self.runtime.write(host, lambda shard: decide(shard, new_id)),
        )

    def _abort(self, host: Host, transactional_id: str, response: T) -> Any:
        """Abort an open transaction over its producer's head."""
        version = self.transaction_version
        current = host.shard.ids[transactional_id]

        def decide(shard: TransactionShard, new_id: int) -> Decision[T]:
            if not shard.is_current(transactional_id, current):
                return Decision(response)
            aborted = ending.fenced(
                current, transaction_version=version, new_producer_id=new_id, now_ms=self._clock.now_ms()
            )
            return shard.end(transactional_id, aborted, response)

        return self._with_producer_id(
            ending.needs_producer_id(current, version),
            lambda new_id: self.runtime.write(host, lambda shard: decide(shard, new_id)),
        )

    def _with_producer_id(self, needed: bool, proceed: Callable[[int], Any]) -> Any:
        """Go on with an id that nobody had before, where one is needed; blocks of them are usually at hand."""
        if not needed:
            return proceed(NO_PRODUCER_ID)

        def taken(new_id: int | ApiError) -> Any:
            if isinstance(new_id, ApiError):
                raise new_id
            return proceed(new_id)

        return chain(self._ids.take(), taken)

    # ---- markers

    def _send_markers(self, shard: TransactionShard, transactional_id: str, prepared: TransactionMetadata) -> None:
        """The end is decided: as soon as that is committed, every partition gets its marker."""
        host: Host = shard.host
        committed = self.runtime.read(host, lambda _: None, patiently=True)
        after(
            committed,
            lambda lost: (
                None if isinstance(lost, ApiError) else _Completion(self, host, transactional_id, prepared).go()
            ),
        )

    def marker_of(self, host: Host, prepared: TransactionMetadata) -> Marker:
        return self._markers.marker(
            prepared.producer_id,
            prepared.epoch,
            host.partition.leader_epoch,
            committed=prepared.state is TransactionState.PREPARE_COMMIT,
            transaction_version=prepared.client_version,
        )

    def write_marker(self, place: TopicPartition, marker: Marker) -> ErrorCode | Pending[ErrorCode]:
        """Have the leader of a partition write a marker, whoever that is now."""
        topic, index = place
        known = self._services.image.partition(topic, index)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if known.leader == self._services.node_id:
            return self._markers.write(topic, index, marker)
        if known.leader < 0 or self._remote_markers is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self._remote_markers.write(known.leader, place, marker)

    def complete(self, host: Host, transactional_id: str, prepared: TransactionMetadata) -> None:
        """Every marker is written: the next transaction may begin."""
        self.runtime.write(
            host, lambda shard: shard.change(transactional_id, prepared.completed(self._clock.now_ms()), None)
        )
        for waiting in self._ends.pop(transactional_id, ()):
            if not waiting.done:
                waiting.resolve(None)

    def _when_ended(self, transactional_id: str) -> Pending[Any]:
        """A promise for the end of the transaction that is ending, kept after a while in any case."""
        promise: Pending[Any] = Pending()
        waiting = self._ends.setdefault(transactional_id, [])
        waiting.append(promise)

        def give_up() -> None:
            if not promise.done:
                waiting.remove(promise)
                if not waiting and self._ends.get(transactional_id) is waiting:
                    del self._ends[transactional_id]
                promise.resolve(None)

        limit_ms = self._services.config.integer("add.partitions.to.txn.retry.backoff.max.ms")
        timer = self._clock.call_later(limit_ms, give_up)
        promise.then(lambda _: timer.cancel())
        return promise

    # ---- time

    def _watch_timeouts(self) -> None:
        """A transaction is open: look in time for those that are so for too long."""
        if self._timeouts is None:
            interval = self._services.config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms")
            self._timeouts = self._clock.call_later(interval, self._abort_timed_out)

    def _abort_timed_out(self) -> None:
        self._timeouts = None
        now = self._clock.now_ms()
        for host in self.runtime.hosts():
            for transactional_id, metadata in host.shard.timed_out(now):
                log.info(
                    "the transaction of %s is aborted: it took longer than %d ms", transactional_id, metadata.timeout_ms
                )
                try:
                    self._abort(host, transactional_id, None)
                except ApiError as error:
                    log.warning("the transaction of %s could not be aborted: %s", transactional_id, error)
        if any(host.shard.ongoing for host in self.runtime.hosts()) or self.runtime.any_loading:
            self._watch_timeouts()

    def _watch_expiry(self) -> None:
        interval = self._services.config.integer("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._expiry = self._clock.call_later(interval, self._expire)

    def _expire(self) -> None:
        now = self._clock.now_ms()
        expiration_ms = self._services.config.integer("transactional.id.expiration.ms")
        for host in self.runtime.hosts():
            shard = host.shard
            host.perform(lambda shard=shard: shard.expire(now, expiration_ms))  # type: ignore[misc]
        self._watch_expiry()


class _Completion:
    """The markers of one transaction that ends."""

    __slots__ = ("_coordinator", "_delay_ms", "_host", "_left", "_marker", "_prepared", "_transactional_id", "_waiting")

    def __init__(
        self, coordinator: TransactionCoordinator, host: Host, transactional_id: str, prepared: TransactionMetadata
    ) -> None:
        self._coordinator = coordinator
        self._host = host
        self._transactional_id = transactional_id
        self._prepared = prepared
        self._marker = coordinator.marker_of(host, prepared)
        self._left = set(prepared.partitions)
        self._waiting = 0
        self._delay_ms = 0

    def go(self) -> None:
        """Write what is missing; come back later for what could not be written."""
        if not self._host.shard.is_current(self._transactional_id, self._prepared):
            return
        coordinator, marker = self._coordinator, self._marker
        self._waiting = 1
        for place in sorted(self._left):
            outcome = coordinator.write_marker(place, marker)
            if isinstance(outcome, Pending):
                self._waiting += 1
                outcome.then(self._written_call(place))
            else:
                self._settle(place, outcome)
        self._one_less()

    def _written_call(self, place: TopicPartition) -> Callable[[ErrorCode], None]:
        def written(code: ErrorCode) -> None:
            self._settle(place, code)
            self._one_less()

        return written

    def _settle(self, place: TopicPartition, code: ErrorCode) -> None:
        if code in _SETTLED:
            self._left.discard(place)
            if code is not ErrorCode.NONE:
                log.info("%s-%d needs no marker of %s any more: %s", *place, self._transactional_id, code.name)
        elif not self._delay_ms:
            log.warning("no marker of %s in %s-%d yet: %s", self._transactional_id, *place, code.name)

    def _one_less(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        if not self._left and self._complete():
            return
        self._delay_ms = min(max(2 * self._delay_ms, _RETRY_MARKERS_MS_FIRST), _RETRY_MARKERS_MS_MAX)
        self._host.timers.schedule(("markers", self._transactional_id), self._delay_ms, self.go)

    def _complete(self) -> bool:
        try:
            if self._host.shard.is_current(self._transactional_id, self._prepared):
                self._coordinator.complete(self._host, self._transactional_id, self._prepared)
        except ApiError as error:
            log.warning("the end of %s's transaction could not be written: %s", self._transactional_id, error)
            return False
        return True
