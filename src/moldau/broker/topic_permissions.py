"""Requests that change several topics at once: what the caller may not do is taken out and refused by itself.

Decides topic by topic, as Kafka does, so that one topic somebody may not touch does not spoil the others. A topic that
is given by its id is looked up first; one that is not known here is refused as unknown, never passed on unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from moldau.broker.authorization import Guard, Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.metadata.image import ClusterImage
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest
from moldau.protocol.generated.wire.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from moldau.protocol.generated.wire.create_topics_request import CreateTopicsRequest
from moldau.protocol.generated.wire.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from moldau.protocol.uuids import ZERO_UUID

_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_WHY: Final = "Authorization failed."

T = TypeVar("T")


Ask = Callable[[Any], Pending[Any]]


def ask_about_permitted_topics(
    guard: Guard, image: ClusterImage, request: Any, caller: Caller, ask: Ask
) -> Pending[Any]:
    """The answer to what the caller may have of a request, with the refusals of the rest. Other requests than those
    about several topics are asked as they are: for them the router has looked already."""
    if isinstance(request, CreateTopicsRequest):
        return _create(guard, request, caller, ask)
    if isinstance(request, DeleteTopicsRequest):
        return _delete(guard, image, request, caller, ask)
    if isinstance(request, CreatePartitionsRequest):
        return _create_partitions(guard, request, caller, ask)
    return ask(request)


def _create(guard: Guard, request: CreateTopicsRequest, caller: Caller, ask: Ask) -> Pending[Any]:
    if guard.allows(caller, Operation.CREATE, ResourceKind.CLUSTER):
        return ask(request)
    allowed, others = _sorted_out(request.topics, lambda each: _may(guard, caller, Operation.CREATE, each.name))
    refused = [CreatableTopicResult(name=each.name, error_code=_REFUSED, error_message=_WHY) for each in others]
    if not allowed and refused:
        return Pending.of(CreateTopicsResponse(topics=refused))
    reduced = CreateTopicsRequest(topics=allowed, timeout_ms=request.timeout_ms, validate_only=request.validate_only)
    return _completed(ask(reduced), lambda response: response.topics.extend(refused))


def _create_partitions(guard: Guard, request: CreatePartitionsRequest, caller: Caller, ask: Ask) -> Pending[Any]:
    allowed, others = _sorted_out(request.topics, lambda each: _may(guard, caller, Operation.ALTER, each.name))
    refused = [CreatePartitionsTopicResult(name=each.name, error_code=_REFUSED, error_message=_WHY) for each in others]
    if not allowed and refused:
        return Pending.of(CreatePartitionsResponse(results=refused))
    reduced = CreatePartitionsRequest(
        topics=allowed, timeout_ms=request.timeout_ms, validate_only=request.validate_only
    )
    return _completed(ask(reduced), lambda response: response.results.extend(refused))


def _delete(guard: Guard, image: ClusterImage, request: DeleteTopicsRequest, caller: Caller, ask: Ask) -> Pending[Any]:
    names, others = _sorted_out(request.topic_names, lambda name: _may(guard, caller, Operation.DELETE, name))
    refused = [DeletableTopicResult(name=name, error_code=_REFUSED, error_message=_WHY) for name in others]
    topics = []
    for each in request.topics:
        refusal = _refused_deletion(guard, image, each, caller)
        if refusal is None:
            topics.append(each)
        else:
            refused.append(refusal)
    if not names and not topics and refused:
        return Pending.of(DeleteTopicsResponse(responses=refused))
    reduced = DeleteTopicsRequest(topics=topics, topic_names=names, timeout_ms=request.timeout_ms)
    return _completed(ask(reduced), lambda response: response.responses.extend(refused))


def _refused_deletion(
    guard: Guard, image: ClusterImage, wanted: DeleteTopicState, caller: Caller
) -> DeletableTopicResult | None:
    """None if the caller may delete it. Whoever may not even see a topic does not learn what it is called."""
    name = wanted.name
    if name is None:
        known = image.topic_by_id(wanted.topic_id)
        if known is None:
            return DeletableTopicResult(name=None, topic_id=wanted.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        name = known.name
    if _may(guard, caller, Operation.DELETE, name):
        return None
    visible = wanted.name is not None or _may(guard, caller, Operation.DESCRIBE, name)
    return DeletableTopicResult(
        name=name if visible else None,
        topic_id=wanted.topic_id or ZERO_UUID,
        error_code=_REFUSED,
        error_message=_WHY,
    )


def _sorted_out(asked: Iterable[T], may: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """(what the caller may have, the rest)."""
    sides: tuple[list[T], list[T]] = ([], [])
    for each in asked:
        sides[0 if may(each) else 1].append(each)
    return sides


def _may(guard: Guard, caller: Caller, operation: Operation, topic: str) -> bool:
    return guard.allows(caller, operation, ResourceKind.TOPIC, topic)


def _completed(answer: Pending[Any], complete: Callable[[Any], None]) -> Pending[Any]:
    """The answer with what was refused beside it; a failure of the whole is one of all its parts."""
    completed: Pending[Any] = Pending()

    def answered(response: Any) -> None:
        if not isinstance(response, ApiError):
            complete(response)
        completed.resolve(response)

    answer.then(answered)
    return completed
