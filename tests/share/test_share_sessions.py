"""Which requests of a member are accepted, and what its answers mention."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.share.sessions import PartitionKey, ShareSessions, following, in_turn

ONE, TWO = PartitionKey(bytes(16), 0), PartitionKey(bytes(16), 1)


def refusal(call: object, *args: object) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        call(*args)  # type: ignore[operator]
    return raised.value.code


def test_requests_must_come_in_order() -> None:
    sessions = ShareSessions()
    assert refusal(sessions.next_request, "g", "m", 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    sessions.begin("g", "m", 10)
    sessions.next_request("g", "m", 1)
    assert refusal(sessions.next_request, "g", "m", 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert refusal(sessions.next_request, "g", "m", 3) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    sessions.next_request("g", "m", 2)
    assert following(2**31 - 1) == 1


def test_a_new_session_replaces_the_old_one_and_needs_no_room() -> None:
    sessions = ShareSessions()
    old = sessions.begin("g", "m", 1)
    new = sessions.begin("g", "m", 1)
    assert old is not new
    assert len(sessions) == sessions.members_of("g") == 1
    assert not sessions.end(old), "it ended before"
    assert refusal(sessions.begin, "g", "n", 1) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.end(new)
    assert sessions.members_of("g") == 0
    sessions.begin("g", "n", 1)


def test_only_news_is_told() -> None:
    sessions = ShareSessions()
    session = sessions.begin("g", "m", 1)
    session.add([(ONE, "t")], must_tell=False)
    session.add([(ONE, "t"), (TWO, "t")], must_tell=True)
    one, two = session.partitions[ONE], session.partitions[TWO]
    assert not one.is_news(0, 0)
    assert one.is_news(1, 0)
    assert two.is_news(0, 0), "it was added by a later request"
    assert not two.is_news(0, 0)
    assert two.is_news(0, 3)
    assert two.is_news(0, 0), "the error is over"
    assert not two.is_news(0, 0)
    session.gave(ONE)
    assert list(session.partitions) == [TWO, ONE]
    session.forget([TWO])
    assert sessions.partition_count == 1


def test_partitions_take_turns() -> None:
    assert in_turn(["a", "b", "c"], 0) == ["a", "b", "c"]
    assert in_turn(["a", "b", "c"], 1) == ["b", "c", "a"]
    assert in_turn(["a", "b", "c"], 5) == ["c", "a", "b"]
    assert in_turn([], 1) == []
