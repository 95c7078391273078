"""Windows over event time: what kinds there are and how long they last.

It only describes them. Who assigns records to them is Spark, except for sliding windows (see `state_streams.Slide`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from moldau.client.errors import MoldauError

_UNITS_MS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_PART = re.compile(r"(\d+)\s*([a-z]+?)s?(?:\s+|,|$)", re.IGNORECASE)


class Kind(Enum):
    TUMBLING = "tumbling"
    HOPPING = "hopping"
    SESSION = "session"
    SLIDING = "sliding"


@dataclass(slots=True, frozen=True)
class Window:
    """A kind of window; made by `tumbling`, `hopping`, `session` and `sliding`."""

    kind: Kind
    size: str
    every: str | None = None


def milliseconds(duration: str) -> int:
    """How long a duration in Spark's words is: `"10 minutes"`, `"1 hour 30 minutes"`."""
    text = duration.strip()
    total, at = 0, 0
    for match in _PART.finditer(text):
        unit = _UNITS_MS.get(match[2].lower())
        if match.start() != at or unit is None:
            break
        total += int(match[1]) * unit
        at = match.end()
    if at != len(text) or not text:
        raise MoldauError(
            f"'{duration}' is not a duration: write a number and one of {', '.join(_UNITS_MS)}, such as '10 minutes'"
        )
    return total


def tumbling(size: str) -> Window:
    """Windows of one size that follow each other without a gap: every record is in exactly one.

    clicks.window(tumbling("10 minutes")).group_by("page").count()
    """
    milliseconds(size)
    return Window(Kind.TUMBLING, size)


def hopping(size: str, every: str) -> Window:
    """Windows of one size, a new one beginning every so often: a record is in several when they overlap.

    clicks.window(hopping("10 minutes", every="1 minute")).group_by("page").count()
    """
    if milliseconds(every) > milliseconds(size):
        raise MoldauError(f"Windows of {size} every {every} leave gaps: `every` must not be longer than the size")
    return Window(Kind.HOPPING, size, every)


def session(gap: str) -> Window:
    """Windows of activity: one lasts until nothing has come for `gap`. A record between two of them makes them one.

    clicks.window(session("30 minutes")).group_by("user").count()
    """
    milliseconds(gap)
    return Window(Kind.SESSION, gap)


def sliding(size: str) -> Window:
    """Windows that slide along with the records, both ends included, to the millisecond, as those of Kafka Streams: one
    that ends with every record, and one that begins right after it if a record is in there.

    attempts.window(sliding("1 minute")).group_by("user").count()
    """
    milliseconds(size)
    return Window(Kind.SLIDING, size)
