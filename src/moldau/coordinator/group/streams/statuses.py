"""What keeps a streams group from working, as its members are told in the answer to a heartbeat."""

from __future__ import annotations

from enum import IntEnum

from moldau.protocol.generated.wire.streams_group_heartbeat_response import Status as WireStatus


class Status(IntEnum):
    """The numbers are those of the protocol."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5

    def saying(self, detail: str) -> WireStatus:
        return WireStatus(self.value, detail)


class BadTopics(Exception):
    """The cluster's topics are not what the topology needs."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
