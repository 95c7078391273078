"""A cluster as a Spark task sees it: who leads which partition, who coordinates what, and how long to keep trying.

It decides where a request goes, what is worth repeating and how long to wait in between; error codes inside an answer
are the caller's business, who says which of them mean "ask again". Connections live as long as the Python worker, so
that the tasks of later micro-batches find them open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from moldau.spark.client.connection import Connection, Disconnected
from moldau.spark.client.settings import Address, ClientSettings
from moldau.spark.errors import MoldauError, UnknownTopicError, refusal

GROUP, TRANSACTION = 0, 1

# Errors that mean: the request may succeed if it is sent again, perhaps to another node.
TRANSIENT = frozenset(
    {
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


class Deadline:
    """Time left for one operation, and ever longer pauses between its attempts."""

    __slots__ = ("_end", "_pause", "_pause_max")

    def __init__(self, seconds: float, backoff: float, backoff_max: float) -> None:
        self._end = time.monotonic() + seconds
        self._pause = backoff
        self._pause_max = backoff_max

    def passed(self) -> bool:
        return time.monotonic() >= self._end

    def pause(self) -> None:
        time.sleep(max(0.0, min(self._pause, self._end - time.monotonic())))
        self._pause = min(self._pause * 2, self._pause_max)


@dataclass(slots=True)
class TopicView:
    """What the metadata said about one topic: its error code, and the leader of each partition (-1: none now)."""

    error: int
    leaders: dict[int, int] = field(default_factory=dict)
    internal: bool = False


class Cluster:
    """Connections to the brokers of one cluster."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._nodes: dict[int, Address] = {}
        self._topics: dict[str, TopicView] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._connections: dict[Address, Connection] = {}

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

    def ask_coordinator(self, kind: int, key: str, message: Any, code: Callable[[Any], int], doing: str) -> Any:
        """Ask the coordinator of a group or transaction until its answer is no passing error."""
        deadline = self.deadline()
        while True:
            problem = "timed out"
            try:
                answer = self.node(self.coordinator(kind, key, deadline)).request(message)
                found = code(answer)
                if found not in TRANSIENT:
                    return answer
                problem = ErrorCode(found).name
                if found != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._coordinators.pop((kind, key), None)
            except Disconnected as error:
                problem = str(error)
                self._coordinators.pop((kind, key), None)
            if deadline.passed():
                raise MoldauError(f"{doing} did not succeed in {self.settings.api_timeout:.0f} s: {problem}")
            deadline.pause()

    def coordinator(self, kind: int, key: str, deadline: Deadline) -> int:
        """The node that keeps a group or a transactional id."""
        found = self._coordinators.get((kind, key))
        while found is None:
            answer = self.ask_any(FindCoordinatorRequest(key=key, key_type=kind), deadline)
            if not answer.error_code:
                found = self._coordinators[kind, key] = answer.node_id
                self._nodes[answer.node_id] = Address(answer.host, answer.port)
            elif answer.error_code not in TRANSIENT or deadline.passed():
                what = "transactional id" if kind == TRANSACTION else "group"
                raise refusal(answer.error_code, f"Finding the coordinator of {what} '{key}'", answer.error_message)
            else:
                deadline.pause()
        return found

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    def ask_any(self, message: Any, deadline: Deadline | None = None) -> Any:
        """The answer of whichever broker can be reached."""
        deadline = deadline or self.deadline()
        while True:
            failures = []
            # Brokers first that are connected already: the dead ones cost a time-out each.
            known = dict.fromkeys([*self._connections, *self.settings.bootstrap, *self._nodes.values()])
            for address in known:
                try:
                    return self._connect(address).request(message)
                except Disconnected as problem:
                    self._connections.pop(address, None)
                    failures.append(f"{address}: {problem}")
            if deadline.passed():
                raise MoldauError(
                    f"Cannot reach a broker ({'; '.join(failures)}): check kafka.bootstrap.servers, "
                    "and kafka.security.protocol if the listener uses TLS or SASL"
                )
            deadline.pause()

    # ---- who is who

    def node(self, node_id: int) -> Connection:
        """The connection to a broker; Disconnected when it cannot be reached."""
        if node_id not in self._nodes:
            self.refresh([])
        address = self._nodes.get(node_id)
        if address is None:
            raise Disconnected(f"there is no broker {node_id} at the moment")
        return self._connect(address)

    def topics(self, names: Iterable[str], deadline: Deadline | None = None) -> dict[str, TopicView]:
        """Partitions and leaders of topics, asked for anew."""
        return self.refresh(list(names), deadline)

    def all_topics(self) -> dict[str, TopicView]:
        """Every topic this client may see."""
        return self.refresh(None)

    def leader(self, topic: str, partition: int, deadline: Deadline) -> int:
        """The leader of a partition, waited for while there is none."""
        view = self._topics.get(topic)
        while True:
            leader = -1 if view is None else view.leaders.get(partition, -1)
            if leader >= 0:
                return leader
            view = self.refresh([topic], deadline)[topic]
            if view.error and view.error not in TRANSIENT:
                raise unknown_topic(topic, view.error)
            if view.leaders.get(partition, -1) < 0:
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

    def refresh(self, names: list[str] | None, deadline: Deadline | None = None) -> dict[str, TopicView]:
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer = self.ask_any(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), deadline)
        self._nodes = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        found = {
            each.name: TopicView(
                each.error_code, {part.partition_index: part.leader_id for part in each.partitions}, each.is_internal
            )
            for each in answer.topics
        }
        self._topics.update(found)
        return found

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

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and connection.closed:
            connection = None
        if connection is None:
            connection = self._connections[address] = Connection(address, self.settings)
        return connection


def unknown_topic(topic: str, error: int) -> MoldauError:
    if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicError(f"There is no topic '{topic}': check its name, or create it before the query starts")
    return refusal(error, f"Looking up topic '{topic}'")


_shared: dict[ClientSettings, Cluster] = {}
_shared_by_process = 0


def shared_cluster(settings: ClientSettings) -> Cluster:
    """The cluster of this process with these settings; a forked process begins with none of its parent's sockets."""
    global _shared_by_process
    if _shared_by_process != os.getpid():
        _shared.clear()
        _shared_by_process = os.getpid()
    cluster = _shared.get(settings)
    if cluster is None:
        cluster = _shared[settings] = Cluster(settings)
    return cluster
