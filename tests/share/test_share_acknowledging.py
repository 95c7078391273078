"""What members say of records they hold, how long they may hold them, and what happens when the store refuses."""

from __future__ import annotations

import pytest
from share_world import World

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.share.acknowledging import Acknowledgement, acknowledge
from moldau.share.acquiring import Given
from moldau.share.states import ACKNOWLEDGED, ARCHIVED, AVAILABLE, RecordState, may_become
from moldau.share.store import StateBatch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
REFUSED = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def code(error: ApiError | None) -> ErrorCode | None:
    return None if error is None else error.code


def test_a_whole_batch_is_one_change() -> None:
    world = World([500])
    world.acquire("a")
    assert world.acknowledge("a", 0, 499, ACCEPT) is None
    assert world.store.written[-1].batches == [StateBatch(0, 499, ACKNOWLEDGED, 1)]
    assert world.share.start_offset == world.share.end_offset == 500
    assert not len(world.share.window)


def test_each_record_its_own_way() -> None:
    world = World([6])
    world.acquire("a")
    assert world.acknowledge("a", 0, 5, ACCEPT, RELEASE, REJECT, GAP, ACCEPT, ACCEPT) is None
    assert world.store.written[-1].batches == [
        StateBatch(0, 0, ACKNOWLEDGED, 1),
        StateBatch(1, 1, AVAILABLE, 1),
        StateBatch(2, 2, ARCHIVED, 1),
        StateBatch(3, 3, ARCHIVED, 1),
        StateBatch(4, 5, ACKNOWLEDGED, 1),
    ]
    assert world.share.start_offset == 1
    assert world.share.delivery_complete == 4
    assert world.acquire("b") == [Given(1, 1, 2)]
    assert world.acknowledge("b", 1, 1, ACCEPT) is None
    assert world.share.start_offset == 6


def test_only_the_holder_may_acknowledge_and_only_once() -> None:
    world = World([4])
    world.acquire("a")
    assert code(world.acknowledge("b", 0, 3, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert code(world.acknowledge("b", 1, 2, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert world.acknowledge("a", 1, 2, ACCEPT) is None
    assert code(world.acknowledge("a", 1, 2, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert code(world.acknowledge("a", 0, 3, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert world.acknowledge("a", 0, 0, ACCEPT) is None
    assert world.acknowledge("a", 3, 3, ACCEPT) is None
    assert world.share.start_offset == 4
    assert world.acknowledge("a", 0, 3, ACCEPT) is None, "before the window nothing matters"


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 12, ErrorCode.INVALID_REQUEST),
        (20, 21, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_was_never_given_cannot_be_acknowledged(first: int, last: int, expected: ErrorCode) -> None:
    world = World([10])
    world.acquire("a")
    assert code(world.acknowledge("a", first, last, ACCEPT)) is expected
    assert world.acknowledge("a", 0, 9, ACCEPT) is None


def test_nothing_in_flight_cannot_be_acknowledged() -> None:
    world = World([10], start=0)
    assert code(world.acknowledge("a", 0, 9, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE


def test_all_or_nothing() -> None:
    world = World([5, 5])
    world.acquire("a", 5)
    world.acquire("b", 5)
    said = [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(2, 3, [RELEASE]), Acknowledgement(6, 7, [ACCEPT])]
    assert code(acknowledge(world.share, "a", said).value) is ErrorCode.INVALID_RECORD_STATE
    assert not world.store.written
    assert world.share.delivery_complete == 0
    assert world.acquire("c") == []
    assert world.acknowledge("a", 0, 4, ACCEPT) is None


def test_the_answer_waits_for_the_store() -> None:
    world = World([5])
    world.acquire("a")
    world.store.at_once = False
    first = world.say("a", 0, 4, RELEASE)
    assert not first.done
    assert world.acquire("b") == [], "not available before it is stored"
    second = world.say("a", 0, 4, ACCEPT)
    assert code(second.value) is ErrorCode.INVALID_RECORD_STATE
    world.store.answer()
    assert first.value is None
    assert world.acquire("b") == [Given(0, 4, 2)]


def test_what_cannot_be_stored_is_taken_back() -> None:
    world = World([5])
    world.acquire("a")
    world.store.at_once = False
    outcome = world.say("a", 0, 2, ACCEPT)
    world.store.answer(REFUSED)
    assert outcome.value is REFUSED
    assert world.share.delivery_complete == 0
    again = world.say("a", 0, 4, ACCEPT)
    world.store.answer()
    assert again.value is None
    assert world.share.start_offset == 5


def test_a_holder_whose_time_runs_out_while_storing_loses_it_only_if_that_fails() -> None:
    world = World([4, 4], share_record_lock_duration_ms=1000)
    world.acquire("a", 8)
    world.store.at_once = False
    good, bad = world.say("a", 0, 3, ACCEPT), world.say("a", 4, 7, ACCEPT)
    world.clock.advance(1000)
    assert len(world.store.waiting) == 2, "nothing is taken from who is acknowledging"
    world.store.answer()
    world.store.answer(REFUSED)
    assert good.value is None
    assert bad.value is REFUSED
    assert world.share.start_offset == 4
    assert world.acquire("b") == [Given(4, 7, 2)]


def test_time_runs_out() -> None:
    world = World([3, 3], share_record_lock_duration_ms=1000)
    world.acquire("a", 3)
    world.clock.advance(400)
    world.acquire("b", 3)
    world.clock.advance(599)
    assert world.acquire("c") == []
    world.clock.advance(1)
    assert world.store.written[-1].batches == [StateBatch(0, 2, AVAILABLE, 1)]
    assert world.acquire("c") == [Given(0, 2, 2)]
    assert code(world.acknowledge("a", 0, 2, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    world.clock.advance(400)
    assert world.acquire("c") == [Given(3, 5, 2)]
    assert world.share.lock_timeouts == 6


def test_time_runs_out_for_part_of_a_batch() -> None:
    world = World([6], share_record_lock_duration_ms=1000)
    world.acquire("a")
    world.acknowledge("a", 2, 3, ACCEPT)
    world.clock.advance(1000)
    assert world.acquire("b") == [Given(0, 1, 2), Given(4, 5, 2)]


def test_what_was_tried_too_often_is_archived() -> None:
    world = World([3], share_record_lock_duration_ms=1000, share_delivery_count_limit=2)
    world.acquire("a")
    world.clock.advance(1000)
    world.acquire("a")
    world.clock.advance(1000)
    assert world.store.written[-1].batches == [StateBatch(0, 2, ARCHIVED, 2)]
    assert world.share.start_offset == 3


def test_a_lock_is_renewed() -> None:
    world = World([4], share_record_lock_duration_ms=1000)
    world.acquire("a")
    world.clock.advance(900)
    assert world.acknowledge("a", 0, 3, RENEW) is None
    assert not world.store.written, "a renewal changes nothing that is stored"
    world.clock.advance(900)
    assert world.acknowledge("a", 1, 1, RENEW) is None
    world.clock.advance(100)
    assert world.acquire("b") == [Given(0, 0, 2), Given(2, 3, 2)]
    assert world.acknowledge("a", 1, 1, ACCEPT) is None


def test_a_group_may_forbid_renewals() -> None:
    world = World([4], share_renew_acknowledge_enable=False)
    world.acquire("a")
    assert code(world.acknowledge("a", 0, 3, RENEW)) is ErrorCode.INVALID_RECORD_STATE


def test_who_leaves_gives_everything_back() -> None:
    world = World([4, 4])
    world.acquire("a", 4)
    world.acquire("b", 4)
    world.acknowledge("a", 0, 0, ACCEPT)
    assert world.release("a").value is None
    assert world.acquire("c") == [Given(1, 3, 2)]
    assert world.acknowledge("b", 4, 7, ACCEPT) is None


def test_who_leaves_after_the_log_moved_on_keeps_nothing_alive() -> None:
    world = World([10])
    world.acquire("a")
    world.share.log_start_moved(4)
    assert world.release("a").value is None
    assert world.store.written[-1].batches == [StateBatch(0, 3, ARCHIVED, 1), StateBatch(4, 9, AVAILABLE, 1)]
    assert world.share.delivery_complete == 0
    assert world.share.next_fetch_offset() == 4


def test_a_new_leader_goes_on_where_the_old_one_stopped() -> None:
    world = World([5, 5])
    world.acquire("a", 5)
    world.acquire("b", 5)
    world.acknowledge("a", 0, 4, ACCEPT)
    world.acknowledge("b", 6, 6, RELEASE)
    world.acknowledge("b", 7, 7, REJECT)
    share = world.load()
    assert share.start_offset == 5
    given = world.acquire("c")
    assert given == [Given(5, 5, 1), Given(6, 6, 2), Given(8, 9, 1)]


def test_a_fenced_partition_gives_nothing_and_tells_who_waits() -> None:
    world = World([5])
    heard = world.news
    world.share.fence()
    assert world.news == heard + 1
    assert world.acquire("a") == []


def test_everybody_is_told_when_something_is_available_again() -> None:
    world = World([5])
    world.acquire("a")
    heard = world.news
    world.acknowledge("a", 1, 1, ACCEPT)
    assert world.news == heard, "nobody can get more than before"
    world.acknowledge("a", 2, 2, RELEASE)
    assert world.news > heard


def test_stale_locks_are_forgotten() -> None:
    world = World([1], share_record_lock_duration_ms=60_000)
    world.acquire("a")
    for _ in range(1000):
        world.clock.advance(10)
        assert world.acknowledge("a", 0, 0, RENEW) is None
    assert len(world.share.lock_times) < 100
    assert world.clock.waiting == 1
    world.acknowledge("a", 0, 0, ACCEPT)
    assert len(world.share.lock_times) == 0


def test_the_log_deletes_part_of_what_is_being_stored() -> None:
    world = World([10])
    world.acquire("a")
    world.store.at_once = False
    outcome = world.say("a", 0, 9, RELEASE)
    world.share.log_start_moved(4)
    world.store.answer()
    assert outcome.value is None
    assert world.acquire("b") == [Given(4, 9, 2)]


def test_what_the_log_deletes_while_it_is_being_stored_is_not_given_back() -> None:
    world = World([4, 4])
    world.acquire("a", 4)
    world.store.at_once = False
    outcome = world.say("a", 0, 3, RELEASE)
    world.share.log_start_moved(4)
    world.store.answer(REFUSED)
    assert outcome.value is REFUSED
    assert {run.state for batch in world.share.window for run in batch.runs} == {ARCHIVED}
    assert world.share.delivery_complete == 0
    assert world.acquire("b") == [Given(4, 7, 1)]


def test_acknowledging_one_by_one_leaves_no_crumbs() -> None:
    world = World([200])
    world.acquire("a")
    for offset in range(1, 200):
        assert world.acknowledge("a", offset, offset, ACCEPT) is None
        assert len(world.share.window.first.runs) <= 3
    assert world.acknowledge("a", 0, 0, ACCEPT) is None
    assert world.share.start_offset == 200


@pytest.mark.parametrize("now", list(RecordState))
@pytest.mark.parametrize("then", list(RecordState))
def test_what_is_done_stays_done(now: RecordState, then: RecordState) -> None:
    if now in (ACKNOWLEDGED, ARCHIVED):
        assert not may_become(now, then)
    if now is AVAILABLE:
        assert may_become(now, then) == (then is RecordState.ACQUIRED)
