"""How the rest of a broker reaches the share coordinators: here or on another broker, whoever leads the key.

Group coordinators initialise and delete the state of share partitions, their leaders read and write it. A request may
name several partitions of one group; each goes to its own coordinator, and the answers come back as one. Decides what
is tried again: a coordinator that moved, is being loaded or cannot be reached. Nothing is tried for ever; after about
`RETRIES` attempts the partition's result carries the error.

Each method takes the request's wire message and returns a `Pending` of the matching wire response. The promise is
always kept with a response, never with an ApiError: every partition of the request has a result, in the request's
order of topics, with its own error code. A promise may be kept already when it is returned. The request must not be
changed afterwards.

    initialize(InitializeShareGroupStateRequest)     -> Pending[InitializeShareGroupStateResponse]
    read(ReadShareGroupStateRequest)                 -> Pending[ReadShareGroupStateResponse]
    write(WriteShareGroupStateRequest)               -> Pending[WriteShareGroupStateResponse]
    delete(DeleteShareGroupStateRequest)             -> Pending[DeleteShareGroupStateResponse]
    read_summary(ReadShareGroupStateSummaryRequest)  -> Pending[ReadShareGroupStateSummaryResponse]

A broker's own is `Broker.share_persister()`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.context import ANONYMOUS
from moldau.broker.coordinators import SHARE_KEY
from moldau.broker.services import BrokerServices
from moldau.broker.share_state_apis import SHARE_STATE_APIS, parts_of
from moldau.broker.topic_names import SHARE_GROUP_STATE
from moldau.coordinator.share.batches import NO_START_OFFSET
from moldau.coordinator.share.state import SharePartitionKey, coordinating_partition
from moldau.ports import Address, Pending, Unreachable
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire.delete_share_group_state_request import DeleteShareGroupStateRequest
from moldau.protocol.generated.wire.delete_share_group_state_response import DeleteShareGroupStateResponse
from moldau.protocol.generated.wire.initialize_share_group_state_request import InitializeShareGroupStateRequest
from moldau.protocol.generated.wire.initialize_share_group_state_response import InitializeShareGroupStateResponse
from moldau.protocol.generated.wire.read_share_group_state_request import ReadShareGroupStateRequest
from moldau.protocol.generated.wire.read_share_group_state_response import ReadShareGroupStateResponse
from moldau.protocol.generated.wire.read_share_group_state_summary_request import ReadShareGroupStateSummaryRequest
from moldau.protocol.generated.wire.read_share_group_state_summary_response import ReadShareGroupStateSummaryResponse
from moldau.protocol.generated.wire.write_share_group_state_request import WriteShareGroupStateRequest
from moldau.protocol.generated.wire.write_share_group_state_response import WriteShareGroupStateResponse

if TYPE_CHECKING:
    from moldau.broker.share_coordinator import ShareCoordinator

log = logging.getLogger("moldau.broker")

LANE: Final = "share"
RETRIES: Final = 8
RETRY_MS_FIRST: Final = 50
RETRY_MS_MAX: Final = 2000
_READING: Final = frozenset({ApiKey.READ_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY})
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


# What `group.share.persister.class.name` is set to where nothing is to be remembered.
NO_PERSISTERS: Final = frozenset({"", "org.apache.kafka.server.share.persister.NoOpStatePersister"})


def persister_for(services: BrokerServices, coordinator: Callable[[], ShareCoordinator]) -> SharePersister:
    """The persister that settings ask for."""
    stateless = str(services.config["group.share.persister.class.name"]).strip() in NO_PERSISTERS
    return (StatelessPersister if stateless else SharePersister)(services, coordinator)


class SharePersister:
    def __init__(self, services: BrokerServices, coordinator: Callable[[], ShareCoordinator]) -> None:
        """`coordinator` gives this broker's own share coordinator, loading it if need be."""
        self.services = services
        self.coordinator = coordinator

    def initialize(self, request: InitializeShareGroupStateRequest) -> Pending[InitializeShareGroupStateResponse]:
        return self.ask(request)

    def read(self, request: ReadShareGroupStateRequest) -> Pending[ReadShareGroupStateResponse]:
        return self.ask(request)

    def write(self, request: WriteShareGroupStateRequest) -> Pending[WriteShareGroupStateResponse]:
        return self.ask(request)

    def delete(self, request: DeleteShareGroupStateRequest) -> Pending[DeleteShareGroupStateResponse]:
        return self.ask(request)

    def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> Pending[ReadShareGroupStateSummaryResponse]:
        return self.ask(request)

    def ask(self, request: Any) -> Pending[Any]:
        """The response to any of these requests."""
        if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
            # Nearly every write of a share partition: it is answered here at once, by far most of the time.
            at_once = self._ask_here(request)
            if at_once is not None:
                return at_once
        return _Call(self, request).answer

    def _ask_here(self, request: Any) -> Pending[Any] | None:
        """The response of this broker's coordinator to a request about one partition; None if it cannot tell yet."""
        (topic,) = request.topics
        (asked,) = topic.partitions
        key = SharePartitionKey(request.group_id, topic.topic_id, asked.partition)
        if not request.group_id or self.leader_of(key) != self.services.node_id:
            return None
        outcome = self.coordinator().answer_part(request.API_KEY, key, asked)
        api = SHARE_STATE_APIS[request.API_KEY]
        if not isinstance(outcome, Pending):
            return (
                None if outcome.error_code in _RETRIABLE else Pending.of(api.response_of([(topic.topic_id, outcome)]))
            )
        answer: Pending[Any] = Pending()

        def arrived(result: Any) -> None:
            if result.error_code in _RETRIABLE:
                _Call(self, request).answer.then(answer.resolve)
            else:
                answer.resolve(api.response_of([(topic.topic_id, result)]))

        outcome.then(arrived)
        return answer

    def leader_of(self, key: SharePartitionKey) -> int | None:
        """The broker that coordinates a key; None while nobody does."""
        topic = self.services.image.topic(SHARE_GROUP_STATE)
        if topic is None or not topic.partitions:
            return None
        partition = topic.partitions.get(coordinating_partition(key, len(topic.partitions)))
        return None if partition is None or partition.leader < 0 else partition.leader

    def address_of(self, node: int) -> Address | None:
        broker = self.services.image.brokers.get(node)
        endpoint = None if broker is None else broker.listeners.get(self.services.config.inter_broker_listener)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)


class StatelessPersister(SharePersister):
    """Remembers nothing, for clusters that want share groups without the state topic: every group begins anew."""

    def ask(self, request: Any) -> Pending[Any]:
        api = SHARE_STATE_APIS[request.API_KEY]
        start = {"start_offset": NO_START_OFFSET} if request.API_KEY in _READING else {}
        return Pending.of(
            api.response_of(
                (key.topic_id, api.response_partition(partition=key.partition, **start)) for key, _ in parts_of(request)
            )
        )


class _Call:
    """One request on its way: what is answered, and what has to be asked again."""

    __slots__ = ("_api", "_attempts", "_left", "_order", "_persister", "_request", "_results", "_waiting", "answer")

    def __init__(self, persister: SharePersister, request: Any) -> None:
        self._persister = persister
        self._request = request
        self._api = SHARE_STATE_APIS[request.API_KEY]
        self._left: dict[SharePartitionKey, Any] = dict(parts_of(request))
        self._order = tuple(self._left)
        self._results: dict[SharePartitionKey, Any] = {}
        self._attempts = 0
        self._waiting = 0
        self.answer: Pending[Any] = Pending()
        coordinators = persister.services.coordinators
        missing = None if coordinators is None else coordinators.wait_for_topic(SHARE_KEY, ANONYMOUS)
        if missing is None:
            self._attempt()
        else:
            missing.then(lambda _: self._attempt())

    def _attempt(self) -> None:
        self._attempts += 1
        by_node: dict[int | None, dict[SharePartitionKey, Any]] = {}
        for key, asked in self._left.items():
            by_node.setdefault(self._persister.leader_of(key), {})[key] = asked
        # One more than there are, so that answers that come at once do not end the attempt too early.
        self._waiting = len(by_node) + 1
        for node, parts in by_node.items():
            self._ask(node, parts)
        self._one_less()

    def _ask(self, node: int | None, parts: dict[SharePartitionKey, Any]) -> None:
        services = self._persister.services
        if node is None:
            self._failed(parts, ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is no coordinator")
            return
        request = self._api.request_of(self._request.group_id, parts.items())
        if node == services.node_id:
            outcome = self._persister.coordinator().answer(request)
            if isinstance(outcome, Pending):
                outcome.then(lambda response: self._answered(parts, response))
            else:
                self._answered(parts, outcome)
            return
        address = self._persister.address_of(node)
        if address is None or services.network is None:
            self._failed(parts, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {node} has no known address")
            return

        services.network.send(
            address,
            request,
            request.MAX_VERSION,
            lambda response: self._answered(parts, response),
            timeout_ms=services.config.integer("request.timeout.ms"),
            lane=LANE,
        )

    def _failed(self, parts: dict[SharePartitionKey, Any], code: ErrorCode, why: str) -> None:
        for key in parts:
            self._results[key] = self._api.failed(key.partition, code, f"Unable to {self._api.verb}: {why}")
        self._one_less()

    def _answered(self, parts: dict[SharePartitionKey, Any], response: Any) -> None:
        if isinstance(response, Unreachable):
            self._failed(parts, ErrorCode.NETWORK_EXCEPTION, response.reason)
            return
        found = {
            SharePartitionKey(self._request.group_id, topic.topic_id, result.partition): result
            for topic in response.results
            for result in topic.partitions
        }
        for key in parts:
            result = found.get(key)
            if result is None:
                result = self._api.failed(
                    key.partition, ErrorCode.UNKNOWN_SERVER_ERROR, f"Unable to {self._api.verb}: no answer"
                )
            self._results[key] = result
            if error_code(result.error_code) not in _RETRIABLE:
                self._left.pop(key, None)
        self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        if self._left and self._attempts < RETRIES:
            delay = min(RETRY_MS_FIRST << (self._attempts - 1), RETRY_MS_MAX)
            self._persister.services.clock.call_later(delay, self._attempt)
            return
        if self._left:
            log.warning(
                "%d partitions of %s: gave up trying to %s", len(self._left), self._request.group_id, self._api.verb
            )
        self.answer.resolve(self._api.response_of((key.topic_id, self._results[key]) for key in self._order))
