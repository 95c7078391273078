"""Filters of a batch query that can be answered by reading less.

It decides which of Spark's filters narrow offsets, partitions, topics and times, and which of them are thereby done
with. A time narrows where reading starts but is never done with: records stand in order of offset, not of time, so
Spark looks at each of them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from moldau.client.cluster import TopicPartition

# Columns that are never null.
_ALWAYS_THERE = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_HIGHEST_OFFSET = (1 << 63) - 1


@dataclass(slots=True)
class Narrowing:
    """What the filters leave to be read."""

    first_offset: int = 0
    end_offset: int = _HIGHEST_OFFSET
    partitions: set[int] | None = None
    topics: set[str] | None = None
    min_timestamp: int | None = None

    def accept(self, each: Filter) -> bool:
        """Take a filter into account; True when Spark need not look at it again."""
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else None
        if isinstance(each, IsNotNull):
            return column in _ALWAYS_THERE
        if column == "offset":
            return self._offset(each)
        if column == "partition" and isinstance(each, EqualTo | In):
            self.partitions = _narrow(self.partitions, each)
            return True
        if column == "topic" and isinstance(each, EqualTo | In):
            self.topics = _narrow(self.topics, each)
            return True
        if column == "timestamp" and isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
            # Kafka's times are whole milliseconds: rounding down never leaves out a record that belongs.
            least = _milliseconds(each.value)
            if least is not None:
                self.min_timestamp = max(least, self.min_timestamp or 0)
        return False

    def _offset(self, each: Filter) -> bool:
        if isinstance(each, EqualTo):
            first, last = each.value, each.value
        elif isinstance(each, In):
            first, last = min(each.value), max(each.value)
        elif isinstance(each, GreaterThanOrEqual):
            first, last = each.value, None
        elif isinstance(each, GreaterThan):
            first, last = each.value + 1, None
        elif isinstance(each, LessThanOrEqual):
            first, last = None, each.value
        elif isinstance(each, LessThan):
            first, last = None, each.value - 1
        else:
            return False
        if first is not None:
            self.first_offset = max(self.first_offset, first)
        if last is not None:
            self.end_offset = min(self.end_offset, last + 1)
        return not isinstance(each, In)

    def keeps(self, partition: TopicPartition) -> bool:
        topic, index = partition
        return (self.topics is None or topic in self.topics) and (self.partitions is None or index in self.partitions)


def _narrow(known: set[Any] | None, each: Any) -> set[Any]:
    wanted = {each.value} if isinstance(each, EqualTo) else set(each.value)
    return wanted if known is None else known & wanted


def _milliseconds(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    # Without a zone it is in this process's zone, as Spark hands it over.
    moment = value.astimezone(UTC)
    return int(moment.timestamp() * 1000)


def push(narrowing: Narrowing, filters: Iterable[Filter]) -> list[Filter]:
    """Take filters into account; those that Spark must still apply."""
    return [each for each in filters if not narrowing.accept(each)]
