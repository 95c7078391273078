"""Finding the coordinators of groups, and asking each about its groups until it answered or time is up.

It decides which broker gets a request about a group and when to look for the coordinator again. It never interprets an
answer: the caller gives a function that reads one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from moldau.cli.admin.client import TRANSIENT, Admin, Deadline
from moldau.cli.admin.connection import Disconnected
from moldau.cli.admin.failures import failure
from moldau.cli.admin.settings import Address
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

GROUP = 0
# The first version of FindCoordinator that takes several keys at once, and the first that knows kinds of keys.
_FIRST_BATCHED = 4
_FIRST_WITH_KINDS = 1


@dataclass(slots=True, frozen=True)
class Coordinator:
    """The broker that keeps a group."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Build = Callable[[list[str]], Any]
Read = Callable[[Any, Coordinator], dict[str, Any]]


def find_coordinators(admin: Admin, groups: Iterable[str], deadline: Deadline) -> dict[str, Coordinator | ApiError]:
    """The coordinator of each group, or why there is none; one attempt."""
    from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest

    connection = admin.any_connection(deadline)
    version = connection.choose_version(ApiKey.FIND_COORDINATOR)
    found: dict[str, Coordinator | ApiError] = {}
    wanted = list(groups)
    if version >= _FIRST_BATCHED:
        answer = connection.request(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=wanted))
        for each in answer.coordinators:
            found[each.key] = _coordinator(each)
    else:
        for group in wanted:
            request = FindCoordinatorRequest(key=group)
            if version >= _FIRST_WITH_KINDS:
                request.key_type = GROUP
            found[group] = _coordinator(connection.request(request))
    for coordinator in found.values():
        if isinstance(coordinator, Coordinator):
            admin.nodes[coordinator.node_id] = Address(coordinator.host, coordinator.port)
    missing = failure(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return {group: found.get(group, missing) for group in wanted}


def _coordinator(answer: Any) -> Coordinator | ApiError:
    if answer.error_code != ErrorCode.NONE:
        return failure(answer.error_code, answer.error_message)
    return Coordinator(answer.node_id, answer.host, answer.port)


def ask_coordinators(
    admin: Admin, groups: Iterable[str], build: Build, read: Read, *, max_version: int | None = None
) -> dict[str, Any]:
    """Ask every group's coordinator. `build` makes the request for some groups, `read` takes its answer apart; a group
    whose result is a transient ApiError is asked for again."""
    deadline = admin.deadline()
    results: dict[str, Any] = {}
    wanted = list(dict.fromkeys(groups))
    waiting = wanted
    while waiting:
        by_coordinator: dict[Coordinator, list[str]] = {}
        try:
            coordinators = find_coordinators(admin, waiting, deadline)
        except Disconnected as problem:
            coordinators = dict.fromkeys(waiting, failure(ErrorCode.NETWORK_EXCEPTION, str(problem)))
            admin.close()
        for group, coordinator in coordinators.items():
            if isinstance(coordinator, ApiError):
                results[group] = coordinator
            else:
                by_coordinator.setdefault(coordinator, []).append(group)
        for coordinator, theirs in by_coordinator.items():
            unanswered = failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator did not answer for this group")
            results.update(dict.fromkeys(theirs, unanswered))
            try:
                connection = admin.node_connection(coordinator.node_id, deadline)
                answer = connection.request(build(theirs), max_version=max_version)
            except Disconnected as problem:
                results.update(dict.fromkeys(theirs, failure(ErrorCode.NETWORK_EXCEPTION, str(problem))))
                admin.close()
            else:
                results.update(read(answer, coordinator))
        if deadline.passed():
            break
        waiting = [
            group for group in waiting if isinstance(results[group], ApiError) and results[group].code in TRANSIENT
        ]
        if waiting:
            deadline.pause()
    return {group: results[group] for group in wanted}


def ask_coordinator(
    admin: Admin, group: str, request: Any, read: Callable[[Any], Any], *, max_version: int | None = None
) -> Any:
    """Ask the coordinator of one group. `read` gives a value, or an ApiError, which is raised unless it passes."""
    results = ask_coordinators(
        admin, [group], lambda _: request, lambda answer, _: {group: read(answer)}, max_version=max_version
    )
    if isinstance(results[group], ApiError):
        raise results[group]
    return results[group]
