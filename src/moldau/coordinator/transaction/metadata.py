"""What is known of one transactional id, how it changes, and how it stands in the log.

Every change is a new value, made by one of the methods here; each checks the table of states. Who may ask for a
change is decided elsewhere (`producers.py`, `partitions.py`, `ending.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from moldau.coordinator.decision import CoordinatorRecord
from moldau.coordinator.transaction.states import FOLLOWED_BY, TransactionState
from moldau.protocol.coordinator_records import encode_key, encode_value
from moldau.protocol.generated.transaction.transaction_log_key import TransactionLogKey
from moldau.protocol.generated.transaction.transaction_log_value import PartitionsSchema, TransactionLogValue
from moldau.protocol.wire import Reader

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 32767
# The highest epoch is kept for fencing, so a producer that has the one before it must get another id.
LAST_EPOCH_OF_CLIENTS: Final = MAX_EPOCH - 1
# From this level of `transaction.version` on, ending a transaction bumps the producer's epoch.
EPOCH_BUMP_VERSION: Final = 2
# From this level on, records are written in their flexible version, which knows the fields added since.
_FLEXIBLE_VERSION: Final = 1

TopicPartition: TypeAlias = tuple[str, int]


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class TransactionMetadata(NamedTuple):
    """One transactional id's producer and transaction."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    # The producer id before the latest change; differs only right after the epochs of an id were used up.
    previous_producer_id: int = NO_PRODUCER_ID
    # The id the producer continues with once the markers are written, when its epochs are used up.
    next_producer_id: int = NO_PRODUCER_ID
    # The epoch before the latest bump, to recognise a repeated request. Kafka's log has no place for it.
    last_epoch: int = NO_EPOCH
    # The transaction version of the client that changed it last.
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH_OF_CLIENTS

    @property
    def after_completion(self) -> ProducerIdAndEpoch:
        """The producer as it is once the transaction that is being ended has ended."""
        if self.next_producer_id != NO_PRODUCER_ID and self.client_version >= EPOCH_BUMP_VERSION:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    # ---- changes

    def initialized(
        self, producer: ProducerIdAndEpoch, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """A producer begins, or begins anew."""
        return self._to(
            TransactionState.EMPTY,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=-1,
            updated_ms=now_ms,
        )

    def with_partitions(
        self, added: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        return self._to(
            TransactionState.ONGOING,
            partitions=self.partitions | added,
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, *, commit: bool, epoch: int, last_epoch: int, client_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        """The decision: from here on the transaction ends this way, whatever happens."""
        return self._to(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            epoch=epoch,
            last_epoch=last_epoch,
            client_version=client_version,
            next_producer_id=next_producer_id,
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Every marker is written."""
        producer = self.after_completion
        committed = self.state is TransactionState.PREPARE_COMMIT
        return self._to(
            TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            updated_ms=now_ms,
        )

    def _to(self, state: TransactionState, **changes: object) -> TransactionMetadata:
        assert state in FOLLOWED_BY[self.state], f"{self.state.name} is not followed by {state.name}"
        return self._replace(state=state, previous_producer_id=self.producer_id, **changes)  # type: ignore[arg-type]


# ---- in the log


def log_record(transactional_id: str, metadata: TransactionMetadata, transaction_version: int) -> CoordinatorRecord:
    """The record of a state, as the cluster's level of `transaction.version` demands it."""
    flexible = transaction_version >= _FLEXIBLE_VERSION
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(index)
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=(
            None
            if metadata.state is TransactionState.EMPTY
            else [PartitionsSchema(topic, indexes) for topic, indexes in by_topic.items()]
        ),
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
    )
    if flexible:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.client_version
    return encode_key(TransactionLogKey(transactional_id)), encode_value(value, int(flexible))


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return encode_key(TransactionLogKey(transactional_id)), None


def read_key(key: bytes) -> str | None:
    """The transactional id; None for a kind of record that this release does not know."""
    reader = Reader(key)
    if reader.int16() != TransactionLogKey.API_KEY:
        return None
    return TransactionLogKey.read(reader, 0).transactional_id


def read_value(data: bytes) -> TransactionMetadata | None:
    """The state; None for a version that this release does not know."""
    reader = Reader(data)
    version = reader.int16()
    if not TransactionLogValue.MIN_VERSION <= version <= TransactionLogValue.MAX_VERSION:
        return None
    value = TransactionLogValue.read(reader, version)
    return TransactionMetadata(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
