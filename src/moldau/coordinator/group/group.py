"""What every kind of group has in common, as far as offsets, listing and deletion are concerned.

A kind (classic, consumer, share, streams) derives from `Group` and brings its own records and requests. Nothing here
knows how members share their work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from moldau.coordinator.decision import CoordinatorRecord

if TYPE_CHECKING:
    from moldau.coordinator.group.offset_records import CommittedOffset


CommitCheck: TypeAlias = Callable[[str, bytes, int], None]
"""Raises ApiError unless the offset of this partition (topic, its id, index) may be committed by whoever asked."""


class GroupType(Enum):
    """The values are Kafka's own names."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Group(ABC):
    """One group of any kind."""

    __slots__ = ("group_id",)

    type: GroupType

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    # ---- what others see

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As ListGroups tells it, for example "Stable"."""

    @property
    @abstractmethod
    def listed_protocol_type(self) -> str: ...

    @property
    @abstractmethod
    def is_empty(self) -> bool: ...

    @property
    def may_expire(self) -> bool:
        """Whether it goes by itself when nobody is in it and no offsets are left."""
        return True

    # ---- offsets

    @abstractmethod
    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> CommitCheck | None:
        """Raise ApiError unless this member may commit offsets now; maybe only those of certain partitions."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise ApiError unless this member may read offsets now."""

    @abstractmethod
    def check_offset_delete(self) -> None: ...

    @abstractmethod
    def check_delete(self) -> None: ...

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool: ...

    @abstractmethod
    def offset_age_from(self) -> Callable[[CommittedOffset], int] | None:
        """From which moment an offset's retention counts; None while no offset of this group may expire."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove the group itself, without its offsets."""

    def unloaded(self) -> None:
        """Another node took over: answer who waits."""
