"""The check before a transaction's first batch in a partition: does the coordinator know of it?

A producer of the old kind has added the partition before; the coordinator is asked whether it did (KIP-890, part 1).
A producer of transactions v2 leaves adding it to the broker. Either way a batch that the coordinator does not know of
never reaches the log, where it would hold back readers for ever. Once a transaction is open in a partition, further
batches pass without a question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from moldau.broker.gathering import after, chain
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import TRANSACTION_STATE
from moldau.broker.transaction_coordinator import TransactionCoordinator
from moldau.broker.transaction_peers import RemoteCoordinators
from moldau.coordinator.transaction.metadata import EPOCH_BUMP_VERSION, ProducerIdAndEpoch, TopicPartition
from moldau.log.producer_state import VerificationGuard
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import HEADER_SIZE
from moldau.replication.partition import NO_LEADER, Partition

# Where a batch says who wrote it: producer id, epoch, sequence number.
PRODUCER_FIELDS: Final = Struct(">qhi")
PRODUCER_FIELDS_AT: Final = 43
ATTRIBUTES_LOW_BYTE_AT: Final = 22
TRANSACTIONAL_BIT: Final = 0x10
# How often a question is asked whose answer came too late to be relied on.
_ATTEMPTS: Final = 3


class Client(Enum):
    """What a producer's request version says about it."""

    OLD = "knows no other error than INVALID_TXN_STATE"
    KNOWS_ABORTABLE = "knows TRANSACTION_ABORTABLE"
    ADDS_IMPLICITLY = "speaks transactions v2"


# Since these versions of Produce and TxnOffsetCommit.
_ABORTABLE_SINCE: Final = {"produce": 11, "offsets": 4}
_IMPLICIT_SINCE: Final = {"produce": 12, "offsets": 5}


def client_of(kind: str, version: int) -> Client:
    """`kind` is "produce" or "offsets"."""
    if version >= _IMPLICIT_SINCE[kind]:
        return Client.ADDS_IMPLICITLY
    return Client.KNOWS_ABORTABLE if version >= _ABORTABLE_SINCE[kind] else Client.OLD


Verdict: TypeAlias = VerificationGuard | ApiError | None
"""The proof to append with, the refusal, or None when there is nothing to prove."""


class Write(NamedTuple):
    """One batch that wants into a partition as part of a transaction."""

    partition: Partition
    producer: ProducerIdAndEpoch
    sequence: int


def producer_of(records: memoryview) -> tuple[ProducerIdAndEpoch, int] | None:
    """(producer, sequence number) of a transactional batch; None for any other (or one that the log will refuse)."""
    if len(records) < HEADER_SIZE or not records[ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL_BIT:
        return None
    producer_id, epoch, sequence = PRODUCER_FIELDS.unpack_from(records, PRODUCER_FIELDS_AT)
    return ProducerIdAndEpoch(producer_id, epoch), sequence


class TransactionGate:
    """Asks the coordinator of a transactional id on behalf of the partitions led here."""

    def __init__(
        self,
        services: BrokerServices,
        coordinator: TransactionCoordinator,
        remote: RemoteCoordinators | None = None,
    ) -> None:
        """`remote` reaches coordinators on other brokers, where there are others."""
        self._services = services
        self._coordinator = coordinator
        self._remote = remote
        # What the coordinators are being asked about.
        self._asking: dict[tuple[str, TopicPartition], Pending[list[Verdict]]] = {}

    def image_published(self) -> None:
        if self._remote is not None:
            self._remote.image_published()

    def admit(
        self,
        transactional_id: str,
        writes: Sequence[Write],
        client: Client,
        try_again: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS,
    ) -> list[Verdict] | Pending[list[Verdict]]:
        """One verdict for each write. `try_again` is what every client understands as such.

        The default does not make producers look for another leader.
        """
        producers = {write.producer for write in writes}
        if len(producers) > 1:
            mixed = ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "one transaction has one producer; the request names several"
            )
            return [mixed] * len(writes)
        earlier = self._under_way(transactional_id, writes)
        if earlier is not None:
            # A later batch must not overtake one that waits, although it could pass as soon as that has.
            verdicts_later: Pending[list[Verdict]] = chain(
                earlier, lambda _: self.admit(transactional_id, writes, client, try_again)
            )
            return verdicts_later
        outcome = self._inquire(transactional_id, writes, client, try_again, _ATTEMPTS)
        if isinstance(outcome, Pending):
            self._remember(transactional_id, writes, outcome)
        return outcome

    def _inquire(
        self, transactional_id: str, writes: Sequence[Write], client: Client, try_again: ErrorCode, attempts: int
    ) -> list[Verdict] | Pending[list[Verdict]]:
        verdicts: list[Verdict] = [_first_look(write, client) for write in writes]
        asked = [i for i, verdict in enumerate(verdicts) if verdict is _ASK or isinstance(verdict, VerificationGuard)]
        if not asked:
            return verdicts
        places = [_place(writes[i]) for i in asked]
        codes = self._ask(transactional_id, writes[asked[0]].producer, places, client)

        def judged(codes: Mapping[TopicPartition, ErrorCode] | ApiError) -> Any:
            for i, place in zip(asked, places, strict=True):
                code = codes.code if isinstance(codes, ApiError) else codes[place]
                verdict = verdicts[i]
                if code is not ErrorCode.NONE:
                    verdicts[i] = _refusal(code, client, try_again)
                elif verdict is _ASK:
                    verdicts[i] = None
                elif _first_look(writes[i], client) is not verdict:
                    # A marker came in between. It may have ended this very transaction, or only the one before, for
                    # which the coordinator had this question wait: ask again.
                    if attempts > 1:
                        return self._inquire(transactional_id, writes, client, try_again, attempts - 1)
                    verdicts[i] = ApiError(try_again)
            return verdicts

        outcome: list[Verdict] | Pending[list[Verdict]] = chain(codes, judged)
        return outcome

    def _under_way(self, transactional_id: str, writes: Sequence[Write]) -> Pending[Any] | None:
        if not self._asking:
            return None
        found = (self._asking.get((transactional_id, _place(write))) for write in writes)
        return next((question for question in found if question is not None), None)

    def _remember(self, transactional_id: str, writes: Sequence[Write], outcome: Pending[list[Verdict]]) -> None:
        places = [_place(write) for write in writes]
        for place in places:
            self._asking[transactional_id, place] = outcome

        def forget(_: list[Verdict]) -> None:
            for place in places:
                self._asking.pop((transactional_id, place), None)

        outcome.then(forget)

    def _ask(
        self, transactional_id: str, producer: ProducerIdAndEpoch, places: Sequence[TopicPartition], client: Client
    ) -> Any:
        """The coordinator's answer for each partition, or an ApiError for all; a promise when it must be waited for."""
        elsewhere = self._elsewhere(transactional_id)
        if elsewhere is not None and self._remote is not None:
            verify_only = client is not Client.ADDS_IMPLICITLY
            return self._remote.ask(elsewhere, transactional_id, producer, places, verify_only=verify_only)
        try:
            if client is not Client.ADDS_IMPLICITLY:
                return self._coordinator.verify_partitions(transactional_id, producer, places)
            added = self._coordinator.add_partitions(transactional_id, producer, places, EPOCH_BUMP_VERSION)
        except ApiError as error:
            return error
        return after(added, lambda code: code if isinstance(code, ApiError) else dict.fromkeys(places, code))

    def _elsewhere(self, transactional_id: str) -> int | None:
        """The other broker that coordinates this id; None when it is this one, or nobody."""
        index = self._coordinator.runtime.index_of(transactional_id)
        known = None if index is None else self._services.image.partition(TRANSACTION_STATE, index)
        if known is None or known.leader in (NO_LEADER, self._services.node_id):
            return None
        return known.leader


def _place(write: Write) -> TopicPartition:
    return write.partition.topic, write.partition.index


# Ask the coordinator although the log wants no proof (verification is switched off, and the partition must be added).
_ASK: Final = ApiError(ErrorCode.NONE)


def _first_look(write: Write, client: Client) -> Verdict:
    producer = write.producer
    try:
        write.partition.require_leader()
        log = write.partition.log
        if log.has_ongoing_transaction(producer.producer_id, producer.epoch):
            return None
        implicit = client is Client.ADDS_IMPLICITLY
        guard = log.start_verification(
            producer.producer_id, write.sequence, producer.epoch, supports_epoch_bump=implicit
        )
        if guard is None and implicit:
            return _ASK
        return guard
    except ApiError as error:
        return error


def _refusal(code: ErrorCode, client: Client, try_again: ErrorCode) -> ApiError:
    """What a producer is told when the coordinator says no."""
    if code is ErrorCode.PRODUCER_FENCED:
        # What producers expect of a partition's leader.
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and client is Client.OLD:
        return ApiError(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
    if code in _RETRY or (code is ErrorCode.CONCURRENT_TRANSACTIONS and client is not Client.ADDS_IMPLICITLY):
        return ApiError(try_again, f"Unable to verify the partition has been added to the transaction: {code.name}")
    return ApiError(code)


_RETRY: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
