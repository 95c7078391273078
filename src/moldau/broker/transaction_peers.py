"""What brokers say to each other about transactions: markers for the leaders of partitions elsewhere (WriteTxnMarkers),
questions to coordinators elsewhere (AddPartitionsToTxn).

Decides what travels together: to each broker one request of a kind is under way at a time, made of everything that has
come up since the one before. It never tries again; whoever asked does, since by then somebody else may be the one to
ask. A broker that the cluster takes for dead is not waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from moldau.broker.leaders import broker_address
from moldau.broker.services import BrokerServices
from moldau.broker.transaction_markers import Marker
from moldau.coordinator.transaction.metadata import ProducerIdAndEpoch, TopicPartition
from moldau.ports import Network, Pending, Unreachable
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.generated.wire.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from moldau.protocol.generated.wire.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.generated.wire.write_txn_markers_response import WriteTxnMarkersResponse

log = logging.getLogger("moldau.broker")

MARKERS_VERSION: Final = 2
QUESTIONS_VERSION: Final = 5


class Message(Protocol):
    """One thing to say to another broker."""

    @property
    def key(self) -> Hashable:
        """Two messages of the same key never travel together: their answers could not be told apart."""
        ...

    def unanswered(self) -> None:
        """The broker could not be reached, or did not say; it may have done what it was asked for."""
        ...


M = TypeVar("M", bound=Message)


class _Mailbox(Generic[M]):
    """What is to be said to one broker."""

    __slots__ = ("broker_epoch", "conversation", "scheduled", "under_way", "waiting")

    def __init__(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self.waiting: list[M] = []
        self.under_way: list[M] = []
        self.scheduled = False
        # Answers to requests that were given up are not listened to.
        self.conversation = 0

    def next(self) -> list[M]:
        """Take what may travel together, the oldest first."""
        keys: set[Hashable] = set()
        taken: list[M] = []
        left: list[M] = []
        for message in self.waiting:
            (left if message.key in keys else taken).append(message)
            keys.add(message.key)
        self.waiting = left
        return taken


class BrokerMail(Generic[M]):
    """Requests of one kind to other brokers."""

    def __init__(
        self,
        services: BrokerServices,
        network: Network,
        *,
        lane: str,
        version: int,
        compose: Callable[[Sequence[M]], Any],
        deliver: Callable[[Sequence[M], Any], None],
    ) -> None:
        """`compose` makes one request of messages, `deliver` hands each of them its part of the response."""
        self._services = services
        self._network = network
        self._lane = lane
        self._version = version
        self._compose = compose
        self._deliver = deliver
        self._boxes: dict[int, _Mailbox[M]] = {}

    def send(self, broker_id: int, message: M) -> None:
        """Later in this turn: what else comes up until then travels along."""
        box = self._boxes.get(broker_id)
        if box is None:
            box = self._boxes[broker_id] = _Mailbox(self._epoch_of(broker_id))
        box.waiting.append(message)
        self._schedule(broker_id, box)

    def image_published(self) -> None:
        """Nobody waits any longer for a broker that the cluster takes for dead, or that has begun a new life."""
        for broker_id, box in list(self._boxes.items()):
            epoch = self._epoch_of(broker_id)
            if epoch == box.broker_epoch:
                continue
            box.broker_epoch = epoch
            box.conversation += 1
            lost = box.under_way + box.waiting
            box.under_way, box.waiting = [], []
            for message in lost:
                message.unanswered()

    def _epoch_of(self, broker_id: int) -> int:
        broker = self._services.image.brokers.get(broker_id)
        return -1 if broker is None or broker.fenced else broker.epoch

    def _schedule(self, broker_id: int, box: _Mailbox[M]) -> None:
        if box.waiting and not box.under_way and not box.scheduled:
            box.scheduled = True
            self._services.clock.call_later(0, lambda: self._post(broker_id, box))

    def _post(self, broker_id: int, box: _Mailbox[M]) -> None:
        box.scheduled = False
        if box.under_way or not box.waiting:
            return
        messages = box.next()
        address = broker_address(self._services, broker_id)
        if address is None:
            for message in messages:
                message.unanswered()
            self._schedule(broker_id, box)
            return
        box.under_way = messages
        conversation = box.conversation
        self._network.send(
            address,
            self._compose(messages),
            self._version,
            lambda answer: self._answered(broker_id, box, conversation, answer),
            timeout_ms=self._services.config.integer("request.timeout.ms"),
            lane=self._lane,
        )

    def _answered(self, broker_id: int, box: _Mailbox[M], conversation: int, answer: Any) -> None:
        if conversation != box.conversation:
            return
        messages, box.under_way = box.under_way, []
        if isinstance(answer, Unreachable):
            log.info("broker %d cannot be asked about transactions: %s", broker_id, answer.reason)
            for message in messages:
                message.unanswered()
        else:
            self._deliver(messages, answer)
        self._schedule(broker_id, box)


# ---- markers


class _MarkerMessage(NamedTuple):
    marker: Marker
    place: TopicPartition
    outcome: Pending[ErrorCode]

    @property
    def key(self) -> Hashable:
        return self.marker.producer_id, self.place

    def unanswered(self) -> None:
        self.outcome.resolve(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class RemoteMarkers:
    """Markers on their way to partitions that other brokers lead."""

    def __init__(self, services: BrokerServices, network: Network) -> None:
        self._mail: BrokerMail[_MarkerMessage] = BrokerMail(
            services,
            network,
            lane="markers",
            version=MARKERS_VERSION,
            compose=_markers_request,
            deliver=_markers_answered,
        )
        self.image_published = self._mail.image_published

    def write(self, broker_id: int, place: TopicPartition, marker: Marker) -> Pending[ErrorCode]:
        """NONE once the leader says that the marker is committed, or why it is not."""
        message = _MarkerMessage(marker, place, Pending())
        self._mail.send(broker_id, message)
        return message.outcome


def _markers_request(messages: Sequence[_MarkerMessage]) -> WriteTxnMarkersRequest:
    by_marker: dict[Marker, dict[str, list[int]]] = {}
    for marker, (topic, index), _ in messages:
        by_marker.setdefault(marker, {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.epoch,
                transaction_result=marker.committed,
                topics=[WritableTxnMarkerTopic(topic, indexes) for topic, indexes in topics.items()],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            for marker, topics in by_marker.items()
        ]
    )


def _markers_answered(messages: Sequence[_MarkerMessage], answer: WriteTxnMarkersResponse) -> None:
    codes: dict[Hashable, ErrorCode] = {
        (marker.producer_id, (topic.name, partition.partition_index)): error_code(partition.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
    for message in messages:
        code = codes.get(message.key, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # It may not have heard of its partition yet; whether there is one, this broker's image says.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        message.outcome.resolve(code)


# ---- questions


class _Question(NamedTuple):
    transactional_id: str
    producer: ProducerIdAndEpoch
    places: Sequence[TopicPartition]
    verify_only: bool
    outcome: Pending[Mapping[TopicPartition, ErrorCode] | ApiError]

    @property
    def key(self) -> Hashable:
        return self.transactional_id

    def unanswered(self) -> None:
        self.outcome.resolve(ApiError(ErrorCode.NETWORK_EXCEPTION))


class RemoteCoordinators:
    """Questions to transaction coordinators on other brokers."""

    def __init__(self, services: BrokerServices, network: Network) -> None:
        self._mail: BrokerMail[_Question] = BrokerMail(
            services,
            network,
            lane="transactions",
            version=QUESTIONS_VERSION,
            compose=_questions_request,
            deliver=_questions_answered,
        )
        self.image_published = self._mail.image_published

    def ask(
        self,
        broker_id: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        places: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Pending[Mapping[TopicPartition, ErrorCode] | ApiError]:
        """What the coordinator says of each partition: whether it belongs to the transaction, or now does."""
        question = _Question(transactional_id, producer, places, verify_only, Pending())
        self._mail.send(broker_id, question)
        return question.outcome


def _questions_request(questions: Sequence[_Question]) -> AddPartitionsToTxnRequest:
    transactions = []
    for question in questions:
        topics: dict[str, list[int]] = {}
        for topic, index in question.places:
            topics.setdefault(topic, []).append(index)
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer.producer_id,
                producer_epoch=question.producer.epoch,
                verify_only=question.verify_only,
                topics=[AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def _questions_answered(questions: Sequence[_Question], answer: AddPartitionsToTxnResponse) -> None:
    code = error_code(answer.error_code)
    told = {
        result.transactional_id: {
            (topic.name, partition.partition_index): error_code(partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    }
    for question in questions:
        if code is not ErrorCode.NONE:
            question.outcome.resolve(ApiError(code))
            continue
        codes = told.get(question.transactional_id, {})
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        question.outcome.resolve({place: codes.get(place, missing) for place in question.places})
