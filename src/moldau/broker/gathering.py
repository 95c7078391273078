"""Answers that come together from several promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from moldau.ports import Pending
from moldau.protocol.errors import ApiError

T = TypeVar("T")
R = TypeVar("R")


def gather(parts: Sequence[T | Pending[T]], combine: Callable[[list[T]], R]) -> R | Pending[R]:
    """`combine` of all parts, at once if all of them are there."""
    waiting = [part for part in parts if isinstance(part, Pending) and not part.done]
    if not waiting:
        return combine([part.value if isinstance(part, Pending) else part for part in parts])
    answer: Pending[R] = Pending()
    left = len(waiting)

    def arrived(_: T) -> None:
        nonlocal left
        left -= 1
        if not left:
            answer.resolve(combine([part.value if isinstance(part, Pending) else part for part in parts]))

    for part in waiting:
        part.then(arrived)
    return answer


def after(outcome: T | Pending[T | ApiError], change: Callable[[T | ApiError], R]) -> R | Pending[R]:
    """What `change` makes of a coordinator's outcome, once it is there."""
    if not isinstance(outcome, Pending):
        return change(outcome)
    if outcome.done:
        return change(outcome.value)
    answer: Pending[R] = Pending()
    outcome.then(lambda value: answer.resolve(change(value)))
    return answer


def chain(outcome: T | Pending[T], proceed: Callable[[T], Any]) -> Any:
    """What `proceed` leads to once the outcome is there, which may be another promise. An ApiError is an outcome."""
    if not isinstance(outcome, Pending):
        return proceed(outcome)
    if outcome.done:
        return proceed(outcome.value)
    answer: Pending[Any] = Pending()

    def arrived(value: T) -> None:
        try:
            following = proceed(value)
        except ApiError as error:
            following = error
        if isinstance(following, Pending):
            following.then(answer.resolve)
        else:
            answer.resolve(following)

    outcome.then(arrived)
    return answer
