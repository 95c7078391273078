"""Finds the brokers of a cluster and gets requests to the right one, again and again until it worked or time is up.

It decides where a request goes (any broker, a given broker, the controller), what is worth repeating, and how long to
wait in between. It never interprets an answer beyond its error codes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from moldau.cli.admin.connection import Connection, Disconnected
from moldau.cli.admin.settings import Address, from_properties, parse_servers
from moldau.cli.errors import CliError, ConnectionFailed
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode

CONNECT_TIMEOUT = 10.0
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
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_CONTROLLER_ENDPOINTS = 2

NOBODY_HINT = "Is one running there? Start one with 'moldau start', or name another with --bootstrap-server."
SECURITY_HINT = "If its listener uses TLS or SASL, say so with security.protocol in --command-config."

Codes = Callable[[Any], Iterable[int]]


class Deadline:
    """Time left for one operation, and ever longer pauses between its attempts."""

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


class Admin:
    """A cluster, as seen by an administrator.

    `patient` clients wait for a broker to come up, as Kafka's tools do; the others say at once that nobody is there.
    With `controllers` the bootstrap addresses are those of the controller quorum.
    """

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str] | None = None,
        *,
        client_id: str = "moldau-admin",
        patient: bool = False,
        controllers: bool = False,
    ) -> None:
        self.settings = from_properties(properties or {}, client_id=client_id)
        self.bootstrap = parse_servers(bootstrap)
        self.patient = patient
        self.controllers = controllers
        self.nodes: dict[int, Address] = {}
        self.controller_id = -1
        self._connections: dict[Address, Connection] = {}
        self._warned = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Asking

    def ask(self, message: Any, *, codes: Codes | None = None, max_version: int | None = None) -> Any:
        """The answer of whichever broker can be reached."""
        return self._repeat(message, self.any_connection, codes, max_version)

    def ask_node(
        self, node_id: int, message: Any, *, codes: Codes | None = None, max_version: int | None = None
    ) -> Any:
        return self._repeat(message, lambda deadline: self.node_connection(node_id, deadline), codes, max_version)

    def ask_controller(self, message: Any, *, codes: Codes | None = None) -> Any:
        return self._repeat(message, self._controller_connection, codes, None)

    def supports(self, api_key: int) -> bool:
        return self.any_connection(self.deadline()).supports(api_key)

    def deadline(self) -> Deadline:
        settings = self.settings
        return Deadline(settings.api_timeout, settings.retry_backoff, settings.retry_backoff_max)

    def _repeat(
        self, message: Any, connect: Callable[[Deadline], Connection], codes: Codes | None, max_version: int | None
    ) -> Any:
        deadline = self.deadline()
        breaks = 0
        while True:
            try:
                connection = connect(deadline)
                timeout = min(self.settings.request_timeout, deadline.remaining())
                answer = connection.request(message, timeout=max(timeout, 0.001), max_version=max_version)
            except Disconnected as problem:
                self._forget_broken()
                breaks += 1
                self._connection_broke(problem, breaks, deadline)
                deadline.pause()
                continue
            if codes is None or deadline.passed() or not TRANSIENT.intersection(codes(answer)):
                return answer
            self.controller_id = -1
            deadline.pause()

    # Connecting

    def any_connection(self, deadline: Deadline) -> Connection:
        """An open connection if there is one, else one to the first address that answers."""
        for connection in self._connections.values():
            return connection
        while True:
            failures = []
            for address in [*self.bootstrap, *self.nodes.values()]:
                try:
                    return self._connect(address, deadline)
                except Disconnected as problem:
                    failures.append(f"{address}: {problem}")
            self._nobody_answered(failures, deadline)
            deadline.pause()

    def node_connection(self, node_id: int, deadline: Deadline) -> Connection:
        if node_id not in self.nodes:
            self.refresh(deadline)
        address = self.nodes.get(node_id)
        if address is None:
            known = ", ".join(str(each) for each in sorted(self.nodes)) or "none"
            raise CliError(f"There is no broker {node_id} in the cluster", hint=f"Brokers: {known}.")
        return self._connect(address, deadline)

    def _controller_connection(self, deadline: Deadline) -> Connection:
        while self.controller_id not in self.nodes:
            self.refresh(deadline)
            if self.controller_id not in self.nodes:
                if deadline.passed():
                    raise CliError("The cluster has no active controller")
                deadline.pause()
        return self._connect(self.nodes[self.controller_id], deadline)

    def refresh(self, deadline: Deadline) -> None:
        """Learn the brokers (or controllers) of the cluster and which of them takes the controller's requests."""
        connection = self.any_connection(deadline)
        if self.controllers or not connection.supports(ApiKey.METADATA):
            from moldau.protocol.generated.wire.describe_cluster_request import DescribeClusterRequest

            answer = connection.request(DescribeClusterRequest(endpoint_type=_CONTROLLER_ENDPOINTS))
            self.nodes = {each.broker_id: Address(each.host, each.port) for each in answer.brokers}
        else:
            from moldau.protocol.generated.wire.metadata_request import MetadataRequest

            answer = connection.request(MetadataRequest(topics=[], allow_auto_topic_creation=False))
            self.nodes = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        self.controller_id = answer.controller_id

    def _connect(self, address: Address, deadline: Deadline) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            timeout = min(CONNECT_TIMEOUT, max(deadline.remaining(), 0.05))
            connection = Connection(address, self.settings, timeout)
            self._connections[address] = connection
        return connection

    def _forget_broken(self) -> None:
        self.close()
        self.controller_id = -1

    def _connection_broke(self, problem: Disconnected, breaks: int, deadline: Deadline) -> None:
        """Give up when time is up, or when it keeps happening and nobody wants to wait."""
        if deadline.passed() or (not self.patient and breaks >= IMPATIENT_BREAKS):
            raise ConnectionFailed(f"The broker does not answer: {problem}", hint=SECURITY_HINT)
        if breaks == IMPATIENT_BREAKS and not self._warned:
            self._warned = True
            print(f"The broker does not answer ({problem}); trying for {deadline.remaining():.0f} s", file=sys.stderr)

    def _nobody_answered(self, failures: list[str], deadline: Deadline) -> None:
        reasons = "; ".join(failures)
        if not self.patient or deadline.passed():
            hint = SECURITY_HINT if "closed the connection" in reasons else NOBODY_HINT
            raise ConnectionFailed(f"Cannot reach a broker: {reasons}", hint=hint)
        if not self._warned:
            self._warned = True
            print(f"Cannot reach a broker yet ({reasons}); trying for {deadline.remaining():.0f} s", file=sys.stderr)
