"""Finding the coordinators of groups and transactional ids, and asking them until they answered or time is up.

It decides which broker gets a request about a group or an id and when to look for the coordinator again. It never
interprets an answer: the caller gives a function that reads one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moldau.client.cluster import TRANSIENT, Cluster, Coordinator, Deadline, is_passing
from moldau.client.errors import Disconnected, failure, refusal
from moldau.ports import Address
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

GROUP, TRANSACTION = 0, 1
# The first version of FindCoordinator that takes several keys at once, and the first that knows kinds of keys.
_FIRST_BATCHED = 4
_FIRST_WITH_KINDS = 1

Build = Callable[[list[str]], Any]
Read = Callable[[Any, Coordinator], dict[str, Any]]


def find_coordinators(
    cluster: Cluster, keys: Iterable[str], deadline: Deadline, kind: int = GROUP
) -> dict[str, Coordinator | ApiError]:
    """The coordinator of each group or id, or why there is none; one attempt, for those that are not known yet."""
    known = cluster.coordinators
    wanted = list(keys)
    asked = [key for key in wanted if (kind, key) not in known]
    refused = _look_for(cluster, kind, asked, deadline) if asked else {}
    missing = failure(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return {key: known.get((kind, key)) or refused.get(key, missing) for key in wanted}


def _look_for(cluster: Cluster, kind: int, keys: list[str], deadline: Deadline) -> dict[str, ApiError]:
    """Remember the coordinators of these; those that have none, with the reason."""
    from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest

    answers: dict[str, Any] = {}
    try:
        connection = cluster.any_connection(deadline)
        version = connection.choose_version(ApiKey.FIND_COORDINATOR)
        if version >= _FIRST_BATCHED:
            answer = connection.request(FindCoordinatorRequest(key_type=kind, coordinator_keys=keys))
            answers = {each.key: each for each in answer.coordinators}
        else:
            for key in keys:
                request = FindCoordinatorRequest(key=key)
                if version >= _FIRST_WITH_KINDS:
                    request.key_type = kind
                answers[key] = connection.request(request)
    except Disconnected as problem:
        return dict.fromkeys(keys, failure(ErrorCode.NETWORK_EXCEPTION, str(problem)))
    refused: dict[str, ApiError] = {}
    for key, each in answers.items():
        if each.error_code != ErrorCode.NONE:
            refused[key] = failure(each.error_code, each.error_message)
        else:
            cluster.coordinators[kind, key] = Coordinator(each.node_id, each.host, each.port)
            cluster.nodes[each.node_id] = Address(each.host, each.port)
    return refused


def forget_coordinator(cluster: Cluster, kind: int, key: str) -> None:
    cluster.coordinators.pop((kind, key), None)


def wait_for_coordinator(cluster: Cluster, kind: int, key: str) -> Coordinator:
    """The coordinator of a group or id, waited for while there is none."""
    deadline = cluster.deadline()
    while True:
        found = find_coordinators(cluster, [key], deadline, kind)[key]
        if not isinstance(found, ApiError):
            return found
        if not is_passing(found) or deadline.passed():
            what = "transactional id" if kind == TRANSACTION else "group"
            raise refusal(found.code, f"Finding the coordinator of {what} '{key}'", found.message)
        deadline.pause()


def ask_coordinators(
    cluster: Cluster,
    keys: Iterable[str],
    build: Build,
    read: Read,
    *,
    kind: int = GROUP,
    max_version: int | None = None,
) -> dict[str, Any]:
    """Ask the coordinator of every group or id. `build` makes the request for some of them, `read` takes its answer
    apart; one whose result is a passing ApiError is asked for again."""
    deadline = cluster.deadline()
    waiting = wanted = list(dict.fromkeys(keys))
    unanswered = failure(ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator did not answer for this group")
    results: dict[str, Any] = {}
    while waiting:
        by_coordinator: dict[Coordinator, list[str]] = {}
        for key, coordinator in find_coordinators(cluster, waiting, deadline, kind).items():
            if isinstance(coordinator, ApiError):
                results[key] = coordinator
            else:
                by_coordinator.setdefault(coordinator, []).append(key)
        for coordinator, theirs in by_coordinator.items():
            results.update(dict.fromkeys(theirs, unanswered))
            try:
                connection = cluster.node(coordinator.node_id, deadline)
                answer = connection.request(build(theirs), max_version=max_version)
            except Disconnected as problem:
                results.update(dict.fromkeys(theirs, failure(ErrorCode.NETWORK_EXCEPTION, str(problem))))
            else:
                results.update(read(answer, coordinator))
        waiting = [key for key in waiting if is_passing(results[key])]
        for key in waiting:
            if results[key].code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                forget_coordinator(cluster, kind, key)
        if deadline.passed():
            break
        if waiting:
            deadline.pause()
    return {key: results[key] for key in wanted}


def ask_coordinator(
    cluster: Cluster,
    key: str,
    request: Any,
    read: Callable[[Any], Any],
    *,
    kind: int = GROUP,
    max_version: int | None = None,
) -> Any:
    """Ask the coordinator of one group or id. `read` gives a value, or an ApiError: it is raised unless it passes."""
    results = ask_coordinators(
        cluster, [key], lambda _: request, lambda answer, _: {key: read(answer)}, kind=kind, max_version=max_version
    )
    if isinstance(results[key], ApiError):
        raise results[key]
    return results[key]


def answer_of_coordinator(
    cluster: Cluster, kind: int, key: str, request: Any, code: Callable[[Any], int], doing: str
) -> Any:
    """The answer of a coordinator as soon as its `code` is no passing one; other errors are left in it."""

    def read(answer: Any) -> Any:
        found = code(answer)
        return failure(found) if found in TRANSIENT else answer

    try:
        return ask_coordinator(cluster, key, request, read, kind=kind)
    except ApiError as error:
        raise refusal(error.code, doing, error.message) from None
