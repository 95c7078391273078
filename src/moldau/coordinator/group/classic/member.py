"""One member of a classic group: what it said about itself, what it was given, and what it waits for."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeAlias

from moldau.ports import Pending
from moldau.protocol.generated.wire.describe_groups_response import DescribedGroupMember
from moldau.protocol.generated.wire.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from moldau.protocol.generated.wire.sync_group_response import SyncGroupResponse

Protocols: TypeAlias = Sequence[tuple[str, bytes]]
"""Names of the ways to share work that a member can take part in, the best first, each with the member's metadata."""

NO_ASSIGNMENT = b""


class ClassicMember:
    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_ends_ms",
        "session_timeout_ms",
        "timer_due_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Pending[JoinGroupResponse] | None = None
        self.awaiting_sync: Pending[SyncGroupResponse] | None = None
        # Until the first rebalance it takes part in is over, a member knows no id to send heartbeats with.
        self.is_new = False
        self.session_ends_ms = 0
        self.timer_due_ms = 0

    @property
    def is_alive_by_waiting(self) -> bool:
        """Whether the member needs no heartbeat because a request of it is held here."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"{self.member_id} does not support {protocol}")

    def vote(self, candidates: Container[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def replaced_by(self, member_id: str) -> ClassicMember:
        """The same static member under a new id."""
        return ClassicMember(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocol_type,
            self.protocols,
            self.assignment,
        )

    def joined(self, protocol: str) -> JoinGroupResponseMember:
        return JoinGroupResponseMember(self.member_id, self.instance_id, self.metadata(protocol))

    def describe(self, protocol: str | None) -> DescribedGroupMember:
        """Without a protocol that was agreed on, the metadata is left out."""
        return DescribedGroupMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol is None else self.metadata(protocol),
            self.assignment,
        )
