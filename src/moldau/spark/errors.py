"""The one exception that people who read and write topics with Spark get to see.

Spark wraps whatever a data source raises in a stack trace of its own, so the message must say by itself what is wrong
and what to do about it.
"""

from __future__ import annotations

from moldau.protocol.errors import ApiError, error_code


class MoldauError(Exception):
    """What went wrong, and what to do."""


class DataLossError(MoldauError):
    """Records that were to be read are not there any more."""


class UnknownTopicError(MoldauError):
    """A topic is not there, or not any more."""


class FencedError(MoldauError):
    """Another run of the same query has taken over; this one must not write any more."""


def refusal(code: int, doing: str, message: str | None = None) -> MoldauError:
    """The exception for a broker's error code, with its own words when it sent some."""
    known = ApiError(error_code(code), message) if message else ApiError(error_code(code))
    return MoldauError(f"{doing} failed: {known}")
