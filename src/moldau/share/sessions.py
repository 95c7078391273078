"""Share sessions: which partitions a member reads here, and which of its requests is the next one.

A member has one session with each broker it fetches from. It lives until the member ends it, begins another, or its
connection breaks. Decides which epochs are accepted and what is worth telling; knows nothing of records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from moldau.protocol.errors import ApiError, ErrorCode

T = TypeVar("T")

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1


class PartitionKey(NamedTuple):
    topic_id: bytes
    partition: int


class SessionPartition:
    """One partition of a session."""

    __slots__ = ("key", "must_tell", "topic")

    def __init__(self, key: PartitionKey, topic: str | None, *, must_tell: bool) -> None:
        self.key = key
        # The name it had when it was added; None if nobody knew the id then.
        self.topic = topic
        # Whether the next answer has to mention it, even if there is nothing to say.
        self.must_tell = must_tell

    def is_news(self, size: int, error_code: int) -> bool:
        """Whether an answer must mention it, which has so many bytes of it; an error is followed by an all-clear."""
        news = bool(size or error_code or self.must_tell)
        self.must_tell = bool(error_code)
        return news


class ShareSession:
    __slots__ = ("epoch", "group_id", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        # What the member's next request must carry.
        self.epoch = 1
        self.partitions: dict[PartitionKey, SessionPartition] = {}

    def add(self, partitions: Iterable[tuple[PartitionKey, str | None]], *, must_tell: bool) -> None:
        known = self.partitions
        for key, topic in partitions:
            if key not in known:
                known[key] = SessionPartition(key, topic, must_tell=must_tell)

    def forget(self, partitions: Iterable[PartitionKey]) -> None:
        for key in partitions:
            self.partitions.pop(key, None)

    def gave(self, key: PartitionKey) -> None:
        """Records of this partition were given: the others come first next time."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self.partitions[key] = partition

    def advance(self) -> None:
        self.epoch = following(self.epoch)


def following(epoch: int) -> int:
    return 1 if epoch == _MAX_EPOCH else epoch + 1


def in_turn(partitions: list[T], epoch: int) -> list[T]:
    """The partitions of a session, each time beginning with another one, so that none is always last."""
    if len(partitions) < 2 or epoch < 1:
        return partitions
    at = epoch % len(partitions)
    return partitions[at:] + partitions[:at]


class ShareSessions:
    """Every share session of one node."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._members: dict[str, int] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def members_of(self, group_id: str) -> int:
        return self._members.get(group_id, 0)

    def begin(self, group_id: str, member_id: str, most: int) -> ShareSession:
        """A new session in place of the one the member had, if there may be one more."""
        old = self.get(group_id, member_id)
        if old is not None:
            self.end(old)
        if len(self._sessions) >= most:
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id)
        self._members[group_id] = self.members_of(group_id) + 1
        return session

    def existing(self, group_id: str, member_id: str) -> ShareSession:
        session = self.get(group_id, member_id)
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def next_request(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request that follows others; it must be the very next one."""
        session = self.existing(group_id, member_id)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.advance()
        return session

    def end(self, session: ShareSession) -> bool:
        """Whether it was still the member's session."""
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        left = self.members_of(session.group_id) - 1
        if left > 0:
            self._members[session.group_id] = left
        else:
            self._members.pop(session.group_id, None)
        return True

    def clear(self) -> None:
        self._sessions.clear()
        self._members.clear()
