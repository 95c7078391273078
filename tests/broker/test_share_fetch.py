"""ShareFetch and ShareAcknowledge through a whole broker, with its own share coordinator behind."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode, values_of
from share_client import GROUP, ShareMember, configure_group, prepare_group, produce

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

ACCEPT, RELEASE, REJECT, RENEW = [1], [2], [3], [4]


@pytest.fixture
def topic_id(node: SimulatedNode) -> bytes:
    topic_id = node.create_topic("t", 2)
    prepare_group(node, topic_id, 2)
    return topic_id


def joined(node: SimulatedNode, topic_id: bytes, *names: str, partitions: tuple[int, ...] = (0,)) -> Any:
    """Members whose sessions are open and whose partitions are loaded."""
    members = [ShareMember(node, name, topic_id) for name in names]
    for member in members:
        answer = member.fetch(*partitions)
        assert answer.error_code == 0
    node.clock.advance(1)
    return members if len(members) > 1 else members[0]


def part_of(answer: Any, index: int = 0) -> Any:
    assert answer.error_code == 0, answer
    return next(part for topic in answer.responses for part in topic.partitions if part.partition_index == index)


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_given_acknowledged_and_gone(node: SimulatedNode, topic_id: bytes, version: int) -> None:
    a, b = joined(node, topic_id, "a", "b")
    produce(node, "t", b"1", b"2", b"3")
    answer = a.fetch(version=version)
    assert values_of(part_of(answer).records) == [b"1", b"2", b"3"]
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert b.take() == []
    done = a.acknowledge({0: [(0, 2, ACCEPT)]}, version=version)
    assert done.error_code == 0
    assert done.responses[0].partitions[0].error_code == 0
    produce(node, "t", b"4")
    assert b.take() == [(3, 3, 1)]


def test_acknowledgements_ride_on_fetches(node: SimulatedNode, topic_id: bytes) -> None:
    a = joined(node, topic_id, "a")
    produce(node, "t", b"1", b"2")
    assert a.take() == [(0, 1, 1)]
    produce(node, "t", b"3")
    answer = a.fetch(acks={0: [(0, 0, ACCEPT), (1, 1, RELEASE)]})
    part = part_of(answer)
    assert part.acknowledge_error_code == 0
    assert [(each.first_offset, each.delivery_count) for each in part.acquired_records] == [(1, 2), (2, 1)]
    wrong = a.fetch(acks={0: [(0, 0, ACCEPT), (9, 9, ACCEPT)]})
    assert part_of(wrong).acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert part_of(wrong).error_code == 0


def test_a_fetch_waits_for_records(node: SimulatedNode, topic_id: bytes) -> None:
    a, b = joined(node, topic_id, "a", "b")
    waiting = a.post(max_wait_ms=500)
    assert not waiting.done
    produce(node, "t", b"1")
    assert waiting.done
    assert values_of(part_of(waiting.value).records) == [b"1"]
    other = b.post(max_wait_ms=60_000)
    assert not other.done
    a.acknowledge({0: [(0, 0, RELEASE)]})
    node.clock.advance(0)
    assert part_of(other.value).acquired_records[0].delivery_count == 2
    in_vain = a.post(max_wait_ms=500)
    node.clock.advance(499)
    assert not in_vain.done
    node.clock.advance(1)
    assert in_vain.value.responses == []


def test_a_fetch_waits_for_enough_bytes(node: SimulatedNode, topic_id: bytes) -> None:
    a = joined(node, topic_id, "a")
    waiting = a.post(max_wait_ms=500, min_bytes=2000)
    produce(node, "t", b"x" * 900)
    assert not waiting.done
    produce(node, "t", b"x" * 900)
    produce(node, "t", b"x" * 900)
    assert waiting.done
    assert len(part_of(waiting.value).records) > 2000


def test_locks_run_out(node: SimulatedNode, topic_id: bytes) -> None:
    configure_group(node, share_record_lock_duration_ms="15000")
    a, b = joined(node, topic_id, "a", "b")
    produce(node, "t", b"1")
    assert a.fetch().acquisition_lock_timeout_ms == 15_000
    waiting = b.post(max_wait_ms=60_000)
    node.clock.advance(14_999)
    assert not waiting.done
    node.clock.advance(1)
    assert part_of(waiting.value).acquired_records[0].delivery_count == 2
    late = a.acknowledge({0: [(0, 0, ACCEPT)]})
    assert late.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE


def test_locks_are_renewed(node: SimulatedNode, topic_id: bytes) -> None:
    a, b = joined(node, topic_id, "a", "b")
    produce(node, "t", b"1")
    a.take()
    node.clock.advance(29_000)
    answer = a.fetch(acks={0: [(0, 0, RENEW)]}, renew=True, max_bytes=0, min_bytes=0, max_records=0, max_wait_ms=0)
    assert part_of(answer).acknowledge_error_code == 0
    node.clock.advance(29_000)
    assert b.take() == []
    assert a.acknowledge({0: [(0, 0, RENEW)]}, renew=True).responses[0].partitions[0].error_code == 0
    refused = a.fetch(acks={0: [(0, 0, RENEW)]}, renew=True, epoch=a.epoch)
    assert refused.error_code == ErrorCode.INVALID_REQUEST, "a renewal asks for nothing else"
    silent = a.acknowledge({0: [(0, 0, RENEW)]})
    assert silent.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST, "it must say that it renews"


def test_record_limit(node: SimulatedNode, topic_id: bytes) -> None:
    a, b = joined(node, topic_id, "a", "b")
    produce(node, "t", *(b"%d" % number for number in range(10)))
    assert a.take(max_records=3, mode=1) == [(0, 2, 1)]
    assert b.take(max_records=3, mode=1) == [(3, 5, 1)]
    assert b.take(max_records=3) == [(6, 9, 1)]


def test_sessions(node: SimulatedNode, topic_id: bytes) -> None:
    a = ShareMember(node, "a", topic_id)
    assert a.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert a.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert a.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert a.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert a.fetch(0, epoch=0, acks={0: [(0, 0, ACCEPT)]}).error_code == ErrorCode.INVALID_REQUEST
    assert a.fetch(0).error_code == 0
    assert a.fetch(epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert a.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert a.fetch(1).error_code == 0, "added to the session"
    produce(node, "t", b"0")
    produce(node, "t", b"1", partition=1)
    assert len(a.take(forget=(1,))) == 1, "one of two is forgotten"
    for bad in ("", "x" * 37):
        assert ShareMember(node, bad, topic_id).fetch(0).error_code == ErrorCode.INVALID_REQUEST


def test_who_closes_the_session_gives_back(node: SimulatedNode, topic_id: bytes) -> None:
    a, b = joined(node, topic_id, "a", "b")
    produce(node, "t", b"1", b"2")
    a.take()
    closed = a.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=-1)
    assert closed.error_code == 0
    assert a.acknowledge({}, epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    node.clock.advance(0)
    assert b.take() == [(1, 1, 2)]
    assert b.fetch(epoch=-1).error_code == 0
    assert ShareMember(node, "c", topic_id).take(0) == [(1, 1, 3)]


def test_who_disconnects_gives_back(node: SimulatedNode, topic_id: bytes) -> None:
    a, b = joined(node, topic_id, "a", "b")
    produce(node, "t", b"1", b"2")
    a.take()
    waiting = a.post(max_wait_ms=60_000)
    a.client.disconnect()
    node.clock.advance(0)
    assert not waiting.done
    assert b.take() == [(0, 1, 2)]
    b.client.disconnect()
    assert len(node.broker.share_fetch.sessions) == 0
    assert not list(node.broker.share_fetch.partitions), "nobody of the group is left"
    c = ShareMember(node, "c", topic_id)
    first = c.post(0, max_wait_ms=1000)
    node.clock.advance(100)
    assert part_of(first.value).acquired_records[0].delivery_count == 3, "what was stored is loaded again"


def test_no_room_for_more_sessions() -> None:
    node = SimulatedNode(group_share_max_share_sessions="1", group_share_max_size="1")
    topic_id = node.create_topic("t")
    prepare_group(node, topic_id)
    joined(node, topic_id, "a")
    refused = ShareMember(node, "b", topic_id).post(0, max_wait_ms=500)
    node.clock.advance(499)
    assert not refused.done, "so that it does not come again at once"
    node.clock.advance(1)
    assert refused.value.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_unknown_topics_and_partitions(node: SimulatedNode, topic_id: bytes) -> None:
    stranger = ShareMember(node, "a", bytes(15) + b"\x01")
    assert part_of(stranger.fetch(0)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    a = ShareMember(node, "b", topic_id)
    assert part_of(a.fetch(9), 9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    lost = a.acknowledge({0: [(0, 0, ACCEPT)]})
    assert lost.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody fetched from it"
    assert stranger.acknowledge({0: [(0, 0, ACCEPT)]}).responses[0].partitions[0].error_code == (
        ErrorCode.UNKNOWN_TOPIC_ID
    )


@pytest.mark.parametrize(
    "batches",
    [
        [(3, 2, ACCEPT)],
        [(0, 3, ACCEPT), (2, 5, ACCEPT)],
        [(0, 3, [])],
        [(0, 3, [1, 1])],
        [(0, 3, [5])],
        [(0, 3, [-1])],
    ],
)
def test_malformed_acknowledgements(node: SimulatedNode, topic_id: bytes, batches: Any) -> None:
    a = joined(node, topic_id, "a")
    produce(node, "t", b"1", b"2", b"3", b"4")
    assert a.take() == [(0, 3, 1)]
    assert a.acknowledge({0: batches}).responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert a.acknowledge({0: [(0, 3, ACCEPT)]}).responses[0].partitions[0].error_code == 0


def test_version_1_knows_no_renewal(node: SimulatedNode, topic_id: bytes) -> None:
    a = joined(node, topic_id, "a")
    produce(node, "t", b"1")
    a.take()
    answer = a.acknowledge({0: [(0, 0, RENEW)]}, version=1)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_the_topic_is_deleted_while_somebody_waits(node: SimulatedNode, topic_id: bytes) -> None:
    a = joined(node, topic_id, "a")
    waiting = a.post(max_wait_ms=60_000)
    answer = node.client.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)
    assert answer.responses[0].error_code == 0
    node.clock.advance(0)
    assert part_of(waiting.value).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not list(node.broker.share_fetch.partitions)
    assert part_of(a.fetch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_records_are_left_behind(node: SimulatedNode, topic_id: bytes) -> None:
    a, b = joined(node, topic_id, "a", "b")
    produce(node, "t", b"1", b"2", b"3")
    a.take()
    a.acknowledge({0: [(0, 2, RELEASE)]})
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])],
        timeout_ms=1000,
    )
    assert node.client.send(request, 2).topics[0].partitions[0].error_code == 0
    assert b.take() == [(2, 2, 2)]


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [(0, 1, 1)]), ("latest", [])])
def test_where_a_group_begins(node: SimulatedNode, policy: str, expected: Any) -> None:
    topic_id = node.create_topic("t")
    configure_group(node, share_auto_offset_reset=policy)
    prepare_group(node, topic_id, start=-1)
    produce(node, "t", b"1", b"2")
    a = ShareMember(node, "a", topic_id)
    assert a.take(0, max_wait_ms=10) == expected
    produce(node, "t", b"3")
    assert a.take() == [(2, 2, 1)]


def test_a_group_begins_some_time_ago(node: SimulatedNode) -> None:
    topic_id = node.create_topic("t")
    configure_group(node, share_auto_offset_reset="by_duration:PT1H")
    prepare_group(node, topic_id, start=-1)
    from broker_node import batch, produce_request

    now = node.clock.now_ms()
    for age in (7_200_000, 1_800_000):
        node.client.send(produce_request("t", batch(b"x", timestamp=now - age), version=9), 9)
    assert ShareMember(node, "a", topic_id).take(0, max_wait_ms=10) == [(1, 1, 1)]


def test_settings_change_while_running(node: SimulatedNode, topic_id: bytes) -> None:
    configure_group(node, share_partition_max_record_locks="100")
    a = joined(node, topic_id, "a")
    for _ in range(30):
        produce(node, "t", *([b"x"] * 10))
    assert a.take() == [(0, 99, 1)]
    waiting = a.post(max_wait_ms=60_000)
    assert not waiting.done
    configure_group(node, share_partition_max_record_locks="150")
    node.clock.advance(0)
    assert part_of(waiting.value).acquired_records[-1].last_offset == 149


def test_large_logs_are_read_in_small_pieces(node: SimulatedNode, topic_id: bytes) -> None:
    a = joined(node, topic_id, "a")
    for _ in range(60):
        produce(node, "t", *([b"x" * 1000] * 100))
    answer = a.fetch(max_records=10)
    assert len(part_of(answer).records) < 120_000
    assert part_of(answer).acquired_records[0].last_offset == 99
    rest = []
    while True:
        got = a.take(max_records=1000)
        if not got:
            break
        rest += got
        a.acknowledge({0: [(first, last, ACCEPT) for first, last, _ in got]})
    assert rest[-1][1] == 1999, "as many as may be in flight: the first hundred are not acknowledged"


def test_several_partitions_share_a_fetch(node: SimulatedNode, topic_id: bytes) -> None:
    a = joined(node, topic_id, "a", partitions=(0, 1))
    produce(node, "t", *([b"x"] * 10))
    produce(node, "t", *([b"y"] * 10), partition=1)
    answer = a.fetch(max_records=15)
    assert sum(len(part.acquired_records) for topic in answer.responses for part in topic.partitions) == 2
    answer = a.fetch(max_records=15)
    assert answer.responses == []


def test_state_survives_a_restart(node: SimulatedNode, topic_id: bytes) -> None:
    a = joined(node, topic_id, "a")
    produce(node, "t", b"1", b"2", b"3")
    a.take()
    a.acknowledge({0: [(0, 0, ACCEPT), (1, 1, RELEASE)]})
    node.restart()
    b = ShareMember(node, "b", topic_id)
    first = b.post(0, max_wait_ms=5000)
    node.clock.advance(5000)
    given = part_of(first.value).acquired_records
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in given] == [(1, 1, 2), (2, 2, 1)]


def test_group_name_is_required(node: SimulatedNode, topic_id: bytes) -> None:
    nobody = ShareMember(node, "a", topic_id, group=None)  # type: ignore[arg-type]
    assert nobody.fetch(0).error_code == ErrorCode.INVALID_REQUEST
    assert nobody.acknowledge({}, epoch=1).error_code == ErrorCode.INVALID_REQUEST
    assert GROUP


def test_those_who_wait_are_served_in_turn(node: SimulatedNode, topic_id: bytes) -> None:
    members = joined(node, topic_id, *(f"m{number}" for number in range(20)))
    waiting = [member.post(max_wait_ms=60_000, max_records=3, mode=1) for member in members]
    produce(node, "t", b"x")
    node.clock.advance(0)
    assert [promise.done for promise in waiting] == [True] + [False] * 19
    produce(node, "t", *([b"y"] * 10))
    for _ in range(5):
        node.clock.advance(0)
    assert [promise.done for promise in waiting] == [True] * 5 + [False] * 15
    given = [part_of(promise.value).acquired_records[0] for promise in waiting[:5]]
    assert [(each.first_offset, each.last_offset) for each in given] == [(0, 0), (1, 3), (4, 6), (7, 9), (10, 10)]
    members[5].client.disconnect()
    members[0].acknowledge({0: [(0, 0, RELEASE)]})
    node.clock.advance(0)
    assert [promise.done for promise in waiting[5:8]] == [False, True, False]


def test_who_was_woken_and_is_gone_does_not_keep_the_next_one_waiting(node: SimulatedNode, topic_id: bytes) -> None:
    a, b = joined(node, topic_id, "a", "b")
    first, second = a.post(max_wait_ms=60_000), b.post(max_wait_ms=60_000)
    partition = node.services.partitions.get("t", 0)
    from broker_node import batch

    partition.append(memoryview(bytearray(batch(b"x"))), 1)
    a.client.disconnect()
    node.clock.advance(0)
    assert not first.done
    assert second.done


def test_those_who_want_much_and_those_who_want_anything(node: SimulatedNode, topic_id: bytes) -> None:
    a, b = joined(node, topic_id, "a", "b")
    patient, eager = a.post(max_wait_ms=60_000, min_bytes=500), b.post(max_wait_ms=60_000)
    produce(node, "t", b"x")
    node.clock.advance(0)
    assert eager.done
    assert not patient.done
    produce(node, "t", b"x" * 1000)
    node.clock.advance(0)
    assert patient.done


class _Allows:
    """An authorizer that knows a few things nobody may have."""

    def __init__(self, *forbidden: str) -> None:
        self.forbidden = forbidden

    def allows(self, principal: str, host: str, operation: object, kind: object, name: str) -> bool:
        return name not in self.forbidden


def test_permissions(node: SimulatedNode, topic_id: bytes) -> None:
    a = joined(node, topic_id, "a")
    produce(node, "t", b"1")
    a.take()
    node.services.authorizer = _Allows("t")
    assert part_of(a.fetch()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = a.acknowledge({0: [(0, 0, ACCEPT)]})
    assert refused.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    node.services.authorizer = _Allows(GROUP)
    assert a.fetch(epoch=a.epoch).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert a.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=a.epoch).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    node.services.authorizer = None
    assert a.acknowledge({0: [(0, 0, ACCEPT)]}).responses[0].partitions[0].error_code == 0


def test_somebody_else_sets_the_state(node: SimulatedNode, topic_id: bytes) -> None:
    """Offsets are altered, or another leader wrote: what is known here is worth nothing any more."""
    a = joined(node, topic_id, "a")
    produce(node, "t", b"1", b"2", b"3")
    assert a.take() == [(0, 2, 1)]
    prepare_group(node, topic_id, start=1, epoch=7)
    refused = a.acknowledge({0: [(0, 2, ACCEPT)]}).responses[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader.leader_id == 1
    assert not list(node.broker.share_fetch.partitions)
    # The log's batch is sent whole, but only what the new state leaves is given.
    assert a.take(max_wait_ms=10) == [(1, 2, 1)]
    assert a.acknowledge({0: [(1, 2, ACCEPT)]}).responses[0].partitions[0].error_code == 0
