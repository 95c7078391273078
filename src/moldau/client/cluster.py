"""A cluster as a client sees it: its brokers, who leads which partition, and how long to keep trying.

It decides where a request goes (any broker, a given one, the controller, a partition's leader), what is worth repeating
and how long to wait in between. It never interprets an answer beyond its error codes. What it has learned it keeps
until somebody says that it was wrong; connections stay open until they break or the cluster is closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from moldau.client.connection import CONNECT_TIMEOUT, Allocate, Connection
from moldau.client.errors import Disconnected, MoldauError, Unreachable, failure, unknown_topic
from moldau.client.settings import ClientSettings
from moldau.ports import Address
from moldau.protocol.errors import ApiError, ErrorCode

# A connection may break once by chance; one that breaks this often in a row will do so again.
IMPATIENT_BREAKS = 3
# Errors that mean: the request may succeed if it is sent again, perhaps to another node.
TRANSIENT = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)

TopicPartition = tuple[str, int]
Codes = Callable[[Any], Iterable[int]]


class Deadline:
    """Time left for one operation, and ever longer pauses between its attempts."""

    __slots__ = ("_end", "_pause", "_pause_max")

    def __init__(self, seconds: float, backoff: float, backoff_max: float) -> None:
        self._end = time.monotonic() + seconds
        self._pause = backoff
        self._pause_max = backoff_max

    def passed(self) -> bool:
        return time.monotonic() >= self._end

    def remaining(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def pause(self) -> None:
        time.sleep(min(self._pause, self.remaining()))
        self._pause = min(self._pause * 2, self._pause_max)


@dataclass(slots=True, frozen=True)
class Coordinator:
    """The broker that keeps a group or a transactional id."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True)
class TopicView:
    """What the metadata said about one topic: its error code, and the leader of each partition (-1: none now)."""

    error: int
    leaders: dict[int, int] = field(default_factory=dict)
    internal: bool = False


class Cluster:
    """Connections to the brokers of one cluster.

    A `patient` client waits for a broker to come up until its time is over, and tells `warn` that it does; the others
    say at once that nobody is there. Answers are received into what `allocate` gives.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        patient: bool = True,
        warn: Callable[[str], object] | None = None,
        allocate: Allocate = bytearray,
    ) -> None:
        self.settings = settings
        self.nodes: dict[int, Address] = {}
        self.controller_id = -1
        # By kind and key; see moldau.client.coordinators, which finds them.
        self.coordinators: dict[tuple[int, str], Coordinator] = {}
        self._patient = patient
        self._warn = warn
        self._allocate = allocate
        self._topics: dict[str, TopicView] = {}
        self._connections: dict[Address, Connection] = {}
        # Those whose connection broke or never came about, since they last answered: they are tried last.
        self._failed: set[Address] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def deadline(self, seconds: float | None = None) -> Deadline:
        settings = self.settings
        return Deadline(
            settings.api_timeout if seconds is None else seconds, settings.retry_backoff, settings.retry_backoff_max
        )

    # ---- asking

    def ask(
        self,
        message: Any,
        *,
        codes: Codes | None = None,
        max_version: int | None = None,
        deadline: Deadline | None = None,
    ) -> Any:
        """The answer of whichever broker can be reached; asked for again while one of `codes` passes."""
        return self._repeat(message, self.any_connection, codes, max_version, deadline)

    def ask_node(
        self, node_id: int, message: Any, *, codes: Codes | None = None, max_version: int | None = None
    ) -> Any:
        return self._repeat(message, lambda deadline: self.known_node(node_id, deadline), codes, max_version)

    def ask_controller(self, message: Any, *, codes: Codes | None = None) -> Any:
        return self._repeat(message, self._controller_connection, codes)

    def supports(self, api_key: int) -> bool:
        return self.any_connection().supports(api_key)

    def _repeat(
        self,
        message: Any,
        connect: Callable[[Deadline], Connection],
        codes: Codes | None = None,
        max_version: int | None = None,
        deadline: Deadline | None = None,
    ) -> Any:
        deadline = deadline or self.deadline()
        breaks = 0
        while True:
            try:
                connection = connect(deadline)
                timeout = max(0.001, min(self.settings.request_timeout, deadline.remaining()))
                answer = connection.request(message, timeout, max_version=max_version)
            except Disconnected as problem:
                breaks += 1
                self._connection_broke(problem, breaks, deadline)
            else:
                if codes is None or deadline.passed() or not TRANSIENT.intersection(codes(answer)):
                    return answer
            self.controller_id = -1
            deadline.pause()

    # ---- connecting

    def any_connection(self, deadline: Deadline | None = None) -> Connection:
        """An open connection if there is one, else one to the first address that answers."""
        deadline = deadline or self.deadline()
        self._forget_closed()
        for connection in self._connections.values():
            return connection
        while True:
            failures = []
            known = dict.fromkeys([*self.settings.bootstrap, *self.nodes.values()])
            for address in sorted(known, key=self._failed.__contains__):
                try:
                    return self._connect(address, deadline)
                except Disconnected as problem:
                    failures.append(f"{address}: {problem}")
            self._nobody_answered(failures, deadline)
            deadline.pause()

    def node(self, node_id: int, deadline: Deadline | None = None) -> Connection:
        """The connection to a broker; Disconnected when it cannot be reached."""
        deadline = deadline or self.deadline()
        if node_id not in self.nodes:
            self.refresh(deadline)
        address = self.nodes.get(node_id)
        if address is None:
            raise Disconnected(f"there is no broker {node_id} at the moment")
        return self._connect(address, deadline)

    def take(self, node_id: int) -> Connection:
        """A broker's connection for the caller alone, who gives it back or closes it: for requests on their way."""
        connection = self.node(node_id)
        self._connections.pop(connection.address, None)
        return connection

    def give_back(self, connection: Connection) -> None:
        if connection.in_flight or connection.closed or connection.address in self._connections:
            connection.close()
        else:
            self._connections[connection.address] = connection

    def known_node(self, node_id: int, deadline: Deadline | None = None) -> Connection:
        """The same for a broker that somebody named: an error for people when the cluster has none of that id."""
        deadline = deadline or self.deadline()
        if node_id not in self.nodes:
            self.refresh(deadline)
        if node_id not in self.nodes:
            known = ", ".join(str(each) for each in sorted(self.nodes)) or "none"
            raise MoldauError(f"There is no broker {node_id} in the cluster", hint=f"Brokers: {known}.")
        return self._connect(self.nodes[node_id], deadline)

    def _controller_connection(self, deadline: Deadline) -> Connection:
        while self.controller_id not in self.nodes:
            self.refresh(deadline)
            if self.controller_id not in self.nodes:
                if deadline.passed():
                    raise MoldauError("The cluster has no active controller")
                deadline.pause()
        return self._connect(self.nodes[self.controller_id], deadline)

    def _connect(self, address: Address, deadline: Deadline) -> Connection:
        self._forget_closed()
        connection = self._connections.get(address)
        if connection is None:
            timeout = min(CONNECT_TIMEOUT, max(deadline.remaining(), 0.05))
            try:
                connection = Connection(address, self.settings, timeout=timeout, allocate=self._allocate)
            except Disconnected:
                self._failed.add(address)
                raise
            self._failed.discard(address)
            self._connections[address] = connection
        return connection

    def _forget_closed(self) -> None:
        for address in [each for each, connection in self._connections.items() if connection.closed]:
            del self._connections[address]
            self._failed.add(address)

    def _connection_broke(self, problem: Disconnected, breaks: int, deadline: Deadline) -> None:
        """Give up when time is up, or when it keeps happening and nobody wants to wait."""
        if deadline.passed() or (not self._patient and breaks >= IMPATIENT_BREAKS):
            raise Unreachable(f"The broker does not answer: {problem}", self._security_hint(), answered=True)
        if breaks == IMPATIENT_BREAKS:
            self._say(f"The broker does not answer ({problem}); trying for {deadline.remaining():.0f} s")

    def _nobody_answered(self, failures: list[str], deadline: Deadline) -> None:
        reasons = "; ".join(failures)
        if not self._patient or deadline.passed():
            answered = "closed the connection" in reasons
            raise Unreachable(f"Cannot reach a broker: {reasons}", self._security_hint(), answered=answered)
        self._say(f"Cannot reach a broker yet ({reasons}); trying for {deadline.remaining():.0f} s")

    def _security_hint(self) -> str:
        prefix = self.settings.prefix
        return f"Check {prefix}bootstrap.servers, and {prefix}security.protocol if the listener uses TLS or SASL."

    def _say(self, text: str) -> None:
        if self._warn is not None:
            self._warn(text)
            self._warn = None  # once is enough

    # ---- who is who

    def refresh(self, deadline: Deadline | None = None) -> None:
        """Learn the brokers of the cluster and which of them takes the controller's requests."""
        self.topics([], deadline)

    def topics(self, names: Iterable[str], deadline: Deadline | None = None) -> dict[str, TopicView]:
        """Partitions and leaders of topics, asked for anew."""
        return self._ask_metadata(list(names), deadline)

    def all_topics(self) -> dict[str, TopicView]:
        """Every topic this client may see."""
        return self._ask_metadata(None, None)

    def _ask_metadata(self, names: list[str] | None, deadline: Deadline | None) -> dict[str, TopicView]:
        from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic

        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer = self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), deadline=deadline)
        self.nodes = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        self.controller_id = answer.controller_id
        found = {
            each.name: TopicView(
                each.error_code, {part.partition_index: part.leader_id for part in each.partitions}, each.is_internal
            )
            for each in answer.topics
        }
        self._topics.update(found)
        return found

    def leaders(self, partitions: Iterable[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int | ApiError]:
        """The leader of each partition, or why it has none; what is not known is asked for once."""
        wanted = list(partitions)
        unknown = {topic for topic, index in wanted if self._known_leader(topic, index) < 0}
        if unknown:
            self.topics(sorted(unknown), deadline)
        return {partition: self._leader_or_why(*partition) for partition in wanted}

    def _known_leader(self, topic: str, partition: int) -> int:
        view = self._topics.get(topic)
        return -1 if view is None else view.leaders.get(partition, -1)

    def _leader_or_why(self, topic: str, partition: int) -> int | ApiError:
        leader = self._known_leader(topic, partition)
        if leader >= 0:
            return leader
        view = self._topics.get(topic)
        if view is None or (not view.error and partition not in view.leaders):
            return failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if view.error and partition not in view.leaders:
            return failure(view.error)
        return failure(ErrorCode.LEADER_NOT_AVAILABLE)

    def leader(self, topic: str, partition: int, deadline: Deadline) -> int:
        """The leader of a partition, waited for while there is none."""
        while True:
            found = self.leaders([(topic, partition)], deadline)[topic, partition]
            if not isinstance(found, ApiError):
                return found
            view = self._topics.get(topic)
            if view is not None and view.error and view.error not in TRANSIENT:
                raise unknown_topic(topic, view.error)
            if deadline.passed():
                raise MoldauError(f"Partition {topic}-{partition} has no leader: is a broker down?")
            deadline.pause()

    def partition_count(self, topic: str, deadline: Deadline) -> int:
        """How many partitions a topic has, as far as this client knows."""
        self.leader(topic, 0, deadline)
        return len(self._topics[topic].leaders)

    def forget_leader(self, topic: str) -> None:
        """Ask for the topic's leaders again before the next request."""
        self._topics.pop(topic, None)


def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    build: Callable[[list[TopicPartition]], Any],
    read: Callable[[Any], dict[TopicPartition, Any]],
) -> dict[TopicPartition, Any]:
    """Ask each partition's leader. `build` makes the request for some partitions, `read` takes its answer apart; a
    partition whose result is a passing ApiError is asked for again, with fresh metadata, until time is up."""
    deadline = cluster.deadline()
    waiting = list(partitions)
    unanswered = failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The leader did not answer for this partition")
    results: dict[TopicPartition, Any] = dict.fromkeys(waiting, unanswered)
    while True:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition, leader in cluster.leaders(waiting, deadline).items():
            if isinstance(leader, ApiError):
                results[partition] = leader
            else:
                by_leader.setdefault(leader, []).append(partition)
        for leader, theirs in by_leader.items():
            try:
                answer = cluster.node(leader, deadline).request(build(theirs))
            except Disconnected as problem:
                results.update(dict.fromkeys(theirs, failure(ErrorCode.NETWORK_EXCEPTION, str(problem))))
            else:
                results.update(read(answer))
        waiting = [partition for partition in waiting if is_passing(results[partition])]
        if not waiting or deadline.passed():
            return results
        for topic in {topic for topic, _ in waiting}:
            cluster.forget_leader(topic)
        deadline.pause()


def is_passing(result: Any) -> bool:
    """Whether a result is an error that asking again may mend."""
    return isinstance(result, ApiError) and result.code in TRANSIENT


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    grouped: dict[str, list[int]] = {}
    for name, index in partitions:
        grouped.setdefault(name, []).append(index)
    return list(grouped.items())
