"""Which records a member is given: limits, batches, record limits, throttling, holes and aborted transactions."""

from __future__ import annotations

import pytest
from share_world import World

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.share.acquiring import Given, Span
from moldau.share.states import ARCHIVED, AVAILABLE
from moldau.share.store import StateBatch, StoredState

ACCEPT, RELEASE, REJECT = 1, 2, 3


def test_a_new_batch_is_given_whole_and_once() -> None:
    world = World([10])
    assert world.acquire("a") == [Given(0, 9, 1)]
    assert world.acquire("b") == []
    assert len(world.share.window) == 1


def test_the_last_batch_of_the_log_is_not_parted() -> None:
    world = World([4, 4, 4])
    assert world.acquire("a", 5) == [Given(0, 7, 1)]
    assert world.acquire("b", 5) == [Given(8, 11, 1)]


def test_pieces_end_between_batches_of_the_log() -> None:
    world = World([3, 3, 3, 3])
    assert world.acquire("a", batch_size=5) == [Given(0, 5, 1), Given(6, 11, 1)]


def test_a_record_limit_parts_a_batch() -> None:
    world = World([10])
    assert world.acquire("a", 4, record_limit=True) == [Given(0, 3, 1)]
    assert world.acquire("b", 4, record_limit=True) == [Given(4, 7, 1)]
    assert world.acquire("a", 4, record_limit=True) == [Given(8, 9, 1)]
    assert world.acquire("a", 4, record_limit=True) == []
    assert world.acknowledge("b", 4, 7, ACCEPT) is None
    assert world.acknowledge("a", 0, 3, ACCEPT) is None
    assert world.share.start_offset == 8


def test_no_more_are_in_flight_than_allowed() -> None:
    world = World([5] * 4, share_partition_max_record_locks=10)
    assert world.acquire("a") == [Given(0, 9, 1)]
    assert not world.share.can_acquire()
    assert world.acknowledge("a", 0, 4, RELEASE) is None
    # What is in flight already may be given again.
    assert world.acquire("b") == [Given(0, 4, 2)]
    assert world.acquire("b") == []
    world.acknowledge("b", 0, 4, ACCEPT)
    assert world.acquire("b") == [Given(10, 14, 1)]


def test_released_records_come_before_new_ones() -> None:
    world = World([5, 5])
    world.acquire("a", 5)
    world.acknowledge("a", 1, 2, RELEASE)
    assert world.acquire("b") == [Given(1, 2, 2), Given(5, 9, 1)]


def test_records_of_one_batch_are_told_together_only_if_delivered_as_often() -> None:
    world = World([4])
    world.acquire("a")
    world.acknowledge("a", 0, 0, RELEASE)
    world.acquire("a")
    world.release("a")
    assert world.acquire("b") == [Given(0, 0, 3), Given(1, 3, 2)]


def test_what_failed_often_is_given_in_smaller_portions_and_at_last_alone() -> None:
    world = World([16], share_delivery_count_limit=5)
    sizes = []
    for _ in range(2):
        given = world.acquire("a")
        sizes.append(given[-1].last - given[0].first + 1)
        world.release("a")
    assert sizes == [16, 16]
    # Delivered twice, three are half of five: from now on throttled.
    assert world.acquire("a") == [Given(0, 15, 3)]
    world.release("a")
    assert world.acquire("a") == [Given(0, 7, 4)]
    world.release("a")
    assert world.acquire("a") == [Given(0, 0, 5)]
    world.release("a")
    assert world.share.start_offset == 1, "delivered five times: archived"


def test_a_throttled_batch_is_not_mixed_with_others() -> None:
    world = World([4, 4], share_delivery_count_limit=4)
    world.acquire("a", 4)
    world.release("a")
    world.acquire("a", 4)
    world.release("a")
    # Twice delivered is throttled with a limit of four; nothing new comes along.
    assert world.acquire("b") == [Given(0, 1, 3)]
    assert world.acquire("c") == [Given(2, 3, 3)]
    assert world.acquire("c") == [Given(4, 7, 1)]


def test_a_throttled_batch_does_not_come_along_with_others() -> None:
    world = World([4, 4], share_delivery_count_limit=4)
    world.acquire("a", 4)
    for _ in range(2):
        world.acquire("b", 4)
        world.release("b")
    world.release("a")
    assert world.acquire("c") == [Given(0, 3, 2)]
    assert world.acquire("c") == [Given(4, 5, 3)]


def test_a_limit_of_two_deliveries_knows_no_lone_delivery() -> None:
    world = World([4], share_delivery_count_limit=2)
    world.acquire("a")
    world.release("a")
    assert world.acquire("a") == [Given(0, 3, 2)]
    world.release("a")
    assert world.share.start_offset == 4
    assert world.acquire("a") == []


def test_holes_in_stored_state_are_delivered() -> None:
    world = World([5, 5, 5])
    world.store.start_offset = 2
    world.store.records = dict.fromkeys((7, 8), (AVAILABLE, 1))
    share = world.load()
    assert share.next_fetch_offset() == 2
    assert share.end_offset == 8
    given = world.acquire("a")
    assert given == [Given(2, 6, 1), Given(7, 7, 2), Given(8, 8, 2), Given(9, 14, 1)]
    for first, last, _ in given:
        assert world.acknowledge("a", first, last, ACCEPT) is None
    assert share.start_offset == share.end_offset == 15


def test_a_hole_keeps_the_window_from_moving_on() -> None:
    world = World([10])
    world.store.start_offset = 0
    world.store.records = {5: (ARCHIVED, 1)}
    share = world.load()
    assert share.start_offset == 0
    assert world.acquire("a", 2) == [Given(0, 4, 1)], "up to where the hole ends"
    assert world.acknowledge("a", 0, 4, ACCEPT) is None
    assert share.start_offset == 5
    assert share.next_fetch_offset() == 6
    assert world.acquire("a") == [Given(6, 9, 1)]
    assert world.acknowledge("a", 6, 9, ACCEPT) is None
    assert share.start_offset == 10


def test_the_window_does_not_jump_over_a_hole() -> None:
    world = World([5, 5, 5])
    world.store.start_offset = 3
    world.store.records = {8: (AVAILABLE, 1)}
    share = world.load()
    assert world.acquire("a", 2) == [Given(3, 4, 1)]
    assert world.acknowledge("a", 3, 4, ACCEPT) is None
    assert share.start_offset == share.next_fetch_offset() == 5
    assert world.acquire("a") == [Given(5, 7, 1), Given(8, 8, 2), Given(9, 14, 1)]


def test_compacted_records_are_put_aside() -> None:
    world = World([5, 5, 5])
    world.acquire("a", 15)
    world.acknowledge("a", 0, 14, RELEASE)
    world.log = [Span(10, 14)]
    world.start = 0
    # The log answers a read from 0 with what it still has.
    from moldau.share.acquiring import Wish, acquire

    got = acquire(world.share, Wish("b", 0, 500, 500), world.log)
    assert got.given == [Given(10, 14, 2)]
    assert world.share.delivery_complete == 10
    world.acknowledge("b", 10, 14, ACCEPT)
    assert world.share.start_offset == 15


def test_aborted_records_are_given_to_nobody() -> None:
    world = World([5, 5, 5])
    fetched = world.fetch("a", aborted=[Span(5, 9)])
    assert fetched.given == [Given(0, 4, 1), Given(10, 14, 1)]
    assert fetched.records == 10
    world.acknowledge("a", 0, 4, ACCEPT)
    assert world.share.start_offset == 10, "what was aborted needs no acknowledgement"
    assert world.acquire("b") == []


def test_everything_aborted_gives_nothing() -> None:
    world = World([5])
    assert world.fetch("a", aborted=[Span(0, 4)]).given == []
    world.append(3)
    assert world.acquire("a") == [Given(5, 7, 1)]


@pytest.mark.parametrize("held", [False, True])
def test_the_log_deletes_what_is_in_flight(held: bool) -> None:
    world = World([5, 5])
    world.acquire("a")
    if not held:
        world.acknowledge("a", 0, 9, RELEASE)
    world.share.log_start_moved(7)
    assert world.share.start_offset == 7
    if held:
        # Before the window nothing matters any more, inside it does.
        assert world.acknowledge("a", 0, 3, ACCEPT) is None
        assert world.acknowledge("a", 5, 9, ACCEPT) is None
        assert world.share.start_offset == 10
    else:
        world.log = [Span(7, 9)]
        assert world.acquire("b") == [Given(7, 9, 2)]


def test_the_log_deletes_beyond_the_window() -> None:
    world = World([5, 5])
    world.acquire("a", 5)
    world.share.log_start_moved(8)
    assert (world.share.start_offset, world.share.end_offset) == (8, 8)
    assert world.share.next_fetch_offset() == 8
    world.log = [Span(8, 9)]
    assert world.acquire("b") == [Given(8, 9, 1)]


def test_a_read_needs_to_reach_only_as_far_as_records_are_wanted() -> None:
    world = World([5, 5, 5])
    share = world.share
    assert share.reach(0, 4) == 3
    world.acquire("a", 10)
    world.acknowledge("a", 0, 0, RELEASE)
    assert share.next_fetch_offset() == 0
    assert share.reach(0, 1) == 0
    assert share.reach(0, 3) == 11, "one is available, the other two are new"


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(3, 4, 0, 1)],
        [StateBatch(7, 6, 0, 1)],
        [StateBatch(5, 8, 0, 1), StateBatch(8, 9, 0, 1)],
    ],
)
def test_damaged_state_is_refused(batches: list[StateBatch]) -> None:
    world = World()
    from moldau.ports import Pending
    from moldau.share.partition import SharePartition, Status

    class Damaged:
        def read(self) -> Pending[StoredState | ApiError]:
            return Pending.of(StoredState(0, 5, batches))

        def write(self, *_: object) -> Pending[ApiError | None]:
            raise AssertionError("nothing is written")

    share = SharePartition(
        "g", bytes(16), 0, 0, config=lambda: world.config, clock=world.clock, store=Damaged(), news=lambda _: None
    )
    loaded = share.load(lambda: 0)
    assert isinstance(loaded.value, ApiError)
    assert loaded.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert share.status is Status.FAILED
