"""What goes wrong between a client and a cluster, as exceptions whose words say what is wrong and what to do.

Three kinds: a `MoldauError` is for the person who asked; a `Disconnected` is for the code that asked, which may ask
again; an `ApiError` (of the protocol room) is a broker's refusal, where the caller wants to look at its code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moldau.protocol.errors import ApiError, ErrorCode, error_code


class MoldauError(Exception):
    """What went wrong and, if we know it, what to do about it: a sentence each."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class Unreachable(MoldauError):
    """No broker could be talked to; `answered` when somebody listens there, who does not speak with us."""

    def __init__(self, message: str, hint: str | None = None, *, answered: bool = False) -> None:
        super().__init__(message, hint)
        self.answered = answered


class Unsupported(MoldauError):
    """The cluster does not offer the API, or not in a version we speak."""


class UnknownTopicError(MoldauError):
    """A topic is not there, or not any more."""


class FencedError(MoldauError):
    """Another run of the same query has taken over; this one must not write any more."""


class Disconnected(Exception):
    """The connection broke or timed out; asking again, here or elsewhere, may work."""


def failure(code: int, message: str | None = None) -> ApiError:
    """The exception for an error in an answer, with the broker's own words when it sent some."""
    return ApiError(error_code(code), message or None)


def raise_for(code: int, message: str | None = None) -> None:
    if code != ErrorCode.NONE:
        raise failure(code, message)


def refusal(code: int, doing: str, message: str | None = None) -> MoldauError:
    """The same for people, who want to know what was being done."""
    return MoldauError(f"{doing} failed: {failure(code, message)}")


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """A broker's refusal of what is done in here, as an exception for people."""
    try:
        yield
    except ApiError as error:
        raise MoldauError(f"{doing} failed: {error}") from None


def unknown_topic(topic: str, code: int) -> MoldauError:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicError(f"There is no topic '{topic}': check its name, or create it before the query starts")
    return refusal(code, f"Looking up topic '{topic}'")
