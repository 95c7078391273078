"""The way to the active controller wherever it is: in this process, or over the network to whoever leads the quorum.

Decides which attempt is made where, and when one is worth repeating: a controller that just lost its place, or a
connection that broke, is no answer for a client. A repeated request may have been carried out before; what the
controller then answers (a topic that exists already) is what Kafka's brokers pass on as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moldau.broker.letters import ENVELOPE_VERSION, FORWARDABLE, seal, unseal
from moldau.broker.local_controller import SERVED, LocalController
from moldau.ports import Address, Clock, Network, Pending, Unreachable
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from moldau.protocol.generated.wire.envelope_response import EnvelopeResponse
from moldau.quorum.metadata_log import METADATA_TOPIC
from moldau.quorum.quorum import Quorum

RETRY_MS_FIRST: Final = 10
RETRY_MS_MAX: Final = 200
DESCRIBE_VERSION: Final = 2
# Answered by whoever leads the quorum, with another word for "not me".
_OF_THE_QUORUM: Final = frozenset(
    {ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER}
)


class ControllerLink:
    """`ControllerChannel` that tries once: for those who know themselves when to try again."""

    def __init__(
        self, quorum: Quorum, local: LocalController | None, network: Network, *, timeout_ms: int, lane: str
    ) -> None:
        self._quorum = quorum
        self._local = local
        self._network = network
        self._timeout_ms = timeout_ms
        self._lane = lane
        self._under_way: list[tuple[Address, Pending[Any]]] = []
        quorum.add_leader_watcher(self._leader_changed)

    def _leader_changed(self) -> None:
        """Who was asked may be frozen, and leads no more in any case: nobody shall wait for its answer."""
        leader = self._quorum.leader_address
        if leader is None:
            return
        abandoned = [answer for address, answer in self._under_way if address != leader]
        self._under_way = [each for each in self._under_way if each[0] == leader]
        for answer in abandoned:
            answer.resolve(ApiError(ErrorCode.NOT_CONTROLLER, "Another controller became active."))

    def serves(self, api_key: int) -> bool:
        return api_key in SERVED

    def leader_id(self) -> int:
        return self._quorum.leader_id

    @property
    def is_local(self) -> bool:
        return self._local is not None and self._quorum.is_leader

    def ask(self, request: Any, api_version: int, principal: str, *, host: str = "") -> Pending[Any]:
        if self._local is not None and self._quorum.is_leader:
            return self._local.ask(request, api_version, principal, host=host)
        address = self._quorum.leader_address
        if address is None:
            return Pending.of(ApiError(ErrorCode.NOT_CONTROLLER, "The active controller is not known."))
        answer: Pending[Any] = Pending()
        self._under_way.append((address, answer))

        def answered(response: Any) -> None:
            if answer.done:
                return
            self._under_way = [each for each in self._under_way if each[1] is not answer]
            if isinstance(response, Unreachable):
                response = ApiError(ErrorCode.NOT_CONTROLLER, f"The controller cannot be reached: {response.reason}")
            elif isinstance(response, EnvelopeResponse):
                response = unseal(response, request.API_KEY, api_version)
            answer.resolve(response)

        sent, version = request, api_version
        if host and request.API_KEY in FORWARDABLE:
            sent, version = seal(request, api_version, principal, host), ENVELOPE_VERSION
        self._network.send(address, sent, version, answered, timeout_ms=self._timeout_ms, lane=self._lane)
        return answer

    def committed_offset(self) -> int:
        return self._quorum.high_watermark - 1


class QuorumChannel:
    """`ControllerChannel` that goes on until an active controller has answered, or time is up."""

    def __init__(self, link: ControllerLink, clock: Clock, *, timeout_ms: int) -> None:
        self._link = link
        self._clock = clock
        self._timeout_ms = timeout_ms
        # How far the metadata log reached when a controller elsewhere had last answered.
        self._seen = -1

    def serves(self, api_key: int) -> bool:
        return self._link.serves(api_key)

    def leader_id(self) -> int:
        return self._link.leader_id()

    def committed_offset(self) -> int:
        return max(self._seen, self._link.committed_offset()) if self._link.is_local else self._seen

    def ask(self, request: Any, api_version: int, principal: str, *, host: str = "") -> Pending[Any]:
        if self._link.is_local:
            first = self._link.ask(request, api_version, principal, host=host)
            if first.done and not says_not_controller(first.value):
                return first
        else:
            first = None
        attempt = _Attempt(self._link, self._clock, request, api_version, principal, host, self._time_for(request))
        attempt.begin(first)
        if self._link.is_local or request.API_KEY not in FORWARDABLE:
            return attempt.answer
        answer: Pending[Any] = Pending()
        attempt.answer.then(lambda response: self._note_end(lambda: answer.resolve(response)))
        return answer

    def _time_for(self, request: Any) -> int:
        timeout = getattr(request, "timeout_ms", None)
        return min(timeout, self._timeout_ms) if isinstance(timeout, int) and timeout > 0 else self._timeout_ms

    def _note_end(self, then: Callable[[], None]) -> None:
        """Before an answer is passed on: how far must this node read to see what was answered?"""
        partition = PartitionData(partition_index=0)
        ask = DescribeQuorumRequest(topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])

        def described(response: Any) -> None:
            if not isinstance(response, ApiError) and response.topics:
                self._seen = max(self._seen, response.topics[0].partitions[0].high_watermark - 1)
            then()

        self._link.ask(ask, DESCRIBE_VERSION, "").then(described)


class _Attempt:
    """One request that is tried until it is answered by an active controller."""

    __slots__ = ("_clock", "_deadline_ms", "_host", "_link", "_principal", "_request", "_version", "_wait_ms", "answer")

    def __init__(
        self,
        link: ControllerLink,
        clock: Clock,
        request: Any,
        version: int,
        principal: str,
        host: str,
        timeout_ms: int,
    ) -> None:
        self._link = link
        self._clock = clock
        self._request = request
        self._version = version
        self._principal = principal
        self._host = host
        self._deadline_ms = clock.monotonic_ms() + timeout_ms
        self._wait_ms = RETRY_MS_FIRST
        self.answer: Pending[Any] = Pending()

    def begin(self, first: Pending[Any] | None) -> None:
        if first is None:
            first = self._link.ask(self._request, self._version, self._principal, host=self._host)
        first.then(self._judge)

    def _judge(self, response: Any) -> None:
        if not says_not_controller(response, of_the_quorum=self._request.API_KEY in _OF_THE_QUORUM):
            self.answer.resolve(response)
            return
        wait, self._wait_ms = self._wait_ms, min(2 * self._wait_ms, RETRY_MS_MAX)
        if self._clock.monotonic_ms() + wait > self._deadline_ms:
            if isinstance(response, ApiError):
                response = ApiError(ErrorCode.REQUEST_TIMED_OUT, response.message)
            self.answer.resolve(response)
            return
        self._clock.call_later(wait, lambda: self.begin(None))


def says_not_controller(response: Any, *, of_the_quorum: bool = False) -> bool:
    """Whether an answer is that of a node which does not lead; the first error of each list tells for all."""
    if isinstance(response, ApiError):
        return response.code is ErrorCode.NOT_CONTROLLER
    code = getattr(response, "error_code", 0)
    if code == ErrorCode.NOT_CONTROLLER or (of_the_quorum and code == ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return True
    for name in getattr(response, "__slots__", ()):
        value = getattr(response, name)
        if isinstance(value, list) and value and says_not_controller(value[0], of_the_quorum=of_the_quorum):
            return True
    return False
